"""`interlock advise`: verdict, evidence and command from windows in a file; what it keeps between runs (D10, D16)."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from interlock import Database
from interlock.bench.contention import GROUPED, ONE_ROW, ROW, SHARDED, ContentionPoint, ContentionResult
from interlock.bench.load import Kind
from interlock.catalog.catalog import FolderCatalog
from interlock.cli.console import json_text
from interlock.clock import SystemClock
from interlock.hotrow.placement_advice import Evidence
from interlock.lanes.hot_rows import HotReport, hot_path
from tests.unit.cli.running import Done, Interlock
from tests.unit.hotrow.placement_advice.windows import row, window

TOOLS = """
from interlock import Tool

stock = Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500, latency_critical=True)
views = Tool("views", write_latency_budget=0.1, aggregate_write_rate=100, shardable=True)
both = [stock, views]
nothing = []
number = 3
"""

DECLARED = """
[tools.stock]
write_latency_budget = 0.02
aggregate_write_rate = 500
latency_critical = true
"""

HOT = window(row(400), p99_s=0.030, engine="object")
CALM = window(row(3), engine="object")

Advise = Callable[..., Done]


@pytest.fixture
def advise(interlock: Interlock, folder: Path) -> Advise:
    """Runs the command on windows, which are written into a file first."""
    (folder / "tools_of_shop.py").write_text(TOOLS, encoding="utf-8")

    def run(windows: list[Evidence], *words: str) -> Done:
        (folder / "seen.json").write_bytes(msgspec.json.encode(windows))
        return interlock("advise", *words, "--evidence", "seen.json")

    return run


def test_a_verdict_comes_with_its_reason_its_evidence_and_the_command(advise: Advise, folder: Path) -> None:
    (folder / "interlock.toml").write_text(DECLARED, encoding="utf-8")
    done = advise([HOT] * 6)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["name", "lives", "verdict", "target", "proposed"],
        ["stock", "object", "couple", "postgres"],
    ]
    assert "stock: couple" in lines
    assert "  measured: It lives in a lane whose log is in object storage; 500 writes per second to 1 row." in lines
    assert "            99 of 100 commits take at most 30 ms; the budget is 20 ms." in lines
    assert "run:" not in done.out, "it is unknown where it lives and where it would go"
    assert lines[-1].startswith("            Name where it would go, and the command is printed")
    seen = msgspec.structs.replace(HOT, url="s3://shop/stock")
    there = ("--postgres", "postgresql://app:secret@db/shop")
    lines = advise([seen] * 6, *there).out.splitlines()
    assert "  run:      interlock route s3://shop/stock --to 'postgresql://app@db/shop?schema=stock'" in lines
    assert "  undo:     interlock route 'postgresql://app@db/shop?schema=stock' --to s3://shop/stock" in lines


def test_programs_read_json(advise: Advise, folder: Path) -> None:
    (folder / "interlock.toml").write_text(DECLARED, encoding="utf-8")
    seen = msgspec.structs.replace(HOT, url="s3://shop/stock")
    done = advise([seen] * 6, "--to", "postgresql://db/shop?schema=stock", "-o", "json")
    [found] = json.loads(done.out)
    assert (found["name"], found["declared"], found["votes"], found["windows"]) == ("stock", True, 6, 6)
    assert found["proposed"] == {"action": "couple", "target": "postgres"}
    assert found["verdict"]["action"] == "couple"
    assert found["verdict"]["command"].startswith("interlock route s3://shop/stock --to")
    assert found["verdict"]["undo"]
    assert advise([HOT] * 6, "-o", "ids").out == "stock\n"


def test_a_proposal_that_is_too_new_is_told_beside_the_verdict(advise: Advise) -> None:
    done = advise([HOT] * 2, "--tool", "tools_of_shop:stock")
    assert done.code == 0
    assert "couple postgres (2 of 2 windows, 5 of 6 needed)" in done.out.splitlines()[1]
    assert "stock: stay" in done.out
    assert "run:" not in done.out


def test_a_tool_may_come_from_code_which_wins_over_the_file(advise: Advise, folder: Path) -> None:
    (folder / "interlock.toml").write_text(DECLARED.replace("0.02", "3"), encoding="utf-8")
    assert "stock: stay" in advise([HOT] * 6).out
    assert "stock: couple" in advise([HOT] * 6, "--tool", "tools_of_shop:both").out


def test_several_databases_are_told_one_after_the_other(advise: Advise) -> None:
    slow = window(row(400, key="video:42"), p99_s=0.5, engine="postgres")
    views = msgspec.structs.replace(slow, database="views")
    windows = [HOT, views] * 6
    done = advise(windows, "--tool", "tools_of_shop:both")
    assert [line.split()[:3] for line in done.out.splitlines()[1:3]] == [
        ["stock", "object", "couple"],
        ["views", "postgres", "helper"],
    ]
    assert '  run:      db.counter("video:42", kind="sharded")' in done.out
    assert advise(windows, "views", "-o", "ids").out == "views\n"
    assert advise(windows, "lanes:///var/shop/views?x=1", "stock", "-o", "ids").out == "views\nstock\n"


def test_a_command_of_several_lines_can_be_copied(advise: Advise) -> None:
    done = advise([window(distinct=300, p99_s=0.030)] * 6, "--tool", "tools_of_shop:stock")
    assert "  run:      [tools.stock]\n            db_per_write_stream = true\n\n            stream = " in done.out


def test_what_nobody_declared_is_said_to_be_so(advise: Advise) -> None:
    done = advise([HOT] * 6)
    assert done.code == 0
    assert "stock: stay" in done.out
    assert "no budget is declared" in done.out
    assert "Nothing is declared of stock" in done.err
    assert advise([HOT] * 6, "-o", "json").err == ""


def test_what_was_seen_counts_on_in_the_next_run(advise: Advise, folder: Path) -> None:
    words = ("--tool", "tools_of_shop:stock", "--state", "kept/advice.json")
    verdicts = [json.loads(advise([HOT], *words, "-o", "json").out)[0]["verdict"]["action"] for _ in range(6)]
    assert verdicts == ["stay"] * 4 + ["couple"] * 2
    near = window(row(30), p99_s=0.012, engine="object")
    assert json.loads(advise([near] * 20, *words, "-o", "json").out)[0]["verdict"]["action"] == "couple"
    kept = json.loads((folder / "kept/advice.json").read_text(encoding="utf-8"))
    assert kept["format"] == 1
    assert list(kept["advisors"]) == ["stock"]


def test_without_a_state_nothing_is_kept(advise: Advise, folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    assert all("stock: stay" in advise([HOT], "--tool", "tools_of_shop:stock").out for _ in range(7))
    assert {path.name for path in folder.iterdir()} - before <= {"seen.json", "__pycache__"}


def test_noise_between_runs_does_not_flip_it(advise: Advise) -> None:
    words = ("--tool", "tools_of_shop:stock", "--state", "advice.json", "-o", "json")
    assert json.loads(advise([HOT] * 6, *words).out)[0]["verdict"]["action"] == "couple"
    for windows in ([CALM], [HOT], [CALM, HOT, HOT], [CALM]):
        assert json.loads(advise(windows, *words).out)[0]["verdict"]["action"] == "couple"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not a state file of the advisor"),
        ("[]", "is not a state file of the advisor"),
        ('{"format": 7, "advisors": {}}', "has format 7; this version knows 1"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused(advise: Advise, folder: Path, content: str, said: str) -> None:
    (folder / "advice.json").write_text(content, encoding="utf-8")
    done = advise([HOT], "--state", "advice.json")
    assert done.code == 1
    assert said in done.err
    assert "Traceback" not in done.err
    assert (folder / "advice.json").read_text(encoding="utf-8") == content


def test_a_state_that_is_a_folder_is_refused(advise: Advise, folder: Path) -> None:
    (folder / "advice.json").mkdir()
    done = advise([HOT], "--state", "advice.json")
    assert done.code == 1
    assert "Is a directory" in done.err


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("tools_of_shop:number", 2, "is not a Tool or a list of tools"),
        ("tools_of_shop:nothing", 2, "is not a Tool or a list of tools"),
        ("tools_of_shop", 2, "is not a Tool or a list of tools"),
        ("tools_of_shop:stok", 4, "Did you mean stock?"),
        ("tools_of_shp:stock", 4, "There is no module"),
        ("tools_of_shop.py:stock", 2, "names a file"),
    ],
)
def test_what_is_no_tool_is_refused(advise: Advise, target: str, code: int, said: str) -> None:
    done = advise([HOT], "--tool", target)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_a_name_without_evidence_is_not_found(advise: Advise) -> None:
    done = advise([HOT], "views")
    assert done.code == 4
    assert "has no evidence of 'views'" in done.err
    assert "windows of 'stock'" in done.err


def test_a_file_without_evidence_is_refused(interlock: Interlock, folder: Path) -> None:
    missing = interlock("advise", "--evidence", "missing.json")
    assert missing.code == 4
    assert "there is no file missing.json" in missing.err
    assert "advice is given on what was measured" in missing.err
    (folder / "bad.json").write_text("{}", encoding="utf-8")
    done = interlock("advise", "--evidence", "bad.json")
    assert done.code == 1
    assert "bad.json holds no evidence" in done.err


def test_without_any_window_it_says_that_nothing_was_measured(advise: Advise) -> None:
    done = advise([])
    assert done.code == 0
    assert done.out.startswith("No advice: nothing was measured.")
    assert json.loads(advise([], "-o", "json").out) == []


def test_without_names_and_evidence_there_is_nothing_to_advise_on(
    interlock: Interlock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_HOME", raising=False)
    done = interlock("advise")
    assert done.code == 2
    assert "--evidence FILE" in done.err
    assert "there is no home" in interlock("advise", "stock").err
    assert "cannot be looked at from outside" in interlock("advise", "memory:").err
    FolderCatalog(f"lanes://{folder}/home").locate("stock")
    missing = interlock("advise", "views", "--home", f"lanes://{folder}/home")
    assert missing.code == 4
    assert "knows no database 'views'" in missing.err
    assert f"opened by it: lanes://{folder}/home/views. Known are: stock." in missing.err


def test_a_database_that_is_in_use_is_watched(
    interlock: Interlock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its address, by its name at a home, and as one of all of a home; what was told last is one window."""
    (folder / "interlock.toml").write_text(DECLARED, encoding="utf-8")
    home = f"lanes://{folder}/shop"
    monkeypatch.setenv("INTERLOCK_HOME", home)
    told = HotReport(
        at_s=SystemClock().wall_s(),
        pid=os.getpid(),
        window_s=5.0,
        transactions_per_s=500.0,
        groups_per_s=20.0,
        latency_p99_s=0.030,
        rows_seen=1,
        flag_threshold=50.0,
        rows=[row(400)],
        key_types={},
    )
    with asyncio.Runner() as runner:
        database = runner.run(Database.open("stock", home=home).opened())
        hot_path(folder / "shop" / "stock.lane").write_bytes(msgspec.msgpack.encode(told))
        for words in ([f"{home}/stock"], ["stock"], []):
            done = interlock("advise", *words, "--seconds", "0", "-o", "json")
            assert (done.code, done.err) == (0, "")
            [found] = json.loads(done.out)
            assert (found["name"], found["declared"], found["windows"]) == ("stock", True, 1)
            assert found["proposed"] == {"action": "stay", "target": ""}
        known = interlock("advise", "stock", "--seconds", "0", "--plateau", "300", "--coupled-plateau", "900")
        assert "one row can do 300 here" in known.out
        assert "In that PostgreSQL one row was measured to do 900 per second." in known.out
        assert "couple" in known.out
        runner.run(database.close())
    closed = interlock("advise", "stock", "--seconds", "0")
    assert closed.code == 0
    assert "No process has stock open" in closed.err
    assert interlock("advise", f"{home}/nowhere", "--seconds", "0").code == 4


