"""Policies: how to retry, when to stop calling, how much to admit. Frozen values with their arithmetic.

The arithmetic lives here, pure and tested to the last branch; the runtime only keeps the current value and asks
the clock. Times are seconds of the caller's own monotonic clock (G8), luck is a fraction handed in, so a policy
gives the same answer in a test, a simulation and production.
"""

import math
from enum import Enum

import msgspec

from interlock.errors import DefinitionError


def _demand(holds: bool, name: str, value: object, allowed: str) -> None:  # noqa: FBT001 -- it is an assertion.
    if not holds:
        raise DefinitionError(
            f"{name} is {value!r}; it must be {allowed}.",
            why="A policy outside its range would retry for ever, or never.",
            fix=f"Give {name} a value that is {allowed}.",
            rule="policy-out-of-range",
        )


_GROWING_WAITS_MAX = 1_000
"""After so many attempts the wait grows no more, whatever the factor."""


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class Classification(Enum):
    """What an error means for the step that raised it (C3)."""

    RETRYABLE = "retryable"
    NON_RETRYABLE = "non_retryable"


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential backoff with full jitter, and a bound on attempts (C5)."""

    attempts: int = 5
    first_s: float = 0.1
    factor: float = 2.0
    max_s: float = 30.0

    def __post_init__(self) -> None:
        _demand(_whole(self.attempts), "Retry.attempts", self.attempts, "a whole number from 1 up (1 = no retry)")
        _demand(0 < self.first_s <= self.max_s, "Retry.first_s", self.first_s, "more than 0 and at most max_s")
        _demand(1 <= self.factor < math.inf, "Retry.factor", self.factor, "at least 1")
        _demand(self.max_s < math.inf, "Retry.max_s", self.max_s, "finite")

    def ceiling_s(self, attempt: int) -> float:
        """The longest wait after attempt number `attempt` (1 = the first) has failed."""
        # The exponent is bounded so that a workflow retried ten thousand times cannot overflow a float.
        doublings = min(attempt - 1, _GROWING_WAITS_MAX)
        try:
            return min(self.max_s, self.first_s * self.factor**doublings)
        except OverflowError:
            return self.max_s

    def delay_s(self, attempt: int, fraction: float) -> float:
        """The wait after attempt `attempt`: full jitter, `fraction` in [0, 1) of the ceiling."""
        return fraction * self.ceiling_s(attempt)

    def waits_s_max(self) -> float:
        """The longest time that all waits between the attempts can take together."""
        waits = self.attempts - 1
        growing = min(waits, _GROWING_WAITS_MAX)
        total_s = sum(self.ceiling_s(attempt) for attempt in range(1, growing + 1))
        return total_s + (waits - growing) * self.ceiling_s(self.attempts)

    def exhausted(self, attempt: int) -> bool:
        """True when attempt number `attempt` was the last."""
        return attempt >= self.attempts


class Circuit(msgspec.Struct, frozen=True):
    """The state of one circuit breaker: closed, open (until `retry_at_s`) or half-open with probes out."""

    failures: int = 0
    opened: bool = False
    retry_at_s: float = 0.0
    probes: int = 0

    def phase(self, now_s: float) -> str:
        """One of "closed", "open" and "half_open"."""
        if not self.opened:
            return "closed"
        return "open" if now_s < self.retry_at_s else "half_open"


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop calling a dependency and when to try again (C4)."""

    failures: int = 5
    reset_s: float = 30.0
    probes: int = 1

    def __post_init__(self) -> None:
        _demand(_whole(self.failures), "Breaker.failures", self.failures, "a whole number from 1 up")
        _demand(0 < self.reset_s < math.inf, "Breaker.reset_s", self.reset_s, "more than 0 and finite")
        _demand(_whole(self.probes), "Breaker.probes", self.probes, "a whole number from 1 up")

    def admit(self, circuit: Circuit, now_s: float) -> tuple[Circuit, bool]:
        """Whether a call may be made now, and the circuit then. Half-open admits `probes` calls and counts them."""
        phase = circuit.phase(now_s)
        if phase == "closed":
            return circuit, True
        if phase == "open" or circuit.probes >= self.probes:
            return circuit, False
        return msgspec.structs.replace(circuit, probes=circuit.probes + 1), True

    def succeeded(self, circuit: Circuit, now_s: float) -> Circuit:
        """The circuit after a call that worked: closed, unless it was a straggler from before the opening."""
        if circuit.phase(now_s) == "open":
            return circuit
        return Circuit()

    def abandoned(self, circuit: Circuit) -> Circuit:
        """The circuit after a call that says nothing about the dependency: cancelled, or refused for business reasons.

        A probe gives its place back; without this a half-open circuit would admit nobody ever again.
        """
        return msgspec.structs.replace(circuit, probes=max(0, circuit.probes - 1))

    def failed(self, circuit: Circuit, now_s: float) -> Circuit:
        """The circuit after an infrastructure failure: counted while closed, opened again by a failed probe."""
        phase = circuit.phase(now_s)
        if phase == "open":
            return circuit
        failures = circuit.failures + 1
        if phase == "closed" and failures < self.failures:
            return Circuit(failures=failures)
        return Circuit(failures=failures, opened=True, retry_at_s=now_s + self.reset_s)


