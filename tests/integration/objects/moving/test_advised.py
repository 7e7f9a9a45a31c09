"""D10: what `interlock advise` prints works where the database is: commands, settings and lines of code are run."""

import asyncio
import shlex
import tomllib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from interlock import Database
from interlock.cli.program import main
from interlock.hotrow.contention_windows import Engine
from interlock.hotrow.counters import Counter
from interlock.hotrow.placement_advice import Evidence
from interlock.hotrow.tool_declarations import Tool, declared_tool
from interlock.lanes.hot_rows import HotRow
from interlock.relocate.mover import shown_url
from tests.integration.objects.moving.buckets import another, without_key
from tests.integration.objects.servers import SeaweedFS
from tests.unit.hotrow.placement_advice.windows import row, window

KINDS = ("lane", "bucket", "postgres")
NEEDS = "[tools.stock]\nwrite_latency_budget = 0.02\naggregate_write_rate = 500\nlatency_critical = true\n"
SLOW = 0.050
HOT, COLD = row(400), row(1)
COUNTER = row(400, key="likes", table="hotrow_counter")
SHARD = row(60, writes=31, key=("likes", 3), table="hotrow_counter_shard")


@pytest.fixture
def folder(
    seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Path:
    """Where commands are typed."""
    del capsys
    without_key(seaweedfs, monkeypatch, str(tmp_path / "cache"))
    monkeypatch.delenv("INTERLOCK_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interlock.toml").write_text(NEEDS)
    return tmp_path


@pytest.fixture
def addresses(folder: Path, seaweedfs: SeaweedFS, postgres: str) -> Callable[[str], str]:
    """Returns an address of a kind that no test has used."""

    def address(kind: str) -> str:
        name = f"a{uuid.uuid4().hex[:18]}"
        if kind == "bucket":
            return another(seaweedfs)
        return f"lanes://{folder}/{name}/stock" if kind == "lane" else f"{postgres}&schema={name}"

    return address


async def made(url: str) -> None:
    async with Database.open(url, lease_s=0.5) as db:
        await db.execute("CREATE TABLE stock (sku text PRIMARY KEY, n integer NOT NULL)")
        await db.execute("INSERT INTO stock VALUES ('A-1', 7)")


async def stock_at(url: str) -> tuple[str, object]:
    """Follow the database from an address: where it lives, and what it holds."""
    async with Database.open(url) as db:
        [(n,)] = await db.query("SELECT n FROM stock")
        return db.url, n


def printed(capsys: pytest.CaptureFixture[str], windows: list[Evidence], *words: str) -> dict[str, str]:
    """The verdict as JSON, without its figures."""
    Path("seen.json").write_bytes(msgspec.json.encode(windows))
    _ = capsys.readouterr()
    assert main(["advise", "--evidence", "seen.json", "-o", "json", *words]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=list[dict[str, object]])
    verdict = msgspec.convert(found[0]["verdict"], dict[str, object])
    return {key: value for key, value in verdict.items() if isinstance(value, str)}


def seen(url: str, hot: HotRow, **more: object) -> list[Evidence]:
    engine: Engine = "postgres" if url.startswith("postgres") else "object" if url.startswith("s3") else "lane"
    each = window(hot, engine=engine, p99_s=SLOW)
    return [msgspec.structs.replace(each, url=shown_url(url), **more)] * 6


def typed(command: str) -> None:
    """Run a printed command of Interlock, as a shell would."""
    words = shlex.split(command)
    assert words[0] == "interlock"
    assert main(words[1:]) == 0


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_a_printed_move_and_its_undo_work(
    kind: str, addresses: Callable[[str], str], postgres: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = addresses(kind)
    asyncio.run(made(url))
    to = f"lanes://{folder}/there" if kind == "postgres" else f"{postgres}&schema=to_{uuid.uuid4().hex[:18]}"
    windows = seen(url, COLD if kind == "postgres" else HOT, coupled_plateau_per_s=5_000.0)
    if kind == "postgres":  # Going back to a lane takes a day.
        windows = [msgspec.structs.replace(each, at_s=3_600.0 * hour) for hour, each in enumerate(windows * 5)]
    verdict = printed(capsys, windows, "--to", to)
    assert verdict["action"] == ("uncouple" if kind == "postgres" else "couple")
    typed(verdict["command"])
    assert asyncio.run(stock_at(url)) == (shown_url(to), 7)
    typed(verdict["undo"])
    assert asyncio.run(stock_at(url)) == (shown_url(url), 7)


def written(settings: str) -> Tool:
    """Write the settings into the file; what its program reads then."""
    Path("interlock.toml").write_text(NEEDS + settings.partition("\n")[2])
    found = declared_tool("stock")
    assert found is not None
    return found


async def carried_out(url: str, tool: Tool, code: str) -> None:
    """Open the database as its program does, and run the line of code."""
    async with Database.open(url, tool=tool) as db:
        if code.startswith("stream = await db.stream(key)"):
            stream = await db.stream("north")
            await stream.execute("CREATE TABLE IF NOT EXISTS n (id integer PRIMARY KEY)")
        elif code:
            counter = cast("Counter", eval(code, {"db": db}))
            before = await counter.value()
            await counter.add(1, key=code)
            assert await counter.value() == before + 1


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_printed_settings_and_lines_of_code_work(
    kind: str, addresses: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = addresses(kind)
    full: dict[str, object] = {} if kind == "postgres" else {"groups_per_s": 0.5}
    cases = [seen(url, COUNTER, **full), seen(url, SHARD, **full)]
    if kind != "postgres":  # There writes of different rows do not wait for each other, and nothing is grouped.
        cases.append(seen(url, COLD, distinct_rows=300))
        cases.append(seen(url, HOT, coupled_plateau_per_s=100.0, **full))
    actions: list[str] = []
    for windows in cases:
        Path("interlock.toml").write_text(NEEDS)
        verdict = printed(capsys, windows)
        actions.append(f"{verdict['action']} {verdict['target']}".strip())
        settings, _, code = (
            verdict["command"].rpartition("\n\n")
            if "\n\n" in verdict["command"]
            else ((verdict["command"], "", "") if verdict["command"].startswith("[") else ("", "", verdict["command"]))
        )
        tool = written(settings)
        for knob, value in tomllib.loads(settings).get("tools", {}).get("stock", {}).items():
            assert getattr(tool, knob) == value
        asyncio.run(carried_out(url, tool, code))
        undo = verdict["undo"]
        is_settings = undo.startswith("[")
        asyncio.run(carried_out(url, written(undo if is_settings else ""), undo if undo.startswith("db.") else ""))
    assert actions == ["helper sharded", "helper more_shards", "separate streams", "tune"][: len(cases)]
