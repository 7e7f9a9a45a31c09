"""C4: a change of a breaker is told to observers and on-call, and noted for the next life."""

import asyncio
from collections.abc import Awaitable, Callable

from interlock import UnavailableError
from interlock.core.policies import Breaker, Dependency
from interlock.engine.alerts.delivery import Alarms
from interlock.engine.dependencies.breakers import NOTE, BreakerPublisher, read_note
from interlock.engine.dependencies.outlet import BreakerTransition, Outlet
from interlock.engine.dependencies.wait_queue import Line
from interlock.signals import AlertRaised, BreakerChanged, Subscribers
from interlock.testing.virtual_time import VirtualClock
from tests.unit.engine.dependencies.queues import fails
from tests.unit.engine.shared.stores import Luck, SharedMemory, play


class Life:
    """One process that minds its breakers."""

    def __init__(self, store: SharedMemory, clock: VirtualClock, *, worker: bool = True) -> None:
        self.signals = list[object]()
        subscribers = Subscribers()
        subscribers.subscribe(self.signals.append)
        self.publisher = BreakerPublisher(store, subscribers, Alarms(subscribers, clock=clock), clock, worker=worker)
        self.outlet = Outlet(Dependency("gateway", 50, breaker=Breaker(failures=1, reset_s=30)), clock)
        self.line = Line(self.outlet, Luck(), self.publisher.changed)
        self.clock = clock

    def probed(self, outcome: str) -> None:
        """Its probe is made when it is due."""
        self.clock.now_s = self.outlet.circuit.retry_at_s
        assert self.outlet.ask("first") == "probe"
        self.outlet.leave("first", "probe", "done" if outcome == "done" else "failed", 0.0, "x")

    @property
    def changes(self) -> list[str]:
        return [each.after for each in self.signals if isinstance(each, BreakerChanged)]

    @property
    def alerts(self) -> list[bool]:
        """Whether each alert was the end of one."""
        return [each.resolved for each in self.signals if isinstance(each, AlertRaised)]


Scene = Callable[[SharedMemory, VirtualClock], Awaitable[None]]


def played(scene: Scene) -> None:
    async def scenario() -> None:
        await scene(SharedMemory(), VirtualClock())

    play(scenario)


def test_every_change_is_told_and_on_call_only_the_opening_and_its_end() -> None:
    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        life = Life(store, clock)
        fails(life.outlet)
        assert (life.changes, life.alerts) == (["open"], [False])
        for _ in range(3):
            life.probed("failed")
        assert (life.changes[-2:], life.alerts) == (["half_open", "open"], [False])
        life.probed("done")
        assert (life.changes[-1], life.alerts) == ("closed", [False, True])
        fails(life.outlet)
        assert life.alerts == [False, True, False]
        await life.publisher.close()

    played(scene)


def test_only_the_last_of_several_changes_is_noted() -> None:
    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        life = Life(store, clock)
        fails(life.outlet)
        life.probed("failed")
        await life.publisher.close()
        assert store.calls("note") == 1
        note = read_note((await store.notes())[NOTE + "gateway"])
        assert note is not None
        assert (note.state, note.reason, note.since) == ("open", "its probe failed: x", "2027-01-15T08:00:30+00:00")
        life.probed("done")
        await life.publisher.close()
        assert store.calls("note") == 2
        note = read_note((await store.notes())[NOTE + "gateway"])
        assert note is not None
        assert note.state == "closed"

    played(scene)


def test_what_changes_while_a_note_is_written_is_noted_next() -> None:
    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        life, gate = Life(store, clock), asyncio.Event()
        store.gates["note"] = gate
        fails(life.outlet)
        await asyncio.sleep(0)
        life.probed("done")
        gate.set()
        await life.publisher.close()
        note = read_note((await store.notes())[NOTE + "gateway"])
        assert note is not None
        assert (note.state, store.calls("note")) == ("closed", 2)

    played(scene)


def test_a_store_that_takes_no_note_is_no_reason_to_stop() -> None:
    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        life = Life(store, clock)
        store.down["note"] = UnavailableError("the store is away.")
        fails(life.outlet)
        await life.publisher.close()
        assert life.changes == ["open"]

    played(scene)


