"""The three seams to the real world: Clock, Ids and Chance, and the only real implementations of them.

Everything that needs time, identity or luck is handed one of these protocols. The virtual ones of
`interlock.testing` make the whole engine deterministic and let a test skip a year in a millisecond; a lint rule
keeps every other module from reaching for `time`, `uuid` or `random` itself.

G8: `wall_s` is for people and for a lane's own log; durations and expiry are measured with `monotonic_s` only.
"""

import os
import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """What time it is."""

    def wall_s(self) -> float:
        """Seconds since the epoch, for showing to people. Never compared between machines (G8)."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go backwards, for durations and expiry inside this process."""
        ...


class Ids(Protocol):
    """Where new identities come from."""

    def new(self) -> uuid.UUID:
        """A fresh random id. Never derived from a clock (C6)."""
        ...

    def text(self) -> str:
        """The same, written out; for those who need many."""
        ...


class Chance(Protocol):
    """Where luck comes from: jitter, sampling, the choice of a shard."""

    def fraction(self) -> float:
        """A number that is at least 0 and less than 1."""
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
        """A fresh random id, written out. Less than half the price of making a UUID and writing that."""
        digits = os.urandom(16).hex()
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


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
