"""Policies of a dependency: retries, token rate, retry budget, breaker, limits. Frozen values with their arithmetic.

The arithmetic is pure; the engine keeps the current value and reads the clock. Times are seconds of the caller's own
monotonic clock (G8), and randomness is a fraction that the caller passes, so a policy gives the same answer in a test,
a simulation and production.
"""

import math
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeGuard, overload

import msgspec
from msgspec.structs import force_setattr, replace

from interlock.errors import DefinitionError

# --- Seconds ---------------------------------------------------------------------------------------------------------

Seconds = float | timedelta
"""A length of time, as declarations and calls take it. Inside it is a number of seconds."""


@overload
def in_seconds(length: Seconds) -> float: ...
@overload
def in_seconds(length: None) -> None: ...
def in_seconds(length: Seconds | None) -> float | None:
    """Return the length as seconds. Anything but a timedelta is returned as it is, for the check of its range."""
    return length.total_seconds() if isinstance(length, timedelta) else length


def _set_in_seconds(policy: msgspec.Struct, *names: str) -> None:
    for name in names:
        length = getattr(policy, name)
        if isinstance(length, timedelta):
            force_setattr(policy, name, length.total_seconds())


# --- Range checks ----------------------------------------------------------------------------------------------------


def demand(holds: bool, name: str, value: object, allowed: str) -> None:  # noqa: FBT001 -- it is an assertion.
    """Raise DefinitionError unless the condition holds."""
    if not holds:
        raise DefinitionError(
            f"{name} is {value!r}; it must be {allowed}.",
            why="A policy outside its range would retry for ever, or never.",
            fix=f"Give {name} a value that is {allowed}.",
            rule="policy-out-of-range",
        )


def is_number(value: object) -> TypeGuard[float]:
    """Return whether the value is an int or a float; a bool is neither."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_positive(value: object) -> bool:
    """Return whether the value is a number above 0, and finite."""
    return is_number(value) and 0 < value < math.inf


def is_positive_int(value: object) -> bool:
    """Return whether the value is a whole number from 1 up."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


# --- Circuit breaker (C4) --------------------------------------------------------------------------------------------
# A `Breaker` is the policy, a `Circuit` is where one breaker stands; each outcome of a call gives the next circuit.
#
# Only failures of the infrastructure count. A decline counts as a success: a dependency that declines is alive. An
# open circuit admits a few probes after `reset_s`. A probe that succeeds closes it. Then calls return in waves: two
# concurrent calls, and one more for each success, so that waiting calls do not overload a dependency that has just
# recovered.
#
# The odd choice: an undo may call through an open circuit, a few at a time and until one fails. An undo is owed, and
# the breaker only estimates that the dependency is down.

Phase = Literal["closed", "open", "half_open"]

Verdict = Literal["call", "probe", "undo", "wait"]
"""How a call is admitted: as any call, as a probe, as an undo through an open circuit; or not now."""

FIRST_WAVE = 2
"""Concurrent calls that are admitted after a probe has succeeded."""


SAME_S = 1e-6
"""Times closer than this count as equal, because sums and differences of seconds are rounded."""


class Circuit(msgspec.Struct, frozen=True):
    """The state of one breaker."""

    failures: int = 0
    """Failures in a row."""
    business: int = 0
    """Business errors in a row."""
    outcomes: int = 0
    """The last calls as bits, the newest lowest: 1 for a failure. Kept in the failure-rate mode only."""
    calls: int = 0
    """The number of calls in `outcomes`."""
    opened: bool = False
    retry_at_s: float = 0.0
    """When probes are admitted."""
    probes: int = 0
    """Probes under way, including those of an earlier opening, until they end."""
    probed_at_s: float = 0.0
    """When the last probe began."""
    undos: int = 0
    """Undos under way through the open circuit."""
    undos_failed: bool = False
    """True after one of these undos failed: further undos wait like any call."""
    wave: int = 0
    """The bound on concurrent calls while the dependency recovers; 0: no bound."""
    closed_at_s: float = -math.inf
    """When a probe closed it. A failure of a call that began earlier is ignored."""

    @property
    def eventful(self) -> bool:
        """Return whether a success would change the circuit."""
        return self.opened or bool(self.failures or self.business or self.wave)

    def phase(self, now_s: float) -> Phase:
        """Return "closed", "open" or "half_open"."""
        if not self.opened:
            return "closed"
        return "open" if now_s < self.retry_at_s else "half_open"


