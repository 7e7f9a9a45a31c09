"""Time, ids, chance and secrets: the protocols Clock, Ids, Chance and Secrets, and their only real implementations.

All code that needs time, identity or chance is handed one of these protocols. The virtual ones of
`interlock.testing` make the whole engine deterministic and let a test skip a year in a millisecond; a lint rule
keeps every other module from reaching for `time`, `uuid` or `random` itself.

G8: `wall_s` is for people and for a lane's own log; durations and expiry are measured with `monotonic_s` only.
"""

import os
import random
import secrets
import threading
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """A source of the time."""

    def wall_s(self) -> float:
        """Seconds since the epoch, for showing to people. Never compared between machines (G8)."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go backwards, for durations and expiry inside this process."""
        ...


class Ids(Protocol):
    """A source of new ids."""

    def new(self) -> uuid.UUID:
        """A fresh random id. Never derived from a clock (C6)."""
        ...

    def text(self) -> str:
        """The same as text; cheaper, for callers that need many."""
        ...


class Chance(Protocol):
    """A source of chance: jitter, sampling, the choice of a shard."""

    def fraction(self) -> float:
        """A number that is at least 0 and less than 1."""
        ...


class Secrets(Protocol):
    """A source of secrets: bytes that cannot be guessed."""

    def token(self, size_bytes: int) -> bytes:
        """Return `size_bytes` fresh bytes."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds of the machine's monotonic clock."""
        return time.monotonic()


class RandomIds:
    """Random UUIDs (version 4)."""

    def new(self) -> uuid.UUID:
        """A fresh random id."""
        return uuid.uuid4()

    def text(self) -> str:
        """A fresh random id, written out; a quarter of the price of making a UUID and writing that."""
        if not _unused.ids:
            digits = os.urandom(_FETCHED_BYTES).hex()
            _unused.ids = [
                f"{digits[at : at + 8]}-{digits[at + 8 : at + 12]}-4{digits[at + 13 : at + 16]}-"
                f"{_VARIANT[digits[at + 16]]}{digits[at + 17 : at + 20]}-{digits[at + 20 : at + 32]}"
                for at in range(0, len(digits), 32)
            ]
        return _unused.ids.pop()


_FETCHED_BYTES = 4_096
"""Random bytes fetched per call of the system, for ids that are written out."""

_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class _UnusedIds(threading.local):
    """Random ids of this thread, made together, that were not returned yet."""

    def __init__(self) -> None:
        self.ids: list[str] = []


_unused = _UnusedIds()


def _in_child() -> None:
    # After a fork both processes would make the same ids.
    _unused.ids = []


os.register_at_fork(after_in_child=_in_child)


class SeededIds:
    """Ids that repeat exactly for the same seed, for tests and simulations."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def new(self) -> uuid.UUID:
        """The next id of this seed."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def text(self) -> str:
        """The next id of this seed, written out."""
        return str(self.new())


class SystemChance:
    """Ordinary pseudo-random luck; `seed` makes it repeat."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def fraction(self) -> float:
        """A number that is at least 0 and less than 1."""
        return self._random.random()


class SystemSecrets:
    """The operating system's source of randomness for cryptography."""

    def token(self, size_bytes: int) -> bytes:
        """Return `size_bytes` fresh bytes that cannot be guessed."""
        return secrets.token_bytes(size_bytes)
