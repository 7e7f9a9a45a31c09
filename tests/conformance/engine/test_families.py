"""E1 to E4: children, joins, messages, on every store."""

import asyncio

import pytest

from interlock import Engine, Event, Family, StepContext
from interlock.core.declarations import ChildrenDeclaration
from interlock.engine.families import Families, _key_of
from interlock.engine.path.caller_commands import Start
from interlock.engine.path.staged_group import Envelope
from interlock.errors import DefinitionError, UnavailableError, WorkflowNotFound
from interlock.store.records import ChildRecord
from tests.conformance.engine.families import (
    Arrived,
    Back,
    Call,
    CallerState,
    Cancel,
    CancelParcel,
    Cart,
    Close,
    Lose,
    Onward,
    Order,
    OrderState,
    Packed,
    Parcel,
    ParcelState,
    Pay,
    Refund,
    Trip,
    TripState,
    callers,
    carts,
    orders,
    parcels,
    quiet,
    trips,
)
from tests.conformance.engine.places import Place, crash, run, settled, turns


async def paid(engine: Engine, machine: object, *items: str, cart: str = "", wait: bool = True) -> None:
    """An order whose parcels have started, or will."""
    await engine.start(machine, "o", Order(items, cart=cart))  # type: ignore[arg-type]
    await engine.send("o", Pay())
    if wait:
        await quiet(engine)