CLOSED = Circuit()


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop calling a dependency and when to try again (C4)."""

    failures: int = 5
    """Failures in a row that open it; ignored with a `failure_rate`."""
    reset_s: float = 30.0
    """How long it stays open before probes are admitted."""
    probes: int = 1
    """Concurrent probes. Each `reset_s` without an answer admits one more, so that a hanging probe blocks no other."""
    failure_rate: float | None = None
    """The share of the last `window_calls` calls that opens it, instead of failures in a row."""
    window_calls: int = 50
    calls_min: int = 10
    """The fewest calls in the window for which `failure_rate` is evaluated."""
    slow_s: float | None = None
    """A successful call that takes this long or longer counts as a failure."""
    business_failures: int | None = None
    """Business errors in a row that open it; None: they never do."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            failures: int = 5,
            reset_s: Seconds = 30.0,
            probes: int = 1,
            failure_rate: float | None = None,
            window_calls: int = 50,
            calls_min: int = 10,
            slow_s: Seconds | None = None,
            business_failures: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        _set_in_seconds(self, "reset_s", "slow_s")
        count, seconds = "a whole number from 1 up", "more than 0 and finite"
        demand(is_positive_int(self.failures), "Breaker.failures", self.failures, count)
        demand(is_positive(self.reset_s), "Breaker.reset_s", self.reset_s, seconds)
        demand(is_positive_int(self.probes), "Breaker.probes", self.probes, count)
        rate, slow_s, business = self.failure_rate, self.slow_s, self.business_failures
        share = rate is None or (is_positive(rate) and rate <= 1)
        demand(share, "Breaker.failure_rate", rate, "more than 0 and at most 1, or None")
        demand(is_positive_int(self.calls_min), "Breaker.calls_min", self.calls_min, count)
        holds = is_positive_int(self.window_calls) and self.window_calls >= self.calls_min
        demand(holds, "Breaker.window_calls", self.window_calls, "a whole number, and at least calls_min")
        demand(slow_s is None or is_positive(slow_s), "Breaker.slow_s", slow_s, f"{seconds}, or None")
        demand(
            business is None or is_positive_int(business), "Breaker.business_failures", business, f"{count}, or None"
        )

    def admit(
        self, circuit: Circuit, now_s: float, *, under_way: int = 0, undo: bool = False
    ) -> tuple[Circuit, Verdict]:
        """Admit a call or not, while `under_way` others run. Return the next circuit and the verdict."""
        if not circuit.opened:
            return (circuit, "wait") if 0 < circuit.wave <= under_way else (circuit, "call")
        if now_s >= circuit.retry_at_s:
            # Do not wait longer than `reset_s` for a probe that hangs: a timeout of an hour must not block others.
            if circuit.probes < self.probes or now_s >= self.probes_again_s(circuit):
                return replace(circuit, probes=circuit.probes + 1, probed_at_s=now_s), "probe"
        elif undo and not circuit.undos_failed and circuit.undos < self.probes:
            return replace(circuit, undos=circuit.undos + 1), "undo"
        return circuit, "wait"

    def probes_again_s(self, circuit: Circuit) -> float:
        """Return when a half-open circuit admits another probe although earlier ones have not ended."""
        return circuit.probed_at_s + self.reset_s

    def succeeded(self, circuit: Circuit, now_s: float, *, took_s: float = 0.0, admitted: Verdict = "call") -> Circuit:
        """Return the circuit after a success. A probe closes it; a call from before the opening changes nothing."""
        if self.slow_s is not None and took_s >= self.slow_s:
            return self.failed(circuit, now_s, took_s=took_s, admitted=admitted)
        if self.failure_rate is None and admitted == "call" and not circuit.eventful:
            return circuit  # The path of nearly every call.
        circuit = self.abandoned(circuit, admitted=admitted)
        if circuit.opened:
            return self._answered(circuit, now_s, admitted)
        circuit = replace(circuit, wave=circuit.wave + 1 if circuit.wave else 0, failures=0, business=0)
        return circuit if self.failure_rate is None else self._counted(circuit, failed=False)

    def failed(self, circuit: Circuit, now_s: float, *, took_s: float = 0.0, admitted: Verdict = "call") -> Circuit:
        """Return the circuit after an infrastructure failure: counted while closed, reopened by a failed probe."""
        circuit = self.abandoned(circuit, admitted=admitted)
        if circuit.opened:
            if admitted == "call":
                return circuit
            if circuit.phase(now_s) == "half_open":
                return self._open(circuit, now_s)
            return replace(circuit, undos_failed=True)
        if now_s - took_s < circuit.closed_at_s - SAME_S:
            return circuit
        wave = max(FIRST_WAVE, circuit.wave - 1) if circuit.wave else 0
        counted = replace(circuit, failures=circuit.failures + 1, business=0, wave=wave)
        if self.failure_rate is None:
            return self._open(counted, now_s) if counted.failures >= self.failures else counted
        counted = self._counted(counted, failed=True)
        # A quotient is rounded as the declared share was: a product would miss 7 of 100 at 0.07.
        too_many = counted.outcomes.bit_count() / counted.calls >= self.failure_rate
        return self._open(counted, now_s) if counted.calls >= self.calls_min and too_many else counted

    def refused(self, circuit: Circuit, now_s: float, *, took_s: float = 0.0, admitted: Verdict = "call") -> Circuit:
        """Return the circuit after a business error, which counts as a success unless `business_failures` is set."""
        if self.business_failures is None:
            return self.succeeded(circuit, now_s, took_s=took_s, admitted=admitted)
        if circuit.opened and circuit.business >= self.business_failures:
            return self.failed(circuit, now_s, took_s=took_s, admitted=admitted)  # These opened it: here is another.
        business = circuit.business + 1
        after = self.succeeded(circuit, now_s, took_s=took_s, admitted=admitted)
        if circuit.opened or after.opened:
            return after
        after = replace(after, business=business)
        return self._open(after, now_s) if business >= self.business_failures else after

    def abandoned(self, circuit: Circuit, *, admitted: Verdict = "call") -> Circuit:
        """Return the circuit after a call without evidence about the dependency: cancelled, or a bug in the program.

        A probe releases its slot; otherwise a half-open circuit would never admit a call again.
        """
        if admitted == "probe":
            return replace(circuit, probes=max(0, circuit.probes - 1))
        if admitted == "undo":
            return replace(circuit, undos=max(0, circuit.undos - 1))
        return circuit

    def _answered(self, circuit: Circuit, now_s: float, admitted: Verdict) -> Circuit:
        """Return the circuit after a success while it was open: a probe closes it, or an undo once it is half open."""
        if admitted == "call" or circuit.phase(now_s) == "open":
            return circuit
        return Circuit(wave=FIRST_WAVE, closed_at_s=now_s, probes=circuit.probes, undos=circuit.undos)

    def _open(self, circuit: Circuit, now_s: float) -> Circuit:
        return Circuit(
            failures=circuit.failures,
            business=circuit.business,
            opened=True,
            retry_at_s=now_s + self.reset_s,
            probes=circuit.probes,
            probed_at_s=circuit.probed_at_s,
            undos=circuit.undos,
        )

    def _counted(self, circuit: Circuit, *, failed: bool) -> Circuit:
        outcomes = ((circuit.outcomes << 1) | failed) & ((1 << self.window_calls) - 1)
        return replace(circuit, outcomes=outcomes, calls=min(circuit.calls + 1, self.window_calls))


