"""B7, B8, A6, Values: views, history, listings page by page, what stays too long, and what is allowed."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from interlock import Allowed, Engine, InvalidPayload, WorkflowNotFound
from interlock.store.records import Change
from tests.conformance.engine.places import Place, SetClock, names, run, settled
from tests.conformance.engine.shop import (
    Again,
    Cancel,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Ship,
    State,
    Submit,
    World,
    shop,
)


def test_a_view_holds_enum_members_typed_contexts_and_aware_times(kept: Place) -> None:
    """Values."""

    async def scenario() -> None:
        clock, order = SetClock(), shop().machine
        async with kept.engine(order, clock=clock) as engine:
            await engine.start(order, "o-1", Order(cents=3))
            clock.now_s += 60
            await engine.send("o-1", Note("x"))
        async with kept.engine(order, clock=clock) as engine:
            view = await engine.get("o-1")
            assert view.state is State.DRAFT
            assert view.context == Order(cents=3, note="x")
            assert view.created_at == datetime.fromtimestamp(clock.now_s - 60, UTC)
            assert (view.updated_at - view.created_at).total_seconds() == pytest.approx(60, abs=0.01)
            row = (await engine.history("o-1"))[1]
            assert (row.from_state, row.payload) == (State.DRAFT, Note("x"))
            assert row.context == Order(cents=3, note="x")
            assert row.created_at == view.updated_at

    run(scenario)


def test_what_is_not_there_is_not_found_by_any_call(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            for call in (engine.get, engine.history, engine.wait, engine.allowed, engine.stats):
                with pytest.raises(WorkflowNotFound, match="o-1"):
                    await call("o-1")

    run(scenario)


def test_a_history_longer_than_a_page_of_the_store_comes_whole_and_in_order(place: Place) -> None:
    """B8."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send_many([("o-1", Again(), None)] * 2_500)
            assert [row.version for row in await engine.history("o-1")] == list(range(1, 2_502))

    run(scenario)


