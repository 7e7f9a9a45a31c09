"""`interlock advise --apply` and `--undo`: settings are written and taken back, moves are made, nothing is unasked."""

import io
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from interlock.catalog.moves import Moved, Plan
from interlock.cli import advise as advising
from interlock.cli.advise import Routing, with_schema
from interlock.hotrow.applied_advice import FILE as JOURNAL
from interlock.hotrow.applied_advice import Journal
from interlock.hotrow.placement import Evidence
from tests.unit.cli.running import Done, Interlock
from tests.unit.hotrow.placement.windows import row, window

CROWDED = window(row(400, writes=31, key=("likes", 3), table="hotrow_counter_shard"))
DECLARED = """\
# The shop.
[tools.stock]
write_latency_budget = 0.02  # seconds
aggregate_write_rate = 500
latency_critical = true
"""
HOT = window(row(400), p99_s=0.030)

Run = Callable[..., Done]


class Mover:
    """Notes what it is asked to move."""

    def __init__(self) -> None:
        self.asked: list[Routing] = []
        self.fails: Exception | None = None

    def find(self, routing: Routing) -> str:
        return routing.source or f"{routing.home}/{routing.name}"

    def plan(self, routing: Routing) -> Plan:
        return Plan(
            name=routing.name, source=routing.source, target=routing.target, epoch=1, amounts=(), copy_s=0.5,
            seal_ms=12.0, notes=("Text is sorted otherwise there.",),
        )  # fmt: skip

    def move(self, routing: Routing) -> Moved:
        self.asked.append(routing)
        if self.fails is not None:
            raise self.fails
        return Moved(
            name=routing.name, source=routing.source, target=routing.target, epoch=1, amounts=(), checksum="",
            copy_s=0.0, seal_ms=0.0,
        )  # fmt: skip

    def move_back(self, routing: Routing) -> None:
        self.move(routing)


@pytest.fixture
def mover(monkeypatch: pytest.MonkeyPatch) -> Mover:
    found = Mover()
    monkeypatch.setattr(advising, "DatabaseRouter", lambda: found)
    return found


@pytest.fixture
def run(interlock: Interlock, folder: Path, mover: Mover) -> Run:
    """Runs the command on windows, which are written into a file first."""
    del mover

    def advise(windows: list[Evidence], *words: str) -> Done:
        (folder / "seen.json").write_bytes(msgspec.json.encode(windows))
        return interlock("advise", *words, "--evidence", "seen.json")

    return advise


def say(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))


def test_a_knob_is_set_and_taken_back(run: Run, interlock: Interlock, folder: Path) -> None:
    file = folder / "interlock.toml"
    file.write_text(DECLARED)
    done = run([CROWDED] * 6, "--apply", "--yes")
    assert done.code == 0, done.err
    assert file.read_text() == DECLARED + "counter_shard_count = 32\n"
    assert f"Set counter_shard_count = 32 below [tools.stock] of {file}." in done.err
    assert "undo:     interlock advise --undo stock" in done.err
    assert "stock: applied, number 1 of the journal." in done.err
    undone = interlock("advise", "--undo", "stock", "--yes")
    assert undone.code == 0, undone.err
    assert f"Take counter_shard_count out, in [tools.stock] of {file}." in undone.err
    assert file.read_text() == DECLARED
    assert interlock("advise", "--undo", "stock", "--yes").code == 4


def test_nothing_is_done_unless_somebody_says_yes(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, "no\n")
    declined = run([CROWDED] * 6, "--apply")
    assert (declined.code, declined.err.rstrip().rpartition("\n")[2]) == (1, "Do it? [y/N] Nothing was changed.")
    say(monkeypatch, "")
    silent = run([CROWDED] * 6, "--apply")
    assert silent.code == 2
    assert "--yes" in silent.err
    assert not (folder / "interlock.toml").exists()
    assert not (folder / JOURNAL).exists()
    say(monkeypatch, "y\n")
    assert run([CROWDED] * 6, "--apply").code == 0
    assert (folder / "interlock.toml").read_text() == "[tools.stock]\ncounter_shard_count = 32\n"
    say(monkeypatch, "n\n")
    assert run([], "--undo").code == 1
    assert (folder / "interlock.toml").read_text() == "[tools.stock]\ncounter_shard_count = 32\n"


