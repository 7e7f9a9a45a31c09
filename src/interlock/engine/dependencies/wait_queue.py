"""Slots and wait queues: where an attempt of a step, undo or effect waits until it may begin.

`Slots` bound the concurrent attempts of an engine. A `Line` is the queue of one engine at one dependency, oldest
workflow first, undos before calls. `Places` has all of both. An attempt with a dependency needs a permit of the
dependency and a slot. It waits for the permit first, so that a slow dependency keeps no slot from others.

A workflow in a queue is its id in memory and its row in the store. It costs no task, no timer and no attempt, however
long the breaker is open. A called workflow has a slot or pass kept for it, and declines it if it no longer needs it. So
no workflow overtakes the queue, and no slot is lost. Retries beyond the budget step aside, so that they do not delay
first calls; when the budget allows one, they are next.

Sections: queue by age; slots; the queue at a dependency; parked workflows; all slots and queues of an engine.
"""

import asyncio
import contextlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from interlock.clock import Chance, Clock
from interlock.core.policies import Dependency, Verdict
from interlock.engine.dependencies.fair_queue import NO_TURN, FairQueue, Turn
from interlock.engine.dependencies.outlet import BreakerTransition, Kind, Outcome, Outlet, outlet_of

# --- Queue by age ----------------------------------------------------------------------------------------------------
# In the order of arrival every workflow would wait after all newer ones at each of its steps: a thousand would be
# half done before the first ends. By age the oldest finish first, and a workflow's time depends only on older ones.

ItemT = TypeVar("ItemT")


class AgeQueue(Generic[ItemT]):
    """A priority queue: the oldest item first; items of the same birth in the order of arrival."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, ItemT]] = []
        """Public, because callers often check whether it is empty."""
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self.heap)

    @property
    def first(self) -> ItemT:
        """The oldest item."""
        return self.heap[0][2]

    @property
    def born_us(self) -> int:
        """The birth of the oldest item."""
        return self.heap[0][0]

    def put(self, item: ItemT, born_us: int) -> None:
        """Add an item."""
        heapq.heappush(self.heap, (born_us, next(self._numbers), item))

    def take(self) -> tuple[ItemT, int]:
        """Remove and return the oldest item and its birth."""
        born_us, _, item = heapq.heappop(self.heap)
        return item, born_us

    def clear(self) -> None:
        """Remove all items."""
        self.heap.clear()


# --- Slots (G6) ------------------------------------------------------------------------------------------------------


class Slots:
    """A bounded number of slots. `called` receives the next name of the queue when a slot is free for it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.free = 0
        """0 until `open`: nothing begins before everything that is owed has been taken up."""
        self.called: Callable[[str], None] | None = None
        self._closed = False
        self._waiting: deque[str] = deque()
        self._queued: set[str] = set()
        self._kept: set[str] = set()
        """Names that were called and have not answered yet."""

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self) -> None:
        """Release all slots, first to waiting names."""
        for _ in range(self.most):
            self.release()

    def reserve(self, name: str | None = None) -> bool:
        """Take the slot kept for this name, or a free one if the queue is empty."""
        if self._closed:
            return False
        if name is not None and name in self._kept:
            self._kept.discard(name)
            return True
        if self.free <= 0 or self._waiting:
            return False
        self.free -= 1
        return True

    def release(self) -> None:
        """Give a slot back: to the next name in the queue."""
        self.free += 1
        if self._waiting:
            self._call()

    def decline(self, name: str) -> None:
        """Give back the slot kept for this name. A name without one is ignored."""
        if name in self._kept:
            self._kept.discard(name)
            self.release()

    def wait(self, name: str) -> None:
        """Queue the name; the call may come immediately. A name already in the queue keeps its turn."""
        if self.most and name not in self._queued and name not in self._kept and not self._closed:
            self._queued.add(name)
            self._waiting.append(name)
            self._call()

    def close(self) -> None:
        """Close: no more slots, and an empty queue. Everything owed is in the store."""
        self._closed = True
        self._waiting.clear()
        self._queued.clear()
        self._kept.clear()
        self.called = None

    def _call(self) -> None:
        while self.free > 0 and self._waiting and self.called is not None:
            name = self._waiting.popleft()
            self._queued.discard(name)
            self.free -= 1
            self._kept.add(name)
            self.called(name)


