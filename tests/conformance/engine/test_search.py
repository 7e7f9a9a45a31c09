"""F4: `find` with conditions, times and an order, through the engine, on every store."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum

import pytest

from interlock import Event, InvalidPayload, Machine, UnavailableError
from interlock.core.search import search_from_json
from interlock.engine import internals
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.check_definitions import note_search
from interlock.store import lane_search, lane_store
from interlock.store.postgres import search_indexes
from tests.conformance.engine.places import Place, SetClock, names, run


class State(Enum):
    OPEN = "open"
    PAID = "paid"


@dataclass(frozen=True)
class Order:
    customer: str = ""
    cents: int = 0
    renews_at: datetime | None = None


class OrderEvent(Event):
    pass


@dataclass(frozen=True)
class Pay(OrderEvent):
    cents: int


FIELDS = ("customer", "cents", "renews_at")


def declared(search: tuple[str, ...] | None = FIELDS, version: int = 1, name: str = "order") -> "OrderMachine":
    order = Machine(
        name,
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.OPEN,
        resting={State.OPEN, State.PAID},
        version=version,
        search=search,
    )

    @order.on(Pay, State.OPEN, State.PAID, to=State.PAID)
    def pay(order: Order, event: Pay) -> Order:
        return replace(order, cents=event.cents)

    return order


OrderMachine = Machine[State, Order, OrderEvent]


def test_workflows_are_found_by_fields_state_time_and_order(place: Place) -> None:
    async def scenario() -> None:
        order = declared()
        async with place.engine(order) as engine:
            for number in range(6):
                who, at = ("ada", "bob")[number % 2], datetime(2026, 1, 1 + number, tzinfo=UTC)
                await engine.start(order, f"o-{number}", Order(who, number, at if number else None))
            await engine.send("o-1", Pay(100))
            ada = await engine.find(order, where=[("customer", "=", "ada")])
            assert (names(ada.items), ada.cursor) == (["o-0", "o-2", "o-4"], None)
            paid = await engine.find(order, state=State.PAID, where=[("cents", ">", 50)])
            assert [(view.id, view.context.cents) for view in paid.items] == [("o-1", 100)]
            assert names((await engine.find(order, order="-updated_at", limit=2)).items) == ["o-1", "o-5"]
            page = await engine.of(order).find(where=[("cents", "in", [2, 3, 100])], order="-cents", limit=2)
            assert names(page.items) == ["o-1", "o-3"]
            rest = await engine.of(order).find(
                where=[("cents", "in", [2, 3, 100])], order="-cents", limit=2, cursor=page.cursor
            )
            assert (names(rest.items), rest.cursor) == (["o-2"], None)
            before = [("renews_at", "<", datetime(2026, 1, 3, 2, tzinfo=UTC))]
            assert names((await engine.find(order, where=before, order="renews_at")).items) == ["o-1", "o-2"]
            since = (await engine.get("o-1")).updated_at
            found = await engine.find(order, updated_after=since - timedelta(microseconds=1), order="-created_at")
            assert names(found.items) == ["o-1"]
            none = await engine.find(order, updated_before=since - timedelta(days=1))
            assert none.items == ()

    run(scenario)


def test_a_field_that_a_later_version_adds_is_searched_in_what_was_stored_before(kept: Place) -> None:
    async def scenario() -> None:
        for search, version in ((None, 1), (("customer",), 2), (("cents",), 3)):
            order = declared(search, version)
            async with kept.engine(order) as engine:
                await engine.start(order, f"o-{version}", Order("ada", version))
                if search == ("customer",):
                    assert names((await engine.find(order, where=[("customer", "=", "ada")])).items) == ["o-1", "o-2"]
                if search == ("cents",):
                    assert names((await engine.find(order, order="-cents")).items) == ["o-3", "o-2", "o-1"]
                    with pytest.raises(InvalidPayload, match="'customer' is not a searchable field"):
                        await engine.find(order, where=[("customer", "=", "ada")])

    run(scenario)


def test_a_search_that_does_not_fit_is_refused(place: Place) -> None:
    async def scenario() -> None:
        order, plain = declared(), declared(None, name="plain")
        async with place.engine(order, plain, clock=SetClock()) as engine:
            with pytest.raises(InvalidPayload, match="not searchable"):
                await engine.find(plain, order="-updated_at")
            with pytest.raises(InvalidPayload, match="'5' is not an int"):
                await engine.find(order, where=[("cents", "=", "5")])
            with pytest.raises(InvalidPayload, match="not a cursor of this search"):
                await engine.find(order, order="cents", cursor="1.2")

    run(scenario)


def test_an_engine_completes_a_new_index_while_it_runs(kept: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiny bounds, and a first try that fails: it is repeated."""
    monkeypatch.setattr(lane_search, "BATCH", 2)
    monkeypatch.setattr(lane_store, "FIRST_BATCHES", 1)
    monkeypatch.setattr(search_indexes, "SMALL", 0)
    monkeypatch.setattr(internals, "SEARCH_LOOK_S", 0.0)
    monkeypatch.setattr(internals, "SEARCH_AGAIN_S", 0.0)
    failures = ["the disk is full"]

    async def scenario() -> None:
        before = declared(None)
        async with kept.engine(before) as engine:
            for number in range(9):
                await engine.start(before, f"o-{number}", Order("ada", number))
        order = declared(version=2)
        async with kept.engine(order) as engine:
            store = engine._store
            fill_search = store.fill_search

            async def failing_once() -> bool:
                if failures:
                    raise UnavailableError(failures.pop())
                return await fill_search()

            monkeypatch.setattr(store, "fill_search", failing_once)
            [filling] = [task for task in engine._inside._tasks if "_fill_search" in repr(task)]
            await engine.start(order, "o-9", Order("ada", 9))
            await filling
            found = await engine.find(order, where=[("customer", "=", "ada"), ("cents", ">=", 5)], order="-cents")
            assert names(found.items) == ["o-9", "o-8", "o-7", "o-6", "o-5"]

    run(scenario)
    assert not failures


def test_the_store_notes_what_the_latest_version_declares(place: Place) -> None:
    """A program without the machine's code searches by it."""

    async def scenario() -> None:
        async with place.engine(declared(version=2)) as engine:
            notes = await engine._store.notes()
            assert search_from_json("order", notes["search/order"]) == declared(version=2).search
            assert "search/plain" not in notes
            earlier = [BoundMachine(declared(("cents",))), BoundMachine(declared(None, name="plain"))]
            await note_search(engine._store, earlier, notes)
            assert await engine._store.notes() == notes
            later = declared(None, version=3)
            await note_search(engine._store, [BoundMachine(later)], notes)
            noted = (await engine._store.notes())["search/order"]
            assert search_from_json("order", noted) == later.search

    run(scenario)
