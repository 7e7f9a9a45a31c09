"""B7: an alert is told once, also over restarts and several processes, and is over also when nobody was there."""

import asyncio
from collections.abc import Sequence

import pytest

from interlock.engine.alerts import Alarms, Alert, AlertWebhook, PagerDuty, Receiver
from interlock.engine.alerts.detector import (
    ALONE,
    NOTE,
    Ledger,
    StallDetector,
    Turn,
)
from interlock.errors import UnavailableError
from interlock.signals import AlertRaised, Signal, Subscribers
from interlock.store.memory import MemoryStore
from tests.unit.engine.alerts.test_detector import (
    ORDER,
    State,
    VirtualClock,
    World,
    letter,
    machine,
    node,
    run_for,
)

Shown = list[tuple[str, str, bool]]


class Process:
    """A detector of its own, on the store of a world."""

    def __init__(
        self, world: World, *, machines: Sequence[str] = ("order",), receivers: Sequence[Receiver] = ()
    ) -> None:
        self.told: list[Signal] = []
        subscribers = Subscribers()
        subscribers.subscribe(self.told.append)
        self.alarms = Alarms(subscribers, receivers, clock=world.clock)
        self.detector = StallDetector(world.store, dict.fromkeys(machines, ORDER), self.alarms, every_s=30.0)

    def look(self) -> Shown:
        """Look once; what was told."""
        self.told.clear()
        asyncio.run(self.detector.look())
        return [(each.kind, each.subject, each.resolved) for each in self.told if isinstance(each, AlertRaised)]


class SharedMemory(MemoryStore):
    """One that several processes have open."""

    shared = True


def shared() -> World:
    world = World()
    world.store = SharedMemory(world.clock)
    return world


def stalled(world: World, *workflows: str) -> World:
    for workflow in workflows:
        world.put(workflow)
    world.later(121)
    return world


BEGUN = [("stalled", "o-1", False)]
OVER = [("stalled", "o-1", True)]


def test_what_ended_while_nobody_was_there_is_told_as_over() -> None:
    world = stalled(World(), "o-1")
    first = Process(world)
    assert [first.look(), first.look()] == [BEGUN, []]
    world.put("o-1", State.PACKING, version=2)
    assert Process(world).look() == OVER
    assert Process(world).look() == OVER  # The one before has not seen that it arrived.


def test_what_is_still_wrong_after_a_restart_is_not_told_again() -> None:
    world = stalled(World(), "o-1")
    world.put("o-2", State.PACKING, letters=[letter("l-1")])
    first = Process(world)
    assert [len(first.look()), first.look()] == [2, []]
    second = Process(world)
    assert second.look() == []
    world.put("o-1", State.PACKING, version=2)
    assert [second.look(), second.look()] == [OVER, []]
    world.put("o-2", State.PACKING, letters_gone=["l-1"])
    assert Process(world).look() == [("dead_letter", "o-1", True)]


def test_what_a_crash_may_have_kept_from_a_receiver_is_told_again() -> None:
    """Rather twice, with the same key, than never."""
    world = stalled(World(), "o-1")
    assert Process(world).look() == BEGUN
    assert Process(world).look() == BEGUN


def test_nothing_is_noted_while_a_receiver_has_alerts_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = stalled(World(), "o-1")
    first = Process(world)
    monkeypatch.setattr(Alarms, "idle", False)
    assert [first.look(), first.look(), first.look()] == [BEGUN, [], []]
    assert asyncio.run(world.store.notes()) == {}
    monkeypatch.setattr(Alarms, "idle", True)
    assert first.look() == []
    assert [name.startswith(NOTE) for name in asyncio.run(world.store.notes())] == [True]


def test_a_receiver_that_is_new_is_told_what_is_still_wrong() -> None:
    world = stalled(World(), "o-1")
    first = Process(world)
    assert [first.look(), first.look()] == [BEGUN, []]
    assert Process(world, receivers=[PagerDuty("0" * 32, url="http://127.0.0.1:9/")]).look() == BEGUN


