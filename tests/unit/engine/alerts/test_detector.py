"""B7: the detector finds what stays too long and what gave up, tells each once, and tells when it is over."""

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum

import pytest

from interlock.clock import SystemChance
from interlock.core.table import Node
from interlock.engine.alerts import Alarms
from interlock.engine.alerts.detector import StallDetector
from interlock.errors import DefinitionError, UnavailableError
from interlock.signals import AlertRaised, Signal, Subscribers
from interlock.store.memory import MemoryStore
from interlock.store.records import Change, Letter, Row

SECOND_US = 1_000_000
START_S = 1_700_000_000.0


class State(Enum):
    CHARGING = "charging"
    PACKING = "packing"
    SHIPPED = "shipped"


def node(state: State, dwell_max_s: float | None, *, resting: bool = False) -> Node:
    return Node(
        state=state,
        name=state.value,
        final=False,
        resting=resting,
        step=None,
        effects=(),
        timers=(),
        computed=(),
        dwell_max_s=dwell_max_s,
        entering=(),
        leaving=(),
        undoable=False,
    )


def machine(*nodes: Node) -> dict[str, Node]:
    return {each.state.name: each for each in nodes}


ORDER = machine(node(State.CHARGING, 120), node(State.PACKING, None), node(State.SHIPPED, 10, resting=True))


class VirtualClock:
    def __init__(self) -> None:
        self.now_s = START_S

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s


