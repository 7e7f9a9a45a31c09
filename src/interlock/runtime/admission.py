"""What an engine takes in: a bound on calls under way, and a token bucket if one is asked for (C7)."""

from interlock.core.policies import Bucket, TokenRate
from interlock.errors import Overloaded
from interlock.runtime.settings import Admission
from interlock.seams import Clock


class Gate:
    """Refuses early, with the time after which it is worth coming back."""

    def __init__(self, admission: Admission, clock: Clock) -> None:
        self._most = admission.in_flight_max
        self._clock = clock
        self._rate: TokenRate | None = None
        self._bucket = Bucket(0.0, 0.0)
        self.in_flight = 0
        if admission.rate_per_s is not None:
            burst = admission.burst if admission.burst is not None else max(1.0, admission.rate_per_s)
            self._rate = TokenRate(rate_per_s=admission.rate_per_s, burst=burst)
            self._bucket = self._rate.full(clock.monotonic_s())

    def enter(self) -> None:
        """Take one call in, or raise Overloaded."""
        if self.in_flight >= self._most:
            raise Overloaded(0.1, f"{self.in_flight:,} calls are under way already (in_flight_max).")
        if self._rate is not None:
            self._bucket, wait_s = self._rate.take(self._bucket, self._clock.monotonic_s())
            if wait_s:
                raise Overloaded(wait_s, f"more than {self._rate.rate_per_s:g} calls per second (rate_per_s).")
        self.in_flight += 1

    def leave(self) -> None:
        """One call has its answer."""
        self.in_flight -= 1