def test_the_next_life_probes_first_and_tells_the_end_of_the_alert_once() -> None:
    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        first = Life(store, clock)
        fails(first.outlet, why="OSError: net")
        await first.publisher.close()
        first.line.close()
        second = Life(store, clock)
        second.publisher.remember({"gateway": second.line}, await store.notes())
        assert (second.outlet.phase, second.outlet.reason) == (
            "half_open",
            "1 failure, the last: OSError: net",
        )
        second.probed("failed")
        assert second.alerts == []
        second.probed("done")
        assert second.alerts == [True]
        await second.publisher.close()

    played(scene)


def test_what_a_person_holds_stays_held_in_the_next_life_until_a_person_lets_go() -> None:
    """Whoever runs no steps notes only what a person has said, and all of that."""

    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        for held in ("open", "closed"):
            door = Life(store, clock, worker=False)
            door.outlet.force("open" if held == "open" else "closed", "a person holds it")
            await door.publisher.close()
            worker = Life(store, clock)
            worker.publisher.remember({"gateway": worker.line}, await store.notes())
            assert (worker.outlet.forced, worker.outlet.phase) == (held, held)
            door.outlet.force(None, "released by a person")
            await door.publisher.close()
            worker = Life(store, clock)
            worker.publisher.remember({"gateway": worker.line}, await store.notes())
            assert (worker.outlet.forced, worker.outlet.phase) == (None, "closed")
        door = Life(store, clock, worker=False)
        fails(door.outlet)
        await door.publisher.close()
        assert store.calls("note") == 8

    played(scene)


def test_what_a_person_holds_at_one_worker_is_not_let_go_by_the_breaker_of_another() -> None:
    """C4: both note in one store; the last word on the state is anybody's, that on the hold is a person's."""

    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        one, other = Life(store, clock), Life(store, clock)
        one.outlet.force("open", "a person holds it")
        await one.publisher.close()
        fails(other.outlet)
        await other.publisher.close()
        again = Life(store, clock)
        again.publisher.remember({"gateway": again.line}, await store.notes())
        assert (again.outlet.forced, again.outlet.phase) == ("open", "open")

    played(scene)


def test_a_note_that_cannot_be_read_or_is_not_there_is_ignored() -> None:
    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        for noted in ({}, {NOTE + "gateway": "{not json"}, {NOTE + "mail": '{"state": "open"}'}):
            life = Life(store, clock)
            life.publisher.remember({"gateway": life.line}, noted)
            assert life.outlet.phase == "closed"
        life = Life(store, clock)
        life.publisher.remember({"gateway": life.line}, {NOTE + "gateway": '{"state": "open"}'})
        assert (life.outlet.phase, life.outlet.reason) == ("half_open", "it was so when the last process ended")
        await life.publisher.close()

    played(scene)


def test_who_runs_no_steps_takes_over_only_what_a_person_holds() -> None:
    """It would never probe, and never learn that it is over."""

    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        for note, forced in (('{"state": "open"}', None), ('{"state": "open", "forced": "open"}', "open")):
            door = Life(store, clock, worker=False)
            door.publisher.remember({"gateway": door.line}, {NOTE + "gateway": note})
            assert (door.outlet.phase, door.outlet.forced) == (forced or "closed", forced)

    played(scene)


def test_since_when_it_is_so_survives_as_well() -> None:
    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        for since, expected in (("2027-01-15T07:00:00+00:00", clock.wall_s() - 3_600), ("yesterday", clock.wall_s())):
            life = Life(store, clock)
            life.publisher.remember(
                {"gateway": life.line}, {NOTE + "gateway": f'{{"state": "open", "since": "{since}"}}'}
            )
            assert life.outlet.since_s == expected

    played(scene)


def test_a_note_that_is_not_believed_keeps_no_alert_back() -> None:
    """This process has used the dependency already: when it opens, on-call is told."""

    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        life = Life(store, clock)
        assert life.outlet.ask("first") == "call"
        life.outlet.leave("first", "call", "done")
        life.publisher.remember({"gateway": life.line}, {NOTE + "gateway": '{"state": "open"}'})
        fails(life.outlet)
        assert life.alerts == [False]
        await life.publisher.close()

    played(scene)


def test_a_force_that_changes_nothing_is_noted_and_not_told() -> None:
    async def scene(store: SharedMemory, clock: VirtualClock) -> None:
        life = Life(store, clock)
        life.publisher.changed(
            BreakerTransition("gateway", "closed", "closed", "a person holds it closed", "closed", by_hand=True)
        )
        await life.publisher.close()
        assert (life.signals, store.calls("note")) == ([], 2)

    played(scene)
