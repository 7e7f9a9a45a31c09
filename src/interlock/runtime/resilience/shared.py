"""A dependency among the processes of a cluster: its outlet here, and what Redis knows of its breaker and its rate.

The outlet stays what decides (0010). What the others say makes it open or closed, a probe of it needs their permit, and
its rate is that of all together, for as long as Redis answers.
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
    """An outlet that is shared. Made by the engine that uses it, and given up with it."""

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
        """Whether the others can be asked."""
        return self._link.up

    async def close(self) -> None:
        """The outlet is this process's own again, or another engine's."""
        self.closed = True
        while isinstance(last := self._outlet.others, Shared) and last.closed:
            self._outlet.others = last.before
        await self._breaker.close()
        if self._tokens is not None:
            await self._tokens.close()

    # --- what the outlet says ----------------------------------------------------------------------------------------

    def may_probe(self) -> bool:
        """Whether a probe may be made here."""
        return self._breaker.may_probe()

    def told(self, *, opened: bool, reset_s: float, reason: str) -> None:
        """The breaker has opened here, or was closed by a probe."""
        if opened:
            self._breaker.opened(reset_s, reason)
        else:
            self._breaker.closed(reason)

    def probed(self, *, said: bool) -> None:
        """A probe has ended."""
        self._breaker.probed(said=said)

    def forced(self, forced: Forced | None, reason: str) -> None:
        """A person has said something here."""
        self._breaker.forced(forced, reason)

    def token(self, now_s: float, *, take: bool) -> float | None:
        """A token of the rate that all have together; while nobody can be asked, of the outlet's own."""
        del now_s
        self._limit()
        if self._tokens is None or not self._link.up:
            return None
        if take:
            return 0.0 if self._tokens.take() else math.inf
        return self._tokens.wait_s()

    def _limit(self) -> None:
        """The rate may be changed at any time."""
        rate = self._outlet.rate
        if rate == (None if self._tokens is None else self._tokens.rate):
            return
        if self._tokens is not None:
            self._tokens.retire()
        name = f"dependency:{self._outlet.declared.name}"
        self._tokens = None if rate is None else SharedTokens(self._link, name, rate, self._clock, self.stir)

    # --- what the others say -----------------------------------------------------------------------------------------

    def follow(self, heard: Heard) -> None:
        """Be as the cluster's breaker is. What is under way here stays counted."""
        now_s = self._clock.monotonic_s()
        let_go = self._outlet.forced == "open" and heard.forced is None

        def turned(before: Circuit) -> Circuit:
            if heard.opened:
                retry_at_s = now_s + heard.opens_in_s
                return msgspec.structs.replace(before, opened=True, retry_at_s=retry_at_s, wave=0, undos_failed=False)
            if before.opened or let_go:
                return Circuit(wave=FIRST_WAVE, closed_at_s=now_s, probes=before.probes, undos=before.undos)
            return before

        self._outlet.follow(turned, heard.forced, heard.reason, by_hand=heard.forced_changed)

    def stir(self) -> None:
        """Somebody who was refused may be let through now."""
        self._outlet.stir()

    def standing(self) -> tuple[bool, float, Forced | None, str]:
        """The breaker as it is here."""
        outlet = self._outlet
        circuit = outlet.circuit
        opens_in_s = max(0.0, circuit.retry_at_s - self._clock.monotonic_s())
        return circuit.opened, opens_in_s, outlet.forced, outlet.reason
