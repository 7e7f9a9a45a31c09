"""Outlets, lines and slots for the tests of this folder, and what they tell."""

import asyncio

from interlock.clock import Chance, Clock
from interlock.core.policies import Breaker, Dependency
from interlock.engine.dependencies.outlet import BreakerTransition, Kind, Outlet
from interlock.engine.dependencies.wait_queue import Line, Slots
from interlock.testing.virtual_time import VirtualClock, VirtualLoop
from tests.unit.engine.shared.stores import Luck


class Told:
    """Somebody who uses an outlet, and writes down what it is told."""

    def __init__(self) -> None:
        self.stirred = 0
        self.changes: list[BreakerTransition] = []

    def stir(self) -> None:
        self.stirred += 1

    def changed(self, change: BreakerTransition) -> None:
        self.changes.append(change)

    def freed(self, key: str) -> None: ...


def outlet_for(
    clock: VirtualClock | None = None,
    *,
    concurrency_max: int = 50,
    rate_per_s: float | None = None,
    breaker: Breaker | None = None,
    budget: float = 0.2,
) -> Outlet:
    dependency = Dependency("gateway", concurrency_max, rate_per_s, breaker or Breaker(), budget)
    return Outlet(dependency, clock or VirtualClock())


def fails(outlet: Outlet, times: int = 1, kind: Kind = "first", why: str = "OSError: net") -> None:
    """So many calls that are made now fail."""
    for _ in range(times):
        admitted = outlet.ask(kind)
        assert admitted != "wait"
        outlet.leave(kind, admitted, "failed", 0.0, why)


def opened_slots(most: int = 100) -> tuple[Slots, list[str]]:
    """Slots, and who was called to one."""
    slots, called = Slots(most), list[str]()
    slots.called = called.append
    slots.open()
    return slots, called


class HairEarly(VirtualClock):
    """The clock of a loop whose timers fire a hair early: the first look at a moment finds it not yet come."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._looked_at_s = 0.0

    def monotonic_s(self) -> float:
        now_s = self._clock.now_s
        if now_s > self._looked_at_s:
            self._looked_at_s = now_s
            return now_s - 1e-4
        return now_s


class Queue:
    """One line at an outlet of its own, its slots, and who was called."""

    def __init__(
        self, dependency: Dependency, clock: Clock | None = None, *, chance: Chance | None = None, opened: bool = True
    ) -> None:
        self.outlet = Outlet(dependency, clock or VirtualClock())
        self.changes = list[BreakerTransition]()
        self.line = Line(self.outlet, chance or Luck(), self.changes.append)
        self.steps, self.called = opened_slots()
        self.undos, self.called_to_undo = opened_slots()
        if opened:
            self.line.open()

    def wait(self, *names: str, kind: Kind = "first") -> None:
        """These wait."""
        for name in names:
            self.line.wait(name, self.undos if kind == "undo" else self.steps, kind)


def clock_of_the_loop() -> VirtualLoop:
    """The loop of this scenario, with its clock."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def taken(queue: Queue, *names: str) -> None:
    """Those who were called take their passes, and leave at once."""
    for name in names:
        held = queue.line.reserve(name, queue.steps, "first")
        assert held is not None
        queue.outlet.leave(held.kind, held.admitted, "done")
