"""What processes do with a database in a bucket: own it and write, or own it and read, until they are stopped.

Each says what came of every call: `+n` for a write that was acknowledged, `=n` for a read, `!Class` for an error.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from interlock.database.database import Database
from interlock.errors import InterlockError

Say = Callable[[str], None]
TABLE = "CREATE TABLE IF NOT EXISTS entry (id integer PRIMARY KEY, writer text NOT NULL, at integer NOT NULL)"


async def written(db: Database, writer: str, number: int) -> None:
    """One row more, which says who wrote it."""
    await db.execute(
        "INSERT INTO entry (id, writer, at) SELECT coalesce(max(id), 0) + 1, $1, $2 FROM entry", writer, number
    )


def own(say: Say, url: str, cache: str, does: Literal["write", "read"], lease_s: float) -> None:
    """Open, write one row, then write or read for as long as it goes; afterwards try both once more."""

    async def main() -> None:
        db = await Database.open(url, cache=cache, lease_s=lease_s)
        await db.execute(TABLE)
        await written(db, "first", 0)
        say("owned")
        try:
            for number in range(1, 1_000_000):
                if does == "write":
                    await written(db, "first", number)
                    say(f"+{number}")
                else:
                    [(rows,)] = await db.query("SELECT count(*) FROM entry")
                    say(f"={rows}")
        except InterlockError as error:
            say(f"!{type(error).__name__}")
        for call in (lambda: written(db, "first", -1), lambda: db.query("SELECT count(*) FROM entry")):
            try:
                await call()
                say("happened")
            except InterlockError as error:
                say(f"!{type(error).__name__}")
        await db.close()
        say("closed")

    asyncio.run(main())
