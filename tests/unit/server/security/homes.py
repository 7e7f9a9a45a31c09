"""Homes of every kind for tests of keys and audit, a clock that stands still, and secrets that repeat."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from interlock.clock import Clock
from interlock.server.security.guard import Identity
from interlock.server.security.keys import CreatedKey, KeyBounds, Scope, make_key
from interlock.server.security.stores import Security, security_at

NOW = datetime(2027, 3, 1, 12, 30, tzinfo=UTC)
OPERATOR = Identity("abc", "ann", frozenset(Scope))


class StandingClock:
    """Moves only when it is told to."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def wall_s(self) -> float:
        return NOW.timestamp() + self.passed_s

    def monotonic_s(self) -> float:
        return 1_000.0 + self.passed_s


class CountedSecrets:
    """Different each time, and the same in each test."""

    def __init__(self) -> None:
        self._count = 0

    def token(self, size_bytes: int) -> bytes:
        self._count += 1
        return hashlib.shake_256(f"{self._count}".encode()).digest(size_bytes)


class HomeForKeys(NamedTuple):
    """A home where nobody has been before; opened again it is the same one, except in memory."""

    kind: str
    url: str

    @asynccontextmanager
    async def opened(self, clock: Clock | None = None) -> AsyncIterator[Security]:
        """Its keys and its audit log, closed at the end."""
        security = security_at(self.url, clock=clock or StandingClock())
        try:
            yield security
        finally:
            await security.close()


def key_factory() -> Callable[..., CreatedKey]:
    """`create(Scope.READ, machines=("order",))` makes a key."""
    secrets = CountedSecrets()

    def create(
        *scopes: Scope,
        machines: tuple[str, ...] = (),
        prefixes: tuple[str, ...] = (),
        expires_at: datetime | None = None,
        name: str = "till",
    ) -> CreatedKey:
        limits = KeyBounds(machines, prefixes)
        return make_key(
            secrets, name=name, scopes=scopes or (Scope.READ,), limits=limits, now=NOW, expires_at=expires_at
        )

    return create


def bearer(created: CreatedKey) -> dict[bytes, bytes]:
    """The headers of a request with this key."""
    return authorized(f"Bearer {created.key.reveal()}")


def authorized(value: str) -> dict[bytes, bytes]:
    """The headers of a request that is authorized so."""
    return {b"authorization": value.encode()}
