"""Idempotency keys on PostgreSQL: the key is written first, so a repeated transaction waits for the first one.

Key, digest and result are a row of the same transaction (G3). Whoever comes with the same key while the first one runs
waits at the unique index, and then reads what it said. Old keys are removed now and then, in a transaction of their
own: to remove some in every transaction would make all of them meet.
"""

# ruff: noqa: S608 -- the only name in these texts is our own.

from collections.abc import Awaitable, Callable
from typing import Final, cast

from interlock.errors import KeyReused, TransactionError
from interlock.lanes.results import decode_result, encode_result
from interlock.lanes.settings import LaneSettings
from interlock.sql.executor import Statements
from interlock.sql.rows import Row, row_class

TABLE: Final = "interlock_keys"
REMOVE_EVERY: Final = 1_000
"""So many transactions with keys are between two removals, and twice as many keys are removed at a time."""

UNUSABLE_STATES: Final = ("42501", "42P01")
"""PostgreSQL's words for a table that the user may not use, and for one that is not there."""

SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    number bigint GENERATED ALWAYS AS IDENTITY,
    key text COLLATE "C" PRIMARY KEY,
    digest bytea NOT NULL,
    result bytea,
    at timestamptz NOT NULL DEFAULT now()
)"""
CLAIM: Final = f"INSERT INTO {TABLE} (key, digest) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING"
FIND: Final = f"SELECT digest, result FROM {TABLE} WHERE key = $1"
KEEP: Final = f"UPDATE {TABLE} SET result = $2 WHERE key = $1"
REMOVE: Final = f"""
DELETE FROM {TABLE} WHERE key IN (
    SELECT key FROM {TABLE}
    WHERE at < now() - $1::double precision * interval '1 second'
       OR number <= (SELECT max(number) FROM {TABLE}) - $2::bigint
    ORDER BY number LIMIT $3 FOR UPDATE SKIP LOCKED)"""


class Remembered:
    """The keys of one database."""

    def __init__(self, settings: LaneSettings) -> None:
        self._settings = settings
        self._used = 0

    async def first_result(self, tx: Statements, key: str, digest: bytes) -> tuple[bool, object]:
        """(True, the first result) when the key has been used for the same, (False, None) when it is new."""
        if await _claimed(tx, key, digest):
            return False, None
        found = await tx.query(FIND, key)
        if not found:
            return await self.first_result(tx, key, digest)  # It was removed in between, as too old.
        [(before, result)] = found
        if before != digest:
            raise KeyReused(
                f"key {key!r} was used before, for another transaction.",
                why="A key stands for one call: the same method, the same SQL or function, the same arguments. The "
                "first result is not this one's, and giving it back would hide that this one never ran.",
                fix="Repeat a key only with the very same call, and use a new key for a new one.",
            )
        return True, decode_result(cast("bytes", result), _made)

    async def remember(self, tx: Statements, key: str, result: object) -> None:
        """Keep the result with its key."""
        data = encode_result(result)
        if len(data) > self._settings.key_result_bytes_max:
            raise TransactionError(
                f"the result has {len(data):,} bytes; with a key at most {self._settings.key_result_bytes_max:,} "
                "are kept.",
                why="The same key again gives the first result back, so it is stored with the transaction.",
                fix="Return less, or raise key_result_bytes_max.",
            )
        _ = await tx.execute(KEEP, key, data)

    async def tidy(self, run: Callable[..., Awaitable[object]]) -> None:
        """Remove some of those that are too old or too many; called after each transaction with a key."""
        self._used += 1
        if self._used % REMOVE_EVERY == 0:
            settings = self._settings
            _ = await run(REMOVE, settings.keys_retained_s, settings.keys_max, 2 * REMOVE_EVERY)


async def _claimed(tx: Statements, key: str, digest: bytes) -> int:
    try:
        return await tx.execute(CLAIM, key, digest)
    except TransactionError as error:
        state: object = getattr(error.__cause__, "sqlstate", None)
        if state not in UNUSABLE_STATES:
            raise
        raise TransactionError(
            f"key {key!r} cannot be kept: {TABLE} is missing, or this user may not write to it; nothing happened.",
            why="A key is stored in the same transaction as what it stands for. The table is made when the database is "
            "opened, by a user who may make tables in the schema.",
            fix=f"Open it once as such a user, and GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} to this one.",
        ) from error


def _made(names: tuple[str, ...], values: tuple[object, ...]) -> Row:
    return row_class(names)(values)
