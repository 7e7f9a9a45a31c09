"""A state that was renamed: workflows parked under its old name are found by the new one (B8), and go on."""

import asyncio
from enum import Enum
from pathlib import Path

from interlock import Engine, Machine
from interlock.clock import SystemClock
from interlock.store.open_store import open_store
from tests.unit.engine.test_open_engine import Go, Moving, Nothing
from tests.unit.engine.test_open_engine import machine as before


class New(Enum):
    """The states after."""

    PARKED = "parked"
    DONE = "done"


def after() -> Machine[New, Nothing, Moving]:
    machine = Machine(
        "lift",
        states=New,
        context=Nothing,
        events=Moving,
        initial=New.PARKED,
        final={New.DONE},
        renamed={"waiting": New.PARKED},
        version=2,
    )
    machine.on(Go, New.PARKED, to=New.DONE)
    return machine


def test_workflows_under_the_old_name_are_found_by_the_new_one(tmp_path: Path) -> None:
    """B8: and more of them than one page holds."""
    url = f"lanes://{tmp_path}"
    ids = [f"w-{number}" for number in range(1_100)]

    async def scenario() -> None:
        old, new = before(), after()
        async with Engine.open(url, machines=[old]) as engine:
            await asyncio.gather(*(engine.start(old, each, Nothing()) for each in ids))
        async with Engine.open(url, machines=[new]) as engine:
            page = await engine.find(new, state=New.PARKED, limit=10_000)
            assert sorted(view.id for view in page.items) == sorted(ids)
            assert {view.version for view in page.items} == {1}
            late = await engine.stalled(new, older_than_s=-1, limit=10_000)
            assert len(late) == len(ids)
            assert (await engine.send("w-7", Go())).state is New.DONE
        store = await open_store(url, clock=SystemClock())
        assert not (await store.find("lift", "waiting", after=None, limit=9)).rows
        await store.close()

    asyncio.run(scenario())


def test_who_runs_no_steps_leaves_the_names_and_the_description_alone(tmp_path: Path) -> None:
    """A command that looks at a store must not change what a service will find there."""
    url = f"lanes://{tmp_path}"

    async def scenario() -> None:
        old, new = before(), after()
        async with Engine.open(url, machines=[old]) as engine:
            await engine.start(old, "w", Nothing())
        async with Engine.open(url, machines=[new], worker=False) as engine:
            assert (await engine.get("w")).state is New.PARKED
        store = await open_store(url, clock=SystemClock())
        assert len((await store.find("lift", "waiting", after=None, limit=9)).rows) == 1
        await store.close()

    asyncio.run(scenario())
