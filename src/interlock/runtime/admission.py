"""What an engine takes in: a bound on work in flight, and a token bucket if one is asked for (C7).

In flight are calls under way and, for whoever starts another workflow, those that wait for a place to run their step:
a backlog that only grows is refused at the door, while events for workflows that exist are still taken.
"""

from collections.abc import Callable
from typing import Protocol

from interlock.core.policies import Bucket, TokenRate
from interlock.errors import DefinitionError, Overloaded
from interlock.runtime.resilience.places import Places
from interlock.runtime.settings import Admission
from interlock.seams import Clock

RETRY_S = 0.1
"""When it is worth coming back while calls are under way: a group takes milliseconds."""

BACKLOG_S = 1.0
"""The same while workflows wait for places: steps take longer."""


class Tokens(Protocol):
    """The tokens of a rate that a cluster has together. Asking for them waits for nobody."""

    @property
    def is_shared(self) -> bool:
        """Whether they are those of the cluster now, and not of this process alone."""
        ...

    def wait_s(self) -> float:
        """0.0 when there is one, otherwise how long it will take; nothing is taken."""
        ...

    def take(self) -> bool:
        """Take one if there is one."""
        ...


Shared = Callable[[TokenRate | None], Tokens | None]
"""Where the tokens of a rate come from, in a cluster. It is told of every change, also that there is no rate."""


class Gate:
    """Refuses early, with the time after which it is worth coming back."""

    def __init__(self, admission: Admission, clock: Clock, places: Places, shared: Shared | None = None) -> None:
        self._clock = clock
        self._places = places
        self._shared = shared
        self._tokens: Tokens | None = None
        self.in_flight = 0
        self.refused = 0
        """Calls that were not taken in."""
        self.set(admission)

    def set(self, admission: Admission) -> None:
        """Other bounds from now on. Raises DefinitionError for what cannot be meant; then the old ones stay."""
        given: object = admission  # Not every caller has a type checker.
        if not isinstance(given, Admission):
            raise DefinitionError(
                f"{given!r} is no Admission.",
                why="What an engine takes in is a rate, a burst and a bound on work in flight.",
                fix="Give it as Admission(rate_per_s=100, in_flight_max=10_000).",
                rule="policy-out-of-range",
            )
        rate: TokenRate | None = None
        if admission.rate_per_s is not None:
            burst = admission.burst if admission.burst is not None else max(1.0, admission.rate_per_s)
            rate = TokenRate(rate_per_s=admission.rate_per_s, burst=burst)
        self.admission = admission
        self._most = admission.in_flight_max
        self._rate = rate
        self.bucket = Bucket(0.0, 0.0) if rate is None else rate.full(self._clock.monotonic_s())
        if self._shared is not None:
            self._tokens = self._shared(rate)

    def enter(self, *, starts: bool = False) -> None:
        """Take one call in, or raise Overloaded."""
        self.bucket = self.look(starts=starts)
        if self._tokens is not None:
            self._tokens.take()
        self.in_flight += 1

    def enter_many(self, count: int) -> int:
        """Take in as many of these calls as there is room for, and say how many; the rest may ask one by one."""
        count = min(count, self._most - self.in_flight)
        if count < 1 or self._tokens is not None:
            return 0  # The tokens of a cluster are taken one by one.
        if self._rate is not None:
            now_s = self._clock.monotonic_s()
            self.bucket, _ = self._rate.take(self.bucket, now_s, 0.0)  # What has come since somebody looked.
            count = min(count, int(self.bucket.tokens))
            self.bucket, _ = self._rate.take(self.bucket, now_s, float(count))
        self.in_flight += count
        return count

    def look(self, *, starts: bool = False) -> Bucket:
        """Raise Overloaded if a call were refused now, before anything is done for it; nothing is taken yet."""
        left, wait_s = self._level()
        refused = self._refusal(wait_s, starts=starts)
        if refused is not None:
            raise refused
        return left

    @property
    def room(self) -> float:
        """How many events were taken in now, as far as that is known here; a start may be refused all the same."""
        free = self._most - self.in_flight
        if self._rate is None:
            return free
        if self._tokens is not None:
            return 0.0 if self._tokens.wait_s() else free
        return min(free, self._rate.take(self.bucket, self._clock.monotonic_s(), 0.0)[0].tokens)

    def refusal(self, ahead: int = 0, *, starts: bool = False) -> Overloaded | None:
        """What `look` would raise behind so many others, which counts as a refusal; None if it raised nothing."""
        return self._refusal(self._level(1.0 + ahead)[1], ahead, starts=starts)

    def _level(self, tokens: float = 1.0) -> tuple[Bucket, float]:
        """The bucket if so many calls are taken from it, and how long the last one has to wait for its token."""
        if self._rate is None:
            return self.bucket, 0.0
        if self._tokens is not None:
            return self.bucket, self._tokens.wait_s()
        return self._rate.take(self.bucket, self._clock.monotonic_s(), tokens)

    def _refusal(self, wait_s: float, ahead: int = 0, *, starts: bool) -> Overloaded | None:
        retry_s, told, in_flight = wait_s, "", self.in_flight + ahead
        if in_flight >= self._most:
            retry_s, told = RETRY_S, f"{in_flight:,} calls are under way already (in_flight_max)."
        elif starts and in_flight + self._places.waiting >= self._most:
            retry_s, told = BACKLOG_S, f"{self._places.waiting:,} workflows wait for a place already (in_flight_max)."
        elif wait_s and self._rate is not None:
            whose = " of the cluster" if self._tokens is not None and self._tokens.is_shared else ""
            told = f"more than {self._rate.rate_per_s:g} calls per second{whose} (rate_per_s)."
        if not told:
            return None
        self.refused += 1
        return Overloaded(retry_s, told)

    def go_along(self, before: "Gate") -> None:
        """Be the gate instead of another one, with its bounds and with whoever is under way there."""
        if before.admission != self.admission:
            self.set(before.admission)
        self.bucket, self.in_flight, self.refused = before.bucket, before.in_flight, before.refused

    def leave(self) -> None:
        """One call has its answer."""
        self.in_flight -= 1
