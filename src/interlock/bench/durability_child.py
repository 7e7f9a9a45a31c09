"""Child process that experiment 4 kills: clients move units between accounts, and report each acknowledgement.

Every transaction changes three rows that must agree: it adds a line to the ledger, takes a unit from the client's own
account and puts it into one of a few tills that all clients share. A client begins its next transaction after it has
reported the last acknowledgement. So at most one transaction per client is in doubt after a kill.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, NoReturn

from interlock.database.database import Database, Opening
from interlock.errors import InterlockError
from interlock.lanes.objects.addresses import is_bucket, parse
from interlock.sql.executor import Statements

TILLS: Final = 12
FIRST_OWN: Final = 1_000
"""Accounts of clients are numbered from here, tills from 0."""

TABLES: Final = (
    "CREATE TABLE account (id integer PRIMARY KEY, units bigint NOT NULL)",
    """CREATE TABLE ledger (cycle integer NOT NULL, client integer NOT NULL, turn integer NOT NULL,
        till integer NOT NULL, PRIMARY KEY (cycle, client, turn))""",
)
ACCOUNT: Final = "INSERT INTO account (id, units) VALUES ($1, 0)"
BOOK: Final = "INSERT INTO ledger (cycle, client, turn, till) VALUES ($1, $2, $3, $4)"
TAKE: Final = "UPDATE account SET units = units - 1 WHERE id = $1"
GIVE: Final = "UPDATE account SET units = units + 1 WHERE id = $1"

OPENED: Final = "opened"
TURNS_MAX: Final = 100_000
ERROR_CHARACTERS_MAX: Final = 900

Say = Callable[[str], None]


def opening(url: str, cache: str, lease_s: float) -> Opening:
    """Return the opening of the database, with small bounds: checkpoints and snapshots happen every few groups."""
    return Database.open(
        url,
        cache=cache,
        lease_s=lease_s,
        wal_bytes_max=65_536,
        snapshot_bytes_min=65_536,
        snapshots_retained=1,
        retention_s=0.0,
    )


async def move(tx: Statements, cycle: int, client: int, turn: int) -> None:
    """Change the three rows of one transaction."""
    till = (client + turn) % TILLS
    await tx.execute(BOOK, cycle, client, turn, till)
    await tx.execute(TAKE, FIRST_OWN + client)
    await tx.execute(GIVE, till)


def write(say: Say, url: str, cache: str, cycle: int, clients: int, lease_s: float) -> None:
    """Write with `clients` clients until the parent kills this process."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            try:
                db = await stack.enter_async_context(opening(url, cache, lease_s))
            except InterlockError as error:
                _wait_for_the_end(say, error)
            say(OPENED)

            async def client(number: int) -> None:
                for turn in range(1, TURNS_MAX):
                    await db.transact(move, cycle, number, turn)
                    say(f"+{number} {turn}")

            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(clients):
                        group.create_task(client(number))
            except* InterlockError as errors:
                _wait_for_the_end(say, errors.exceptions[0])

    _skip_probe(url)
    asyncio.run(main())


def _wait_for_the_end(say: Say, error: Exception) -> NoReturn:
    """Report the error, and wait for the kill. The failed transaction is in doubt, so no client may continue."""
    say(f"!{' '.join(str(error).split())[:ERROR_CHARACTERS_MAX]}")
    while True:
        signal.pause()


def _skip_probe(url: str) -> None:
    """Skip the probe of the bucket, which costs seconds on some servers: the parent has done it."""
    if is_bucket(url):
        from interlock.lanes.objects.remote import believe  # noqa: PLC0415 -- an extra, which may not be installed.

        believe(parse(url))