class Bucket(msgspec.Struct, frozen=True):
    """The level of a token bucket at a moment."""

    tokens: float
    at_s: float


class TokenRate(msgspec.Struct, frozen=True, kw_only=True):
    """A token bucket: `rate_per_s` in the long run, at most `burst` at once (C7)."""

    rate_per_s: float
    burst: float

    def __post_init__(self) -> None:
        _demand(0 < self.rate_per_s < math.inf, "TokenRate.rate_per_s", self.rate_per_s, "more than 0 and finite")
        _demand(1 <= self.burst < math.inf, "TokenRate.burst", self.burst, "at least 1 and finite")

    def full(self, now_s: float) -> Bucket:
        """A bucket that nobody has taken from."""
        return Bucket(self.burst, now_s)

    def take(self, bucket: Bucket, now_s: float, tokens: float = 1.0) -> tuple[Bucket, float]:
        """Take tokens: the bucket after it and 0.0, or the bucket unchanged and the seconds to wait."""
        elapsed_s = max(0.0, now_s - bucket.at_s)
        level = min(self.burst, bucket.tokens + elapsed_s * self.rate_per_s)
        if level >= tokens:
            return Bucket(level - tokens, max(now_s, bucket.at_s)), 0.0
        return Bucket(level, max(now_s, bucket.at_s)), (tokens - level) / self.rate_per_s


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Retries may be at most `share` of the calls of a window, and the first `free` of it are never held back."""

    share: float = 0.2
    free: int = 10
    window_s: float = 10.0

    def __post_init__(self) -> None:
        _demand(0 <= self.share <= 1, "Budget.share", self.share, "between 0 and 1")
        _demand(self.free >= 0, "Budget.free", self.free, "0 or more")
        _demand(0 < self.window_s < math.inf, "Budget.window_s", self.window_s, "more than 0 and finite")

    def allows(self, *, calls: int, retries: int) -> bool:
        """True when one more retry may be made after so many calls (retries included) and retries in this window."""
        return retries < self.free or retries + 1 <= self.share * (calls + 1)


class Dependency(msgspec.Struct, frozen=True):
    """Something outside that steps call: its limits, its breaker and its retry budget (C3-C8)."""

    name: str
    concurrency_max: int = 50
    rate_per_s: float | None = None
    breaker: Breaker = Breaker()
    budget: float = 0.2

    def __post_init__(self) -> None:
        _demand(
            isinstance(self.name, str) and bool(self.name), "Dependency.name", self.name, "a text that is not empty"
        )
        _demand(_whole(self.concurrency_max), "Dependency.concurrency_max", self.concurrency_max, "from 1 up")
        _demand(isinstance(self.breaker, Breaker), "Dependency.breaker", self.breaker, "a Breaker")
        rate = self.rate_per_s
        _demand(rate is None or 0 < rate < math.inf, "Dependency.rate_per_s", rate, "more than 0, or None")
        _demand(0 <= self.budget <= 1, "Dependency.budget", self.budget, "between 0 and 1")