# --- The queue at a dependency ---------------------------------------------------------------------------------------

HELD_MIN = 100
"""On a shared store, this many wait in memory besides twice the permits of the dependency; more wait in the store."""

PARKED_S = 30.0
"""The average seconds a workflow waits in the store without a claim by name, in addition to the breaker's delay."""

LOOK_S_MIN = 0.001

LAST_US = 2**63
"""The age that sorts after every real one."""

Waiter = tuple[str, Slots, Kind, Turn]
"""The waiter's name, the slots it needs, its kind of call, and its key and priority."""

KEY_HELD_MAX = 20
"""On a shared store, this many of a key wait in memory although others have filled the queue."""

KEYED_MAX = 10_000
"""On a shared store, the number of workflows with keys that wait in memory."""


class Pass:
    """The right to make one attempt: a slot of the engine and, with a line, a permit of its dependency."""

    __slots__ = ("admitted", "key", "kind", "line", "slots")

    def __init__(
        self,
        slots: Slots,
        line: "Line | None" = None,
        kind: Kind = "first",
        admitted: Verdict = "call",
        key: str = "",
    ) -> None:
        self.key = key
        self.slots = slots
        self.line = line
        self.kind: Kind = kind
        self.admitted: Verdict = admitted

    @property
    def is_probe(self) -> bool:
        """Whether the attempt probes a breaker that is not closed: its failure costs no attempt."""
        return self.admitted != "call"

    def without_place(self) -> "Pass":
        """Give the permit of the dependency back, and keep the slot."""
        if self.line is not None:
            self.line.give_back(self)
        return Pass(self.slots)

    def leave(self, outcome: Outcome, took_s: float = 0.0, why: str = "", *, reached: bool = True) -> None:
        """End the attempt, or give up one never made; `reached`: it has called the dependency."""
        if self.line is not None:
            if self.key:
                self.line.outlet.give_key(self.key, unused=outcome == "abandoned")
            self.line.outlet.leave(self.kind, self.admitted, outcome, took_s, why, reached=reached)
        self.slots.release()

    def stay(self, outcome: Outcome, took_s: float = 0.0, why: str = "") -> None:
        """End the attempt for its workflow while its thread goes on; keep the permit until `vacate`."""
        if self.line is not None:
            self.line.outlet.leave(self.kind, self.admitted, outcome, took_s, why, stays=True)

    def vacate(self) -> None:
        """Give slot and permit back after the thread has ended."""
        self.vacate_place()
        self.slots.release()

    def vacate_place(self) -> None:
        """Give only the permit back, which belongs to the process. Called from any thread."""
        if self.line is not None:
            if self.key:
                self.line.outlet.give_key(self.key)
            self.line.outlet.vacate(self.kind)


