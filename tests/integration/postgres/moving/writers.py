"""Sixteen writers that count, some with keys: what they were told has happened must be there, once, wherever it is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from interlock import Database
from interlock.database.transactions import Transaction
from interlock.errors import InterlockError, OutcomeUnknown

WRITERS: Final = 16


class Writers:
    """Each has a row of its own and one that all of them share."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.acknowledged = [0] * WRITERS
        self.unknown = [0] * WRITERS
        self.errors: list[InterlockError] = []
        self._stop = False
        self._count = 0
        self._wanted: list[tuple[int, asyncio.Event]] = []

    @staticmethod
    async def prepared(url: str) -> None:
        """Make the counters."""
        async with Database.open(url) as db:
            await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n bigint NOT NULL)")
            await db.execute("CREATE TABLE step (writer integer, number bigint, PRIMARY KEY (writer, number))")
            for number in range(-1, WRITERS):
                await db.execute("INSERT INTO counter VALUES ($1, 0)", number)

    async def run(self, during: Callable[[], Awaitable[None]]) -> None:
        """Write for as long as that takes, and a little longer."""
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write(number))
            await self.more(100)
            try:
                await during()
                await self.more(100)
            finally:
                self._stop = True

    async def more(self, count: int) -> None:
        """Until so many more were acknowledged."""
        event = asyncio.Event()
        self._wanted.append((self._count + count, event))
        await event.wait()

    async def _write(self, number: int) -> None:
        turn = 0
        while not self._stop:
            turn += 1
            key = f"{number}/{turn}" if number % 2 else None
            try:
                await self._once(number, turn, key)
            except OutcomeUnknown as error:
                self.errors.append(error)
                self.unknown[number] += 1
            except InterlockError as error:
                # It has not happened, whoever it was: the same turn again, with the same key.
                self.errors.append(error)
                turn -= 1
            else:
                self.acknowledged[number] += 1
                self._count += 1
                for wanted, event in self._wanted:
                    if self._count >= wanted:
                        event.set()
            await asyncio.sleep(0)

    async def _once(self, number: int, turn: int, key: str | None) -> None:
        match number % 4:
            case 0:
                await self.db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", number)
            case 1:
                await self.db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", number, key=key)
            case 2:
                await self.db.transact(_both, number, turn)
            case _:
                await self.db.transact(_both, number, turn, key=key)

    async def check(self, db: Database) -> None:
        """Nothing lost, nothing doubled, and nobody saw an error that is not to be retried."""
        rows = await db.query("SELECT id, n FROM counter WHERE id >= 0")
        counted = {int(str(number)): int(str(n)) for number, n in rows}
        for number in range(WRITERS):
            least = self.acknowledged[number]
            assert least <= counted[number] <= least + self.unknown[number], (number, least, self.unknown[number])
        [(shared,)] = await db.query("SELECT n FROM counter WHERE id = -1")
        [(steps,)] = await db.query("SELECT count(*) FROM step")
        assert shared == steps == sum(counted[number] for number in range(WRITERS) if number % 4 > 1)
        never = {str(error) for error in self.errors if error.retry == "never"}
        assert not never, never


async def _both(tx: Transaction, number: int, turn: int) -> None:
    await tx.execute("UPDATE counter SET n = n + 1 WHERE id = $1", number)
    await tx.execute("UPDATE counter SET n = n + 1 WHERE id = -1")
    await tx.execute("INSERT INTO step VALUES ($1, $2)", number, turn)
