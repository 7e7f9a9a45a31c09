"""Idempotency keys on PostgreSQL: a transaction writes its key first, so that a repetition waits for it.

Key, digest and result are a row of the same transaction (G3). A concurrent call with the same key waits at the unique
index, and then reads the first result. Old keys are removed from time to time in a transaction of their own: a removal
in every transaction would make all of them conflict.
"""

# ruff: noqa: S608 -- the only name in these texts is our own.

from collections.abc import Awaitable, Callable
from typing import Final, cast

from interlock.errors import KeyReused, TransactionError
from interlock.lanes.keys import decode_result, encode_result
from interlock.lanes.settings import LaneSettings
from interlock.sql.values import Row, Statements, row_class

TABLE: Final = "interlock_keys"
REMOVE_EVERY: Final = 1_000
"""Number of transactions with keys between two removals; each removes at most twice as many keys."""

UNUSABLE_STATES: Final = ("42501", "42P01")
"""SQLSTATEs of a table that the user may not use, and of a missing table."""

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


class StoredKeys:
    """The keys of one database."""

    def __init__(self, settings: LaneSettings) -> None:
        self._settings = settings
        self._used = 0

    async def first_result(self, tx: Statements, key: str, digest: bytes) -> tuple[bool, object]:
        """Return (True, the first result) for a used key, or (False, None) for a new one. Raises KeyReused."""
        if await _claim_key(tx, key, digest):
            return False, None
        found = await tx.query(FIND, key)
        if not found:
            return await self.first_result(tx, key, digest)  # The old key was removed in between.
        [(before, result)] = found
        if before != digest:
            raise KeyReused(
                f"key {key!r} was used before, for another transaction.",
                why="A key stands for one call: the same method, the same SQL or function, the same arguments. The "
                "first result is not this one's, and giving it back would hide that this one never ran.",
                fix="Repeat a key only with the very same call, and use a new key for a new one.",
            )
        return True, decode_result(cast("bytes", result), _make_row)

    async def remember(self, tx: Statements, key: str, result: object) -> None:
        """Store the result with its key."""
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
        """Remove some keys that are too old or too many. Called after each transaction with a key."""
        self._used += 1
        if self._used % REMOVE_EVERY == 0:
            settings = self._settings
            _ = await run(REMOVE, settings.keys_retained_s, settings.keys_max, 2 * REMOVE_EVERY)


async def _claim_key(tx: Statements, key: str, digest: bytes) -> int:
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


def _make_row(names: tuple[str, ...], values: tuple[object, ...]) -> Row:
    return row_class(names)(values)
