"""C4: one outlet per dependency and process, whichever engines use it, in whichever thread."""

import gc
import threading
import weakref

from interlock.clock import SystemClock
from interlock.core.policies import Breaker, Dependency
from interlock.engine.dependencies.outlet import Outlet, forget_outlets, outlet_of
from interlock.testing.virtual_time import VirtualClock
from tests.unit.engine.dependencies.queues import Told, fails, outlet_for


def test_the_process_has_one_outlet_per_name_and_each_virtual_clock_its_own() -> None:
    one, other = VirtualClock(), VirtualClock()
    assert outlet_of("gateway", SystemClock()) is outlet_of("gateway", SystemClock())
    assert outlet_of("gateway", SystemClock()) is not outlet_of("mail", SystemClock())
    assert outlet_of("gateway", one) is outlet_of("gateway", one)
    assert outlet_of("gateway", one) is not outlet_of("gateway", other)
    assert outlet_of("gateway", one) is not outlet_of("gateway", SystemClock())
    before = outlet_of("gateway", SystemClock())
    forget_outlets()
    assert outlet_of("gateway", SystemClock()) is not before
    before, others = outlet_of("gateway", one), outlet_of("gateway", other)
    forget_outlets(one)
    assert outlet_of("gateway", one) is not before
    assert outlet_of("gateway", other) is others


class Slotted:
    """A clock that cannot carry anything."""

    __slots__ = ()

    def wall_s(self) -> float:
        return 0.0

    def monotonic_s(self) -> float:
        return 0.0


def test_a_clock_that_cannot_carry_outlets_is_taken_for_the_real_one() -> None:
    assert outlet_of("gateway", Slotted()) is outlet_of("gateway", SystemClock())


def test_the_outlets_of_a_virtual_clock_are_gone_with_it() -> None:
    """A hundred thousand simulations in one process leave nothing behind."""
    clock = VirtualClock()
    outlet = outlet_of("gateway", clock)
    outlet.join(Told())
    gone = weakref.ref(clock)
    del clock, outlet
    gc.collect()
    assert gone() is None


def test_what_was_declared_last_counts_and_nothing_declared_changes_nothing() -> None:
    clock = VirtualClock()
    outlet, told = outlet_of("gateway", clock), Told()
    assert outlet.concurrency_max == 50
    outlet.join(told)
    assert outlet_of("gateway", clock, Dependency("gateway", 3, 5.0)) is outlet
    assert (outlet.concurrency_max, outlet.rate and outlet.rate.rate_per_s, told.stirred) == (3, 5.0, 1)
    outlet.limit(concurrency_max=9, rate_per_s=5.0)
    outlet_of("gateway", clock)
    outlet_of("gateway", clock, Dependency("gateway", 3, 5.0))
    assert outlet.concurrency_max == 9
    outlet_of("gateway", clock, Dependency("gateway", 4))
    assert (outlet.concurrency_max, outlet.rate) == (4, None)


def test_what_is_not_declared_has_the_defaults_when_nobody_uses_it_any_more() -> None:
    """Two programs that run one after the other in one process: the second has not heard of the first."""
    clock, told = VirtualClock(), Told()
    outlet = outlet_of("gateway", clock, Dependency("gateway", 1, 0.1))
    outlet.join(told)
    outlet_of("gateway", clock)
    assert outlet.concurrency_max == 1
    outlet.part(told)
    assert outlet_of("gateway", clock) is outlet
    assert (outlet.concurrency_max, outlet.rate) == (50, None)


def test_failures_that_had_not_opened_it_are_forgotten_when_nobody_uses_it_any_more() -> None:
    outlet, one, two = outlet_for(breaker=Breaker(failures=2)), Told(), Told()
    outlet.join(one)
    outlet.join(two)
    fails(outlet)
    outlet.part(one)
    assert (outlet.circuit.failures, outlet.unused) == (1, False)
    outlet.part(two)
    assert (outlet.circuit.failures, outlet.unused) == (0, True)


def test_an_open_breaker_stays_open_when_nobody_uses_it_any_more() -> None:
    outlet, told = outlet_for(breaker=Breaker(failures=1)), Told()
    outlet.join(told)
    fails(outlet)
    outlet.part(told)
    assert outlet.phase == "open"
    assert told.stirred == 1
    outlet.leave("first", "call", "abandoned")
    assert told.stirred == 1


def test_each_engine_is_the_first_in_its_turn() -> None:
    order = list[str]()

    class Named(Told):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def stir(self) -> None:
            order.append(self.name)

    outlet = outlet_for()
    for name in "abc":
        outlet.join(Named(name))
    for _ in range(4):
        outlet.limit(concurrency_max=1, rate_per_s=None)
    assert "".join(order) == "abcbcacababc"


def test_places_are_never_exceeded_and_nobody_is_lost_whatever_threads_do() -> None:
    outlet = Outlet(Dependency("gateway", 3, breaker=Breaker(failures=10**6)), SystemClock())
    most, inside, over = 0, 0, list[int]()
    counting, ready = threading.Lock(), threading.Barrier(8)

    def calls() -> None:
        nonlocal most, inside
        user, made = Told(), 0
        ready.wait()
        while made < 200:
            outlet.join(user)
            if outlet.ask("first") != "wait":
                with counting:
                    inside += 1
                    most = max(most, inside)
                    over.extend([inside] if inside > 3 else [])
                outlet.spent("retry")
                with counting:
                    inside -= 1
                outlet.leave("first", "call", "done")
                made += 1
            outlet.part(user)

    threads = [threading.Thread(target=calls) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (over, outlet.under_way, outlet.unused) == ([], 0, True)
    assert 1 <= most <= 3