def test_what_was_changed_since_is_left_alone(run: Run, interlock: Interlock, folder: Path) -> None:
    run([CROWDED] * 6, "--apply", "--yes")
    file = folder / "interlock.toml"
    file.write_text("[tools.stock]\ncounter_shard_count = 64\n")
    undone = interlock("advise", "--undo", "--yes")
    assert undone.code == 1
    assert "counter_shard_count of [tools.stock] is 64 now; 32 was applied." in undone.err
    assert file.read_text() == "[tools.stock]\ncounter_shard_count = 64\n"


def test_what_was_begun_and_never_done_can_be_undone(
    run: Run, interlock: Interlock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal comes first: a run that dies between the two leaves an entry, and to undo it changes nothing."""
    (folder / "interlock.toml").write_text(DECLARED)
    monkeypatch.setattr("interlock.cli.advise.change_settings", lambda *_: sys.exit(9))
    assert run([CROWDED] * 6, "--apply", "--yes").code == 9
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert [each.state for each in Journal(folder).entries()] == ["begun"]
    assert interlock("advise", "--undo", "--yes").code == 0
    assert (folder / "interlock.toml").read_text() == DECLARED


def test_what_is_set_already_is_not_set_again(run: Run, folder: Path) -> None:
    (folder / "interlock.toml").write_text("[tools.stock]\ncounter_shard_count = 32\n")
    done = run([CROWDED] * 6, "--apply", "--yes")
    assert done.code == 0
    assert "stock: it is set already" in done.err
    assert not (folder / JOURNAL).exists()


def test_a_counter_that_chooses_by_itself_is_told_its_kind(run: Run, folder: Path) -> None:
    done = run([window(row(400, key="likes", table="hotrow_counter"))] * 6, "--apply", "--yes")
    assert done.code == 0, done.err
    assert (folder / "interlock.toml").read_text() == '[tools.stock]\ncounter_kind = "sharded"\n'
    assert 'Only code can do the rest: db.counter("likes", kind="sharded")' in done.err


def test_what_only_code_can_do_is_said_with_its_line(run: Run, folder: Path) -> None:
    (folder / "interlock.toml").write_text(DECLARED + "shardable = true\n")
    done = run([HOT] * 6, "--apply", "--yes")
    assert done.code == 0
    assert 'stock: only code can do this: db.counter("A-1", kind="sharded")' in done.err
    assert not (folder / JOURNAL).exists()


def test_streams_come_with_what_becomes_of_the_rows(run: Run, folder: Path) -> None:
    (folder / "interlock.toml").write_text(DECLARED)
    done = run([window(row(3), distinct=500, p99_s=0.030)] * 6, "--apply", "--yes")
    assert done.code == 0, done.err
    assert (folder / "interlock.toml").read_text() == DECLARED + "db_per_write_stream = true\n"
    assert "Only code can do the rest: stream = await db.stream(key)" in done.err
    assert "copy them into their streams" in done.err


def test_a_move_goes_where_it_is_said_and_back(run: Run, interlock: Interlock, folder: Path, mover: Mover) -> None:
    (folder / "interlock.toml").write_text(DECLARED)
    seen = msgspec.structs.replace(HOT, url="lanes:///var/shop/stock")
    unsaid = run([seen] * 6, "--apply", "--yes")
    assert unsaid.code == 2
    assert "INTERLOCK_POSTGRES" in unsaid.err
    assert not (folder / JOURNAL).exists()
    done = run([seen] * 6, "--apply", "--yes", "--postgres", "postgresql://shop:secret@db/shop")
    assert done.code == 0, done.err
    there = "postgresql://shop:secret@db/shop?schema=stock"
    assert mover.asked == [Routing("stock", "lanes:///var/shop/stock", there, None)]
    assert "about 12 ms in which writers wait." in done.err
    assert "Text is sorted otherwise there." in done.err
    assert "secret" not in done.err + (folder / JOURNAL).read_text()
    assert stat.S_IMODE((folder / JOURNAL).stat().st_mode) == 0o600
    assert interlock("advise", "--undo", "--yes", "--postgres", "postgresql://shop:secret@db/shop").code == 0
    assert mover.asked[1:] == [Routing("stock", there, "lanes:///var/shop/stock", None)]


def test_what_is_uncoupled_goes_back_to_where_it_came_from(run: Run, folder: Path, mover: Mover) -> None:
    (folder / "interlock.toml").write_text(DECLARED + "contention_flag_threshold = 50\n")
    day = [msgspec.structs.replace(window(engine="postgres"), at_s=1_000_000.0 + hour * 3_600.0) for hour in range(30)]
    unsaid = run(day, "--apply", "--yes")
    assert unsaid.code == 2, unsaid.err
    assert run(day, "--apply", "--yes", "--home", f"lanes://{folder}/shop").code == 0
    assert mover.asked[-1].target == f"lanes://{folder}/shop/stock"
    assert (folder / "shop" / JOURNAL).exists(), "the journal is at the home"
    assert run(day, "--apply", "--yes", "--to", "s3://bucket/stock").code == 0
    assert mover.asked[-1].target == "s3://bucket/stock"


def test_a_move_that_failed_is_in_the_journal_as_begun(run: Run, folder: Path, mover: Mover) -> None:
    (folder / "interlock.toml").write_text(DECLARED)
    mover.fails = SystemExit(5)  # type: ignore[assignment]
    assert run([HOT] * 6, "--apply", "--yes", "--to", "postgresql://db/shop?schema=stock").code == 5
    assert [each.state for each in Journal(folder).entries()] == ["begun"]


def test_programs_read_what_was_applied(run: Run, interlock: Interlock) -> None:
    assert run([CROWDED] * 6, "--apply", "-o", "json").code == 2
    [found] = json.loads(run([CROWDED] * 6, "--apply", "--yes", "-o", "json").out)
    assert found["applied"]["number"] == 1
    assert found["applied"]["undo"] == "interlock advise --undo stock"
    [undone] = json.loads(interlock("advise", "--undo", "--yes", "-o", "json").out)
    assert undone["number"] == 1
    assert run([CROWDED] * 6, "--apply", "--undo").code == 2


def test_what_stays_is_left_alone(run: Run, folder: Path, mover: Mover) -> None:
    done = run([window(row(3))] * 6, "--apply")
    assert (done.code, done.err.count("Do it?")) == (0, 0)
    assert not (folder / JOURNAL).exists()
    assert mover.asked == []


@pytest.mark.parametrize(
    ("url", "name", "there"),
    [
        ("postgresql://db/shop", "stock", "postgresql://db/shop?schema=stock"),
        ("postgresql://db/shop?sslmode=require", "stock", "postgresql://db/shop?sslmode=require&schema=stock"),
        ("postgresql://db/shop?schema=other", "stock", "postgresql://db/shop?schema=other"),
        ("postgresql://db/shop", "Café 7", "postgresql://db/shop?schema=caf_7"),
        ("postgresql://db/shop", "7up", "postgresql://db/shop?schema=_7up"),
        ("postgresql://db/shop", "pg_stock", "postgresql://db/shop?schema=_pg_stock"),
    ],
)
def test_each_database_gets_a_schema_of_its_name(url: str, name: str, there: str) -> None:
    assert with_schema(url, name) == there
