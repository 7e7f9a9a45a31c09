"""What the killed processes do: 64 clients that count one row up, in one statement or by reading and then writing.

Every client says what it is about to do (`?`) before it does it, and that it was acknowledged (`+`) afterwards, so that
after a kill it is known what is certain and what is not. Row 1 counts transactions with a key, row 2 those without.
The ledger gets one row per transaction in the same transaction: nothing may ever be there by half.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from interlock.database.database import Database, Opening
from interlock.database.transactions import Transaction
from interlock.lanes.objectlog.probe import _memory_of
from interlock.lanes.objectlog.remote_bucket import _server_of
from interlock.urls import is_bucket_url, parse_bucket_url

CLIENTS = 64
KEYED, UNKEYED = 1, 2
SETTINGS: dict[str, float] = {
    "wal_bytes_max": 65_536,
    "lease_s": 0.3,
    "snapshot_bytes_min": 65_536,
    "snapshots_retained": 1,
    "retention_s": 0.0,
}
"""Small, so that the log is folded every few groups, and on a bucket the lease renewed, a snapshot taken and groups
deleted."""

Say = Callable[[str], None]


async def add_after_reading(tx: Transaction, row: int, name: str) -> int:
    [(n,)] = await tx.query("SELECT n FROM counter WHERE id = $1", row)
    assert isinstance(n, int)
    await tx.execute("INSERT INTO ledger (name, row) VALUES ($1, $2)", name, row)
    await tx.execute("UPDATE counter SET n = $1 WHERE id = $2", n + 1, row)
    return n + 1


async def transact(db: Database, row: int, name: str, key: str | None) -> None:
    await db.transact(add_after_reading, row, name, key=key)


async def one_statement(db: Database, row: int, name: str, key: str | None) -> None:
    await db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", row, key=key)


KINDS: dict[str, Callable[[Database, int, str, str | None], Awaitable[None]]] = {
    "transact": transact,
    "statement": one_statement,
}


def opened(url: str, cache: str | None) -> Opening:
    return Database.open(url, cache=cache, **SETTINGS)  # type: ignore[arg-type]  # None of the others.


def believe(url: str) -> None:
    """Spare a life the probe, whose races cost seconds on some servers: the first life has asked the same server."""
    if is_bucket_url(url):
        address = parse_bucket_url(url)
        _memory_of((address.root, _server_of(address))).proven = True


def make(say: Say, url: str, cache: str | None) -> None:
    """Make the tables, in a life that nobody kills."""

    async def main() -> None:
        async with opened(url, cache) as db:
            await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n integer NOT NULL)")
            await db.execute("CREATE TABLE ledger (name text PRIMARY KEY, row integer NOT NULL)")
            await db.execute("INSERT INTO counter (id, n) VALUES ($1, 0), ($2, 0)", KEYED, UNKEYED)
        say("made")

    asyncio.run(main())


def count(say: Say, url: str, cache: str | None, kind: str, life: str, unknown: list[str], rounds: int | None) -> None:
    """Repeat what is unknown since the last life, then count up with 64 clients, `rounds` times each.

    None is for ever: however late the kill comes, it meets a life that works.
    """
    once = KINDS[kind]
    believe(url)

    async def main() -> None:
        async with opened(url, cache) as db:
            rows = await db.query("SELECT id, n FROM counter ORDER BY id")
            say(f"={rows[0].n} {rows[1].n}")

            async def keyed(name: str) -> None:
                say(f"?{name}")
                await once(db, KEYED, name, name)
                say(f"+{name}")

            async def client(number: int) -> None:
                for turn in itertools.count() if rounds is None else range(rounds):
                    name = f"{life}/{number}/{turn}"
                    if number % 2:
                        await keyed(name)
                        continue
                    say(f"?~{name}")
                    await once(db, UNKEYED, name, None)
                    say(f"+~{name}")

            await asyncio.gather(*(keyed(name) for name in unknown))
            await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        say("done")

    asyncio.run(main())
