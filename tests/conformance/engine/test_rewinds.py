"""F6: a workflow is set back to an earlier version, after what it did since then is undone; on every store."""

import asyncio
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import (
    Engine,
    Event,
    InvalidTransition,
    KeyReused,
    Machine,
    NonRetryable,
    Rewind,
    RunToUndo,
    StepContext,
    StoredJson,
    VersionConflict,
    WorkflowNotFound,
)
from interlock.errors import BadUsage
from tests.conformance.engine import families
from tests.conformance.engine.places import Place, crash, run, settled
from tests.conformance.engine.shop import (
    Again,
    Cancel,
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Pause,
    Reserved,
    Ship,
    State,
    Submit,
    World,
    shop,
)
from tests.conformance.engine.test_pipelines import Travel, Trip


async def done(engine: Engine, order: OrderMachine, workflow: str = "o-1") -> None:
    """Bring an order to DONE: version 1 draft, 2 noted, 3 charging, 4 reserving, 5 done."""
    await engine.start(order, workflow, Order())
    await engine.send(workflow, Note("n"))
    await engine.send(workflow, Submit(7))
    await engine.wait(workflow, State.DONE)


async def events_of(engine: Engine, workflow: str = "o-1") -> list[str]:
    return [row.event for row in await engine.history(workflow)]


