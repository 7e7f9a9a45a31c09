"""The audit log: who did what to what, when, and what it was before and after.

Operator actions are written down before they are carried out, durably, and once more when they fail: nothing that an
operator did can be missing, at the price that something that was about to happen when the process died is in the log
too. It is append-only, kept for `retention`, and bounded. Secrets are masked before anything is written.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import msgspec

from interlock.errors import InterlockError
from interlock.redaction import redacted_text, redacted_value
from interlock.seams import Clock, Ids, RandomIds
from interlock.server.security.identity import Identity

RETENTION: Final = timedelta(days=400)
"""A year, and time to notice that it is over."""

VALUE_BYTES_MAX = 16_384
"""Of `before` and of `after`; a larger value is replaced by its size."""

TEXT_CHARACTERS_MAX = 500
"""Of an action, a target, a name."""

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
    """What was done, such as `breaker.force` or `keys.revoke`."""
    target: str
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")
    failed: str = ""
    """The code of the error, in the entry that says that an action was not carried out."""


class Trail(Protocol):
    """Where entries are kept. There is one for each kind of home, and one suite of tests for all."""

    async def append(self, entry: Entry) -> None:
        """Write an entry; it is durable when this returns."""
        ...

    async def read(self, limit: int) -> list[Entry]:
        """The newest entries, the newest first."""
        ...

    async def prune(self, before: datetime) -> None:
        """Let go of what is older; some of it may stay for a while."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


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
        """Write down one action; durable when this returns. `before` and `after` are any values that JSON can hold."""
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
        """Write an action down, then carry it out in the block; when the block fails, that is written down too."""
        entry = await self.record(identity, action, target, before, after)
        try:
            yield entry
        except Exception as error:
            failed = error.code if isinstance(error, InterlockError) else "internal"
            await self.record(identity, action, target, before, None, failed=failed)
            raise

    async def read(self, limit: int = 100) -> list[Entry]:
        """The newest entries, the newest first."""
        return await self._trail.read(min(limit, ENTRIES_READ_MAX))

    async def close(self) -> None:
        """Let go of connections."""
        await self._trail.close()


class MemoryTrail:
    """A trail that is gone with its process."""

    def __init__(self, entries_max: int = ENTRIES_READ_MAX) -> None:
        self._entries: list[Entry] = []
        self._entries_max = entries_max

    async def append(self, entry: Entry) -> None:
        """Keep an entry."""
        self._entries.append(entry)
        del self._entries[: -self._entries_max]

    async def read(self, limit: int) -> list[Entry]:
        """The newest entries."""
        return self._entries[::-1][:limit]

    async def prune(self, before: datetime) -> None:
        """Let go of what is older."""
        self._entries = [entry for entry in self._entries if entry.at >= before]

    async def close(self) -> None:
        """Nothing to let go of."""


def _value(value: object) -> msgspec.Raw:
    plain: object = msgspec.to_builtins(value, str_keys=True)
    encoded = msgspec.json.encode(redacted_value(plain))
    if len(encoded) > VALUE_BYTES_MAX:
        encoded = msgspec.json.encode({"left_out": f"{len(encoded):,} bytes; the audit log keeps {VALUE_BYTES_MAX:,}"})
    return msgspec.Raw(encoded)


def _bounded(text: str) -> str:
    shown = redacted_text(text)
    return shown if len(shown) <= TEXT_CHARACTERS_MAX else shown[: TEXT_CHARACTERS_MAX - 1] + "…"
