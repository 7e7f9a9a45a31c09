"""Policies of a dependency: retries, token rate, retry budget, limits. Frozen values with their arithmetic.

The arithmetic is pure; the runtime keeps the current value and reads the clock. Times are seconds of the caller's own
monotonic clock (G8), and randomness is a fraction that the caller passes, so a policy gives the same answer in a test,
a simulation and production.
"""

import math
from enum import Enum

import msgspec

from interlock.core.breakers import Breaker
from interlock.core.ranges import demand, number, whole

NAME_CHARACTERS_MAX = 200
"""The longest name of a dependency."""

_GROWING_WAITS_MAX = 1_000
"""The number of attempts after which the wait stops growing, for any factor."""


class Classification(Enum):
    """The classes of errors that a step may raise (C3)."""

    RETRYABLE = "retryable"
    NON_RETRYABLE = "non_retryable"


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential backoff with full jitter, and a bound on attempts (C5).

    The defaults survive every outage of ten minutes (C18): for any jitter the 60 attempts take at least twelve
    minutes, and at most twenty-six.
    """

    attempts: int = 60
    first_s: float = 0.1
    factor: float = 2.0
    max_s: float = 30.0

    def __post_init__(self) -> None:
        demand(whole(self.attempts), "Retry.attempts", self.attempts, "a whole number from 1 up (1 = no retry)")
        demand(0 < self.first_s <= self.max_s, "Retry.first_s", self.first_s, "more than 0 and at most max_s")
        demand(1 <= self.factor < math.inf, "Retry.factor", self.factor, "at least 1")
        demand(self.max_s < math.inf, "Retry.max_s", self.max_s, "finite")

    def ceiling_s(self, attempt: int) -> float:
        """Return the longest wait after attempt number `attempt` (1 = the first) has failed."""
        # The exponent is bounded so that a workflow retried ten thousand times cannot overflow a float.
        doublings = min(attempt - 1, _GROWING_WAITS_MAX)
        try:
            return min(self.max_s, self.first_s * self.factor**doublings)
        except OverflowError:
            return self.max_s

    def delay_s(self, attempt: int, fraction: float) -> float:
        """Return the wait after attempt `attempt`, with a `fraction` in [0, 1): full jitter while the waits grow.

        A wait that has reached `max_s` is at least half of it. Without that floor a run of small fractions could use up
        all attempts in a short outage (C18).
        """
        ceiling_s = self.ceiling_s(attempt)
        floor_s = ceiling_s / 2 if ceiling_s >= self.max_s else 0.0
        return floor_s + fraction * (ceiling_s - floor_s)

    def waits_s_max(self) -> float:
        """Return the longest time that all waits between the attempts can take together."""
        waits = self.attempts - 1
        growing = min(waits, _GROWING_WAITS_MAX)
        total_s = sum(self.ceiling_s(attempt) for attempt in range(1, growing + 1))
        return total_s + (waits - growing) * self.ceiling_s(self.attempts)

    def exhausted(self, attempt: int) -> bool:
        """Return whether attempt number `attempt` was the last."""
        return attempt >= self.attempts


class Bucket(msgspec.Struct, frozen=True):
    """The level of a token bucket at a moment."""

    tokens: float
    at_s: float


class TokenRate(msgspec.Struct, frozen=True, kw_only=True):
    """A token bucket: `rate_per_s` on average, at most `burst` in one moment (C7)."""

    rate_per_s: float
    burst: float

    def __post_init__(self) -> None:
        demand(0 < self.rate_per_s < math.inf, "TokenRate.rate_per_s", self.rate_per_s, "more than 0 and finite")
        demand(1 <= self.burst < math.inf, "TokenRate.burst", self.burst, "at least 1 and finite")

    def full(self, now_s: float) -> Bucket:
        """Return a full bucket."""
        return Bucket(self.burst, now_s)

    def take(self, bucket: Bucket, now_s: float, tokens: float = 1.0) -> tuple[Bucket, float]:
        """Take tokens. Return the next bucket and 0.0, or the bucket unchanged and the seconds to wait."""
        elapsed_s = max(0.0, now_s - bucket.at_s)
        level = min(self.burst, bucket.tokens + elapsed_s * self.rate_per_s)
        if level >= tokens:
            return Bucket(level - tokens, max(now_s, bucket.at_s)), 0.0
        return Bucket(level, max(now_s, bucket.at_s)), (tokens - level) / self.rate_per_s


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A retry budget: at most `share` of the calls in a window are retries; its first `free` retries always pass."""

    share: float = 0.2
    free: int = 10
    window_s: float = 10.0

    def __post_init__(self) -> None:
        demand(0 <= self.share <= 1, "Budget.share", self.share, "between 0 and 1")
        demand(self.free >= 0, "Budget.free", self.free, "0 or more")
        demand(0 < self.window_s < math.inf, "Budget.window_s", self.window_s, "more than 0 and finite")

    def allows(self, *, calls: int, retries: int) -> bool:
        """Return whether one more retry fits, after `calls` calls (retries included) and `retries` in this window."""
        return retries < self.free or retries + 1 <= self.share * (calls + 1)


class Dependency(msgspec.Struct, frozen=True):
    """An external service that steps call: its limits, its breaker and its retry budget (C3-C8)."""

    name: str
    concurrency_max: int = 50
    rate_per_s: float | None = None
    breaker: Breaker = Breaker()
    budget: float = 0.2

    def __post_init__(self) -> None:
        name: object = self.name  # Not every caller has a type checker.
        valid = isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()
        # Stores keep the name, and people read it in alerts and terminals.
        demand(valid, "Dependency.name", name, f"1 to {NAME_CHARACTERS_MAX} printable characters")
        demand(whole(self.concurrency_max), "Dependency.concurrency_max", self.concurrency_max, "from 1 up")
        demand(isinstance(self.breaker, Breaker), "Dependency.breaker", self.breaker, "a Breaker")
        rate = self.rate_per_s
        demand(
            rate is None or (number(rate) and 0 < rate < math.inf),
            "Dependency.rate_per_s",
            rate,
            "more than 0, or None",
        )
        demand(number(self.budget) and 0 <= self.budget <= 1, "Dependency.budget", self.budget, "between 0 and 1")