def test_each_child_starts_once_and_knows_its_parent(kept: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with kept.engine(order, parcel) as engine:
            await paid(engine, order, "a", "b", "c")
            view = await engine.get("o")
            assert view.waiting == "waits for 3 of 3 children"
            for name in "abc":
                child = await engine.get(f"o.{name}")
                assert (child.parent, child.version, child.state) == ("o", 1, ParcelState.PACKING)
        async with kept.engine(orders(again := parcels()), again) as engine:
            await quiet(engine)
            assert (await engine.get("o.a")).version == 1
            assert (await engine.get("o")).waiting == "waits for 3 of 3 children"

    run(scenario)


def test_the_parent_moves_when_all_children_have_ended(place: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel, lost_max=1)
        async with place.engine(order, parcel) as engine:
            await paid(engine, order, "a", "b", "c")
            await engine.send("o.a", Packed())
            await engine.send("o.b", Lose())
            await quiet(engine)
            assert (await engine.get("o")).waiting == "waits for 1 of 3 children"
            await engine.send("o.c", Packed())
            view = await engine.wait("o", OrderState.SHIPPED, timeout_s=60)
            assert view.context == Order(("a", "b", "c"), sent=2, lost=1, weights=5)
            last = (await engine.history("o"))[-1]
            assert (last.version, last.event, last.from_state) == (3, "CHILDREN_JOINED", OrderState.FULFILLING)

    run(scenario)


def test_an_end_after_the_end_counts_no_second_time(place: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with place.engine(order, parcel) as engine:
            await paid(engine, order, "a", "b")
            await engine.send("o.a", Packed())
            await engine.send("o.a", CancelParcel())
            await engine.send("o.a", Back())
            await quiet(engine)
            assert (await engine.get("o")).waiting == "waits for 1 of 2 children"

    run(scenario)


def test_ends_that_were_not_counted_before_a_crash_are_counted_after_it(kept: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        engine = await kept.engine(order, parcel)
        await paid(engine, order, "a", "b")
        await engine._inside.families.close()  # Ends are recorded, and this engine counts no more.
        await engine.send("o.a", Packed())
        await engine.send("o.b", Packed())
        await crash(engine)
        parcel = parcels()
        async with kept.engine(orders(parcel), parcel) as engine:
            view = await engine.wait("o", OrderState.SHIPPED, timeout_s=60)
            assert view.context.sent == 2  # type: ignore[attr-defined]

    run(scenario)


def test_a_join_that_failed_is_retried_in_the_commit_that_removes_its_letter(
    kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No end is left to count after it: an engine that closes or dies then would leave the parent for ever."""
    contexts, broken = Family.contexts, [True]

    def read(family: Family, kind: type[Parcel]) -> tuple[Parcel, ...]:
        if broken[0]:
            raise KeyError("a bug")
        return contexts(family, kind)

    monkeypatch.setattr(Family, "contexts", read)

    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with kept.engine(order, parcel) as engine:
            await paid(engine, order, "a")
            await engine.send("o.a", Packed())
            await quiet(engine)
            [letter] = await engine.dead_letters()
            await engine.retry_dead_letter(letter.id)
            [again] = await engine.dead_letters()
            assert (again.kind, again.workflow, again.id == letter.id) == ("step", "o", False)
            with pytest.raises(WorkflowNotFound):
                await engine._inside.families._count("o", letter.id)
        broken[0] = False
        async with kept.engine(order, worker=False) as engine:
            with pytest.raises(UnavailableError, match="machine 'parcel'"):
                await engine.retry_dead_letter(again.id)
            assert [each.id for each in await engine.dead_letters()] == [again.id]
        engine = await kept.engine(order, parcel, worker=False)
        await engine._inside.families.close()  # Nothing but the retry itself counts.
        await engine.retry_dead_letter(again.id)
        assert await engine.dead_letters() == []
        assert (await engine.get("o")).context == Order(("a",), sent=1, weights=2)
        await crash(engine)

    run(scenario)


def test_an_engine_without_the_machine_of_the_children_leaves_their_ends_to_others(kept: Place) -> None:
    """It cannot read the results of a join, so the parent would move without them."""

    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        engine = await kept.engine(order, parcel)
        await paid(engine, order, "a", "b")
        await engine._inside.families.close()
        await engine.send("o.a", Packed())
        await engine.send("o.b", Packed())
        await crash(engine)
        async with kept.engine(orders(parcels()), worker=False) as engine:
            await quiet(engine)
            assert (await engine.get("o")).state is OrderState.FULFILLING
        async with kept.engine(order, parcel) as engine:
            view = await engine.wait("o", OrderState.SHIPPED, timeout_s=60)
            assert view.context == Order(("a", "b"), sent=2, weights=4)

    run(scenario)


def test_a_join_that_a_release_has_corrected_is_asked_when_an_engine_opens(kept: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        trip = trips(parcel, ended_min=2)  # Of one child.
        async with kept.engine(trip, parcel) as engine:
            await engine.start(trip, "t", Trip())
            await quiet(engine)
            await engine.send("t.out", Packed())
            await quiet(engine)
            assert (await engine.get("t")).waiting == "its 1 children have ended, and no join holds"
        trip = trips(parcel)
        async with kept.engine(trip, parcel) as engine:
            await engine.wait("t", TripState.BACK, timeout_s=60)

    run(scenario)


def test_an_order_without_items_is_joined_immediately(place: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with place.engine(order, parcel) as engine:
            await paid(engine, order)
            assert (await engine.wait("o", OrderState.SHIPPED, timeout_s=60)).version == 3

    run(scenario)


def test_the_first_join_that_holds_is_taken_and_cancels_the_living(place: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with place.engine(order, parcel) as engine:
            await paid(engine, order, "a", "b", "c")
            await engine.send("o.b", Lose())
            view = await engine.wait("o", OrderState.CANCELLED, timeout_s=60)
            assert view.context.lost == 1  # type: ignore[attr-defined]
            for name in "ac":
                assert (await engine.wait(f"o.{name}", timeout_s=60)).state is ParcelState.RETURNED
            assert (await engine.get("o.b")).state is ParcelState.LOST

    run(scenario)


@pytest.mark.parametrize("leave", ["cancel", "abandon"])
def test_an_event_that_leaves_the_state_cancels_or_abandons(place: Place, leave: str) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel, leave=leave)  # type: ignore[arg-type]
        async with place.engine(order, parcel) as engine:
            await paid(engine, order, "a", "b")
            await engine.send("o.a", Packed())
            await quiet(engine)
            await engine.send("o", Cancel())
            await quiet(engine)
            living = ParcelState.RETURNED if leave == "cancel" else ParcelState.PACKING
            if leave == "cancel":
                await engine.wait("o.b", living, timeout_s=60)
            assert (await engine.get("o.b")).state is living
            assert (await engine.get("o.a")).state is ParcelState.SENT
            assert await engine.dead_letters() == []

    run(scenario)


def test_children_of_one_machine_are_cancelled_as_the_state_that_was_left_declares(place: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        trip = trips(parcel)
        async with place.engine(trip, parcel) as engine:
            await engine.start(trip, "t", Trip())
            await quiet(engine)
            await engine.send("t", Onward())
            await quiet(engine)
            assert (await engine.get("t.out")).state is ParcelState.LOST
            await engine.send("t", Onward())
            await quiet(engine)
            assert (await engine.get("t.home")).state is ParcelState.RETURNED

    run(scenario)


def _delay_starts(engine: Engine, patch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Delay the starts of children; return what is set when one is sent, and what lets them begin."""
    pipeline = engine._inside.families._pipeline
    admit, sent, let = pipeline.admit, asyncio.Event(), asyncio.Event()

    async def start_later(envelope: Start) -> object:
        sent.set()
        await let.wait()
        return await admit(envelope)

    def late(envelope: Envelope) -> asyncio.Future[object]:
        if isinstance(envelope, Start) and envelope.birth is not None:
            return asyncio.ensure_future(start_later(envelope))
        return admit(envelope)

    patch.setattr(pipeline, "admit", late)
    return sent, let


def test_an_attempt_that_is_cancelled_ends_after_the_starts_that_it_has_sent(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The undo of a family begins when the attempt has ended. A child that started later would have no undo."""

    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with place.engine(order, parcel) as engine:
            sent, let = _delay_starts(engine, monkeypatch)
            await paid(engine, order, "a", wait=False)
            await sent.wait()
            await engine.send("o", Refund())
            await turns()
            assert (await engine.get("o")).state is OrderState.UNDOING
            let.set()
            assert (await engine.wait("o", OrderState.FAILED, timeout_s=60)).state is OrderState.FAILED
            assert (await engine.get("o.a")).state is ParcelState.RETURNED

    run(scenario)


@pytest.mark.parametrize("leave", ["cancel", "abandon"])
def test_children_that_start_after_their_parent_has_left_are_cancelled_by_the_attempt(
    place: Place, leave: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a shared store another process may let the parent leave, and cancel the children before these have started."""

    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel, leave=leave)  # type: ignore[arg-type]
        async with place.engine(order, parcel) as engine:
            sent, let = _delay_starts(engine, monkeypatch)
            await paid(engine, order, "a", wait=False)
            await sent.wait()
            await engine.send("o", Cancel())
            for _ in range(3):  # Its effect cancels the children that have started: none.
                await settled(engine)
            let.set()
            await quiet(engine)
            child = await engine.get("o.a")
            assert child.state is (ParcelState.RETURNED if leave == "cancel" else ParcelState.PACKING)

    run(scenario)


def test_ends_that_were_read_in_an_earlier_visit_are_not_taken_from_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent enters the next visit while its ends are read; children end before all of them were started."""

    async def scenario() -> None:
        parcel = parcels()
        trip = trips(parcel)
        async with place.engine(trip, parcel) as engine:
            await engine.start(trip, "t", Trip())
            await quiet(engine)
            families = engine._inside.families
            ended, begin = engine._store.ended_children, families._start
            begun, read, living, started = (asyncio.Event() for _ in range(4))

            async def late_ended(parent: str, *, limit: int) -> list[ChildRecord]:
                begun.set()
                await read.wait()
                return await ended(parent, limit=limit)

            async def late_start(piece: list[Start], children: ChildrenDeclaration, ctx: StepContext) -> None:
                await begin(piece, children, ctx)
                living.set()
                await started.wait()

            monkeypatch.setattr(engine._store, "ended_children", late_ended)
            monkeypatch.setattr(families, "_start", late_start)
            families.poke("t")
            await begun.wait()
            await engine.send("t", Onward())
            await living.wait()
            await engine.send("t.home", Packed())
            read.set()
            counting = families._counting
            assert counting is not None
            await counting
            started.set()
            assert (await engine.wait("t", TripState.HOME, timeout_s=60)).version == 3

    run(scenario)


def test_a_parent_that_unwinds_undoes_its_children_and_waits_for_them(place: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with place.engine(order, parcel) as engine:
            await paid(engine, order, "a", "b")
            await engine.send("o.a", Packed())
            await engine.send("o.b", Packed())
            await engine.wait("o", OrderState.SHIPPED, timeout_s=60)
            await engine.send("o", Refund())
            await engine.wait("o.a", ParcelState.RETURNING, timeout_s=60)
            await engine.wait("o.b", ParcelState.RETURNING, timeout_s=60)
            assert (await engine.get("o")).state is OrderState.UNDOING
            await engine.send("o.a", Back())
            await engine.send("o.b", Back())
            assert (await engine.wait("o", OrderState.FAILED, timeout_s=60)).state is OrderState.FAILED

    run(scenario)


def test_the_id_of_a_child_that_is_taken_is_a_dead_letter(place: Place) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with place.engine(order, parcel) as engine:
            await engine.start(parcel, "o.a", Parcel("a"))
            await paid(engine, order, "a", "b")
            [letter] = await engine.dead_letters()
            assert (letter.kind, letter.workflow, letter.name) == ("step", "o", "parcel_of_each_item")
            assert "child 'o.a' of workflow 'o' exists already" in letter.error

    run(scenario)


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        (("a", "a"), "returned two children with the name 'a'"),
        (("a", "x" * 220), "would have 222 characters, at most 200 are allowed"),
        (("a", "b/c"), "has a slash, or a character that is not printable"),
        (("a", ""), "returned a child without a name"),
    ],
)
def test_children_that_cannot_start_leave_none(place: Place, items: tuple[str, ...], problem: str) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with place.engine(order, parcel) as engine:
            await paid(engine, order, *items)
            [letter] = await engine.dead_letters()
            assert problem in letter.error
            assert (await engine.find(parcel)).items == ()

    run(scenario)


@pytest.mark.parametrize("other", [False, True])
def test_an_engine_that_works_needs_the_machine_of_the_children(place: Place, *, other: bool) -> None:
    async def scenario() -> None:
        order = orders(parcels())
        machines = [order, parcels()] if other else [order]
        with pytest.raises(DefinitionError) as refused:
            await place.engine(*machines)
        text = str(refused.value)
        assert "machine 'order' starts children of machine 'parcel' in state 'fulfilling', and" in text
        assert ("with another machine of the name 'parcel'" if other else "without machine 'parcel'") in text
        assert ("Pass that machine object in machines=[...]" if other else "Add machine 'parcel' to machines=[") in text
        async with place.engine(*machines, worker=False) as engine:
            assert (await engine.start(order, "o", Order())).state is OrderState.NEW

    run(scenario)


def test_a_message_is_delivered_with_the_move_that_owes_it(place: Place) -> None:
    async def scenario() -> None:
        parcel, cart = parcels(), carts()
        order = orders(parcel)
        async with place.engine(order, parcel, cart) as engine:
            await engine.start(cart, "c", Cart())
            await paid(engine, order, cart="c")
            await quiet(engine)
            assert (await engine.get("c")).context == Cart(("order",))

    run(scenario)


def test_a_message_that_is_owed_waits_for_the_end_of_the_opening(
    kept: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        parcel, cart = parcels(), carts()
        order = orders(parcel)
        async with kept.engine(order, parcel, cart, worker=False) as engine:
            await engine.start(cart, "c", Cart())
        engine = await kept.engine(order, parcel, cart)
        begun = asyncio.Event()

        async def crashing(items: object, ctx: StepContext) -> list[str]:
            begun.set()
            await asyncio.Event().wait()
            return []

        engine._inside.families._deliver = crashing  # type: ignore[method-assign]
        await paid(engine, order, cart="c", wait=False)
        await begun.wait()
        await crash(engine)
        sweep = Families.sweep

        async def slow(self: Families) -> None:
            await turns(500)  # Enough for the attempt to begin.
            await sweep(self)

        monkeypatch.setattr(Families, "sweep", slow)
        caplog.clear()
        async with kept.engine(order, parcel, cart) as engine:
            await _owing_nothing(engine)
            assert (await engine.get("c")).context == Cart(("order",))
        assert "AttributeError" not in caplog.text

    run(scenario)


def test_an_unexpected_error_of_one_parent_does_not_stop_the_count_of_others(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with place.engine(order, parcel) as engine:
            await paid(engine, order, "a")
            families = engine._inside.families
            count = families._count

            async def failing(parent: str, letter: str = "") -> None:
                if parent == "x":
                    raise RuntimeError("a bug")
                await count(parent, letter)

            families._count = failing  # type: ignore[method-assign]
            families.poke("x")
            await quiet(engine)
            await engine.send("o.a", Packed())
            await engine.wait("o", OrderState.SHIPPED, timeout_s=60)
        assert "the children of workflow 'x' cannot be counted" in caplog.text

    run(scenario)


async def _owing_nothing(engine: Engine) -> None:
    while await engine._inside.store.effects(limit=1):
        await quiet(engine)


def test_messages_in_another_order_are_delivered_once(kept: Place) -> None:
    """A function that goes over a set returns another order in the next process; equal messages are all delivered."""

    async def scenario() -> None:
        parcel, cart = parcels(), carts()
        order = orders(parcel, told=("a", "b", "c", "b"))
        engine = await kept.engine(order, parcel, cart)
        await engine.start(cart, "c", Cart())
        deliver, died = engine._inside.families._deliver, asyncio.Event()

        async def crashing(items: list[tuple[str, Event, str | None]], ctx: StepContext) -> list[str]:
            await deliver(items[:3], ctx)  # The process dies between two messages.
            died.set()
            await asyncio.Event().wait()
            return []

        engine._inside.families._deliver = crashing  # type: ignore[method-assign]
        await paid(engine, order, cart="c", wait=False)
        await died.wait()
        await crash(engine)
        parcel, cart = parcels(), carts()
        async with kept.engine(orders(parcel, told=("b", "c", "b", "a")), parcel, cart) as engine:
            await _owing_nothing(engine)
            assert (await engine.get("c")).context == Cart(("a", "b", "c", "b"))

    run(scenario)


def test_a_refused_message_is_a_dead_letter_that_names_both(place: Place) -> None:
    async def scenario() -> None:
        parcel, cart = parcels(), carts()
        order = orders(parcel)
        async with place.engine(order, parcel, cart) as engine:
            await engine.start(cart, "c", Cart())
            await engine.send("c", Close())
            await paid(engine, order, cart="c")
            await quiet(engine)
            [letter] = await engine.dead_letters("effect")
            assert "ARRIVED from workflow 'o' to workflow 'c' was refused" in letter.error

    run(scenario)


def test_a_step_sends_and_starts_once_whatever_its_attempts(place: Place) -> None:
    async def scenario() -> None:
        cart = carts()
        caller = callers(cart, failures=2)
        async with place.engine(caller, cart) as engine:
            await engine.start(caller, "k", Call("c"))
            await engine.wait("k", CallerState.DONE, timeout_s=60)
            assert (await engine.get("c")).context == Cart(("call", "call"))
            await engine.send("c", Arrived("again"))

    run(scenario)


def test_a_refusal_that_a_step_does_not_catch_names_both_workflows(place: Place) -> None:
    async def scenario() -> None:
        cart = carts()
        caller = callers(cart)
        async with place.engine(caller, cart) as engine:
            await engine.start(cart, "closed", Cart())
            await engine.send("closed", Close())
            await engine.start(cart, "full", Cart(("other",)))
            await engine.start(caller, "sender", Call("closed"))
            await engine.start(caller, "starter", Call("full"))
            while len(letters := await engine.dead_letters()) < 2:
                await turns()
            errors = {each.workflow: each.error for each in letters}
            refused = "ARRIVED from workflow 'sender' to workflow 'closed' was refused: cart: event ARRIVED"
            assert refused in errors["sender"]
            assert "the start of workflow 'full' by workflow 'starter' was refused" in errors["starter"]

    run(scenario)


def test_runs_of_a_step_with_a_long_name_have_keys_of_their_own() -> None:
    keys = {_key_of(StepContext(key=f"{'x' * 220}-{run}"), "digest") for run in range(2)}
    assert len(keys) == 2
    assert {len(key) for key in keys} == {200}
    assert _key_of(StepContext(key="call-1"), "digest") == "call-1.digest"