def test_those_beyond_the_bound_and_late_undos_are_remembered_too() -> None:
    unwinding = machine(node(State.CHARGING, 10))
    world = World({"order": unwinding}, limit=1)
    for each in ("o-1", "o-2"):
        world.put(each)
    world.later(11)
    assert [world.look(), world.look()] == [(["o-1", "more"], []), ([], [])]
    world.detector = StallDetector(world.store, {"order": unwinding}, world.alarms, every_s=30.0, limit=1)
    assert world.look() == ([], [])
    world.put("o-1", State.PACKING, version=2)
    assert world.look() == (["o-2"], ["o-1", "more"])


def test_a_note_that_cannot_be_read_is_as_good_as_none() -> None:
    world = stalled(World(), "o-1")
    first = Process(world)
    assert [first.look(), first.look()] == [BEGUN, []]
    [name] = asyncio.run(world.store.notes())
    asyncio.run(world.store.note(name, '{"alerts": 7}'))
    assert Process(world).look() == BEGUN


def test_a_store_that_takes_no_note_is_no_reason_not_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise UnavailableError("The disk is full.")

    world = stalled(World(), "o-1")
    monkeypatch.setattr(world.store, "note", refuse)
    first = Process(world)
    assert [first.look(), first.look()] == [BEGUN, []]
    world.put("o-1", State.PACKING, version=2)
    assert first.look() == OVER


def test_a_note_is_written_only_when_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = stalled(World(), "o-1")
    notes: list[str] = []
    note = world.store.note

    async def counted(name: str, text: str) -> None:
        notes.append(text)
        await note(name, text)

    monkeypatch.setattr(world.store, "note", counted)
    first = Process(world)
    for _ in range(5):
        first.look()
    world.put("o-1", State.PACKING, version=2)
    for _ in range(5):
        first.look()
    assert [text == "{}" for text in notes] == [False, True]


# --- several processes ------------------------------------------------------------------------------------------------


def test_of_several_processes_one_tells() -> None:
    world = stalled(shared(), "o-1")
    one, two = Process(world), Process(world)
    assert [one.look(), two.look(), one.look(), two.look()] == [BEGUN, [], [], []]
    world.put("o-1", State.PACKING, version=2)
    assert [two.look(), one.look()] == [[], OVER]


def test_when_the_one_that_tells_is_gone_another_goes_on_from_what_it_has_told() -> None:
    world = stalled(shared(), "o-1", "o-2")
    one, two = Process(world), Process(world)
    assert [len(one.look()), one.look(), two.look()] == [2, [], []]
    world.put("o-1", State.PACKING, version=2)
    world.later(89)
    assert two.look() == []
    world.later(2)
    assert two.look() == OVER
    assert one.look() == []
    world.later(91)
    world.put("o-2", State.PACKING, version=2)
    assert one.look() == [("stalled", "o-1", True), ("stalled", "o-2", True)]


def test_a_process_that_ends_in_order_leaves_its_turn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = stalled(shared(), "o-1")
    one, two = Process(world), Process(world)
    run_for(1, one.detector, monkeypatch)
    assert two.look() == BEGUN  # Nobody has seen that it arrived.


def test_processes_with_other_machines_look_for_themselves() -> None:
    world = stalled(shared(), "o-1")
    assert Process(world).look() == BEGUN
    assert Process(world, machines=["order", "refund"]).look() == BEGUN


def test_a_store_of_one_process_needs_no_turns() -> None:
    store = MemoryStore(VirtualClock())
    one, two = Turn(store, ["order"], [], 30.0), Turn(store, ["order"], [], 30.0)
    assert [asyncio.run(each.take()) for each in (one, two)] == [ALONE, ALONE]
    asyncio.run(one.give_up())


def test_no_secret_of_a_receiver_is_noted() -> None:
    """Only a digest of names that hold none."""
    world = World()
    receivers = [AlertWebhook("https://hooks.example.com/SECRET", secret="SECRET"), PagerDuty("SECRET")]
    ledger = Ledger(world.store, ["order"], [each.name for each in receivers])
    alert = Alert(kind="stalled", subject="s", summary="x" * 900, advice="a", dedup_key="k", at_us=1)
    asyncio.run(ledger.save([alert], {}))
    [(name, text)] = asyncio.run(world.store.notes()).items()
    assert "SECRET" not in name + text
    assert len(text) < 500
