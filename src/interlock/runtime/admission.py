"""What an engine takes in: a bound on work in flight, and a token bucket if one is asked for (C7).

In flight are calls under way and, for whoever starts another workflow, those that wait for a place to run their step:
a backlog that only grows is refused at the door, while events for workflows that exist are still taken.
"""

from interlock.core.policies import Bucket, TokenRate
from interlock.errors import DefinitionError, Overloaded
from interlock.runtime.resilience.places import Places
from interlock.runtime.settings import Admission
from interlock.seams import Clock

RETRY_S = 0.1
"""When it is worth coming back while calls are under way: a group takes milliseconds."""

BACKLOG_S = 1.0
"""The same while workflows wait for places: steps take longer."""


class Gate:
    """Refuses early, with the time after which it is worth coming back."""

    def __init__(self, admission: Admission, clock: Clock, places: Places) -> None:
        self._clock = clock
        self._places = places
        self.in_flight = 0
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
        self._bucket = Bucket(0.0, 0.0) if rate is None else rate.full(self._clock.monotonic_s())

    def enter(self, *, starts: bool = False) -> None:
        """Take one call in, or raise Overloaded."""
        if self.in_flight >= self._most:
            raise Overloaded(RETRY_S, f"{self.in_flight:,} calls are under way already (in_flight_max).")
        if starts:
            waiting = self._places.waiting
            if self.in_flight + waiting >= self._most:
                raise Overloaded(BACKLOG_S, f"{waiting:,} workflows wait for a place already (in_flight_max).")
        if self._rate is not None:
            self._bucket, wait_s = self._rate.take(self._bucket, self._clock.monotonic_s())
            if wait_s:
                raise Overloaded(wait_s, f"more than {self._rate.rate_per_s:g} calls per second (rate_per_s).")
        self.in_flight += 1

    def leave(self) -> None:
        """One call has its answer."""
        self.in_flight -= 1