def test_names_cannot_move_the_cursor(advise: Advise) -> None:
    named = window(row(400, table="st\x1b[2Jock", key="\x1b[31m\u202e"))
    done = advise([named] * 6)
    assert "st\\u001b[2Jock" in done.out
    assert not {"\x1b", "\u202e"} & set(done.out + done.err)
    refused = advise([msgspec.structs.replace(HOT, database="sto\x1b[2Jck\n")])
    assert refused.code == 1
    assert "is not the name of a database" in refused.err
    assert "\x1b" not in refused.err


def experiment(engine: str, *points: tuple[str, int, float, float], hand_off_ms: float = 0.0) -> bytes:
    """What `interlock bench contention --json` writes: series, clients, commits per second, P99 in ms."""
    batch = None if engine == "postgres" else GROUPED
    measured = [
        ContentionPoint(
            part="grouped", series=series, clients=clients, databases=1, batch=batch,
            hand_off_ms=hand_off_ms, commits_per_s=per_s, p50_ms=p99_ms / 2, p99_ms=p99_ms, cpu_us=1.0,
        )
        for series, clients, per_s, p99_ms in points
    ]  # fmt: skip
    kind = cast("Kind", engine)
    found = ContentionResult(
        engine=kind, url="", hand_off_ms=hand_off_ms, seconds=1.0, points=measured, findings=[], verdicts=[]
    )
    return json_text(found).encode()


