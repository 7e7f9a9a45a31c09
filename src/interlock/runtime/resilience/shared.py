"""A dependency that is shared in a cluster: its outlet here, its breaker and rate in Redis.

The outlet still decides (0010). While Redis answers, the cluster opens and closes it, permits its probes, and limits
the rate of all processes together.
"""

import math

import msgspec

from interlock.coordination.breakers import Heard, SharedBreaker
from interlock.coordination.link import Link
from interlock.coordination.tokens import SharedTokens
from interlock.core.breakers import FIRST_WAVE, Circuit
from interlock.runtime.resilience.others import Forced, Others
from interlock.runtime.resilience.outlets import Outlet
from interlock.seams import Clock, Ids


class Shared:
    """Connect an outlet with the cluster. The engine that uses it creates and closes it."""

    def __init__(self, outlet: Outlet, link: Link, clock: Clock, ids: Ids) -> None:
        self._outlet = outlet
        self._link = link
        self._clock = clock
        self._tokens: SharedTokens | None = None
        breaker = outlet.breaker
        self._breaker = SharedBreaker(
            link, outlet.declared.name, self, ids, probes=breaker.probes, reset_s=breaker.reset_s
        )
        self.before: Others | None = outlet.others
        self.closed = False
        outlet.others = self
        self._limit()

    @property
    def up(self) -> bool:
        """Whether Redis can be reached."""
        return self._link.up

    async def close(self) -> None:
        """Return the outlet to this process alone, or to another engine's `Shared`."""
        self.closed = True
        while isinstance(last := self._outlet.others, Shared) and last.closed:
            self._outlet.others = last.before
        await self._breaker.close()
        if self._tokens is not None:
            await self._tokens.close()

    # --- from the outlet ---------------------------------------------------------------------------------------------

    def may_probe(self) -> bool:
        """Whether a probe may be made here."""
        return self._breaker.may_probe()

    def announce(self, *, opened: bool, reset_s: float, reason: str) -> None:
        """Announce that the breaker has opened here, or was closed by a probe."""
        if opened:
            self._breaker.opened(reset_s, reason)
        else:
            self._breaker.closed(reason)

    def probed(self, *, announced: bool) -> None:
        """End a probe; `announced`: its result was sent with `announce`."""
        self._breaker.probed(said=announced)

    def forced(self, forced: Forced | None, reason: str) -> None:
        """Announce that a person has forced the breaker here, or released it."""
        self._breaker.forced(forced, reason)

    def token(self, now_s: float, *, take: bool) -> float | None:
        """Take or preview a token of the shared rate. Returns None, for the outlet's own rate, while Redis is down."""
        del now_s
        self._limit()
        if self._tokens is None or not self._link.up:
            return None
        if take:
            return 0.0 if self._tokens.take() else math.inf
        return self._tokens.wait_s()

    def _limit(self) -> None:
        """Follow the outlet's rate, which may change at any time."""
        rate = self._outlet.rate
        if rate == (None if self._tokens is None else self._tokens.rate):
            return
        if self._tokens is not None:
            self._tokens.retire()
        name = f"dependency:{self._outlet.declared.name}"
        self._tokens = None if rate is None else SharedTokens(self._link, name, rate, self._clock, self.stir)

    # --- from the cluster --------------------------------------------------------------------------------------------

    def follow(self, state: Heard) -> None:
        """Adopt the state of the cluster's breaker. Calls under way here stay counted."""
        now_s = self._clock.monotonic_s()
        let_go = self._outlet.forced == "open" and state.forced is None

        def turned(before: Circuit) -> Circuit:
            if state.opened:
                retry_at_s = now_s + state.opens_in_s
                return msgspec.structs.replace(before, opened=True, retry_at_s=retry_at_s, wave=0, undos_failed=False)
            if before.opened or let_go:
                return Circuit(wave=FIRST_WAVE, closed_at_s=now_s, probes=before.probes, undos=before.undos)
            return before

        self._outlet.follow(turned, state.forced, state.reason, by_hand=state.forced_changed)

    def stir(self) -> None:
        """Notify the outlet's users that a refused call may be admitted now."""
        self._outlet.stir()

    def standing(self) -> tuple[bool, float, Forced | None, str]:
        """Return the breaker's state here: opened, seconds until probes, forced, reason."""
        outlet = self._outlet
        circuit = outlet.circuit
        opens_in_s = max(0.0, circuit.retry_at_s - self._clock.monotonic_s())
        return circuit.opened, opens_in_s, outlet.forced, outlet.reason
