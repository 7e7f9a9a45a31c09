"""F5: an event, a retry of dead letters, a pause for all workflows of a filter, on every store."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import pytest

from interlock import (
    Admission,
    BlockingEngine,
    BulkRequest,
    BulkRun,
    Engine,
    Event,
    InvalidPayload,
    KeyReused,
    Machine,
    NonRetryable,
    StepContext,
    UnavailableError,
    WorkflowNotFound,
    faultpoints,
)
from interlock.engine.operators import bulk
from interlock.errors import BadUsage, Fenced, LeaseHeld
from tests.conformance.engine.places import Place, crash, run, settled


class State(Enum):
    OPEN = "open"
    PAID = "paid"
    BROKEN = "broken"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    customer: str = ""
    cents: int = 0
    touched: int = 0


class OrderEvent(Event):
    pass


class Pay(OrderEvent):
    pass


class Touch(OrderEvent):
    pass


class Break(OrderEvent):
    pass


@dataclass(frozen=True)
class Cancel(OrderEvent):
    why: str = ""


def declared() -> "OrderMachine":
    order = Machine(
        "order",
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.OPEN,
        resting={State.OPEN, State.BROKEN, State.PAID},
        final={State.CANCELLED},
        search=("customer", "cents"),
    )

    def is_cheap(order: Order, event: Cancel) -> bool:
        """Only orders below 90 cents are cancelled."""
        del event
        return order.cents < 90

    @order.on(Cancel, State.PAID, to=State.CANCELLED)
    def refund(order: Order, event: Cancel) -> Order:
        if order.cents == 7:
            raise ValueError(f"no refund for {event.why!r} of {order.cents}")
        return order

    @order.on(Touch, State.OPEN, to=State.OPEN)
    def touch(order: Order, event: Touch) -> Order:
        del event
        return replace(order, touched=order.touched + 1)

    order.on(Cancel, State.OPEN, to=State.CANCELLED, when=is_cheap)
    order.on(Pay, State.OPEN, to=State.PAID)
    order.on(Break, State.OPEN, to=State.BROKEN)

    @order.step(State.BROKEN, timeout_s=60)
    async def repair(order: Order, ctx: StepContext) -> Touch:
        del ctx
        raise NonRetryable(f"part {order.cents} of {order.customer!r} is missing.")

    return order


OrderMachine = Machine[State, Order, OrderEvent]

COUNT = 300


async def filled(engine: Engine, order: OrderMachine, count: int = COUNT) -> None:
    """Orders of two customers with 0 to 99 cents; each fifth is paid, each 50th cancelled."""
    for first in range(0, count, 100):
        await asyncio.gather(
            *(
                engine.start(order, f"o-{number:05}", Order(("ada", "bob")[number % 2], number % 100))
                for number in range(first, min(first + 100, count))
            )
        )
    await asyncio.gather(*(engine.send(f"o-{number:05}", Pay()) for number in range(0, count, 5)))
    await asyncio.gather(*(engine.send(f"o-{number:05}", Cancel()) for number in range(0, count, 50)))


async def moves(engine: Engine, order: OrderMachine, event: str = "CANCEL") -> Counter[str]:
    """How often each workflow took the event from a bulk run, by its history."""
    found: Counter[str] = Counter()
    cursor = None
    while True:
        page = await engine.find(order, limit=1_000, cursor=cursor)
        for view in page.items:
            rows = await engine.history(view.id)
            found[view.id] += sum(row.event == event and (row.key or "").startswith("bulk:") for row in rows)
        cursor = page.cursor
        if cursor is None:
            return +found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages of 40 workflows in parts of 8."""
    monkeypatch.setattr(bulk, "PAGE", 40)
    monkeypatch.setattr(bulk, "CHUNK", 8)
    yield
    faultpoints.listen(None)


def at_point(name: str, number: int, action: Callable[[], object]) -> None:
    """Call the action when a run reaches that point for the number-th time."""
    left = [number]

    def listener(point: str) -> None:
        if point == name:
            left[0] -= 1
            if left[0] == 0:
                action()

    faultpoints.listen(listener)


# --- Dry runs and runs -----------------------------------------------------------------------------------------------