def test_what_was_done_since_is_undone_newest_first_and_the_workflow_is_as_it_was(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await done(engine, order)
            dry = await engine.rewind("o-1", 2, dry_run=True)
            assert dry == Rewind(
                workflow="o-1",
                to_version=2,
                state=State.DRAFT,
                version=5,
                undo=(
                    RunToUndo("reserve", "RESERVED", world.reserve.keys[0], known=True),
                    RunToUndo("charge", "CHARGED", world.charge.keys[0], known=True),
                ),
            )
            assert (await engine.get("o-1")).version == 5
            assert world.release.calls == world.refund.calls == []
            begun = await engine.rewind("o-1", 2, by="ada", note="charged twice")
            assert (begun.undo, begun.version, begun.duplicate) == (dry.undo, 6, False)
            view = await engine.wait("o-1", State.DRAFT)
            assert (view.version, view.context) == (7, Order(note="n"))
            assert [call.ctx.undoes for call in world.release.calls] == [world.reserve.keys[0]]
            assert [call.ctx.undoes for call in world.refund.calls] == [world.charge.keys[0]]
            # The undos see the context as it is, with the receipt.
            assert (world.refund.calls[0].context, world.refund.calls[0].done) == (Order(7, "r", "n"), Charged("r"))
            *_, rewinding, rewound = await engine.history("o-1")
            assert (rewinding.event, rewinding.from_state, rewinding.to_state, rewinding.by) == (
                "REWINDING", State.DONE, State.UNDOING, "ada",
            )  # fmt: skip
            assert (rewound.event, rewound.from_state, rewound.to_state, rewound.by) == (
                "REWOUND", State.UNDOING, State.DRAFT, "ada",
            )  # fmt: skip
            for row in (rewinding, rewound):
                assert isinstance(row.payload, StoredJson)
                assert row.payload.text == '{"to_version":2,"note":"charged twice"}'
            assert (rewinding.context, rewound.context) == (Order(7, "r", "n"), Order(note="n"))
            # It goes on like any other, and undoes only what it has done since.
            await engine.send("o-1", Submit(9))
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            await engine.wait("o-1", State.CANCELLED)
            assert [call.ctx.undoes for call in world.refund.calls[1:]] == world.charge.keys[1:]
            assert len(world.charge.keys) == 2

    run(scenario)


def test_an_older_undo_does_not_begin_before_the_newer_one_and_events_are_refused_meanwhile(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(release=Outside(held)))
        async with place.engine(order) as engine:
            await done(engine, order)
            await engine.rewind("o-1", 2)
            await held.begun.wait()
            view = await engine.get("o-1")
            assert view.state is State.UNDOING
            assert view.waiting == "is set back to version 2: the undo of 'reserve' is under way"
            assert [each.step for each in await engine.compensations()] == ["reserve", "charge"]
            with pytest.raises(InvalidTransition):
                await engine.send("o-1", Ship())
            assert [each.event for each in await engine.allowed("o-1")] == ["NOTE"]
            await engine.send("o-1", Note("!"))
            assert world.refund.calls == []
            why = await engine.why("o-1")
            assert why.waits_for == "attempt"
            assert "After 2 undos it is set back to version 2, to 'draft'." in why.text
            held.go.set()
            # A note of that time is not part of the version that it is set back to.
            assert (await engine.wait("o-1", State.DRAFT)).context == Order(note="n")
            assert "was set back to version 2, from 'undoing' to 'draft' at " in (await engine.why("o-1")).text

    run(scenario)


def test_runs_of_before_stay_and_the_step_of_the_state_begins_again(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await done(engine, order)
            begun = await engine.rewind("o-1", 4)
            assert (begun.state, [each.step for each in begun.undo]) == (State.RESERVING, ["reserve"])
            await engine.wait("o-1", State.DONE)
            assert [len(each.calls) for each in (world.charge, world.reserve, world.refund)] == [1, 2, 0]
            assert len(set(world.reserve.keys)) == 2
            await settled(engine)
            assert [row.version for row in await engine.history("o-1")] == list(range(1, 9))
            # The charge of before is still owed its undo.
            await engine.send("o-1", Cancel())
            await engine.wait("o-1", State.CANCELLED)
            assert [call.ctx.undoes for call in world.refund.calls] == world.charge.keys
            released = [call.ctx.undoes for call in world.release.calls]
            assert released == world.reserve.keys

    run(scenario)


def test_an_attempt_under_way_is_interrupted_and_its_unknown_outcome_undone(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(reserve=Outside(held, Reserved())))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            begun = await engine.rewind("o-1", 1)
            assert [(each.step, each.known) for each in begun.undo] == [("reserve", False), ("charge", True)]
            assert begun.undo[0].key == world.reserve.keys[0]
            await engine.wait("o-1", State.DRAFT)
            assert held.cancelled.is_set()
            assert [call.done for call in world.release.calls] == [None]
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)

    run(scenario)


def test_without_anything_to_undo_it_is_set_back_in_one_commit(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("a"))
            await engine.send("o-1", Note("b"))
            found = await engine.rewind("o-1", 2)
            assert (found.undo, found.version) == ((), 4)
            view = await engine.get("o-1")
            assert (view.state, view.version, view.context) == (State.DRAFT, 4, Order(note="a"))
            assert await events_of(engine) == ["STARTED", "NOTE", "NOTE", "REWOUND"]

    run(scenario)


def test_effects_are_not_owed_again(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await done(engine, order)
            await settled(engine)
            while await engine._store.effects(limit=1):
                await settled(engine)
            await engine.send("o-1", Note("x"))
            await engine.rewind("o-1", 5)
            view = await engine.wait("o-1", State.DONE)
            assert view.context == Order(7, "r", "n")
            await settled(engine)
            assert len(world.mail.calls) == 1

    run(scenario)


def test_a_crash_at_any_undo_loses_nothing(kept: Place) -> None:
    """The target and the undos are in one row: another engine goes on, with the same keys."""

    async def scenario() -> None:
        held = Held()
        world = World(release=Outside(held, None))
        order, _, _ = shop(world)
        async with kept.engine(order) as engine:
            await done(engine, order)
            await engine.rewind("o-1", 2)
            await held.begun.wait()
            await crash(engine)
        refund = Held()
        world.refund.answers[:] = [refund, None]
        async with kept.engine(order) as engine:
            await refund.begun.wait()
            assert (await engine.rewind("o-1", 2)).duplicate
            await crash(engine)
        async with kept.engine(order) as engine:
            view = await engine.wait("o-1", State.DRAFT)
            assert (view.version, view.context) == (7, Order(note="n"))
            assert len(set(world.release.keys)) == len(set(world.refund.keys)) == 1
            assert len(world.release.keys) == len(world.refund.keys) == 2

    run(scenario)


def test_an_undo_that_gives_up_is_a_dead_letter_and_the_rewind_goes_on_after_it(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(release=Outside(NonRetryable("no"), None)))
        async with place.engine(order) as engine:
            await done(engine, order)
            await engine.rewind("o-1", 2)
            while not (letters := await engine.dead_letters()):
                await settled(engine)
            waiting = (await engine.get("o-1")).waiting
            assert waiting is not None
            assert waiting.startswith("is set back to version 2: the undo of 'reserve' gave up after 1 attempt")
            await engine.retry_dead_letter(letters[0].id)
            assert (await engine.wait("o-1", State.DRAFT)).version == 7
            assert len(set(world.release.keys)) == 1

    run(scenario)


def test_the_same_key_again_returns_the_rewind_that_has_begun(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await done(engine, order)
            first = await engine.rewind("o-1", 3, key="k-1")
            await engine.wait("o-1", State.DONE)
            again = await engine.rewind("o-1", 3, key="k-1")
            assert (again.duplicate, again.version, again.undo) == (True, first.version, ())
            with pytest.raises(KeyReused):
                await engine.rewind("o-1", 2, key="k-1")
            with pytest.raises(KeyReused):
                await engine.send("o-1", Note("x"), key="k-1")
            await engine.send("o-1", Ship())
            assert (await engine.rewind("o-1", 3, key="k-1")).duplicate
            assert len(world.charge.calls) == 2

    run(scenario)


def test_of_rewinds_and_events_at_once_each_is_applied_once_or_refused(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await done(engine, order)
            notes = [engine.send("o-1", Note(str(number))) for number in range(5)]
            rewinds = [engine.rewind("o-1", 2) for _ in range(5)]
            answers = await asyncio.gather(*notes, *rewinds, return_exceptions=True)
            assert {type(each) for each in answers[:5]}.pop().__name__ in {"Moved", "InvalidTransition"}
            begun = [each for each in answers[5:] if isinstance(each, Rewind) and not each.duplicate]
            assert begun
            await engine.wait("o-1", State.DRAFT)
            assert len(world.refund.calls) == len(world.release.calls) == 1
            versions = [row.version for row in await engine.history("o-1")]
            assert versions == list(range(1, len(versions) + 1))

    run(scenario)


def test_a_version_that_is_expected_and_not_there_is_a_conflict(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("a"))
            with pytest.raises(VersionConflict, match="is at version 2, not 1"):
                await engine.rewind("o-1", 1, expect_version=1)
            assert (await engine.rewind("o-1", 1, expect_version=2)).version == 3

    run(scenario)


def test_what_cannot_be_undone_is_refused_with_the_reason(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order) as engine:
            await done(engine, order)
            for version in (0, 9):
                with pytest.raises(WorkflowNotFound, match=f"version {version} of workflow 'o-1' is not in its"):
                    await engine.rewind("o-1", version)
            await engine.rewind("o-1", 3)
            await engine.wait("o-1", State.DONE)
            # Versions 6 and 7: REWINDING and REWOUND. What was at 4 and 5 is undone.
            with pytest.raises(BadUsage, match="version 5: at version 7 it was set back to version 3, which is older"):
                await engine.rewind("o-1", 5)
            with pytest.raises(BadUsage, match="its state 'undoing' is unwinding"):
                await engine.rewind("o-1", 6)
            assert (await engine.rewind("o-1", 7, dry_run=True)).undo[-1].step == "charge"
            assert [each.step for each in (await engine.rewind("o-1", 2, dry_run=True)).undo] == ["reserve", "charge"]
            await engine.send("o-1", Ship())
            with pytest.raises(BadUsage, match="it has ended in 'shipped'"):
                await engine.rewind("o-1", 1)
            with pytest.raises(WorkflowNotFound):
                await engine.rewind("nobody", 1)

    run(scenario)


def test_an_unwinding_is_not_rewound_and_nothing_behind_it(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, _, _ = shop(World(release=Outside(held)))
        async with place.engine(order) as engine:
            await done(engine, order)
            await engine.send("o-1", Cancel())
            await held.begun.wait()
            with pytest.raises(BadUsage, match="it is unwinding in 'undoing'"):
                await engine.rewind("o-1", 2)
            held.go.set()
            await engine.wait("o-1")

    run(scenario)


def test_a_self_transition_leaves_its_state_and_an_internal_one_does_not(place: Place) -> None:
    """Version 3 entered CHARGING, 4 (Again) entered it once more, 5 (Note) stayed: each run belongs to its visit."""

    async def scenario() -> None:
        first, second = Held(), Held()
        order, world, _ = shop(World(charge=Outside(first, second, Charged())))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await first.begun.wait()
            await engine.send("o-1", Again())
            await second.begun.wait()
            await engine.send("o-1", Note("x"))
            await engine.send("o-1", Pause())
            dry = [await engine.rewind("o-1", version, dry_run=True) for version in (1, 2, 3, 4)]
            # Before the charge, in its first visit, in its second, and after an internal move of the second.
            assert [[each.key for each in found.undo] for found in dry] == [
                world.charge.keys[::-1],
                world.charge.keys[::-1],
                world.charge.keys[1:],
                world.charge.keys[1:],
            ]

    run(scenario)


# --- Pipelines and children ------------------------------------------------------------------------------------------


def test_a_pipeline_begins_again_in_the_commit_that_sets_it_back(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        travel = Travel(hold=held)
        trip = travel.machine
        async with place.engine(trip) as engine:
            await engine.start(trip, "t-1", Trip(2))
            await held.begun.wait()
            begun = await engine.rewind("t-1", 1)
            assert [(each.step, each.known) for each in begun.undo] == [("pay", False), ("book", True)]
            held.go.set()
            view = await engine.wait("t-1")
            assert (view.state, view.context) == (trip.State.COMPLETED, Trip(2, ("book", "pay", "confirm")))
            assert travel.names == ["book", "pay", "undo pay", "undo book", "book", "pay", "confirm"]
            # So does a fork of that version.
            await engine.fork("t-1", 1, "t-2")
            assert (await engine.wait("t-2")).state is trip.State.COMPLETED

    run(scenario)


def test_children_are_undone_by_a_rewind_of_their_parent(place: Place) -> None:
    async def scenario() -> None:
        parcel = families.parcels()
        order = families.orders(parcel)
        async with place.engine(order, parcel) as engine:
            await engine.start(order, "o", families.Order(items=("a", "b")))
            await engine.send("o", families.Pay())
            while (await engine.get("o")).waiting != "waits for 2 of 2 children":
                await settled(engine)
            await engine.send("o.a", families.Packed())
            [undo] = (await engine.rewind("o", 1)).undo
            assert not undo.known
            while (await engine.get("o.a")).state is not families.ParcelState.RETURNING:
                await settled(engine)
            assert (await engine.get("o")).state is families.OrderState.UNDOING
            await engine.send("o.a", families.Back())
            assert (await engine.wait("o", families.OrderState.NEW, timeout_s=60)).version == 4
            assert (await engine.get("o.b")).state is families.ParcelState.RETURNED

    run(scenario)


# --- Behind a settling move ------------------------------------------------------------------------------------------


class Phase(Enum):
    OPEN, PAYING, PAID, UNDOING = "open", "paying", "paid", "undoing"


@dataclass(frozen=True)
class Account:
    months: int = 0


class AccountEvent(Event): ...


@dataclass(frozen=True)
class Pay(AccountEvent): ...


@dataclass(frozen=True)
class Paid(AccountEvent): ...


@dataclass(frozen=True)
class Book(AccountEvent): ...


AccountMachine = Machine[Phase, Account, AccountEvent]


def account() -> AccountMachine:
    machine: AccountMachine = Machine(
        "account",
        states=Phase,
        context=Account,
        events=AccountEvent,
        initial=Phase.OPEN,
        resting={Phase.OPEN, Phase.PAID},
        unwind={Phase.UNDOING: Phase.OPEN},
    )
    machine.on(Pay, Phase.OPEN, to=Phase.PAYING)
    machine.on(Paid, Phase.PAYING, to=Phase.PAID)
    machine.on(Book, Phase.PAID, to=Phase.OPEN, settle=True)

    @machine.step(Phase.PAYING, timeout_s=20, failed=Phase.UNDOING)
    async def pay(context: Account, ctx: StepContext) -> Paid:
        return Paid()

    @pay.undo(Paid)
    async def repay(context: Account, done: Paid | None, ctx: StepContext) -> None: ...

    return machine


def test_what_a_move_has_settled_is_final(place: Place) -> None:
    async def scenario() -> None:
        machine = account()
        async with place.engine(machine) as engine:
            await engine.start(machine, "a", Account())
            await engine.send("a", Pay())
            await engine.wait("a", Phase.PAID)
            assert len((await engine.rewind("a", 1, dry_run=True)).undo) == 1
            await engine.send("a", Book())
            with pytest.raises(BadUsage, match="BOOK has made final, at version 4, what was done before"):
                await engine.rewind("a", 1)
            assert (await engine.rewind("a", 4)).undo == ()

    run(scenario)


class Tape(Enum):
    STOPPED, PLAYED = "stopped", "played"


class TapeEvent(Event): ...


@dataclass(frozen=True)
class Rewound(TapeEvent):
    seconds: int = 0


def test_a_machine_with_an_event_of_that_name_works_and_is_not_rewound(kept: Place) -> None:
    async def scenario() -> None:
        tape: Machine[Tape, Account, TapeEvent] = Machine(
            "tape", states=Tape, context=Account, events=TapeEvent, initial=Tape.STOPPED, resting={*Tape}
        )
        tape.on(Rewound, Tape.STOPPED, to=Tape.PLAYED)
        async with kept.engine(tape) as engine:
            await engine.start(tape, "t", Account())
            await engine.send("t", Rewound(9))
            with pytest.raises(BadUsage, match="the machine has an event REWOUND of its own"):
                await engine.rewind("t", 1)
        async with kept.engine(tape) as engine:
            rows = await engine.history("t")
            assert [(row.event, row.payload) for row in rows] == [("STARTED", None), ("REWOUND", Rewound(9))]
            assert "came from 'stopped' to 'played' by REWOUND" in (await engine.why("t")).text

    run(scenario)
