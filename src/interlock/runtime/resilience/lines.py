"""Who waits for a dependency: one line per engine and outlet, the oldest workflow first, undos before all others.

A workflow in a line is its id in a queue and its row in the store: it costs no task, no timer and no attempt, however
long the breaker is open. Whoever is called has a pass kept for it, and declines when it has no use for it any more.
Retries beyond the budget step aside, so that they hold up nobody who comes for the first time; as soon as the budget
allows one, they are the next.
"""

import asyncio
import contextlib
from collections.abc import Callable

from interlock.core.breakers import Verdict
from interlock.runtime.resilience.oldest import Oldest
from interlock.runtime.resilience.outlets import Change, Kind, Outlet
from interlock.runtime.resilience.reasons import Outcome
from interlock.runtime.slots import Slots
from interlock.seams import Chance

HELD_MIN = 100
"""On a shared store, so many wait in memory beside twice the places of the dependency; the others wait in the store."""

PARKED_S = 30.0
"""How long those who wait in the store do so if nobody claims them by name: on average, beside what a breaker says."""

LOOK_S_MIN = 0.001

LAST_US = 2**63
"""Behind everybody who was born."""

Waiter = tuple[str, Slots, Kind]
"""Who waits, by its name; for which slots, and for what kind of call."""


class Pass:
    """The right to make one attempt: a slot of the engine and, with a line, a place at its dependency."""

    __slots__ = ("admitted", "kind", "line", "slots")

    def __init__(
        self, slots: Slots, line: "Line | None" = None, kind: Kind = "first", admitted: Verdict = "call"
    ) -> None:
        self.slots = slots
        self.line = line
        self.kind: Kind = kind
        self.admitted: Verdict = admitted

    @property
    def is_probe(self) -> bool:
        """Whether it tries a breaker that is not closed: a failure then costs no attempt."""
        return self.admitted != "call"

    def without_place(self) -> "Pass":
        """Give the place at the dependency back, and keep the slot."""
        if self.line is not None:
            self.line.give_back(self)
        return Pass(self.slots)

    def leave(self, outcome: Outcome, took_s: float = 0.0, why: str = "", *, reached: bool = True) -> None:
        """The attempt has ended like this, or was never made; `reached`: it has called the dependency."""
        if self.line is not None:
            self.line.outlet.leave(self.kind, self.admitted, outcome, took_s, why, reached=reached)
        self.slots.release()

    def stay(self, outcome: Outcome, took_s: float = 0.0, why: str = "") -> None:
        """The attempt has ended like this for its workflow, and its thread goes on: keep the place until `vacate`."""
        if self.line is not None:
            self.line.outlet.leave(self.kind, self.admitted, outcome, took_s, why, stays=True)

    def vacate(self) -> None:
        """The thread has ended: give slot and place back."""
        self.vacate_place()
        self.slots.release()

    def vacate_place(self) -> None:
        """Give the place back alone, which belongs to the process. From any thread."""
        if self.line is not None:
            self.line.outlet.vacate(self.kind)