FILTERS = {
    "all": lambda engine, order: engine.bulk(order),
    "state": lambda engine, order: engine.bulk(order, state=State.OPEN),
    "fields": lambda engine, order: engine.bulk(order, where=[("customer", "=", "ada"), ("cents", ">", 50)]),
    "both": lambda engine, order: engine.bulk(order, state=State.PAID, where=[("cents", "in", {5, 10, 7, 95})]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_dry_run_is_what_then_happens(place: Place, name: str) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order)
            chosen = FILTERS[name](engine, order)
            before = await moves(engine, order, "PAY")
            plan = await chosen.dry_run(Cancel("cleanup"))
            assert await moves(engine, order) == {}
            assert before == await moves(engine, order, "PAY")
            done = await chosen.send(Cancel("cleanup"), name="2026-11 cleanup", by="ada")
            assert (done.state, done.by, done.event, done.data) == ("done", "ada", "CANCEL", {"why": "cleanup"})
            assert (done.matching, done.moved) == (plan.matching, plan.moving)
            assert (done.refused, done.examples) == (plan.refused, plan.examples)
            assert plan.matching == plan.moving + sum(plan.refused.values())
            moved = await moves(engine, order)
            assert len(moved) == plan.moving > 0
            assert set(moved.values()) == {1}
            assert {row.by for row in (await engine.history(next(iter(moved))))[-1:]} == {"ada"}

    run(scenario)


def test_reasons_are_those_of_the_refusals(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            for number, cents in enumerate((5, 95, 96, 7)):
                await engine.start(order, f"o-{number}", Order("ada", cents))
            await engine.send("o-3", Pay())
            plan = await engine.bulk(order).dry_run(Cancel("x"))
            assert (plan.matching, plan.moving) == (4, 1)
            assert plan.refused["Only orders below 90 cents are cancelled."] == 2
            assert plan.examples["Only orders below 90 cents are cancelled."] == ("o-1", "o-2")
            [bug] = [reason for reason in plan.refused if "ValueError" in reason]
            assert plan.refused[bug] == 1
            assert "7" not in bug
            paid = await engine.bulk(order).dry_run(Pay())
            assert paid.refused == {"event PAY has no transition from state 'paid'": 1}

    run(scenario)


def test_an_event_of_another_machine_and_a_wrong_filter_are_refused(place: Place) -> None:
    class Other(Event):
        pass

    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            with pytest.raises(InvalidPayload):
                await engine.bulk(order).dry_run(Other())  # type: ignore[arg-type]
            with pytest.raises(InvalidPayload, match="'colour' is not a searchable field"):
                engine.bulk(order, where=[("colour", "=", "red")])
            with pytest.raises(InvalidPayload, match="not the name of a bulk run"):
                await engine.bulk(order).send(Cancel(), name="a/b")
            with pytest.raises(InvalidPayload, match="it has 151 characters"):
                await engine.bulk(order).send(Cancel(), name="n" * 151)
            with pytest.raises(BadUsage, match="rate_per_s=0 is not a rate"):
                await engine.bulk(order).send(Cancel(), name="n", rate_per_s=0)
            with pytest.raises(WorkflowNotFound, match="there is no bulk run 'n'"):
                await engine.bulk_runs.get("n")
            assert await engine.bulk_runs.list() == []

    run(scenario)


# --- Resuming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [("bulk.chunk", 3), ("bulk.chunk", 9), ("bulk.page", 2), ("engine.committed", 9)])
def test_a_run_that_was_killed_is_resumed_and_moves_each_workflow_once(kept: Place, point: tuple[str, int]) -> None:
    async def scenario() -> None:
        order = declared()
        engine = await kept.engine(order, worker=False)
        await filled(engine, order)
        plan = await engine.bulk(order).dry_run(Cancel("x"))
        dying = asyncio.Event()
        killed = engine._inside.pipeline

        def kill() -> None:
            killed.dead = UnavailableError("this engine was killed by its test.")
            dying.set()

        task = asyncio.create_task(engine.bulk(order).send(Cancel("x"), name="n", by="ada"))
        at_point(*point, kill)
        with pytest.raises(UnavailableError):
            await task
        faultpoints.listen(None)
        assert dying.is_set()
        await crash(engine)
        async with kept.engine(order, worker=False) as engine:
            before = await engine.bulk_runs.get("n")
            assert before.state == "running"  # Nothing could write that it died.
            assert before.moved < plan.moving
            done = await engine.bulk(order).send(Cancel("x"), name="n", by="bob")
            assert (done.state, done.by, done.since) == ("done", "bob", before.since)
            assert (done.matching, done.moved, done.refused) == (plan.matching, plan.moving, plan.refused)
            moved = await moves(engine, order)
            assert (len(moved), set(moved.values())) == (plan.moving, {1})

    run(scenario)


def test_a_run_that_was_cancelled_is_resumed(place: Place) -> None:
    """The event changes nothing of the filter: each workflow would take it again, if not for its key."""

    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order, 100)
            task = asyncio.create_task(engine.bulk(order).send(Touch(), name="touch"))
            at_point("bulk.chunk", 7, task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await engine.bulk_runs.get("touch")).state == "interrupted"
            done = await engine.bulk(order).send(Touch(), name="touch")
            found = await engine.find(order, state=State.OPEN, limit=1_000)
            assert (done.state, done.matching, done.moved) == ("done", 100, 80)
            assert [view.context.touched for view in found.items] == [1] * 80

    run(scenario)


def test_a_workflow_that_enters_the_state_again_is_moved_once(place: Place) -> None:
    """The page order of a state is that of entry, so such a workflow comes again at the end."""

    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order)
            first = await engine.bulk(order, state=State.OPEN).dry_run(Touch())
            task = asyncio.create_task(engine.bulk(order, state=State.OPEN).send(Touch(), name="touch"))
            at_point("bulk.chunk", 7, task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await engine.bulk_runs.get("touch")).state == "interrupted"
            done = await engine.bulk(order, state=State.OPEN).send(Touch(), name="touch")
            moved = await moves(engine, order, "TOUCH")
            assert (done.state, done.matching, done.moved) == ("done", first.matching, first.moving)
            assert (len(moved), set(moved.values())) == (first.moving, {1})

    run(scenario)


