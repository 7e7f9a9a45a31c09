"""The recipes of `docs/how-to/hot-rows.md`, read from the page, and the two ways to run them.

A comment line names the statements below it. `ThroughDatabase` runs them as a user of Interlock does; `Bare` runs them
with a client of PostgreSQL that knows nothing of Interlock, each under READ COMMITTED, as whoever copies them will.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import asyncpg

from interlock.database.database import Database
from interlock.sql.stored_values import Statements
from tests.docs.blocks import read_blocks

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "hot-rows.md"
CONNECTIONS = 32
ATTEMPTS_MAX = 1_000

ResultT = TypeVar("ResultT")


def read_recipes(text: str) -> dict[str, list[str]]:
    """The statements under each name, in the order of the page. No name is used twice."""
    recipes: dict[str, list[str]] = {}
    for block in read_blocks(text):
        if block.language != "sql":
            continue
        name, lines = "", list[str]()
        for line in block.text.splitlines():
            if line.startswith("-- "):
                name = line.removeprefix("-- ").partition(":")[0].strip()
                name = line.removeprefix("-- ") if name == "wrong" else name
                assert name not in recipes, f"{name!r} is on the page twice"
                recipes[name] = []
            elif line:
                lines.append(line)
            if line.endswith(";"):
                recipes[name].append("\n".join(lines).removesuffix(";"))
                lines.clear()
        assert not lines, f"line {block.line}: the last statement has no semicolon"
    return recipes


RECIPES = read_recipes(PAGE.read_text(encoding="utf-8"))


class Client(Protocol):
    """Runs recipes by their names."""

    async def make(self, name: str) -> None:
        """Run all statements of a recipe that makes tables."""
        ...

    async def rows(self, name: str, *args: object) -> list[tuple[object, ...]]:
        """Run the one statement; its rows."""
        ...

    async def changed(self, name: str, *args: object) -> int:
        """Run the one statement; the number of rows that it changed."""
        ...

    async def transaction(self, name: str, *args: object) -> None:
        """Run all statements in one transaction, each with as many of the parameters as it has."""
        ...

    async def other(self, sql: str, *args: object) -> list[tuple[object, ...]]:
        """Run what is not on the page."""
        ...


class ThroughDatabase:
    """As a user of Interlock does it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def make(self, name: str) -> None:
        for sql in RECIPES[name]:
            await self._db.execute(sql)

    async def rows(self, name: str, *args: object) -> list[tuple[object, ...]]:
        return list(await self._db.query(only(name), *args))

    async def changed(self, name: str, *args: object) -> int:
        return await self._db.execute(only(name), *args)

    async def transaction(self, name: str, *args: object) -> None:
        await self._db.transact(_all_of, name, *args)

    async def other(self, sql: str, *args: object) -> list[tuple[object, ...]]:
        return list(await self._db.query(sql, *args))


class Bare:
    """PostgreSQL without Interlock. `strict` recipes ask for SERIALIZABLE on the page."""

    strict = ("transfer",)

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def make(self, name: str) -> None:
        for sql in RECIPES[name]:
            await self._pool.execute(sql)

    async def rows(self, name: str, *args: object) -> list[tuple[object, ...]]:
        return [tuple(row) for row in await self._pool.fetch(only(name), *args)]

    async def changed(self, name: str, *args: object) -> int:
        sql = only(name)
        if name.startswith(self.strict):
            return await self._serializable(lambda connection: _changed(connection, sql, args))
        return await _changed(self._pool, sql, args)

    async def transaction(self, name: str, *args: object) -> None:
        async def once(connection: asyncpg.Connection) -> None:
            for sql in RECIPES[name]:
                await connection.execute(sql, *args)

        await self._serializable(once)

    async def other(self, sql: str, *args: object) -> list[tuple[object, ...]]:
        return [tuple(row) for row in await self._pool.fetch(sql, *args)]

    async def _serializable(self, once: Callable[[asyncpg.Connection], Awaitable[ResultT]]) -> ResultT:
        for _ in range(ATTEMPTS_MAX):
            async with self._pool.acquire() as connection:
                try:
                    async with connection.transaction(isolation="serializable"):
                        return await once(connection)
                except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                    continue  # As the page says: try again.
        raise AssertionError(f"{ATTEMPTS_MAX} attempts met others")


def only(name: str) -> str:
    """The one statement of a recipe."""
    [sql] = RECIPES[name]
    return sql


async def crowd(actions: Sequence[Callable[[], Awaitable[ResultT]]], at_once: int = CONNECTIONS) -> list[ResultT]:
    """Run all of them, so many at once."""
    waiting = list(enumerate(actions))[::-1]
    done: dict[int, ResultT] = {}

    async def worker() -> None:
        while waiting:
            number, action = waiting.pop()
            done[number] = await action()

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return [done[number] for number in range(len(actions))]


async def _all_of(tx: Statements, name: str, *args: object) -> None:
    for sql in RECIPES[name]:
        await tx.execute(sql, *args)


async def _changed(on: asyncpg.Pool | asyncpg.Connection, sql: str, args: tuple[object, ...]) -> int:
    return int((await on.execute(sql, *args)).rpartition(" ")[2])