def test_what_an_experiment_has_measured_is_read_from_its_file(advise: Advise, folder: Path) -> None:
    slow = window(row(400), p99_s=0.030, plateau=None)
    words = ("--tool", "tools_of_shop:stock", "-o", "json", "--bench", "here.json", "--bench", "there.json")
    (folder / "here.json").write_bytes(experiment("lane", (ONE_ROW, 1, 900.0, 2.0), (ONE_ROW, 64, 20_000.0, 4.0)))
    (folder / "there.json").write_bytes(experiment("postgres", (ROW, 1, 450.0, 3.0), (ROW, 16, 1_400.0, 12.0)))
    [found] = json.loads(advise([slow] * 6, *words).out)
    assert found["verdict"]["action"] == "couple"
    assert "500 writes per second are needed; one row can do 20,000 here." in found["verdict"]["evidence"]
    assert "In that PostgreSQL one row was measured to do 1,400 per second." in found["verdict"]["evidence"]
    (folder / "there.json").write_bytes(experiment("postgres", (ROW, 16, 1_400.0, 42.0)))
    [found] = json.loads(advise([slow] * 6, *words).out)
    assert found["verdict"]["action"] == "stay", "it would be slower there"


def test_shards_are_proposed_in_a_lane_only_if_they_were_measured_to_be_better(advise: Advise, folder: Path) -> None:
    counter = window(row(400, key="video:42"), p99_s=0.500)
    counter = msgspec.structs.replace(counter, database="views")
    words = ("--tool", "tools_of_shop:views", "-o", "json", "--bench", "here.json")
    line = ((ONE_ROW, 64, 20_000.0, 4.0), (SHARDED, 64, 2_800.0, 610.0))
    verdicts: list[str] = []
    for content in (
        experiment("lane", *line),
        experiment("lane", *line, (SHARDED, 16, 2_000.0, 8.0)),
        experiment("lane", (SHARDED, 16, 2_000.0, 8.0), hand_off_ms=10.0),
        experiment("memory", (ONE_ROW, 1, 2_000.0, 8.0), (SHARDED, 16, 2_000.0, 8.0)),
    ):
        (folder / "here.json").write_bytes(content)
        verdicts.append(json.loads(advise([counter] * 6, *words).out)[0]["verdict"]["action"])
    assert verdicts == ["stay", "helper", "stay", "stay"]


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (None, 4, "there is no file here.json"),
        (b"{}", 1, "is not a result of `interlock bench contention`"),
        (b"\xff", 1, "is not a result of `interlock bench contention`"),
        (experiment("lane").replace(b'"contention"', b'"orders"', 1), 1, "is a result of `interlock bench orders`"),
    ],
)
def test_what_is_no_experiment_is_refused(
    advise: Advise, folder: Path, content: bytes | None, code: int, said: str
) -> None:
    if content is not None:
        (folder / "here.json").write_bytes(content)
    done = advise([HOT], "--bench", "here.json")
    assert (done.code, done.out) == (code, "")
    assert said in done.err