def test_workflows_that_leave_the_filter_hide_no_others_and_new_ones_are_left_alone(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order)
            others: list[asyncio.Task[object]] = []

            def traffic() -> None:
                """An early and a late workflow leave the state, and one is created, between two pages."""
                others.extend(asyncio.ensure_future(engine.send(f"o-{number:05}", Pay())) for number in (1, 291))
                others.append(asyncio.ensure_future(engine.start(order, "new", Order("ada"))))

            at_point("bulk.page", 3, traffic)
            done = await engine.bulk(order, state=State.OPEN).send(Touch(), name="touch")
            faultpoints.listen(None)
            await asyncio.gather(*others)
            moved = await moves(engine, order, "TOUCH")
            assert set(moved.values()) == {1}
            assert moved.keys() == {f"o-{each:05}" for each in range(COUNT) if each % 5} - {"o-00291"}
            assert done.moved == len(moved)

    run(scenario)


def test_a_name_stands_for_one_event_and_one_filter(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order, 50)
            ada = engine.bulk(order, where=[("customer", "=", "ada")])
            first = await ada.send(Cancel("x"), name="n")
            with pytest.raises(KeyReused, match="has another event and data: it is 'send CANCEL'"):
                await ada.send(Pay(), name="n")
            with pytest.raises(KeyReused, match="has another data"):
                await ada.send(Cancel("y"), name="n")
            with pytest.raises(KeyReused, match=r"has another filter: .*customer = \"ada\""):
                await engine.bulk(order).send(Cancel("x"), name="n")
            with pytest.raises(KeyReused, match="has another action"):
                await engine.bulk(order).pause(name="n")
            assert await ada.send(Cancel("x"), name="n") == first

    run(scenario)


def test_of_two_that_run_a_name_one_runs(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order)
            request = BulkRequest("send", Cancel("x"))
            seconds: list[asyncio.Task[BulkRun]] = []
            other = engine.bulk(order)
            at_point(
                "bulk.page", 2, lambda: seconds.append(asyncio.create_task(other.run(request, name="n", wait_s=0)))
            )
            done = await engine.bulk(order).send(Cancel("x"), name="n")
            with pytest.raises(LeaseHeld, match="bulk run 'n' is executed by "):
                await seconds[0]
            assert done.state == "done"
            assert set((await moves(engine, order)).values()) == {1}

    run(scenario)


