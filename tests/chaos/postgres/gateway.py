"""The gateway of the campaign: it keeps what it has promised, and nothing else can be relied upon.

As every gateway of chaos, it lives in the process of the test, which nobody kills, and does each deed once per key. It
fails before or after it has done what was asked, hangs, declines, takes its time, and does what was asked although
nobody waits for it any more.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from interlock.chaos.shop import ASKED, Gateway
from interlock.chaos.worker_messages import FAILED, ServiceCall
from interlock.clock import Chance
from tests.crash.engine.gateway import DECLINABLE

ANSWERED, FAILED_BEFORE, LOST, HUNG_BEFORE, HUNG_AFTER = 0.89, 0.93, 0.96, 0.965, 0.97
"""The share of calls up to which they go so; what is left is declined, by those that can be."""

LATENCY_S = 0.06


class UnreliableGateway(Gateway):
    """Everything that was ever asked of it, and by which life of a process."""

    def __init__(self, chance: Chance, now_s: Callable[[], float], changed: Callable[[], None]) -> None:
        super().__init__(chance, now_s, changed)
        self.seen: Counter[str] = Counter()
        self.calls: Counter[int] = Counter()
        """How often each life has asked."""
        self.last: dict[str, int] = {}
        """Which life has asked last, by workflow."""
        self._under_way: list[tuple[ServiceCall, int]] = []

    async def ask(self, call: ServiceCall, worker: int, order: int) -> str:
        """Do the deed once for this key, or not, and say so, or not. A call that hangs ends when it is given up."""
        luck, latency_s = self._chance.fraction(), self._chance.fraction() * LATENCY_S
        if any(life == worker and each.key == call.key for each, life in self._under_way):
            self.seen["two attempts of one worker at once"] += 1
        self._under_way.append((call, worker))
        self.calls[worker] += 1
        self.last[call.workflow] = worker
        self._write(ASKED, call, worker)
        try:
            return await self._answer(call, worker, luck, latency_s)
        finally:
            self._under_way.remove((call, worker))

    async def _answer(self, call: ServiceCall, worker: int, luck: float, latency_s: float) -> str:
        fails, hangs = ANSWERED <= luck < FAILED_BEFORE, LOST <= luck < HUNG_BEFORE
        try:
            await self.take_time(latency_s)
            if hangs:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not fails and not hangs:  # What was sent cannot be called back.
                self._do(call, worker, declines=luck >= HUNG_AFTER)
            raise
        if fails:
            return FAILED
        answer = self._do(call, worker, declines=luck >= HUNG_AFTER)
        if FAILED_BEFORE <= luck < LOST:
            return FAILED
        if HUNG_BEFORE <= luck < HUNG_AFTER:
            await asyncio.Event().wait()
        return answer

    def _do(self, call: ServiceCall, worker: int, *, declines: bool) -> str:
        if call.undoes and call.undoes not in self._answers:
            self.seen["taken back before it was done"] += 1
        return self._do_deed(call, worker, declines=declines and call.deed in DECLINABLE)

    def under_way_of(self, life: int) -> set[str]:
        """The workflows for which a life waits for an answer at this moment."""
        return {call.workflow for call, worker in self._under_way if worker == life}

    def asked_by_others(self, life: int, since: int) -> set[str]:
        """The workflows for which anybody else has asked for something, from a number of lines on."""
        return {each.workflow for each in self.lines[since:] if each.what == ASKED and each.worker != life}