# --- Retries, rates, budgets and limits ------------------------------------------------------------------------------

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

    if TYPE_CHECKING:

        def __init__(
            self, *, attempts: int = 60, first_s: Seconds = 0.1, factor: float = 2.0, max_s: Seconds = 30.0
        ) -> None: ...

    def __post_init__(self) -> None:
        _set_in_seconds(self, "first_s", "max_s")
        count = "a whole number from 1 up (1 = no retry)"
        demand(is_positive_int(self.attempts), "Retry.attempts", self.attempts, count)
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


class TokenBucket(msgspec.Struct, frozen=True):
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

    def full(self, now_s: float) -> TokenBucket:
        """Return a full bucket."""
        return TokenBucket(self.burst, now_s)

    def take(self, bucket: TokenBucket, now_s: float, tokens: float = 1.0) -> tuple[TokenBucket, float]:
        """Take tokens. Return the next bucket and 0.0, or the bucket unchanged and the seconds to wait."""
        elapsed_s = max(0.0, now_s - bucket.at_s)
        level = min(self.burst, bucket.tokens + elapsed_s * self.rate_per_s)
        if level >= tokens:
            return TokenBucket(level - tokens, max(now_s, bucket.at_s)), 0.0
        return TokenBucket(level, max(now_s, bucket.at_s)), (tokens - level) / self.rate_per_s


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
    per_concurrency_max: int | None = None
    """Concurrent calls of one key, which the `per` of a step returns (E8). In this process."""
    per_rate_per_s: float | None = None
    """Calls per second of one key. In this process."""
    fair: bool = True
    """Whether keys take turns; otherwise the oldest workflow comes first, whatever its key."""

    def __post_init__(self) -> None:
        name: object = self.name  # Not every caller has a type checker.
        valid = isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()
        # Stores keep the name, and people read it in alerts and terminals.
        demand(valid, "Dependency.name", name, f"1 to {NAME_CHARACTERS_MAX} printable characters")
        demand(is_positive_int(self.concurrency_max), "Dependency.concurrency_max", self.concurrency_max, "from 1 up")
        demand(isinstance(self.breaker, Breaker), "Dependency.breaker", self.breaker, "a Breaker")
        rate = self.rate_per_s
        demand(rate is None or is_positive(rate), "Dependency.rate_per_s", rate, "more than 0, or None")
        most, rate = self.per_concurrency_max, self.per_rate_per_s
        demand(most is None or is_positive_int(most), "Dependency.per_concurrency_max", most, "from 1 up, or None")
        demand(rate is None or is_positive(rate), "Dependency.per_rate_per_s", rate, "more than 0, or None")
        demand(isinstance(self.fair, bool), "Dependency.fair", self.fair, "True or False")
        demand(is_number(self.budget) and 0 <= self.budget <= 1, "Dependency.budget", self.budget, "between 0 and 1")