def test_a_process_that_lost_its_lease_moves_and_counts_nothing_twice(place: Place) -> None:
    """It was frozen, another one took over, and it goes on: its record has moved on, and its events are known."""

    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order)
            plan = await engine.bulk(order).dry_run(Cancel("x"))
            others: list[asyncio.Task[BulkRun]] = []

            async def take_over() -> BulkRun:
                [lease] = engine._inside.own_leases._renewals
                assert await engine._store.leases.release(lease.name, lease.token)
                return await engine.bulk(order).send(Cancel("x"), name="n", by="bob")

            at_point("bulk.page", 3, lambda: others.append(asyncio.create_task(take_over())))
            first = engine.bulk(order).send(Cancel("x"), name="n", by="ada")
            [ended] = await asyncio.gather(first, return_exceptions=True)
            assert isinstance(ended, Fenced) or (isinstance(ended, BulkRun) and ended.by == "bob")
            done = await others[0]
            assert (done.state, done.by) == ("done", "bob")
            assert (done.matching, done.moved, done.refused) == (plan.matching, plan.moving, plan.refused)
            moved = await moves(engine, order)
            assert (len(moved), set(moved.values())) == (plan.moving, {1})

    run(scenario)


def test_a_run_is_stopped_from_elsewhere_and_resumed(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order)
            plan = await engine.bulk(order).dry_run(Cancel("x"))
            stops: list[asyncio.Task[BulkRun]] = []
            at_point("bulk.page", 2, lambda: stops.append(asyncio.create_task(engine.bulk_runs.stop("n", by="bob"))))
            stopped = await engine.bulk(order).send(Cancel("x"), name="n")
            assert stopped.state == (await stops[0]).state == "interrupted"
            assert stopped.moved < plan.moving
            assert (await engine.bulk_runs.stop("n")).state == "interrupted"
            done = await engine.bulk(order).send(Cancel("x"), name="n")
            assert (done.state, done.moved, done.refused) == ("done", plan.moving, plan.refused)
            assert (await engine.bulk_runs.stop("n")).state == "done"

    run(scenario)


def test_runs_are_listed_and_the_oldest_are_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        order = declared()
        monkeypatch.setattr(bulk, "RUNS_MAX", 3)
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order, 20)
            for number in range(7):
                await engine.bulk(order, state=State.PAID).send(Cancel(str(number)), name=f"n-{number}")
            listed = await engine.bulk_runs.list()
            assert [each.name for each in listed][:3] == ["n-6", "n-5", "n-4"]
            assert len(listed) <= 5
            assert [each.name for each in await engine.bulk_runs.list(limit=2)] == ["n-6", "n-5"]
            assert (await engine.bulk_runs.get("n-6")).filter.state == "paid"
            machines = {each.machine for each in (await engine.find(order)).items}
            assert machines == {"order"}

    run(scenario)


# --- Bounds ----------------------------------------------------------------------------------------------------------


def test_a_run_waits_where_admission_is_limited(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order, 50)
            engine.set_admission(Admission(rate_per_s=1_000, burst=3))
            done = await engine.bulk(order, state=State.OPEN).send(Touch(), name="n")
            assert done.moved == done.matching == len(await moves(engine, order, "TOUCH")) == 40

    run(scenario)


