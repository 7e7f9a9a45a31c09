"""D11: what others hold while workflows return makes the mover wait, and never fail (FIELD: DDL behind a vacuum).

A vacuum holds a lock of the table that it is at: the notes of a mover are its favourites, for they are written and
deleted all the time. Whoever reads a view has a lock of the view before those of its tables.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from interlock.clock import SystemClock
from interlock.errors import MovedElsewhere
from interlock.relocate.workflow_move import abandon_workflows
from interlock.store.open_store import open_store
from tests.conformance.store.samples import run
from tests.integration.postgres.stores import opened, somebody
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import filled

Doing = Callable[[asyncpg.Connection], AsyncIterator[str]]

WAITED_LONG = """
SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE NOT granted AND application_name = 'interlock-route' AND waitstart < clock_timestamp() - interval '400 ms'"""
"""Movers who wait for longer than they wait for one of the tables."""

GAVE_WAY = """
SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE application_name = 'interlock-route' AND NOT granted AND relation = to_regclass('workflows_touched')"""

READING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1"


class Somebody:
    """A connection in a thread of its own, for the points of a move, at which the mover stands still."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def does(self, what: Doing) -> Callable[[], str]:
        """Begin something, up to its first yield; what is returned waits for its end."""
        begun = threading.Event()
        told: list[str] = []

        async def whole() -> None:
            async with somebody(self._url) as caller:
                async for each in what(caller):
                    told.append(each)
                    begun.set()

        doing = asyncio.run_coroutine_threadsafe(whole(), self._loop)
        assert begun.wait(60), doing

        def end() -> str:
            doing.result(60)
            return told[-1]

        return end

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@asynccontextmanager
async def beside(url: str) -> AsyncIterator[Somebody]:
    """Somebody, and workflows."""
    async with opened(url) as store:
        await filled(store)
        caller = Somebody(url)
        try:
            yield caller
        finally:
            caller.close()


async def until_seen(caller: asyncpg.Connection, sql: str, *values: object) -> None:
    """Look until the server counts one."""
    async with asyncio.timeout(60):
        while not await caller.fetchval(sql, *values):
            pass


def holding(url: str, statement: str, until: str) -> Doing:
    """Whoever runs a statement in a transaction, which ends when something was seen."""

    async def held(caller: asyncpg.Connection) -> AsyncIterator[str]:
        async with somebody(url) as looking, caller.transaction():
            await caller.execute(statement)
            yield "has it"
            await until_seen(looking, until)
        yield "over"

    return held


@pytest.mark.parametrize(
    ("point", "statement", "until"),
    [
        # As a vacuum does.
        ("seal/0/before", "LOCK TABLE workflows_touched IN SHARE UPDATE EXCLUSIVE MODE", GAVE_WAY),
        ("leave/before", "LOCK TABLE pg_catalog.pg_trigger IN ACCESS EXCLUSIVE MODE", WAITED_LONG),
    ],
)
def test_a_vacuum_is_waited_for(tmp_path: Path, postgres_url: str, point: str, statement: str, until: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with beside(postgres_url) as caller:
            ends: list[Callable[[], str]] = []

            def at(reached: str) -> None:
                if reached == point:
                    ends.append(caller.does(holding(postgres_url, statement, until)))

            assert (await move(postgres_url, home, at=at)).amounts[0].rows == 30
            assert [end() for end in ends] == ["over"]
        await (await open_store(home, clock=SystemClock())).close()

    run(scenario)


def test_a_vacuum_of_the_notes_is_waited_for_by_who_takes_a_move_back(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with beside(postgres_url) as caller:
            with pytest.raises(Died):
                await move(postgres_url, home, at=dying_at("catch up/0"))
            vacuum = "LOCK TABLE workflows_touched IN SHARE UPDATE EXCLUSIVE MODE"
            end = await asyncio.to_thread(caller.does, holding(postgres_url, vacuum, GAVE_WAY))
            assert await abandon_workflows(postgres_url, home, clock=SystemClock())
            assert end() == "over"

    run(scenario)


def test_who_reads_a_view_in_the_middle_of_the_seal_waits_and_holds_nobody_up(
    tmp_path: Path, postgres_url: str
) -> None:
    """The lock of the view first, then those of its tables: otherwise both wait for each other."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with beside(postgres_url) as caller:
            ends: list[Callable[[], str]] = []

            async def reading(reader: asyncpg.Connection) -> AsyncIterator[str]:
                async with somebody(postgres_url) as looking:
                    read = asyncio.create_task(reader.fetch("SELECT count(*) FROM workflow_states"))
                    await until_seen(looking, READING, reader.get_server_pid())
                    yield "waits"
                    with pytest.raises(asyncpg.UndefinedTableError):
                        await read
                    yield "was told that it is gone"

            def at(reached: str) -> None:
                if reached == "seal/0":
                    ends.append(caller.does(reading))

            assert (await move(postgres_url, home, at=at)).amounts[0].rows == 30
            assert [end() for end in ends] == ["was told that it is gone"]
            with pytest.raises(MovedElsewhere):
                await open_store(postgres_url, clock=SystemClock())

    run(scenario)
