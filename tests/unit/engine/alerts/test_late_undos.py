"""C9: undos that are late are told once per machine, with the oldest and the dead letters, and resolved when paid."""

import asyncio

import pytest

from interlock import NonRetryable
from interlock.core.table import Node
from interlock.engine.alerts import Alert
from interlock.engine.alerts.detector import StallDetector
from interlock.engine.engine_settings import EngineSettings
from interlock.errors import DefinitionError
from interlock.signals import AlertRaised, Signal
from interlock.store.records import Letter
from interlock.testing import Harness
from tests.unit.cli import shop
from tests.unit.engine.alerts.test_detector import START_S, State, World, machine, node


def unwinding() -> dict[str, Node]:
    """CHARGING is where its workflows are undone."""
    undone, packing = node(State.SHIPPED, None), node(State.PACKING, None)
    undoing = node(State.CHARGING, None)
    undoing.unwinds_to = undone
    return machine(undoing, packing, undone)


def letter(workflow: str, kind: str = "undo") -> Letter:
    return Letter(f"letter-of-{workflow}", kind, workflow, "charge", 3, "TimeoutError", 1, 3, "key")


@pytest.fixture
def world() -> World:
    return World({"order": unwinding()})


def looked(world: World) -> tuple[list[Alert], list[Alert]]:
    found = asyncio.run(world.detector.look())
    debts = [
        [alert for alert in alerts if alert.kind == "compensation_debt"] for alerts in (found.raised, found.resolved)
    ]
    return debts[0], debts[1]


def test_workflows_that_unwind_for_too_long_are_told_once_and_resolved_when_none_is_late(world: World) -> None:
    world.put("o-1")
    world.later(60)
    world.put("o-2")
    assert looked(world) == ([], [])
    world.later(1)
    [alert], none = looked(world)
    assert not none
    assert (alert.kind, alert.subject, alert.machine, alert.resolved) == ("compensation_debt", "order", "order", False)
    assert alert.summary == (
        "1 workflow of order has been undoing for more than 1 min, 0 with a dead letter; the oldest is o-1, since "
        "2023-11-14T22:13:20.000+00:00 (1 min 1 s)."
    )
    assert alert.since_us == START_S * 1_000_000
    world.later(100)
    assert looked(world) == ([], []), "that there are two of them now is not told again"
    world.put("o-1", State.SHIPPED, version=2, active=False)
    assert looked(world) == ([], []), "the other one is still late"
    world.put("o-2", State.SHIPPED, version=2, active=False)
    [], [over] = looked(world)
    assert (over.dedup_key, over.resolved) == (alert.dedup_key, True)
    assert looked(world) == ([], [])
    told = [signal for signal in world.signals if isinstance(signal, AlertRaised)]
    assert [(signal.kind, signal.subject, signal.resolved) for signal in told] == [
        ("compensation_debt", "order", False),
        ("compensation_debt", "order", True),
    ]


def test_the_next_debt_of_a_machine_is_told_again_under_the_same_key(world: World) -> None:
    world.put("o-1")
    world.later(61)
    [first], _ = looked(world)
    world.put("o-1", State.SHIPPED, version=2, active=False)
    looked(world)
    world.put("o-2")
    world.later(61)
    [second], _ = looked(world)
    assert second.dedup_key == first.dedup_key


def test_those_that_wait_for_a_person_are_counted(world: World) -> None:
    world.put("o-1", letters=[letter("o-1")])
    world.put("o-2")
    world.put("o-3", letters=[letter("o-3")])
    world.put("elsewhere", State.PACKING, letters=[letter("elsewhere")])
    world.put("o-4", letters=[letter("o-4", kind="effect")])
    world.later(61)
    [alert], _ = looked(world)
    assert "4 workflows of order have been undoing for more than 1 min, 2 with a dead letter" in alert.summary
    assert "interlock dead-letters list --kind undo" in alert.advice
    assert (alert.details["late"], alert.details["dead_letters"], alert.details["counted"]) == (4, 2, "all")


def test_what_was_not_counted_is_said_to_be_at_least_so_many() -> None:
    """G6: a look reads a bounded number, however many are late."""
    world = World({"order": unwinding()}, limit=1)
    for each in range(9):
        world.put(f"o-{each}")
    world.later(61)
    [alert], _ = looked(world)
    assert "At least 4 workflows of order have been undoing for more than 1 min, at least 0 with" in alert.summary
    assert alert.details["counted"] == "at least"


def test_each_machine_has_a_debt_of_its_own() -> None:
    world = World({"order": unwinding(), "refund": unwinding(), "ticket": machine(node(State.CHARGING, None))})
    world.put("o-1")
    world.put("r-1", of="refund")
    world.put("t-1", of="ticket")
    world.later(61)
    assert sorted(alert.subject for alert in looked(world)[0]) == ["order", "refund"]
    world.put("r-1", State.SHIPPED, version=2, of="refund", active=False)
    assert [alert.subject for alert in looked(world)[1]] == ["refund"]


@pytest.mark.parametrize(("debt_s", "told"), [(0, 0), (5, 1), (500, 0)])
def test_how_late_is_late_can_be_set_and_turned_off(world: World, debt_s: float, told: int) -> None:
    world.detector = StallDetector(world.store, {"order": unwinding()}, world.alarms, debt_s=debt_s)
    world.put("o-1")
    world.later(61)
    assert len(looked(world)[0]) == told


@pytest.mark.parametrize("debt_s", [-1.0, float("nan"), float("inf")])
def test_a_debt_that_could_never_be_late_is_refused(world: World, debt_s: float) -> None:
    with pytest.raises(DefinitionError) as refused:
        StallDetector(world.store, {}, world.alarms, debt_s=debt_s)
    assert refused.value.rule == "bad-stall-check"
    with pytest.raises(ValueError):
        EngineSettings(debt_s=debt_s)


def test_an_engine_tells_its_debt_and_when_it_is_paid() -> None:
    """The same with a real machine: an undo gives up, and a person deals with it."""
    signals: list[Signal] = []
    with Harness(shop.order, observers=[signals.append]) as h:
        h.fail(shop.refund, NonRetryable("the gateway knows no such charge"), times=1)
        h.start("o-1", shop.Order())
        h.send("o-1", shop.Submit(cents=5))
        h.drain()
        h.send("o-1", shop.Cancel())
        h.advance(seconds=59)
        assert not debts(signals)
        h.advance(seconds=60)
        [raised] = debts(signals)
        [dead] = h.dead_letters()
        h.run(h.engine.resolve_dead_letter(dead.id, note="refunded by hand"))
        h.advance(seconds=60)
    assert "1 workflow of order has been undoing for more than 1 min, 1 with a dead letter" in raised.summary
    assert [signal.resolved for signal in debts(signals)] == [False, True]


def debts(signals: list[Signal]) -> list[AlertRaised]:
    return [signal for signal in signals if isinstance(signal, AlertRaised) and signal.kind == "compensation_debt"]
