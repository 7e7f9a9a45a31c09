"""`interlock advise --apply` and `--undo`: settings are written and taken back, moves are made, nothing is unasked."""

import io
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from interlock.cli import advise as advising
from interlock.cli.advise import Routing, with_named_schema
from interlock.errors import UnavailableError
from interlock.hotrow.applied_advice import FILE as JOURNAL
from interlock.hotrow.applied_advice import Journal
from interlock.hotrow.placement_advice import Evidence, GatheredEvidence
from interlock.relocate.stages import Moved, Plan
from tests.unit.cli.running import Done, Interlock
from tests.unit.hotrow.placement_advice.windows import row, window

SHARD = row(400, writes=31, key=("likes", 3), table="hotrow_counter_shard")
CROWDED = window(SHARD, engine="postgres", p99_s=0.030)
DECLARED = """\
# The shop.
[tools.stock]
write_latency_budget = 0.02  # seconds
aggregate_write_rate = 500
latency_critical = true
"""
HOT = window(row(400), p99_s=0.030, engine="object")

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
        return interlock("advise", "--seconds", "0", *words, "--evidence", "seen.json")

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
    (folder / "interlock.toml").write_text(DECLARED)
    say(monkeypatch, "no\n")
    declined = run([CROWDED] * 6, "--apply")
    assert (declined.code, declined.err.rstrip().rpartition("\n")[2]) == (1, "Do it? [y/N] Nothing was changed.")
    say(monkeypatch, "")
    silent = run([CROWDED] * 6, "--apply")
    assert silent.code == 2
    assert "--yes" in silent.err
    assert (folder / "interlock.toml").read_text() == DECLARED
    assert not (folder / JOURNAL).exists()
    say(monkeypatch, "y\n")
    assert run([CROWDED] * 6, "--apply").code == 0
    assert (folder / "interlock.toml").read_text() == DECLARED + "counter_shard_count = 32\n"
    say(monkeypatch, "n\n")
    assert run([], "--undo").code == 1
    assert (folder / "interlock.toml").read_text() == DECLARED + "counter_shard_count = 32\n"


def test_what_was_changed_since_is_left_alone(run: Run, interlock: Interlock, folder: Path) -> None:
    file = folder / "interlock.toml"
    file.write_text(DECLARED)
    run([CROWDED] * 6, "--apply", "--yes")
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
    (folder / "interlock.toml").write_text(DECLARED + "counter_shard_count = 32\n")
    done = run([msgspec.structs.replace(CROWDED, shards=16)] * 6, "--apply", "--yes")
    assert done.code == 0
    assert "stock: it is set already" in done.err
    assert not (folder / JOURNAL).exists()


def test_a_counter_that_chooses_by_itself_is_told_its_kind(run: Run, folder: Path) -> None:
    (folder / "interlock.toml").write_text(DECLARED)
    likes = window(row(400, key="likes", table="hotrow_counter"), engine="postgres", p99_s=0.030)
    done = run([likes] * 6, "--apply", "--yes")
    assert done.code == 0, done.err
    assert (folder / "interlock.toml").read_text() == DECLARED + 'counter_kind = "sharded"\n'
    assert 'Only code can do the rest: db.counter("likes", kind="sharded")' in done.err


def test_what_only_code_can_do_is_said_with_its_line(run: Run, folder: Path) -> None:
    (folder / "interlock.toml").write_text(DECLARED + "shardable = true\n")
    done = run([window(row(400), engine="postgres", p99_s=0.030)] * 6, "--apply", "--yes")
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
    seen = msgspec.structs.replace(HOT, url="s3://shop/stock")
    unsaid = run([seen] * 6, "--apply", "--yes")
    assert unsaid.code == 2
    assert "INTERLOCK_POSTGRES" in unsaid.err
    assert not (folder / JOURNAL).exists()
    done = run([seen] * 6, "--apply", "--yes", "--postgres", "postgresql://shop:secret@db/shop")
    assert done.code == 0, done.err
    there = "postgresql://shop:secret@db/shop?schema=stock"
    assert mover.asked == [Routing("stock", "s3://shop/stock", there, None)]
    assert "about 12 ms in which writers wait." in done.err
    assert "Text is sorted otherwise there." in done.err
    assert "secret" not in done.err + (folder / JOURNAL).read_text()
    assert stat.S_IMODE((folder / JOURNAL).stat().st_mode) == 0o600
    assert interlock("advise", "--undo", "--yes", "--postgres", "postgresql://shop:secret@db/shop").code == 0
    assert mover.asked[1:] == [Routing("stock", there, "s3://shop/stock", None)]


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


