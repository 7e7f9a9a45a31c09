"""C18: what the defaults survive. One workflow alone, everything that it calls is down for ten minutes."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from interlock import DefinitionError, Dependency, Event, Machine, Retry, StepContext, pipeline, step
from interlock.testing import Harness
from tests.unit.engine.shared.stores import Luck

OUTAGE_S = 600.0
DEFAULT = Retry()


class State(Enum):
    CHARGING, PAID, UNDOING, PAST_DUE = "charging", "paid", "undoing", "past_due"


@dataclass(frozen=True)
class Order:
    cents: int = 1


class OrderEvent(Event): ...


@dataclass(frozen=True)
class Charged(OrderEvent): ...


@dataclass(frozen=True)
class Cancel(OrderEvent): ...


class Outages:
    """Whatever is called is down for ten minutes, or another time, from its first attempt on."""

    def __init__(self, outage_s: float = OUTAGE_S) -> None:
        self.outage_s = outage_s
        self.now_s: Callable[[], float] = lambda: 0.0
        self.began: dict[str, float] = {}
        self.calls: dict[str, int] = {}

    def call(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.now_s() - self.began.setdefault(name, self.now_s()) < self.outage_s:
            raise ConnectionRefusedError("the gateway is down")


OrderMachine = Machine[State, Order, OrderEvent]


def shop(
    outages: Outages,
    dependency: str | None,
    *,
    retry: Retry = DEFAULT,
    undo_retry: Retry | None = None,
    effect_retry: Retry = DEFAULT,
) -> OrderMachine:
    """By default, nothing here says how often it is tried."""
    machine: OrderMachine = Machine(
        "order",
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.CHARGING,
        final={State.PAST_DUE},
        unwind={State.UNDOING: State.PAST_DUE},
    )
    machine.on(Charged, State.CHARGING, to=State.PAID)
    machine.on(Cancel, State.CHARGING, State.PAID, to=State.UNDOING)

    @machine.step(State.CHARGING, timeout_s=4, retry=retry, dependency=dependency, failed=State.UNDOING)
    async def charge(order: Order, ctx: StepContext) -> Charged:
        outages.call("charge")
        return Charged()

    @charge.undo(Charged, retry=undo_retry)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
        outages.call("refund")

    @machine.effect(State.PAST_DUE, dependency=dependency, retry=effect_retry)
    async def notify(order: Order, ctx: StepContext) -> None:
        outages.call("notify")

    return machine


def opened(
    machine: OrderMachine, outages: Outages, url: str, *, declared: bool = False, fraction: float | None = None
) -> "Harness[State, Order, OrderEvent]":
    h = Harness(machine, url=url, dependencies=[Dependency("gateway")] * declared)
    if fraction is not None:
        h._chance = Luck(fraction)  # type: ignore[assignment]
    outages.now_s = lambda: h.clock.now_s
    return h


@pytest.fixture(params=["memory", "lanes"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"lanes://{tmp_path}/home"


@pytest.mark.parametrize("fraction", [None, 0.0])
@pytest.mark.parametrize("dependency", [None, "declared", "undeclared"])
def test_a_workflow_alone_survives_ten_minutes_without_what_it_calls(
    url: str, dependency: str | None, fraction: float | None
) -> None:
    """Its step, its undo and its effect, each in an outage of its own; whatever the jitter."""
    outages = Outages()
    machine = shop(outages, None if dependency is None else "gateway")
    with opened(machine, outages, url, declared=dependency == "declared", fraction=fraction) as h:
        h.start("o-1", Order())
        h.drain()
        h.assert_history("o-1", "STARTED", "CHARGED")
        h.send("o-1", Cancel())
        h.drain()
        assert h.dead_letters() == []
        assert h.view("o-1").state is State.PAST_DUE
        assert outages.calls.keys() == {"charge", "refund", "notify"}


@pytest.mark.parametrize("seed", range(8))
def test_no_seed_uses_up_the_attempts_of_an_outage(seed: int) -> None:
    outages = Outages()
    with Harness(shop(outages, None), seed=seed) as h:
        outages.now_s = lambda: h.clock.now_s
        h.start("o-1", Order())
        h.drain()
        h.send("o-1", Cancel())
        h.drain()
        assert h.dead_letters() == []
        h.assert_history("o-1", "STARTED", "CHARGED", "CANCEL", "UNWOUND")


@pytest.mark.parametrize("name", ["restart", "crash"])
def test_attempts_of_an_outage_count_over_a_restart(url: str, name: str) -> None:
    """What was tried before is counted, and the outage is survived all the same."""
    outages = Outages()
    with opened(shop(outages, None), outages, url, fraction=0.5) as h:
        h.start("o-1", Order())
        h.advance(seconds=OUTAGE_S / 2)
        before = outages.calls["charge"]
        getattr(h, name)()
        h.drain()
        h.assert_history("o-1", "STARTED", "CHARGED")
        [*_, last] = h.attempts("charge")
        assert last.attempt == outages.calls["charge"] > before


def test_the_attempts_of_a_step_and_of_an_undo_are_those_that_they_declare() -> None:
    """A number that is given is the number of attempts, in an outage as well."""
    outages = Outages()
    machine = shop(outages, None, retry=Retry(attempts=3), undo_retry=Retry(attempts=8))
    with opened(machine, outages, "memory:") as h:
        h.start("o-1", Order())
        h.drain()
        assert outages.calls == {"charge": 3, "refund": 8}
        [letter] = h.dead_letters()
        assert (letter.kind, letter.attempts) == ("undo", 8)
        assert h.view("o-1").state is State.UNDOING


def test_an_undo_that_dies_with_its_process_has_the_attempts_that_it_declares() -> None:
    outages = Outages()
    machine = shop(outages, None, retry=Retry(attempts=1), undo_retry=Retry(attempts=2))
    with opened(machine, outages, "memory:") as h:
        h.crash_in("CHARGED", times=2)
        h.start("o-1", Order())
        h.drain()
        [letter] = h.dead_letters()
        assert (letter.kind, letter.attempts) == ("undo", 2)


@pytest.mark.parametrize(
    ("name", "fraction", "waits"), [("charge", 0.5, 7.5), ("CHARGED", 0.0, 5.0), ("notify", 0.5, 7.5)]
)
def test_what_takes_its_process_with_it_waits_longer_from_the_second_crash_on(
    url: str, name: str, fraction: float, waits: float
) -> None:
    """The first crash is nearly always a deployment or a kill; later ones would be as fast as the process restarts."""
    outages, policy = Outages(outage_s=0), Retry(attempts=4, first_s=10, factor=1, max_s=10)
    machine = shop(outages, None, retry=policy, undo_retry=policy, effect_retry=policy)
    with opened(machine, outages, url, fraction=fraction) as h:
        h.crash_in(name, times=3)
        h.start("o-1", Order())
        h.drain()
        h.send("o-1", Cancel())
        h.drain()
        assert list(outages.calls.items()) == [("charge", 1), ("refund", 1), ("notify", 1)]
        times = [call.at_s for call in h.attempts(name)]
        gaps = [round(after - before, 3) for before, after in itertools.pairwise(times)]
        assert len(gaps) == 3
        # A lane works in a thread of its own: virtual time may pass while an engine that was killed is replaced.
        assert gaps == [0, waits, waits] or (url != "memory:" and gaps >= [0, waits, waits] and min(gaps[1:]) >= waits)
        assert h.dead_letters() == []


def test_an_undo_of_a_pipeline_has_a_retry_of_its_own() -> None:
    calls: list[str] = []

    @step(timeout_s=4, retry=Retry(attempts=1))
    async def charge(order: Order, ctx: StepContext) -> Order:
        raise ConnectionRefusedError

    @charge.undo(retry=Retry(attempts=4))
    async def refund(order: Order, ctx: StepContext) -> None:
        calls.append(ctx.key)
        raise ConnectionRefusedError

    checkout = pipeline("checkout", context=Order, steps=[charge])
    with Harness(checkout) as h:
        h.start("o-1", Order())
        h.drain()
        assert [(letter.kind, letter.attempts) for letter in h.dead_letters()] == [("undo", len(calls))]
        assert len(calls) == 4


def test_a_retry_of_an_undo_that_is_not_one_is_refused() -> None:
    with pytest.raises(DefinitionError, match="retry is 3"):
        shop(Outages(), None, undo_retry=3)  # type: ignore[arg-type]
