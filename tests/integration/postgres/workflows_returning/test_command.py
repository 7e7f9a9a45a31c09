"""D11: the command that undoes a move of workflows is the one that was printed, and it brings them back."""

import asyncio
import json
import shlex
from pathlib import Path

import pytest

from interlock.catalog.catalog import workflows_at
from interlock.clock import SystemClock
from interlock.store.open_store import open_store
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled
from tests.unit.cli.running import run_program

OK = 0


@pytest.mark.slow
def test_what_the_command_prints_takes_it_back(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def begin() -> tuple[list[str], list[object]]:
        store = await open_store(home, clock=SystemClock())
        ids = [row.id for row in await filled(store)]
        before = await contents(store, ids)
        await store.close()
        return ids, before

    ids, before = asyncio.run(begin())
    there = run_program("route", "workflows", "--to", postgres_url, "--home", home, folder=tmp_path)
    assert there.code == OK, there.err
    [undo] = [line for line in there.out.splitlines() if line.startswith("To undo it:")]
    words = shlex.split(undo.removeprefix("To undo it: interlock "))

    rehearsed = run_program(*words, "--dry-run", "-o", "json", folder=tmp_path)
    assert rehearsed.code == OK, rehearsed.err
    plan = json.loads(rehearsed.out)
    assert (plan["epoch"], plan["target"]) == (2, home)
    assert {each["table"]: each["rows"] for each in plan["amounts"]}["workflows"] == len(ids)

    back = run_program(*words, folder=tmp_path)
    assert back.code == OK, back.err
    again = run_program(*words, folder=tmp_path)
    assert again.code == OK, again.err
    assert "It had arrived already" in again.out

    async def end() -> None:
        assert await workflows_at(home, ["order"]) == home
        store = await open_store(home, clock=SystemClock())
        assert await contents(store, ids) == before
        await store.close()

    asyncio.run(end())
