"""Leases on a lane: exclusion between the tasks of its one owner, also after a restart.

The time is the store's, which never goes back and continues from the last written time (G8). A read alone finds a lease
that another owner has, so waiting tasks write nothing.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Awaitable, Callable
from typing import Any, cast

import apsw

from interlock.lanes.session import Session
from interlock.lanes.work import Work
from interlock.store.applying import TIME
from interlock.store.leases import Granted, Held

Read = Callable[[Callable[[Callable[..., Any]], Any]], Awaitable[Any]]

FIND = "SELECT owner, token, since, until FROM leases WHERE name = ?"
GIVE = "INSERT OR REPLACE INTO leases (name, owner, token, since, until) VALUES (?, ?, ?, ?, ?)"
RENEW = "UPDATE leases SET until = ? WHERE name = ? AND token = ? AND until IS NOT NULL"
RELEASE = "UPDATE leases SET until = NULL WHERE name = ? AND token = ? AND until IS NOT NULL"


class LaneLeases:
    """The leases of a store on a lane."""

    def __init__(self, read: Read, write: Callable[[Work], Awaitable[object]], now_us: Callable[[], int]) -> None:
        self._read = read
        self._write = write
        self._now_us = now_us

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner, unless another owner has it."""
        now_us = self._now_us()
        found = cast("_Found", await self._read(lambda run: run(FIND, (name,)).fetchone()))
        holding = _current_holding(found, owner, now_us)
        if holding is not None:
            return holding
        until_us = now_us + round(lease_s * 1_000_000)
        return cast("Granted | Held", await self._write(Work(_acquire, (name, owner, now_us, until_us))))

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Extend the lease to `lease_s` from now."""
        now_us = self._now_us()
        until_us = now_us + round(lease_s * 1_000_000)
        return bool(await self._write(Work(_change, RENEW, (until_us, name, token), now_us)))

    async def release(self, name: str, token: int) -> bool:
        """Release the lease."""
        return bool(await self._write(Work(_change, RELEASE, (name, token), self._now_us())))


_Found = tuple[str, int, int, int | None] | None


def _current_holding(found: _Found, owner: str, now_us: int) -> Held | None:
    if found is None:
        return None
    holder, _, since_us, until_us = found
    if until_us is None or until_us <= now_us or holder == owner:
        return None
    return Held(holder, since_us, now_us)


def _acquire(session: Session, request: tuple[str, str, int, int]) -> Granted | Held:
    name, owner, now_us, until_us = request

    def give(connection: apsw.Connection) -> Granted | Held:
        cursor = connection.cursor()
        # Read again: another task may have acquired it since the read.
        found = cast("_Found", cursor.execute(FIND, (name,)).fetchone())
        holding = _current_holding(found, owner, now_us)
        if holding is not None:
            return holding
        token, since_us = 1, now_us
        if found is not None:
            holder, last, begun_us, end_us = found
            mine = holder == owner and end_us is not None
            token, since_us = (last, begun_us) if mine else (last + 1, now_us)
        cursor.execute(GIVE, (name, owner, token, since_us, until_us))
        cursor.execute(TIME, (now_us,))
        return Granted(token)

    return session.lend(give)


def _change(session: Session, sql: str, values: tuple[object, ...], now_us: int) -> bool:
    def change(connection: apsw.Connection) -> bool:
        cursor = connection.cursor()
        cursor.execute(sql, values)
        changed = connection.changes() > 0
        if changed:
            cursor.execute(TIME, (now_us,))
        return changed

    return session.lend(change)
