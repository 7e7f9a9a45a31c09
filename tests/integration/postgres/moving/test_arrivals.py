"""D10: a draft arrives while another process looks at its mark, between any two statements of that process."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from interlock import Database
from interlock.database.inventory import marks_at
from interlock.errors import InterlockError
from interlock.postgres.handover_marks import (
    ARRIVED,
    ARRIVING,
    MOVED,
    HandoverMarks,
    arrive,
    draft,
    handover_marks,
    quote_identifier,
)
from interlock.postgres.pool import Link
from interlock.postgres.translate_errors import Blocked, is_missing
from interlock.relocate.postgres_link import MoverLink
from interlock.relocate.postgres_rows import MoverConnections
from tests.integration.postgres.moving.places import CLOCK, TABLES, Died, Dying, Pair, moved, pair

STATEMENTS = ((asyncpg.Connection, "fetch"), (asyncpg.Connection, "execute"), (Link, "_statement"))
"""A statement that is prepared first holds its locks from then on, and a draft waits for its end."""


class Interleaving:
    """Let the draft arrive on a connection of its own, before the statement of that number and no other."""

    def __init__(self, target: str, number: int, epoch: int = 1) -> None:
        self._epoch = epoch
        self._mine = MoverConnections(target, CLOCK)
        self._left = number
        self.arrived = False

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for kind, name in STATEMENTS:
            monkeypatch.setattr(kind, name, self._counting(getattr(kind, name)))

    def _counting(self, run: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def counted(connection: object, *args: object, **options: object) -> object:
            self._left -= 1
            if self._left == -1:
                self.arrived = await self._arrive()
            return await run(connection, *args, **options)

        return counted

    async def _arrive(self) -> bool:
        """Arrive as a process does that has seen the tombstone; False when the one under test does it, or has done."""
        schema = self._mine.address.schema
        link = await self._mine.connected()
        try:
            async with link.transaction():
                await link.execute(f"LOCK TABLE {quote_identifier(schema)}.{ARRIVING} IN ACCESS EXCLUSIVE MODE NOWAIT")
                return await arrive(link, schema, self._epoch)
        except Blocked:
            return False
        except InterlockError as error:
            if is_missing(error):
                return False
            raise
        finally:
            await link.end()


async def shop(places: Pair) -> None:
    """Make a small one: it is moved often."""
    async with Database.open(places.source) as db:
        for sql in TABLES:
            await db.execute(sql)
        await db.execute("INSERT INTO article (id, name) VALUES (1, 'one')")
        await db.execute("INSERT INTO sale (article) VALUES (1)")


async def finish(places: Pair) -> None:
    assert (await moved(places)).epoch == 1


async def follow(places: Pair) -> None:
    async with Database.open(places.source) as db:
        assert await db.query("SELECT count(*) FROM sale") == [(1,)]


async def look(places: Pair) -> None:
    assert (await marks_at(places.target)).state in {"arriving", "lives"}


@pytest.mark.campaign
@pytest.mark.parametrize("act", [finish, follow, look])
def test_a_draft_may_arrive_between_any_two_statements_of_another_process(
    act: Callable[[Pair], Awaitable[None]], postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tried(number: int) -> bool:
        places = pair("lane-to-postgres", postgres, tmp_path)
        await shop(places)
        with pytest.raises(Died):
            await moved(places, Dying("leave"))
        interleaving = Interleaving(places.target, number)
        with monkeypatch.context() as patch:
            interleaving.watch(patch)
            await act(places)
        await follow(places)
        return interleaving.arrived

    async def scenario() -> None:
        number = 0
        while await tried(number):
            number += 1
        assert number > 1

    asyncio.run(scenario())


def test_the_marks_of_a_schema_are_of_one_moment(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database comes back to where it was: the arrival removes two marks, and writes the third."""

    async def tried(number: int) -> bool:
        mine = MoverConnections(f"{postgres}&schema=move_{uuid.uuid4().hex[:20]}", CLOCK)
        schema, link = mine.address.schema, await mine.connected()
        try:
            await link.execute(
                f"""CREATE SCHEMA {schema}; CREATE SCHEMA {draft(schema, 3)};
                CREATE TABLE {schema}.{ARRIVED} (epoch bigint PRIMARY KEY, source text NOT NULL);
                CREATE TABLE {schema}.{MOVED} (url text NOT NULL, epoch bigint PRIMARY KEY, time timestamptz NOT NULL);
                CREATE TABLE {schema}.{ARRIVING} (epoch bigint, source text, state bytea);
                INSERT INTO {schema}.{ARRIVED} VALUES (1, 'lanes:///shop');
                INSERT INTO {schema}.{MOVED} VALUES ('lanes:///shop', 2, now());
                INSERT INTO {schema}.{ARRIVING} VALUES (3, 'lanes:///shop', '');"""
            )
            interleaving = Interleaving(mine.url, number, epoch=3)
            with monkeypatch.context() as patch:
                interleaving.watch(patch)
                marks = await handover_marks(link.read, schema)
            assert marks in {HandoverMarks("lanes:///shop", 2, 3, "lanes:///shop", 1), HandoverMarks(arrived=3)}
        finally:
            await link.end()
        return interleaving.arrived

    async def scenario() -> None:
        number = 0
        while await tried(number):
            number += 1
        assert number > 1

    asyncio.run(scenario())


def test_a_reference_that_is_dropped_before_it_is_validated_fails_no_move(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is in use as soon as it has arrived."""
    places, execute = pair("lane-to-postgres", postgres, tmp_path), MoverLink.execute
    dropped = list[str]()

    async def execute_late(link: MoverLink, sql: str) -> None:
        if "VALIDATE" in sql:
            async with Database.open(places.target) as db:
                await db.execute("DROP TABLE sale")
            dropped.append(sql)
        await execute(link, sql)

    async def scenario() -> None:
        await shop(places)
        monkeypatch.setattr(MoverLink, "execute", execute_late)
        assert (await moved(places)).epoch == 1
        assert len(dropped) == 1

    asyncio.run(scenario())