def test_a_rate_bounds_what_is_sent_per_second(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has its time, and waits for it; the waits themselves are left out."""
    parts: list[tuple[int, float]] = []
    pace = bulk._Execution._pace

    async def at_its_time(self: bulk._Execution, count: int) -> None:
        before_s = self._next_s
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", no_wait)
            await pace(self, count)
        parts.append((count, self._next_s - before_s))

    async def no_wait(delay_s: float) -> None:
        assert delay_s >= 0

    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order, 50)
            monkeypatch.setattr(bulk._Execution, "_pace", at_its_time)
            done = await engine.bulk(order, state=State.OPEN).send(Touch(), name="n", rate_per_s=20)
            assert (done.moved, done.rate_per_s) == (40, 20)
            assert [count for count, _ in parts] == [2] * 20
            assert all(later_s > 0.0999 for _, later_s in parts)

    run(scenario)


# --- Dead letters and pauses -----------------------------------------------------------------------------------------


async def broken(engine: Engine, order: OrderMachine) -> None:
    """12 orders with a dead letter each, of two kinds of errors in one group."""
    for number in range(12):
        await engine.start(order, f"o-{number:02}", Order(("ada", "bob")[number % 2], number))
        await engine.send(f"o-{number:02}", Break())
    await settled(engine)


def test_dead_letters_of_a_filter_are_retried_once(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order) as engine:
            await broken(engine, order)
            before = {each.id for each in await engine.dead_letters()}
            [group] = {each.group for each in await engine.dead_letters()}
            assert group == "NonRetryable: part … of … is missing." or "part … of … is missing" in group
            ada = engine.bulk(order, where=[("customer", "=", "ada")])
            assert (await ada.dry_run(BulkRequest("retry", error="another"))).matching == 0
            plan = await ada.dry_run(BulkRequest("retry", letter="repair", kind="step", error=group))
            assert (plan.matching, plan.moving) == (6, 6)
            done = await ada.retry_dead_letters(letter="repair", kind="step", error=group, by="ada")
            assert (done.state, done.matching, done.moved, done.action) == ("done", 6, 6, "retry")
            await settled(engine)
            after = {each.id for each in await engine.dead_letters()}
            # Each of them gave up again, with another letter; those of bob are as they were.
            assert (len(after), len(after & before)) == (12, 6)
            assert await ada.retry_dead_letters(letter="repair", kind="step", error=group, name=done.name) == done

    run(scenario)


def test_a_retry_that_was_interrupted_is_resumed(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order) as engine:
            await broken(engine, order)
            before = {each.id for each in await engine.dead_letters()}
            task = asyncio.create_task(engine.bulk(order).retry_dead_letters(name="n"))
            at_point("bulk.chunk", 1, task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            done = await engine.bulk(order).retry_dead_letters(name="n")
            assert (done.state, done.matching, done.moved) == ("done", 12, 12)
            await settled(engine)
            after = {each.id for each in await engine.dead_letters()}
            assert (len(after), after & before) == (12, set())

    run(scenario)


def test_workflows_of_a_filter_are_paused_and_resumed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order, worker=False) as engine:
            await filled(engine, order, 20)
            ada = engine.bulk(order, where=[("customer", "=", "ada")])
            assert (await ada.dry_run(BulkRequest("pause"))).moving == 10
            assert (await ada.dry_run(BulkRequest("resume"))).refused == {"it is not paused": 10}
            done = await ada.pause(by="ada", note="the bank is down")
            assert (done.state, done.moved, done.note) == ("done", 10, "the bank is down")
            paused = await engine.pauses()
            assert {(each.by, each.note) for each in paused} == {("ada", "the bank is down")}
            assert sorted(str(each.workflow) for each in paused) == [f"o-{number:05}" for number in range(0, 20, 2)]
            assert (await engine.get("o-00002")).paused
            plan = await engine.bulk(order).dry_run(BulkRequest("resume"))
            assert (plan.moving, plan.refused) == (10, {"it is not paused": 10})
            done = await engine.bulk(order).resume(by="bob")
            assert (done.moved, done.refused) == (10, {"it is not paused": 10})
            assert await engine.pauses() == []
            monkeypatch.setattr(bulk, "PAUSES_MAX", 4)
            monkeypatch.setattr(bulk, "_NO_ROOM", "no room")
            plan = await engine.bulk(order).dry_run(BulkRequest("pause"))
            done = await engine.bulk(order).pause()
            assert (plan.moving, plan.refused) == (done.moved, done.refused) == (4, {"no room": 16})

    run(scenario)


def test_the_blocking_engine_has_the_same_calls() -> None:
    order = declared()
    with BlockingEngine.open("memory:", machines=[order], worker=False) as engine:
        for number in range(3):
            engine.start(order, f"o-{number}", Order("ada"))
        ready = engine.bulk(order, state=State.OPEN, where=[("customer", "=", "ada")])
        assert ready.dry_run(Cancel()).moving == 3
        assert ready.pause(note="x").moved == 3
        assert ready.resume().moved == 3
        assert ready.retry_dead_letters().matching == 0
        done = ready.send(Cancel(), name="n", by="ada")
        assert (done.moved, engine.bulk_runs.get("n"), engine.bulk_runs.stop("n")) == (3, done, done)
        assert [each.name for each in engine.bulk_runs.list()][:1] == ["n"]


# --- Sabotage --------------------------------------------------------------------------------------------------------


def test_a_run_without_its_key_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a delivery key what was moved before the interruption is sent again."""
    commanded = bulk.BulkSource.commanded

    async def careless(self: bulk.BulkSource, items: list[bulk.Item], by: str | None) -> object:
        return await commanded(self, [(each[0], each[1], None, each[3]) for each in items], by)

    monkeypatch.setattr(bulk.BulkSource, "commanded", careless)
    with pytest.raises(AssertionError):
        test_a_run_that_was_cancelled_is_resumed(Place(tmp_path, "memory:"))