class Line:
    """The wait queue of one engine at one outlet. Lives in one event loop."""

    def __init__(self, outlet: Outlet, chance: Chance, changed: Callable[[BreakerTransition], None]) -> None:
        self.outlet = outlet
        self._chance = chance
        self._changed = changed
        self._undos = AgeQueue[Waiter]()
        self._calls: AgeQueue[Waiter] | FairQueue[Waiter] = AgeQueue[Waiter]()
        self._aside: AgeQueue[Waiter] | FairQueue[Waiter] = AgeQueue[Waiter]()
        """Retries beyond the budget."""
        self._queued: set[tuple[str, bool]] = set()
        self._kept: dict[tuple[str, bool], Pass] = {}
        """Passes of called workflows that have not answered yet. Undos are separate: a workflow cancelled while its
        step waited may be called for both."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._pulling = self._again = self._closed = False
        self._open = False
        self.parked: AgeQueue[tuple[str, str]] = AgeQueue()
        """On a shared store: workflows that wait in the store, each with its machine."""
        self._undo_probed = False
        """Whether the last probe was an undo."""
        self._probers: set[str] = set()
        """Workflows that have probed since the breaker was closed: they queue last, whatever their age. A failed probe
        costs no attempt, so the oldest would otherwise make every probe for ever."""
        outlet.join(self)

    def __len__(self) -> int:
        return len(self._undos) + len(self._calls) + len(self._aside)

    @property
    def kept(self) -> int:
        """The number of called workflows that have not answered yet."""
        return len(self._kept)

    @property
    def is_open(self) -> bool:
        """Whether waiting workflows will be called."""
        return self._open and not self._closed

    def open(self) -> None:
        """Begin to call waiting workflows. Called when all work of the previous process has been queued."""
        self._open = True
        self._pull()

    def reserve(
        self, name: str | None, slots: Slots, kind: Kind, born_us: int = 0, turn: Turn = NO_TURN
    ) -> Pass | None:
        """Return the pass kept for this name, or a new one if nothing older waits."""
        if name is not None:
            kept = self._kept.pop((name, kind == "undo"), None)
            self.decline(name)
            if kept is not None and self._outdated(kept):
                self.give_back(kept)
            elif kept is not None:
                kept.slots = slots
                return kept
        if self._closed or not self._open or self._ahead(kind, self._age(name, born_us), turn[0]):
            return None
        admitted = self._ask(kind, turn[0])
        if admitted == "probe" and name is not None:
            self._probers.add(name)
        return None if admitted == "wait" else Pass(slots, self, kind, admitted, turn[0])

    def _ask(self, kind: Kind, key: str) -> Verdict:
        """Ask for a permit, and for one of the key if there is a key."""
        if not key:
            return self.outlet.ask(kind)
        if not self.outlet.take_key(key):
            return "wait"
        admitted = self.outlet.ask(kind)
        if admitted == "wait":
            self.outlet.give_key(key, unused=True)
        return admitted

    def _age(self, name: str | None, born_us: int) -> int:
        """Return the sort key: the birth of the workflow, or the last place after a probe that failed."""
        if self._probers and self.outlet.phase == "closed":
            self._probers.clear()
        return LAST_US if name in self._probers else born_us

    def _outdated(self, kept: Pass) -> bool:
        """Whether the breaker was opened, by failures or by a person, while the pass waited for a slot."""
        phase, by_hand = self.outlet.phase, self.outlet.forced is not None
        if kept.admitted == "call":
            return phase != "closed"
        return phase == "open" and (by_hand or kept.admitted == "probe")

    def _ahead(self, kind: Kind, born_us: int, key: str) -> bool:
        """Whether an older call of this kind waits; where keys take turns, any that may call now, or one of the key."""
        if kind == "undo":
            return bool(self._undos.heap) and self._undos.born_us <= born_us
        for queue in (self._calls, self._aside) if kind == "retry" else (self._calls,):
            if isinstance(queue, FairQueue):
                if queue.count(key) or queue.heap:
                    return True
            elif queue.heap and queue.born_us <= born_us:
                return True
        return False

    def _take_turns(self) -> None:
        """Let keys take turns from now on: the first call with a key waits."""
        self._calls, self._aside = self._in_turns(self._calls), self._in_turns(self._aside)

    def _in_turns(self, before: "AgeQueue[Waiter] | FairQueue[Waiter]") -> "FairQueue[Waiter]":
        if isinstance(before, FairQueue):
            return before
        queue = FairQueue[Waiter](self.outlet.key_wait_s, self._loop.time, fair=self.outlet.declared.fair)
        for born_us, _, waiter in sorted(before.heap, key=_place):
            queue.put(waiter, born_us, waiter[3])
        return queue

    def keep(self, name: str, pass_: Pass) -> None:
        """Keep the pass until there is a slot; then the workflow is called again."""
        self._kept[name, pass_.kind == "undo"] = pass_

    def keeps(self, name: str, kind: Kind) -> bool:
        """Whether a pass is kept for that name and kind of attempt."""
        return (name, kind == "undo") in self._kept

    def knows(self, name: str, kind: Kind) -> bool:
        """Whether the name is queued for such an attempt, or has a pass that it has not used yet."""
        return (name, kind == "undo") in self._queued or self.keeps(name, kind)

    def wait(self, name: str, slots: Slots, kind: Kind, born_us: int = 0, turn: Turn = NO_TURN) -> None:
        """Queue for a permit; the slots call the name back. A name already in the queue keeps its turn."""
        entry = (name, kind == "undo")
        if entry not in self._queued and entry not in self._kept and not self._closed and slots.most:
            self._queued.add(entry)
            if turn != NO_TURN:
                self._take_turns()
            waiter: Waiter = (name, slots, kind, turn)
            age_us = self._age(name, born_us)
            if kind == "undo":
                self._undos.put(waiter, age_us)
            else:
                _put(self._calls, waiter, age_us)
            self._pull()

    def decline(self, name: str) -> None:
        """Give back the passes kept for this name. A name without one is ignored."""
        for undo in (False, True):
            kept = self._kept.pop((name, undo), None)
            if kept is not None:
                self.give_back(kept)

    def give_back(self, pass_: Pass) -> None:
        """Give back the permit of an unused pass, without the slot."""
        if pass_.key:
            self.outlet.give_key(pass_.key, unused=True)
        self.outlet.leave(pass_.kind, pass_.admitted, "abandoned")

    def freed(self, key: str) -> None:
        """Let a key take turns again: a call of it has ended. From any thread."""
        if not self._closed:
            self._do(lambda: self._unblock(key))

    def _unblock(self, key: str) -> None:
        for queue in (self._calls, self._aside):
            if isinstance(queue, FairQueue):
                queue.unblock(key)

    def parks_s(self, kind: Kind, born_us: int, turn: Turn = NO_TURN) -> float | None:
        """Return the seconds to park a workflow in the store; None: it waits here, in memory.

        On a shared store only. No workflow waits here while an older one waits in the store: that one would starve.
        """
        if len(self) < self.held_max and not (self.parked and self.parked.born_us < born_us):
            return None
        if turn[0] and len(self) < KEYED_MAX:
            waiting = self._calls.count(turn[0]) if isinstance(self._calls, FairQueue) else 0
            if waiting < KEY_HELD_MAX:
                return None  # The flood of another key does not send it away.
        # This worker claims its parked workflows by name. The delay matters only if it dies.
        return (self.outlet.retry_in_s(kind) or 0.0) + PARKED_S * (0.5 + self._chance.fraction())

    @property
    def held_max(self) -> int:
        """The number that waits in memory where others could take over: enough to use every permit."""
        return HELD_MIN + 2 * self.outlet.concurrency_max

    def stir(self) -> None:
        """Call waiting workflows again. From any thread."""
        if len(self) and not self._closed:
            self._do(self._pull)

    def changed(self, change: BreakerTransition) -> None:
        """Handle a change of the breaker. From any thread."""
        if not self._closed:
            self._do(lambda: self._changed(change))

    def _do(self, call: Callable[[], None]) -> None:
        """Run the callback in the event loop of this line."""
        if _running_loop() is self._loop:
            call()
        elif self._loop.is_closed():
            self.close()  # Its engine ended without closing, and must not delay the others.
        else:
            # The loop may have ended since; then there is no engine to notify.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Stop: drop the queues and give every pass back. Everything owed is in the store."""
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
        """Call as many as are admitted. A call may stir others: that asks for another round, not another loop."""
        self._again = True
        if self._pulling or not self._open:
            return
        self._pulling = True
        try:
            while self._again and not self._closed:
                self._again = False
                for queue in self._turns():
                    if isinstance(queue, FairQueue):
                        queue.unblock_due()
                    if queue.heap:
                        self._call(queue)
        finally:
            self._pulling = False
        self._set_timer()

    def _turns(self) -> "tuple[AgeQueue[Waiter] | FairQueue[Waiter], ...]":
        """Return the queues in order: undos first, except after an undo's probe: a failing undo would keep it open."""
        if self._undo_probed and self.outlet.phase == "half_open":
            return self._aside, self._calls, self._undos
        return self._undos, self._aside, self._calls

    def _call(self, queue: "AgeQueue[Waiter] | FairQueue[Waiter]") -> None:
        while queue.heap:
            name, slots, kind, turn = queue.first
            if self.keeps(name, kind):
                # It was called meanwhile for a kind other than a retry: one pass is enough.
                queue.take()
                self._queued.discard((name, kind == "undo"))
                continue
            admitted = self._ask(kind, turn[0])
            if admitted == "wait":
                if queue is self._aside or not self.outlet.spent(kind):
                    return
                _put(self._aside, *queue.take())
                continue
            if admitted == "probe":
                self._undo_probed = kind == "undo"
                self._probers.add(name)
            queue.take()
            self._queued.discard((name, kind == "undo"))
            self._kept[name, kind == "undo"] = Pass(slots, self, kind, admitted, turn[0])
            slots.wait(name)

    def _set_timer(self) -> None:
        """Set the timer for when time alone may admit the first waiting call."""
        fair = [queue for queue in (self._calls, self._aside) if isinstance(queue, FairQueue)]
        rates = [queue.soonest_s() for queue in fair if len(queue)]
        if (
            self._timer is None
            and not self._aside.heap
            and not self.outlet.minds_the_time
            and not any(wait_s is not None for wait_s in rates)
        ):
            return
        waits = [
            self.outlet.retry_in_s(queue.first[2]) for queue in (self._undos, self._calls, self._aside) if queue.heap
        ] + rates
        soonest_s = min((wait_s for wait_s in waits if wait_s is not None), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if soonest_s is not None and not self._closed:
            self._timer = self._loop.call_later(max(LOOK_S_MIN, soonest_s), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pull()


def _place(entry: tuple[int, int, Waiter]) -> tuple[int, int]:
    return entry[:2]


def _put(queue: AgeQueue[Waiter] | FairQueue[Waiter], waiter: Waiter, born_us: int) -> None:
    if isinstance(queue, FairQueue):
        queue.put(waiter, born_us, waiter[3])
    else:
        queue.put(waiter, born_us)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# --- Workflows that this worker parked in the store until their dependency can be called -----------------------------
# A parked workflow is a time in its row, at which any worker claims it. That alone would be late, or often in vain.
# So each worker remembers the names that it has parked. As soon as the breaker is closed, it claims them by name, a
# full queue at a time. If the worker dies, others claim them at their time.

PARKED_MAX = 20_000
"""Names remembered for each dependency; the others come back by their time."""

TAKEN_MAX = 500
"""Names taken up together: as many as a store claims. More would be forgotten."""


class Parking:
    """The names of workflows that were parked here."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        """Queues with parked workflows. Each queue has its own, the oldest first."""
        self._names: set[tuple[Line, str]] = set()

    def add(self, line: Line, workflow: str, machine: str, born_us: int = 0) -> None:
        """Remember a parked workflow."""
        if line not in self._lines:
            self._lines.append(line)
        if len(line.parked) < PARKED_MAX and (line, workflow) not in self._names:
            self._names.add((line, workflow))
            line.parked.put((workflow, machine), born_us)

    def __len__(self) -> int:
        return len(self._names)

    def machines(self) -> Iterator[str]:
        """Yield the machine of each parked name."""
        for line in self._lines:
            yield from (machine for _, _, (_, machine) in line.parked.heap)

    @property
    def ready(self) -> bool:
        """Whether a parked workflow can be taken up."""
        return any(line.parked and _room(line) > 0 for line in self._lines)

    def taken(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the parked names that can be taken up now, by machine, and forget them. Others are claimed when due."""
        for line in list(self._lines):  # A workflow may be parked while others are claimed.
            parked = line.parked
            machines: dict[str, list[str]] = {}
            for _ in range(min(TAKEN_MAX, _room(line), len(parked))):
                (name, machine), _ = parked.take()
                self._names.discard((line, name))
                machines.setdefault(machine, []).append(name)
            yield from machines.items()


def _room(line: Line) -> int:
    """Return the free room of a queue; 0 unless half of it is empty, to fill many at a time."""
    if line.outlet.phase != "closed" or 2 * len(line) > line.held_max:
        return 0
    return line.held_max - len(line)


# --- All slots and queues of an engine (C8, G6) ----------------------------------------------------------------------


class Places:
    """All slots and wait queues of one engine.

    Steps, undos and effects have slots of their own, so that compensation works while all steps are stuck (C9).
    """

    def __init__(self, steps: int, undos: int, effects: int, lines: Mapping[str, Line] | None = None) -> None:
        self.steps, self.undos, self.effects = Slots(steps), Slots(undos), Slots(effects)
        self.lines = dict(lines or {})
        self._plain = {slots: Pass(slots) for slots in (self.steps, self.undos, self.effects)}

    @property
    def waiting(self) -> int:
        """The number of workflows that wait for a permit or a slot."""
        return len(self.steps) + len(self.undos) + sum(map(len, self.lines.values()))

    def reserve(
        self,
        name: str | None,
        slots: Slots,
        line: Line | None,
        kind: Kind,
        born_us: int = 0,
        turn: Turn = NO_TURN,
    ) -> Pass | None:
        """Return a pass for an attempt; None: it has to wait. Without a name nothing is kept for it."""
        if name is None:
            # Slot and permit, or neither. The slot comes first: a permit costs a token and part of the budget.
            if not slots.reserve():
                return None
            pass_ = self._plain[slots] if line is None else line.reserve(None, slots, kind, born_us, turn)
            if pass_ is None:
                slots.release()
            return pass_
        self._decline_elsewhere(name, slots, line)
        if line is None:
            return self._plain[slots] if slots.reserve(name) else None
        pass_ = line.reserve(name, slots, kind, born_us, turn)
        if pass_ is None:
            slots.decline(name)
            return None
        if slots.reserve(name):
            return pass_
        line.keep(name, pass_)
        return None

    def wait(
        self, name: str, slots: Slots, line: Line | None, kind: Kind, born_us: int = 0, turn: Turn = NO_TURN
    ) -> None:
        """Queue for a permit and a slot. At a dependency the oldest workflow comes first."""
        if line is None or line.keeps(name, kind):
            slots.wait(name)
        else:
            line.wait(name, slots, kind, born_us, turn)

    def decline(self, name: str) -> None:
        """Give back every slot and permit kept for this name."""
        self.steps.decline(name)
        self.undos.decline(name)
        self.effects.decline(name)
        for line in self.lines.values():
            line.decline(name)

    def _decline_elsewhere(self, name: str, slots: Slots, line: Line | None) -> None:
        """Give back what is kept for a state that the workflow has left."""
        for each in (self.steps, self.undos, self.effects):
            if each is not slots:
                each.decline(name)
        for other in self.lines.values():
            if other is not line:
                other.decline(name)

    def open(self) -> None:
        """Open all slots and queues; everything that was owed is known."""
        for slots in (self.steps, self.undos, self.effects):
            slots.open()
        for line in self.lines.values():
            line.open()

    def close(self) -> None:
        """Close all slots and queues."""
        for slots in (self.steps, self.undos, self.effects):
            slots.close()
        for line in self.lines.values():
            line.close()


def lines_of(
    names: Sequence[str],
    declared: Sequence[Dependency],
    *,
    clock: Clock,
    chance: Chance,
    changed: Callable[[BreakerTransition], None],
) -> dict[str, Line]:
    """Return the wait queues of the dependencies that the machines call or the engine declares."""
    by_name = {each.name: each for each in declared}
    return {
        name: Line(outlet_of(name, clock, by_name.get(name)), chance, changed) for name in sorted({*names, *by_name})
    }