def test_a_workflow_is_never_older_than_what_a_listing_showed(place: Place) -> None:
    """G7: also between the commit of its move and the moment when the engine hears of it."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            store = engine._store
            commit, is_durable, goes_on = store.commit, asyncio.Event(), asyncio.Event()

            async def commit_and_pause(changes: Sequence[Change]) -> list[str]:
                lost = await commit(changes)
                is_durable.set()
                await goes_on.wait()
                return lost

            store.commit = commit_and_pause  # type: ignore[method-assign]
            sent = asyncio.create_task(engine.send("o-1", Note("new")))
            try:
                if not store.shared:
                    await is_durable.wait()
                    assert names((await engine.find(order)).items) == ["o-1"]
                    assert len(await engine.history("o-1")) == 2
                    assert (await engine.get("o-1")).version == 2
            finally:
                goes_on.set()
            await sent
            assert (await engine.get("o-1")).context == Order(note="new")

    run(scenario)


async def pages(engine: Engine, order: OrderMachine, state: State | None = None, limit: int = 2) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await engine.find(order, state=state, limit=limit, cursor=cursor)
        found += names(page.items)
        assert len(page.items) <= limit
        cursor = page.cursor
        if cursor is None:
            return found


def test_workflows_are_found_page_by_page_by_machine_and_state(place: Place) -> None:
    """B8."""

    async def scenario() -> None:
        order, parcel = shop().machine, shop(name="parcel").machine
        async with place.engine(order, parcel, worker=False) as engine:
            ids = [f"o-{number}" for number in range(5)]
            for each in ids:
                await engine.start(order, each, Order())
            await engine.start(parcel, "p-1", Order())
            for each in ids[:3]:
                await engine.send(each, Submit())
            assert await pages(engine, order) == ids
            assert await pages(engine, parcel) == ["p-1"]
            assert await pages(engine, order, State.CHARGING) == ids[:3]
            assert await pages(engine, order, State.DRAFT, limit=100) == ids[3:]
            assert await pages(engine, order, State.DONE) == []
            [view] = (await engine.find(parcel)).items
            assert (view.machine, view.state, view.context) == ("parcel", State.DRAFT, Order())

    run(scenario)


def test_what_moves_between_two_pages_hides_nobody_else_and_shows_nobody_twice(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order, worker=False) as engine:
            ids = [f"o-{number}" for number in range(6)]
            for each in ids:
                await engine.start(order, each, Order())
            for state in (None, State.DRAFT):
                first = await engine.find(order, state=state, limit=2)
                await engine.send(first.items[0].id, Submit())
                await engine.start(order, f"new-{state}", Order())
                second = await engine.find(order, state=state, limit=100, cursor=first.cursor)
                seen = [*names(first.items), *names(second.items)]
                assert len(set(seen)) == len(seen)
                assert set(names(first.items)) | {*ids[2:]} <= set(seen)

    run(scenario)


@pytest.mark.parametrize("cursor", ["", "nonsense", "1", "x" * 1_000, "\x00"])
def test_a_cursor_that_no_page_has_given_is_refused(place: Place, cursor: str) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            with pytest.raises(InvalidPayload):
                await engine.find(order, cursor=cursor)

    run(scenario)


def test_another_machines_state_is_refused(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(InvalidPayload):
                await engine.find(order, state="draft")  # type: ignore[arg-type]
            with pytest.raises(InvalidPayload):
                await engine.stalled(order, states=["draft"])  # type: ignore[misc]

    run(scenario)


def dwelling() -> OrderMachine:
    def declare(order: OrderMachine) -> None:
        order.dwell(State.CHARGING, max_s=120)

    return shop(World(charge=Outside(Held())), declare=declare).machine


def test_stalled_are_those_that_stay_longer_than_declared(place: Place) -> None:
    """B7: without a time, longer than the dwell of their state; the longest first."""

    async def scenario() -> None:
        clock, order = SetClock(), dwelling()
        async with place.engine(order, clock=clock, drain_s=0) as engine:
            for each in ("o-1", "o-2", "o-3"):
                await engine.start(order, each, Order())
                clock.now_s += 1
            for each in ("o-2", "o-1"):
                await engine.send(each, Submit())
                clock.now_s += 60
            assert names(await engine.stalled(order)) == []
            clock.now_s += 1
            assert names(await engine.stalled(order)) == ["o-2"]
            await engine.send("o-2", Note("an internal move is no way out"))
            clock.now_s += 120
            assert names(await engine.stalled(order)) == ["o-2", "o-1"]
            await engine.send("o-2", Again())
            assert names(await engine.stalled(order)) == ["o-1"]

    run(scenario)


def test_stalled_with_a_time_are_all_active_ones_that_stay_longer(place: Place) -> None:
    """B7: active = neither final nor resting."""

    async def scenario() -> None:
        clock, order = SetClock(), shop().machine
        async with place.engine(order, clock=clock) as engine:
            for each in ("draft", "done", "over", "gone"):
                await engine.start(order, each, Order())
            for each in ("done", "over"):
                await engine.send(each, Submit())
                await engine.wait(each)
            await engine.send("over", Ship())
            await engine.send("gone", Cancel())
            clock.now_s += 7_201
            assert names(await engine.stalled(order, older_than_s=7_200)) == ["draft"]
            assert names(await engine.stalled(order, older_than_s=7_300)) == []
            assert names(await engine.stalled(order)) == []
            assert names(await engine.stalled(order, older_than_s=7_200, states=[State.CHARGING])) == []
            assert names(await engine.stalled(order, older_than_s=7_200, states=[State.DRAFT])) == ["draft"]

    run(scenario)


def test_allowed_lists_events_with_a_transition_here_and_evaluates_guards_for_an_event(place: Place) -> None:
    """A6."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            allowed = {each.event: each for each in await engine.allowed("o-1")}
            assert set(allowed) == {"SUBMIT", "NOTE", "BROKEN", "AGAIN", "CANCEL"}
            assert allowed["SUBMIT"].to is State.CHARGING
            assert list(allowed["SUBMIT"].guards) == ["affordable"]
            assert not allowed["SUBMIT"].blocked_by
            [blocked] = [each for each in await engine.allowed("o-1", Submit(cents=0)) if each.event == "SUBMIT"]
            assert isinstance(blocked, Allowed)
            assert "affordable" in str(blocked.blocked_by)

    run(scenario)


def test_the_calls_of_one_machine_find_only_its_workflows(place: Place) -> None:
    async def scenario() -> None:
        order, parcel = shop().machine, shop(name="parcel").machine
        async with place.engine(order, parcel) as engine:
            orders, parcels = engine.of(order), engine.of(parcel)
            await orders.start("o-1", Order())
            assert (await orders.get("o-1")).state is State.DRAFT
            assert (await orders.send("o-1", Note("x"))).version == 2
            assert len(await orders.history("o-1")) == 2
            assert names((await orders.find()).items) == ["o-1"]
            assert (await parcels.find()).items == ()
            assert await parcels.stalled(older_than_s=0) == []
            assert {each.event for each in await orders.allowed("o-1")} >= {"SUBMIT"}
            for call in (parcels.get, parcels.history, parcels.allowed, parcels.wait):
                with pytest.raises(WorkflowNotFound):
                    await call("o-1")
            with pytest.raises(WorkflowNotFound):
                await parcels.send("o-1", Note("y"))
            assert (await orders.get("o-1")).version == 2

    run(scenario)


def test_a_view_says_why_its_workflow_waits(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order = shop(World(charge=Outside(held))).machine
        async with place.engine(order, steps_max=1, drain_s=0) as engine:
            for each in ("o-1", "o-2"):
                assert (await engine.start(order, each, Order())).waiting is None
                await engine.send(each, Submit())
            await held.begun.wait()
            await settled(engine)
            assert (await engine.get("o-1")).waiting is None
            assert (
                await engine.get("o-2")
            ).waiting == "its step waits for a free slot, or for an engine that runs steps"

    run(scenario)
