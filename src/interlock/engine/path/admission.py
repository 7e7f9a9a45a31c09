"""Admission of calls: a bound on work in flight, and an optional token bucket (C7).

Calls under way are in flight. For the start of a workflow, workflows that wait for a slot count too: a growing backlog
refuses new workflows, while events for existing ones are still admitted.
"""

from collections.abc import Callable
from typing import Protocol

from interlock.clock import Clock
from interlock.core.policies import TokenBucket, TokenRate
from interlock.engine.dependencies.wait_queue import Places
from interlock.engine.engine_settings import Admission
from interlock.errors import DefinitionError, Overloaded

RETRY_S = 0.1
"""Retry-after time while calls are under way: a group takes milliseconds."""

BACKLOG_S = 1.0
"""Retry-after time while workflows wait for slots: steps take longer."""


class Tokens(Protocol):
    """The tokens of a rate that a cluster shares. No call of it waits."""

    @property
    def is_shared(self) -> bool:
        """Whether the tokens are now those of the cluster, not of this process alone."""
        ...

    def wait_s(self) -> float:
        """Return the time until there is a token, 0.0 if there is one. Takes none."""
        ...

    def take(self) -> bool:
        """Take a token, if there is one."""
        ...


Shared = Callable[[TokenRate | None], Tokens | None]
"""Returns the tokens of a rate in a cluster. Called at every change of the rate, with None for no rate."""


class Gate:
    """Admits calls, or raises Overloaded with the time after which to retry."""

    def __init__(self, admission: Admission, clock: Clock, places: Places, shared: Shared | None = None) -> None:
        self._clock = clock
        self._places = places
        self._shared = shared
        self._tokens: Tokens | None = None
        self.in_flight = 0
        self.refused = 0
        """Calls that were refused."""
        self.set(admission)

    def set(self, admission: Admission) -> None:
        """Set other bounds. Raises DefinitionError for invalid ones; then the old ones stay."""
        value: object = admission  # Not every caller has a type checker.
        if not isinstance(value, Admission):
            raise DefinitionError(
                f"{value!r} is not an Admission.",
                why="An engine admits calls by a rate, a burst and a bound on work in flight.",
                fix="Pass Admission(rate_per_s=100, in_flight_max=10_000).",
                rule="policy-out-of-range",
            )
        rate: TokenRate | None = None
        if admission.rate_per_s is not None:
            burst = admission.burst if admission.burst is not None else max(1.0, admission.rate_per_s)
            rate = TokenRate(rate_per_s=admission.rate_per_s, burst=burst)
        self.admission = admission
        self._most = admission.in_flight_max
        self._rate = rate
        self.bucket = TokenBucket(0.0, 0.0) if rate is None else rate.full(self._clock.monotonic_s())
        if self._shared is not None:
            self._tokens = self._shared(rate)

    def enter(self, *, starts: bool = False) -> None:
        """Admit one call, or raise Overloaded."""
        if self._rate is None and self.in_flight + (self._places.waiting if starts else 0) < self._most:
            self.in_flight += 1
            return
        self.bucket = self.look(starts=starts)
        if self._tokens is not None:
            self._tokens.take()
        self.in_flight += 1

    def enter_many(self, count: int) -> int:
        """Admit as many of these calls as there is room for; return their number. The rest may enter one by one."""
        count = min(count, self._most - self.in_flight)
        if count < 1 or self._tokens is not None:
            return 0  # The tokens of a cluster are taken one by one.
        if self._rate is not None:
            now_s = self._clock.monotonic_s()
            self.bucket, _ = self._rate.take(self.bucket, now_s, 0.0)  # Refill it first.
            count = min(count, int(self.bucket.tokens))
            self.bucket, _ = self._rate.take(self.bucket, now_s, float(count))
        self.in_flight += count
        return count

    def look(self, *, starts: bool = False) -> TokenBucket:
        """Raise Overloaded if a call would be refused now. Takes nothing; returns the bucket after the call."""
        left, wait_s = self._level()
        refused = self._refusal(wait_s, starts=starts)
        if refused is not None:
            raise refused
        return left

    @property
    def room(self) -> float:
        """The number of events that would be admitted now, as far as this process knows. A start may be refused."""
        free = self._most - self.in_flight
        if self._rate is None:
            return free
        if self._tokens is not None:
            return 0.0 if self._tokens.wait_s() else free
        return min(free, self._rate.take(self.bucket, self._clock.monotonic_s(), 0.0)[0].tokens)

    def refusal(self, ahead: int = 0, *, starts: bool = False) -> Overloaded | None:
        """Return the refusal that `look` would raise after `ahead` other calls, and count it; None if admitted."""
        return self._refusal(self._level(1.0 + ahead)[1], ahead, starts=starts)

    def _level(self, tokens: float = 1.0) -> tuple[TokenBucket, float]:
        """Return the bucket after taking `tokens`, and how long the last call has to wait for its token."""
        if self._rate is None:
            return self.bucket, 0.0
        if self._tokens is not None:
            return self.bucket, self._tokens.wait_s()
        return self._rate.take(self.bucket, self._clock.monotonic_s(), tokens)

    def _refusal(self, wait_s: float, ahead: int = 0, *, starts: bool) -> Overloaded | None:
        retry_s, reason, in_flight = wait_s, "", self.in_flight + ahead
        if in_flight >= self._most:
            retry_s, reason = RETRY_S, f"{in_flight:,} calls are under way already (in_flight_max)."
        elif starts and in_flight + self._places.waiting >= self._most:
            retry_s, reason = BACKLOG_S, f"{self._places.waiting:,} workflows wait for a place already (in_flight_max)."
        elif wait_s and self._rate is not None:
            whose = " of the cluster" if self._tokens is not None and self._tokens.is_shared else ""
            reason = f"more than {self._rate.rate_per_s:g} calls per second{whose} (rate_per_s)."
        if not reason:
            return None
        self.refused += 1
        return Overloaded(retry_s, reason)

    def go_along(self, before: "Gate") -> None:
        """Take over the bounds and the calls in flight of the gate that this one replaces."""
        if before.admission != self.admission:
            self.set(before.admission)
        self.bucket, self.in_flight, self.refused = before.bucket, before.in_flight, before.refused

    def leave(self) -> None:
        """End one call: it was answered."""
        self.in_flight -= 1