class Line:
    """The line of one engine at one outlet. Lives in one event loop."""

    def __init__(self, outlet: Outlet, chance: Chance, changed: Callable[[Change], None]) -> None:
        self.outlet = outlet
        self._chance = chance
        self._changed = changed
        self._undos = Oldest[Waiter]()
        self._calls = Oldest[Waiter]()
        self._aside = Oldest[Waiter]()
        """Retries beyond the budget."""
        self._queued: set[tuple[str, bool]] = set()
        self._kept: dict[tuple[str, bool], Pass] = {}
        """For those who were called and have not answered yet, undos apart: a workflow that was cancelled while its
        step waited may be called for both."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._pulling = self._asked = self._closed = False
        self._open = False
        self.parked: Oldest[tuple[str, str]] = Oldest()
        """On a shared store: those who were left there, each with its machine."""
        self._undo_probed = False
        """The last probe was an undo."""
        self._probers: set[str] = set()
        """Who has probed since the breaker was closed: behind the others, whatever their age. A failed probe costs no
        attempt, so one that always fails would be the oldest for ever, and make every probe."""
        outlet.join(self)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._undos) + len(self._calls) + len(self._aside)

    @property
    def kept(self) -> int:
        """How many were called and have not answered yet."""
        return len(self._kept)

    @property
    def is_open(self) -> bool:
        """Whether whoever waits will be called."""
        return self._open and not self._closed

    def open(self) -> None:
        """Everything that was owed is known: call those who wait."""
        self._open = True
        self._pull()

    def reserve(self, name: str | None, slots: Slots, kind: Kind, born_us: int = 0) -> Pass | None:
        """A pass for an attempt: the one that is kept for this name, or a new one if nobody waits for it."""
        if name is not None:
            kept = self._kept.pop((name, kind == "undo"), None)
            self.decline(name)
            if kept is not None and self._outdated(kept):
                self.give_back(kept)
            elif kept is not None:
                kept.slots = slots
                return kept
        if self._closed or not self._open or self._ahead(kind, self._age(name, born_us)):
            return None
        admitted = self.outlet.ask(kind)
        if admitted == "probe" and name is not None:
            self._probers.add(name)
        return None if admitted == "wait" else Pass(slots, self, kind, admitted)

    def _age(self, name: str | None, born_us: int) -> int:
        """By what it is ordered: when its workflow was born, unless it has probed in vain."""
        if self._probers and self.outlet.phase == "closed":
            self._probers.clear()
        return LAST_US if name in self._probers else born_us

    def _outdated(self, kept: Pass) -> bool:
        """Whether the breaker has opened while it waited for a slot, or opened again, or a person has opened it."""
        phase, by_hand = self.outlet.phase, self.outlet.forced is not None
        if kept.admitted == "call":
            return phase != "closed"
        return phase == "open" and (by_hand or kept.admitted == "probe")

    def _ahead(self, kind: Kind, born_us: int) -> bool:
        """Whether somebody waits whom this one must not overtake: somebody older."""
        queues = (self._undos,) if kind == "undo" else (self._calls, self._aside) if kind == "retry" else (self._calls,)
        return any(queue.heap and queue.born_us <= born_us for queue in queues)

    def keep(self, name: str, held: Pass) -> None:
        """There is no slot for it yet: it is called again when there is one."""
        self._kept[name, held.kind == "undo"] = held

    def keeps(self, name: str, kind: Kind) -> bool:
        """Whether a pass is kept for that name, for such an attempt."""
        return (name, kind == "undo") in self._kept

    def knows(self, name: str, kind: Kind) -> bool:
        """Whether it waits here for such an attempt, or was called and has not answered yet."""
        return (name, kind == "undo") in self._queued or self.keeps(name, kind)

    def wait(self, name: str, slots: Slots, kind: Kind, born_us: int = 0) -> None:
        """Be called, by way of the slots, when there is a place. Whoever waits already keeps its turn."""
        entry = (name, kind == "undo")
        if entry not in self._queued and entry not in self._kept and not self._closed and slots.most:
            self._queued.add(entry)
            (self._undos if kind == "undo" else self._calls).put((name, slots, kind), self._age(name, born_us))
            self._pull()

    def decline(self, name: str) -> None:
        """Whoever was called has no use for it; not having been called is no error."""
        for undo in (False, True):
            kept = self._kept.pop((name, undo), None)
            if kept is not None:
                self.give_back(kept)

    def give_back(self, held: Pass) -> None:
        """A pass that is not used, without the slot."""
        self.outlet.leave(held.kind, held.admitted, "abandoned")

    def parks_s(self, kind: Kind, born_us: int) -> float | None:
        """On a shared store: for how long to leave a workflow in the store; None: it waits here, in memory.

        Nobody waits here while somebody older waits in the store: those would never have their turn.
        """
        if len(self) < self.held_max and not (self.parked and self.parked.born_us < born_us):
            return None
        # This worker claims its own by name when they can go on. The time is for the case that it dies.
        return (self.outlet.retry_in_s(kind) or 0.0) + PARKED_S * (0.5 + self._chance.fraction())

    @property
    def held_max(self) -> int:
        """How many wait in memory where others could take them over: enough to keep the places busy."""
        return HELD_MIN + 2 * self.outlet.concurrency_max

    def stir(self) -> None:
        """Something that was refused may be admitted now. From any thread."""
        if (self._calls.heap or self._undos.heap or self._aside.heap) and not self._closed:
            self._do(self._pull)

    def changed(self, change: Change) -> None:
        """The breaker has changed. From any thread."""
        if not self._closed:
            self._do(lambda: self._changed(change))

    def _do(self, call: Callable[[], None]) -> None:
        """Call it in the event loop of this line."""
        if _running_loop() is self._loop:
            call()
        elif self._loop.is_closed():
            self.close()  # Its engine is gone without a word, and must not stand in the way of others.
        else:
            # It may have ended since: then nobody is there to be told.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Nobody waits any more: everything that is owed is in the store."""
        self._closed = True
        self.outlet.part(self)
        for queue in (self._undos, self._calls, self._aside):
            queue.clear()
        self._queued.clear()
        for name, _ in list(self._kept):
            self.decline(name)
        if self._timer is not None:
            self._timer.cancel()

    def _pull(self) -> None:
        """Call as many as are admitted. Calling one may stir others, which is not another loop but another round."""
        self._asked = True
        if self._pulling or not self._open:
            return
        self._pulling = True
        try:
            while self._asked and not self._closed:
                self._asked = False
                for queue in self._turns():
                    if queue.heap:
                        self._call(queue)
        finally:
            self._pulling = False
        self._wait_for_the_time()

    def _turns(self) -> tuple[Oldest[Waiter], ...]:
        """Undos come first, but they do not make every probe: one that always fails would keep a breaker open."""
        if self._undo_probed and self.outlet.phase == "half_open":
            return self._aside, self._calls, self._undos
        return self._undos, self._aside, self._calls

    def _call(self, queue: Oldest[Waiter]) -> None:
        while queue.heap:
            name, slots, kind = queue.heap[0][2]
            if self.keeps(name, kind):
                # It was called meanwhile as somebody who is not a retry any more: one pass is enough.
                queue.take()
                self._queued.discard((name, kind == "undo"))
                continue
            admitted = self.outlet.ask(kind)
            if admitted == "wait":
                if queue is self._aside or not self.outlet.spent(kind):
                    return
                self._aside.put(*queue.take())
                continue
            if admitted == "probe":
                self._undo_probed = kind == "undo"
                self._probers.add(name)
            queue.take()
            self._queued.discard((name, kind == "undo"))
            self._kept[name, kind == "undo"] = Pass(slots, self, kind, admitted)
            slots.wait(name)

    def _wait_for_the_time(self) -> None:
        """Look again when the time alone may admit the first of those who wait."""
        if self._timer is None and not self._aside.heap and not self.outlet.minds_the_time:
            return
        waits = [self.outlet.retry_in_s(queue.first[2]) for queue in (self._undos, self._calls, self._aside) if queue]
        soonest_s = min((wait_s for wait_s in waits if wait_s is not None), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if soonest_s is not None and not self._closed:
            self._timer = self._loop.call_later(max(LOOK_S_MIN, soonest_s), self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self._pull()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