def worse_by_shards() -> list[Evidence]:
    """A counter that did 20,000 adds per second before it was spread."""
    return [window(SHARD, engine="postgres", writes=2_800, p99_s=0.110)] * 6


def test_what_got_worse_is_offered_to_be_undone(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "interlock.toml"
    declared = DECLARED.replace("= 500", "= 20_000")
    file.write_text(declared)
    before = [window(SHARD, engine="postgres", writes=20_000, p99_s=0.030)] * 6
    done = run(before, "--apply", "--yes")
    assert "stock: restart its program, and the next `interlock advise` compares." in done.err
    assert "worse:" not in run(before).out, "as it was"
    told = (
        "99 of 100 commits take 110 ms, and took 30 ms before; 2,800 of 20,000 writes per second are reached, "
        "and 20,000 were before."
    )
    assert f"  worse:    {told}" in run(worse_by_shards()).out
    [found] = json.loads(run(worse_by_shards(), "--apply", "--yes", "-o", "json").out)
    assert (found["worse"], found["applied"]) == (told, None)
    unasked = run(worse_by_shards(), "--apply", "--yes")
    assert f"stock got worse: {told}" in unasked.err
    assert "To take it back: interlock advise --undo stock" in unasked.err
    assert "counter_shard_count = 32" in file.read_text()
    say(monkeypatch, "y\n")
    offered = run(worse_by_shards(), "--apply")
    assert (offered.code, offered.err.count("Do it? [y/N]")) == (0, 1)
    assert file.read_text() == declared
    assert "worse:" not in run(worse_by_shards()).out, "it is undone"


def test_a_move_is_measured_again_and_offered_to_be_undone(
    run: Run, folder: Path, mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "interlock.toml").write_text(DECLARED)
    places: list[tuple[str, float]] = []
    later = [window(engine="postgres", writes=120, p99_s=None)]

    async def gathered(url: str, seconds: float, *, clock: object) -> GatheredEvidence:
        del clock
        places.append((url, seconds))
        if not later:
            raise UnavailableError("it does not answer.")
        return GatheredEvidence(later, [])

    monkeypatch.setattr(advising, "gather", gathered)
    there = "postgresql://app:secret@db/shop?schema=stock"
    words = ("--apply", "--to", there, "--seconds", "7")
    say(monkeypatch, "y\ny\n")
    done = run([msgspec.structs.replace(HOT, url="s3://shop/stock")] * 6, *words)
    assert done.code == 0, done.err
    assert places == [(there, 7.0)]
    assert "stock got worse: 120 of 500 writes per second are reached, and 500 were before." in done.err
    assert [each.target for each in mover.asked] == [there, "s3://shop/stock"]
    later.clear()
    say(monkeypatch, "y\n")
    silent = run([msgspec.structs.replace(HOT, url="s3://shop/stock")] * 6, *words)
    assert silent.code == 0
    assert "stock: nothing was measured after the move" in silent.err


def test_a_move_that_failed_is_in_the_journal_as_begun(run: Run, folder: Path, mover: Mover) -> None:
    (folder / "interlock.toml").write_text(DECLARED)
    mover.fails = SystemExit(5)  # type: ignore[assignment]
    assert run([HOT] * 6, "--apply", "--yes", "--to", "postgresql://db/shop?schema=stock").code == 5
    assert [each.state for each in Journal(folder).entries()] == ["begun"]


def test_programs_read_what_was_applied(run: Run, interlock: Interlock, folder: Path) -> None:
    (folder / "interlock.toml").write_text(DECLARED)
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
    assert with_named_schema(url, name) == there
