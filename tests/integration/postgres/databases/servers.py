"""What the tests of a database on PostgreSQL look at from the outside: the server, past the database."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from interlock.database.database import Database

OPEN = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = $1 AND state LIKE 'idle in transaction%' OR application_name = $1 AND state = 'active'"""


def named(url: str, name: str) -> str:
    """The address for connections that the server knows by this name."""
    return f"{url}&application_name={name}"


async def nothing_open(watcher: Database, name: str) -> None:
    """Until no connection of this name is in a transaction; the server ends one that was cut when it finds out."""
    while await watcher.query(OPEN, name) != [(0,)]:
        pass


@asynccontextmanager
async def counter(url: str) -> AsyncGenerator[Database]:
    """A database with a counter at zero."""
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE c (id integer PRIMARY KEY, n integer NOT NULL)")
        await db.execute("INSERT INTO c VALUES (1, 0)")
        yield db


async def value(db: Database) -> object:
    """What the counter says."""
    [(n,)] = await db.query("SELECT n FROM c WHERE id = 1")
    return n
