"""Databases on their way: a shop with everything that can get in the way of a copy, at places of either kind."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from interlock import Database
from interlock.clock import SystemClock
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation
from interlock.relocate.mover import move_database
from interlock.relocate.stages import At, Moved

DIRECTIONS = ("lane-to-postgres", "postgres-to-lane", "postgres-to-postgres", "lane-to-lane")
CLOCK = SystemClock()

SALES = (
    "CREATE TABLE sale (id bigserial PRIMARY KEY, article integer NOT NULL REFERENCES article (id) ON DELETE CASCADE, "
    "at timestamptz NOT NULL DEFAULT now(), note jsonb)"
)
TABLES = (
    "CREATE TABLE article (id integer PRIMARY KEY, name text NOT NULL UNIQUE, n bigint NOT NULL DEFAULT 0)",
    SALES,
    "CREATE INDEX sale_article ON sale (article, id)",
)
ARTICLES = 30


class Pair(NamedTuple):
    """Where a database is, and where it goes."""

    source: str
    target: str


class Died(BaseException):
    """The mover ends here, and nothing of it runs any more but what a lost connection does by itself."""


class Dying:
    """An `At` that ends the mover at a point, and remembers those before it."""

    def __init__(self, point: str = "") -> None:
        self.point = point
        self.points: list[str] = []

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if point == self.point:
            raise Died(point)


def pair(direction: str, postgres: str, folder: Path) -> Pair:
    """Two places that nobody has used."""
    urls = {
        "lane": lambda: f"lanes://{folder}/{uuid.uuid4().hex}",
        "postgres": lambda: f"{postgres}&schema=move_{uuid.uuid4().hex[:20]}",
    }
    source, target = direction.split("-to-")
    return Pair(urls[source](), urls[target]())


async def filled(url: str) -> None:
    """Make the shop, with articles, sales and a key that was used."""
    async with Database.open(url) as db:
        for sql in TABLES:
            await db.execute(sql)
        for number in range(ARTICLES):
            await db.execute("INSERT INTO article (id, name) VALUES ($1, $2)", number, f"article {number}")
        for number in range(2 * ARTICLES):
            await db.execute(
                "INSERT INTO sale (article, note) VALUES ($1, $2)", number % ARTICLES, {"number": number, "é": [1.5]}
            )
        assert await db.execute("UPDATE article SET n = n + 100 WHERE id = 0", key="before") == 1


async def stirred(db: Database, times: int = 1) -> None:
    """Write in every way that a copy must notice: new, changed, gone, another key, values that change places."""
    for number in range(times):
        await db.execute("INSERT INTO sale (article, note) VALUES ($1, $2)", number % 5, {"stirred": number})
        await db.execute("UPDATE article SET n = n + 1 WHERE id = $1", number % ARTICLES, key=f"{uuid.uuid4()}")
        await db.execute("DELETE FROM sale WHERE id = (SELECT min(id) FROM sale)")
        await db.transact(_exchange, 1, 2)


async def _exchange(tx: Transaction, one: int, other: int) -> None:
    [(first,)] = await tx.query("SELECT name FROM article WHERE id = $1", one)
    [(second,)] = await tx.query("SELECT name FROM article WHERE id = $1", other)
    await tx.execute("UPDATE article SET name = 'nothing' WHERE id = $1", one)
    await tx.execute("UPDATE article SET name = $2 WHERE id = $1", other, first)
    await tx.execute("UPDATE article SET name = $2 WHERE id = $1", one, second)


async def contents(db: Database) -> dict[str, list[tuple[object, ...]]]:
    """Everything that is there."""
    return {
        table: [tuple(row) for row in await db.query(f"SELECT * FROM {table} ORDER BY id")]
        for table in ("article", "sale")
    }


async def whole(target: str, expected: dict[str, list[tuple[object, ...]]]) -> None:
    """It is at the target as it was at the source, with its constraints, its numbering and its keys."""
    async with Database.open(target) as db:
        assert await contents(db) == expected
        # The same key says what it said at the old place, and nothing happens a second time.
        assert await db.execute("UPDATE article SET n = n + 100 WHERE id = 0", key="before") == 1
        assert await contents(db) == expected
        with pytest.raises(ConstraintViolation):
            await db.execute("INSERT INTO article (id, name) VALUES (1000, 'article 0')")
        with pytest.raises(ConstraintViolation):
            await db.execute("INSERT INTO sale (article) VALUES (12345)")
        [(highest,)] = await db.query("SELECT max(id) FROM sale")
        [(fresh,)] = await db.query("INSERT INTO sale (article) VALUES (3) RETURNING id")
        assert int(str(fresh)) > int(str(highest))


async def moved(places: Pair, at: At | None = None, watch: Callable[[str, int, int], None] | None = None) -> Moved:
    """Move it, in one go or until it dies."""
    return await move_database(
        places.source,
        places.target,
        name="shop",
        clock=CLOCK,
        at=at or (lambda _point: None),
        watch=watch or (lambda _what, _done, _of: None),
    )