class World:
    """A store in memory with a clock that is moved by hand, and a detector that looks at it."""

    def __init__(self, machines: dict[str, dict[str, Node]] | None = None, *, limit: int = 100) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.signals: list[Signal] = []
        subscribers = Subscribers()
        subscribers.subscribe(self.signals.append)
        self.alarms = Alarms(subscribers, clock=self.clock, chance=SystemChance(1))
        machines = {"order": ORDER} if machines is None else machines
        self.detector = StallDetector(self.store, machines, self.alarms, every_s=30.0, limit=limit)

    def put(
        self,
        workflow: str,
        state: State = State.CHARGING,
        *,
        version: int = 1,
        of: str = "order",
        active: bool = True,
        letters: Sequence[Letter] = (),
        letters_gone: Sequence[str] = (),
    ) -> None:
        now_us = self.store.now_us()
        before = asyncio.run(self.store.load([workflow])).get(workflow)
        stays = before is not None and before.visit == version
        row = Row(
            id=workflow,
            machine=of,
            machine_version=1,
            state=state.value,
            context=b"{}",
            version=version,
            visit=version,
            active=active,
            created_us=now_us,
            updated_us=now_us,
            entered_us=before.entered_us if before is not None and stays else now_us,
            digest=b"",
            revision=1 if before is None else before.revision + 1,
        )
        change = Change(
            row,
            expected=row.revision - 1,
            letters=tuple(letters),
            letters_gone=tuple(letters_gone),
        )
        assert asyncio.run(self.store.commit([change])) == []

    def later(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def look(self) -> tuple[list[str], list[str]]:
        looked = asyncio.run(self.detector.look())
        return [each.subject for each in looked.raised], [each.subject for each in looked.resolved]


def letter(name: str, since_us: int = 1) -> Letter:
    return Letter(name, "effect", "o-1", "send_mail", 5, "SMTPError: refused", since_us, 3, "key")


def test_a_workflow_longer_in_its_state_than_the_dwell_is_raised_once() -> None:
    """B7."""
    world = World()
    world.put("o-1")
    world.later(120)
    assert world.look() == ([], [])
    world.later(1)
    assert world.look() == (["o-1"], [])
    world.later(600)
    assert world.look() == ([], [])
    [signal] = world.signals
    assert isinstance(signal, AlertRaised)
    assert (signal.kind, signal.subject, signal.machine, signal.state) == ("stalled", "o-1", "order", "charging")
    assert signal.summary == "Workflow o-1 of order has been in charging for 2 min 1 s; its dwell is at most 2 min."


def test_a_workflow_that_has_moved_on_is_resolved_with_the_key_it_was_raised_with() -> None:
    world = World()
    world.put("o-1")
    world.later(121)
    [raised] = asyncio.run(world.detector.look()).raised
    world.put("o-1", State.PACKING, version=2)
    looked = asyncio.run(world.detector.look())
    [resolved] = looked.resolved
    assert looked.raised == ()
    assert (resolved.dedup_key, resolved.resolved) == (raised.dedup_key, True)
    assert resolved.summary.startswith("Resolved: Workflow o-1")
    assert [signal.resolved for signal in world.signals if isinstance(signal, AlertRaised)] == [False, True]
    assert world.look() == ([], [])


def test_a_second_visit_of_the_same_state_is_another_alert() -> None:
    world = World()
    world.put("o-1")
    world.later(121)
    [first] = asyncio.run(world.detector.look()).raised
    world.put("o-1", version=2)
    world.later(121)
    looked = asyncio.run(world.detector.look())
    [second] = looked.raised
    assert [each.dedup_key for each in looked.resolved] == [first.dedup_key]
    assert second.dedup_key != first.dedup_key


def test_states_without_dwell_and_resting_ones_are_not_looked_at() -> None:
    """A7: a resting workflow is never stalled."""
    world = World()
    world.put("packing", State.PACKING)
    world.put("shipped", State.SHIPPED, active=False)
    world.put("shipped-before-that-rested", State.SHIPPED, active=True)
    world.later(1_000_000)
    assert world.look() == ([], [])


def test_every_dead_letter_is_raised_once_and_resolved_when_it_is_gone() -> None:
    world = World()
    world.put("o-1", State.PACKING, letters=[letter("a", 1), letter("b", 2)])
    looked = asyncio.run(world.detector.look())
    assert [(each.kind, each.subject, each.details["letter"]) for each in looked.raised] == [
        ("dead_letter", "o-1", "a"),
        ("dead_letter", "o-1", "b"),
    ]
    first = looked.raised[0]
    assert first.summary == "The effect send_mail of workflow o-1 gave up at attempt 5: SMTPError: refused"
    assert "interlock dead-letters retry a" in first.advice
    assert world.look() == ([], [])
    world.put("o-1", State.PACKING, letters_gone=["a"])
    [resolved] = asyncio.run(world.detector.look()).resolved
    assert resolved.dedup_key == first.dedup_key


def test_beyond_the_limit_one_alert_says_how_many_more() -> None:
    """G6: what is told one by one is bounded, and the bound is told."""
    world = World(limit=2)
    for each in range(5):
        world.put(f"o-{each}")
        world.later(1)
    world.later(200)
    looked = asyncio.run(world.detector.look())
    assert [each.subject for each in looked.raised] == ["o-0", "o-1", "more"]
    assert looked.raised[-1].summary == "There are 3 more stalled workflows without an alert of their own."
    assert world.look() == ([], [])
    for each in range(2):
        world.put(f"o-{each}", State.PACKING, version=2)
    assert world.look() == (["o-2", "o-3"], ["o-0", "o-1"])
    world.put("o-2", State.PACKING, version=2)
    assert world.look() == (["o-4"], ["o-2", "more"])


def test_what_was_not_counted_is_said_to_be_at_least_so_many() -> None:
    world = World(limit=1)
    for each in range(9):
        world.put(f"o-{each}", letters=[letter(f"l-{each}", each)])
    world.later(200)
    summaries = [each.summary for each in asyncio.run(world.detector.look()).raised]
    assert "There are at least 3 more stalled workflows without an alert of their own." in summaries
    assert "There are at least 3 more dead letters without an alert of their own." in summaries


def test_one_that_is_crowded_out_of_the_answer_is_not_taken_for_resolved() -> None:
    """G6: the store returns the longest first; a told one behind them is looked up by itself."""
    both = machine(node(State.CHARGING, 10), node(State.PACKING, 1_000))
    world = World({"order": both}, limit=1)
    for each in range(5):
        world.put(f"old-{each}", State.PACKING)
    world.later(500)
    world.put("young", State.CHARGING)
    world.later(11)
    assert world.look() == (["young"], [])
    world.later(500)
    assert world.look() == (["more"], [])
    world.put("young", State.PACKING, version=2)
    assert world.look() == (["old-0"], ["young"])


def test_machines_share_the_limit_and_the_longest_of_all_are_told() -> None:
    other = machine(node(State.CHARGING, 5))
    world = World({"order": ORDER, "refund": other}, limit=1)
    world.put("r-1", of="refund")
    world.later(1)
    world.put("o-1")
    world.later(200)
    assert world.look() == (["r-1", "more"], [])


def test_a_restarted_detector_raises_again_with_the_same_key() -> None:
    world = World()
    world.put("o-1")
    world.later(121)
    [before] = asyncio.run(world.detector.look()).raised
    world.later(60)
    again = StallDetector(world.store, {"order": ORDER}, world.alarms, every_s=30.0)
    [after] = asyncio.run(again.look()).raised
    assert after.dedup_key == before.dedup_key


class Failing(MemoryStore):
    """A store that does not answer the first time."""

    calls = 0

    async def letters(
        self,
        kind: str | None = None,
        *,
        workflow: str | None = None,
        after: Letter | None = None,
        limit: int = 1_000,
    ) -> list[Letter]:
        self.calls += 1
        if self.calls == 1:
            raise UnavailableError("The lane is busy.")
        return await super().letters(kind, workflow=workflow, after=after, limit=limit)


def run_for(looks: int, detector: StallDetector, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Run the detector in a time that passes at once, and cancel it after so many looks."""
    slept: list[float] = []

    async def pass_at_once(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > looks:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", pass_at_once)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(detector.run())
    return slept


def test_a_failing_look_is_logged_and_the_next_one_tells(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    store = world.store = Failing(world.clock)
    detector = StallDetector(store, {"order": ORDER}, world.alarms, every_s=30.0)
    world.put("o-1")
    world.later(121)
    with caplog.at_level(logging.WARNING, "interlock.alerts"):
        assert run_for(2, detector, monkeypatch) == [30.0, 30.0, 30.0]
    failed, told = caplog.messages
    assert "The look for stalled workflows failed (UnavailableError) and is tried again in 30.0 s" in failed
    assert "Workflow o-1 of order" in told
    assert store.calls == 2


def test_a_look_that_fails_halfway_tells_nothing_and_forgets_nothing() -> None:
    world = World()
    world.store = Failing(world.clock)
    world.detector = StallDetector(world.store, {"order": ORDER}, world.alarms, every_s=30.0)
    world.put("o-1")
    world.later(121)
    with pytest.raises(UnavailableError):
        world.look()
    assert world.signals == []
    assert world.look() == (["o-1"], [])


def test_the_log_says_who_where_how_long_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.put("o 1\nINJECTED")
    world.later(7_290)
    with caplog.at_level(logging.INFO, "interlock.alerts"):
        world.look()
        world.put("o 1\nINJECTED", State.PACKING, version=2)
        world.look()
    begun, over = caplog.records
    assert (begun.levelname, over.levelname) == ("WARNING", "INFO")
    assert begun.getMessage() == (
        "Workflow o 1 INJECTED of order has been in charging for 2 h 1 min; its dwell is at most 2 min. "
        "What to do: Look at its history (interlock history 'o 1 INJECTED'), then send the event it waits for, or fix "
        "what its step calls. If such a stay is normal, declare a longer dwell for charging."
    )
    fields = ("alert", "workflow", "machine", "state")
    assert [begun.__dict__[each] for each in fields] == ["stalled", "o 1 INJECTED", "order", "charging"]


@pytest.mark.parametrize(("every_s", "limit"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0)])
def test_a_detector_that_could_not_look_is_refused(every_s: float, limit: int) -> None:
    world = World()
    with pytest.raises(DefinitionError) as refused:
        StallDetector(world.store, {}, world.alarms, every_s=every_s, limit=limit)
    assert refused.value.rule == "bad-stall-check"


def test_memory_stays_within_the_limit_whatever_is_found() -> None:
    """G6."""
    world = World(limit=3)
    for each in range(50):
        world.put(f"o-{each}", letters=[letter(f"l-{each}", each)])
    world.later(200)
    world.look()
    world.look()
    assert {kind: len(each) for kind, each in world.detector._open_alerts.items()} == {"stalled": 3, "dead_letter": 3}
    assert len(world.detector._visits) == 3
