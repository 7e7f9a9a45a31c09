"""The audit log: every action of an operator, with its target, time, and values before and after.

An action is written durably before it is carried out, and again if it fails. No action can be missing; an action that
the process's death prevented may be logged too. The log is append-only, kept for `retention`, and bounded. Secrets are
masked before anything is written.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import msgspec

from interlock.clock import Clock, Ids, RandomIds
from interlock.errors import InterlockError
from interlock.redaction import redacted_text, redacted_value
from interlock.server.security.guard import Identity

RETENTION: Final = timedelta(days=400)
"""A year, and some weeks to review it."""

VALUE_BYTES_MAX = 16_384
"""Size of `before` and of `after`; a larger value is replaced by its size."""

TEXT_CHARACTERS_MAX = 500
"""Length of an action, a target or a name."""

ENTRIES_READ_MAX = 10_000
PRUNE_EVERY_S = 3_600.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One action of an operator."""

    id: str
    at: datetime
    key: str
    """The id of the key that was used; empty on the command line and without keys."""
    who: str
    action: str
    """The kind of action, such as `breaker.force` or `keys.revoke`."""
    target: str
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")
    failed: str = ""
    """The code of the error, in the entry for an action that failed."""


class Trail(Protocol):
    """A store of audit entries. There is one for each kind of home, and one suite of tests for all."""

    async def append(self, entry: Entry) -> None:
        """Write an entry; it is durable when this returns."""
        ...

    async def read(self, limit: int) -> list[Entry]:
        """Return the newest entries, newest first."""
        ...

    async def prune(self, before: datetime) -> None:
        """Remove entries before this time; some may be removed later."""
        ...

    async def close(self) -> None:
        """Close connections, where there are any."""
        return  # A body that is only a docstring would be abstract.


class Audit:
    """The audit log of one home."""

    def __init__(self, trail: Trail, *, clock: Clock, ids: Ids | None = None, retention: timedelta = RETENTION) -> None:
        self._trail = trail
        self._clock = clock
        self._ids = ids or RandomIds()
        self._retention = retention
        self._pruned_s = float("-inf")

    async def record(
        self, identity: Identity, action: str, target: str, before: object, after: object, *, failed: str = ""
    ) -> Entry:
        """Write one action; it is durable when this returns. `before` and `after` are any values that JSON can hold."""
        now = datetime.fromtimestamp(self._clock.wall_s(), UTC)
        entry = Entry(
            id=self._ids.text(),
            at=now,
            key=identity.key,
            who=_bounded(identity.name),
            action=_bounded(action),
            target=_bounded(target),
            before=_value(before),
            after=_value(after),
            failed=failed,
        )
        await self._trail.append(entry)
        if self._clock.monotonic_s() - self._pruned_s >= PRUNE_EVERY_S:
            self._pruned_s = self._clock.monotonic_s()
            await self._trail.prune(now - self._retention)
        return entry

    @asynccontextmanager
    async def action(
        self, identity: Identity, action: str, target: str, *, before: object, after: object
    ) -> AsyncGenerator[Entry]:
        """Write an action, then run the block that carries it out; if the block raises, write its failure too."""
        entry = await self.record(identity, action, target, before, after)
        try:
            yield entry
        except Exception as error:
            failed = error.code if isinstance(error, InterlockError) else "internal"
            await self.record(identity, action, target, before, None, failed=failed)
            raise

    async def read(self, limit: int = 100) -> list[Entry]:
        """Return the newest entries, newest first."""
        return await self._trail.read(min(limit, ENTRIES_READ_MAX))

    async def close(self) -> None:
        """Close connections."""
        await self._trail.close()


def _value(value: object) -> msgspec.Raw:
    plain: object = msgspec.to_builtins(value, str_keys=True)
    encoded = msgspec.json.encode(redacted_value(plain))
    if len(encoded) > VALUE_BYTES_MAX:
        encoded = msgspec.json.encode({"left_out": f"{len(encoded):,} bytes; the audit log keeps {VALUE_BYTES_MAX:,}"})
    return msgspec.Raw(encoded)


def _bounded(text: str) -> str:
    masked = redacted_text(text)
    return masked if len(masked) <= TEXT_CHARACTERS_MAX else masked[: TEXT_CHARACTERS_MAX - 1] + "…"
