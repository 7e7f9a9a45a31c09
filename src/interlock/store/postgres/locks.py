"""Leases in PostgreSQL: one statement for each operation, by the database's clock, with no state in the connection.

An acquisition first reads whether another owner has the lease, and then writes nothing: a waiting caller costs one read
per attempt. The insert decides between concurrent callers that find it free; they queue at the row for one statement. A
caller that lost that race saw the row as it was before, and repeats the statement to get the winner.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from collections.abc import Awaitable, Callable, Sequence

from interlock.errors import UnavailableError
from interlock.sql.postgres.link import Record
from interlock.store.leases import Granted, Held
from interlock.store.postgres.statement import micros

Write = Callable[[str, Sequence[object]], Awaitable[list[Record]]]

ASKED_MAX = 20
"""Attempts of an acquisition to read the winner, before it raises UnavailableError."""


class PostgresLeases:
    """The leases of one schema."""

    def __init__(self, schema: str, write: Write) -> None:
        self._write = write
        table, clock = f"{schema}.leases", "clock_timestamp()"
        mine = "(l.owner = excluded.owner AND l.until IS NOT NULL)"
        end = f"{clock} + $3 * interval '1 second'"
        self._acquire = f"""
WITH taken AS (
    INSERT INTO {table} AS l (name, owner, token, since, until)
    SELECT $1, $2, 1, {clock}, {end}
    WHERE NOT EXISTS (SELECT FROM {table} h WHERE h.name = $1 AND h.until > {clock} AND h.owner <> $2)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until,
        token = CASE WHEN {mine} THEN l.token ELSE l.token + 1 END,
        since = CASE WHEN {mine} THEN l.since ELSE excluded.since END
    WHERE (l.until > {clock} AND l.owner <> excluded.owner) IS NOT TRUE
    RETURNING l.token)
SELECT token, NULL, NULL, NULL FROM taken
UNION ALL
SELECT NULL, h.owner, {micros("h.since")}, {micros(clock)} FROM {table} h
WHERE h.name = $1 AND h.until > {clock} AND h.owner <> $2 AND NOT EXISTS (SELECT FROM taken)"""
        self._renew = f"""
UPDATE {table} SET until = {end} WHERE name = $1 AND token = $2 AND until IS NOT NULL RETURNING token"""
        self._release = f"""
UPDATE {table} SET until = NULL WHERE name = $1 AND token = $2 AND until IS NOT NULL RETURNING token"""

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner, unless another owner has it."""
        for _ in range(ASKED_MAX):
            for token, holder, since_us, now_us in await self._write(self._acquire, (name, owner, lease_s)):
                return Granted(token) if token is not None else Held(holder, since_us, now_us)
        raise UnavailableError(
            f"lease {name!r} changed hands {ASKED_MAX} times while it was asked for.",
            why="Each time another owner acquired it first, and had released it before its name could be read.",
            fix="Try again; reduce the number of concurrent callers.",
        )

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Extend the lease to `lease_s` from now."""
        return bool(await self._write(self._renew, (name, token, lease_s)))

    async def release(self, name: str, token: int) -> bool:
        """Release the lease."""
        return bool(await self._write(self._release, (name, token)))
