"""F8: why a workflow is where it is, in words that are true for each kind of waiting, on every store."""

import re
from datetime import timedelta

import pytest

from interlock import Breaker, Dependency, Engine, NonRetryable, RetryAfter, StepContext, Why, WorkflowNotFound
from tests.conformance.engine import families
from tests.conformance.engine.places import Place, SetClock, crash, run, settled
from tests.conformance.engine.shop import (
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

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def says(why: Why, *parts: str) -> None:
    """The paragraph has these parts, in this order; `TIME` stands for any time."""
    pattern = ".*".join(re.escape(part).replace("TIME", TIME) for part in parts)
    assert re.search(pattern, why.text), why.text


async def submitted(engine: Engine, order: OrderMachine, workflow: str = "o-1") -> None:
    await engine.start(order, workflow, Order())
    await engine.send(workflow, Submit())


async def dead(engine: Engine) -> str:
    while not (letters := await engine.dead_letters()):
        await settled(engine)
    return letters[0].id


def test_a_started_workflow_waits_for_an_event_and_a_timer(place: Place) -> None:
    def timed(machine: OrderMachine) -> None:
        machine.after(State.DRAFT, timedelta(hours=1), send=Cancel())
        machine.dwell(State.DRAFT, max_s=60)

    async def scenario() -> None:
        order = shop(declare=timed).machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order(), by="ada")
            why = await engine.why("o-1")
            says(why, "order 'o-1' was started in state 'draft' at TIME, by ada.", "It waits for an event")
            says(why, "Timers: CANCEL at TIME (to 'undoing').", "SUBMIT ('charging', if affordable)", "NOTE (stays)")
            view = await engine.get("o-1")
            assert (why.workflow, why.waits_for, why.since) == ("o-1", "event", view.created_at)
            assert why.next_at == view.timers[0].due_at
            assert {"SUBMIT", "CANCEL", "NOTE"} <= set(why.events)

    run(scenario)


def test_a_stall_is_named(place: Place) -> None:
    async def scenario() -> None:
        clock = SetClock()
        order = shop(declare=lambda machine: machine.dwell(State.DRAFT, max_s=60)).machine
        async with place.engine(order, clock=clock) as engine:
            await engine.start(order, "o-1", Order())
            if not engine._store.shared:  # There the time is the server's.
                clock.now_s += 100
                says(await engine.why("o-1"), "It is stalled: 100 s are longer than the 60 s declared.")

    run(scenario)


def test_an_attempt_under_way(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order = shop(World(charge=Outside(OSError("away"), held))).machine
        async with place.engine(order, drain_s=0) as engine:
            await submitted(engine, order)
            await held.begun.wait()
            await settled(engine)
            why = await engine.why("o-1")
            says(why, "came from 'draft' to 'charging' by SUBMIT at TIME, from a timer or from a caller without a name")
            says(
                why,
                "Attempt 1 failed at TIME: OSError: away.",
                "Attempt 2 of step 'charge' is under way since TIME on ",
            )
            says(why, "It may take until TIME.", "If 3 attempts fail, it moves to 'undoing'.")
            assert (why.waits_for, why.next_at) == ("attempt", None)
            assert why.since == (await engine.attempts("o-1")).items[-1].begun_at

    run(scenario)


def test_a_process_that_died_is_suspected_when_the_time_of_its_attempt_is_over(owned: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order = shop(World(charge=Outside(held)), timeout_s=0.001).machine
        engine = await owned.engine(order)
        await submitted(engine, order)
        await held.begun.wait()
        await crash(engine)
        async with owned.engine(order, worker=False) as engine:
            why = await engine.why("o-1")
            assert why.waits_for == "attempt"
            says(why, "Its time was over at TIME: its process may have died.")

    run(scenario)


def test_a_retry_has_a_time(place: Place) -> None:
    async def scenario() -> None:
        order = shop(World(charge=Outside(RetryAfter(3_600, "busy")))).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            while (why := await engine.why("o-1")).waits_for != "retry":
                await settled(engine)
            says(why, "Attempt 1 failed at TIME: ", "Attempt 2 of step 'charge' begins at TIME.")
            assert why.next_at is not None
            assert why.next_at - why.since == timedelta(hours=1)

    run(scenario)


def test_an_open_breaker_and_a_missing_worker(place: Place) -> None:
    async def scenario() -> None:
        order = shop(charges_at="bank").machine
        async with place.engine(order, dependencies=[Dependency("bank", breaker=Breaker(failures=1))]) as engine:
            engine.force_breaker("bank", "open")
            await submitted(engine, order)
            await settled(engine)
            why = await engine.why("o-1")
            assert why.waits_for == "dependency"
            says(why, "Step 'charge' waits: the breaker of 'bank' was opened by hand.")
            engine.force_breaker("bank", "auto")
            await engine.wait("o-1", State.DONE)

    run(scenario)


def test_an_engine_without_a_worker_says_that_one_is_missing(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order, worker=False) as engine:
            await submitted(engine, order)
            why = await engine.why("o-1")
            assert why.waits_for == "slot"
            says(why, "Step 'charge' waits for a free slot, or for an engine that runs steps.")

    run(scenario)


def test_a_pause_comes_first(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.pause(machine=order, state=State.CHARGING, by="ada", note="the bank is down")
            await engine.pause(id="o-1")
            await engine.send("o-1", Submit())
            why = await engine.why("o-1")
            assert (why.waits_for, why.next_at) == ("resume", None)
            says(why, "The state 'charging' of machine 'order' is paused since TIME by ada (the bank is down).")
            says(why, "The workflow 'o-1' is paused", "no timer fires until `interlock resume`", "Step 'charge' waits")

    run(scenario)


def test_a_dead_letter_of_a_step_and_its_resolution(place: Place) -> None:
    async def scenario() -> None:
        order = shop(World(charge=Outside(NonRetryable("no such card"))), failed=None).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            letter = await dead(engine)
            why = await engine.why("o-1")
            assert why.waits_for == "operator"
            assert why.since == (await engine.dead_letters())[0].since
            says(
                why,
                "Step 'charge' gave up after 1 attempt, the last at TIME (",
                "no such card)",
                "It waits for an operator.",
            )
            says(why, f"`interlock dead-letters retry {letter}` tries it again")
            await engine.resolve_dead_letter(letter, note="by hand")
            why = await engine.why("o-1")
            assert why.waits_for == "event"
            says(why, "a person has resolved its dead letter", "It stays until an event moves it.")

    run(scenario)


def test_a_dead_letter_of_an_effect(place: Place) -> None:
    async def scenario() -> None:
        def declare(machine: OrderMachine) -> None:
            @machine.effect(State.SHIPPED)
            async def announce(order: Order, ctx: StepContext) -> None:
                raise NonRetryable("no such address")

        order = shop(declare=declare).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Ship())
            letter = await dead(engine)
            why = await engine.why("o-1")
            assert (why.waits_for, why.since) == ("operator", (await engine.dead_letters())[0].since)
            says(why, "That state is final.", "Effect 'announce' gave up after 1 attempt, the last at TIME (")
            says(why, "no such address)", "It waits for an operator.", f"`interlock dead-letters retry {letter}`")
            await engine.resolve_dead_letter(letter, note="told by hand")
            why = await engine.why("o-1")
            assert why.waits_for == "nothing"
            says(why, "That state is final: it waits for nothing.")

    run(scenario)


def test_an_effect_that_gave_up_does_not_hold_the_workflow(place: Place) -> None:
    async def scenario() -> None:
        order = shop(World(mail=Outside(NonRetryable("no such address")))).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await dead(engine)
            why = await engine.why("o-1")
            assert why.waits_for == "event"
            says(why, "That state is resting", "Effect 'mail' gave up after 1 attempt", "Events that apply here: ")

    run(scenario)


def test_an_unwinding(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order = shop(World(release=Outside(held, NonRetryable("no")))).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel(), by="ada")
            await held.begun.wait()
            why = await engine.why("o-1")
            assert why.waits_for == "attempt"
            says(why, "by CANCEL at TIME, by ada", "Attempt 1 of the undo of step 'reserve' is under way")
            says(why, "After 2 undos it moves to 'cancelled'.")
            held.answer = NonRetryable("refused")
            held.go.set()
            await dead(engine)
            says(await engine.why("o-1"), "The undo of step 'reserve' gave up after 1 attempt")

    run(scenario)


def test_resting_final_and_what_left_it_there(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await settled(engine)
            why = await engine.why("o-1")
            assert why.waits_for == "event"
            says(why, "from 'reserving' to 'done' by RESERVED at TIME, the result of step 'reserve'", "resting")
            await engine.send("o-1", Note("x"), by="ada")
            says(
                await engine.why("o-1"),
                "is in state 'done' since TIME; NOTE at TIME, by ada left it there (version 5).",
            )
            await engine.send("o-1", Ship())
            why = await engine.why("o-1")
            assert (why.waits_for, why.events, why.next_at) == ("nothing", (), None)
            says(why, "That state is final: it waits for nothing.")

    run(scenario)


def test_the_ways_that_the_machine_itself_moves(place: Place) -> None:
    async def scenario() -> None:
        order = shop(World(charge=Outside(NonRetryable("no"))), failed=State.UNDOING).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.CANCELLED)
            says(await engine.why("o-1"), "by UNWOUND at TIME, after everything was undone")
            await engine.start(order, "o-2", Order())
            pruned = await engine.prune(older_than_s=0, history_only=True)
            assert pruned.workflows == 1
            says(await engine.why("o-1"), "is in state 'cancelled' since TIME (version 4); its history was pruned.")

    run(scenario)


def test_a_family(place: Place) -> None:
    async def scenario() -> None:
        parcel = families.parcels()
        order = families.orders(parcel)
        async with place.engine(order, parcel) as engine:
            await engine.start(order, "o", families.Order(tuple("abcde")))
            await engine.send("o", families.Pay())
            await families.quiet(engine)
            await engine.send("o.b", families.Packed())
            await families.quiet(engine)
            why = await engine.why("o")
            assert why.waits_for == "children"
            says(
                why, "It waits for 4 of 5 children: 'o.a', 'o.c', 'o.d' and 1 more.", "When a join holds, it moves to "
            )

    run(scenario)


def test_a_family_that_an_event_has_ended_is_no_result_of_its_step(place: Place) -> None:
    """The attempt that started the children stands in the row of that event, and ended long before."""

    async def scenario() -> None:
        parcel = families.parcels()
        order = families.orders(parcel)
        clock = SetClock()
        async with place.engine(order, parcel, clock=clock) as engine:
            await engine.start(order, "o", families.Order(tuple("ab")))
            await engine.send("o", families.Pay())
            await families.quiet(engine)
            clock.now_s += 1
            await engine.send("o", families.Cancel())
            says(await engine.why("o"), "by CANCEL at TIME, from a timer or from a caller without a name (version 3)")

    run(scenario)


def test_a_fork_names_the_other_workflow(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.fork("o-1", 1, "o-2")
            says(
                await engine.why("o-2"),
                "order 'o-2' was forked from workflow 'o-1' at version 1, in state 'draft' at TIME.",
            )

    run(scenario)


def test_a_pause_does_not_stop_events_and_operators(place: Place) -> None:
    async def scenario() -> None:
        order = shop(World(charge=Outside(NonRetryable("no such card")))).machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.pause(id="o-1")
            why = await engine.why("o-1")
            assert (why.waits_for, why.next_at) == ("event", None)
            says(why, "The workflow 'o-1' is paused", "It waits for an event")

    run(scenario)


def test_an_effect_under_way_and_a_parked_workflow_are_named(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order = shop(World(mail=Outside(held))).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await held.begun.wait()
            says(await engine.why("o-1"), "Effects under way: 'mail'.")
            held.go.set()
            await engine.start(order, "o-2", Order())
            await engine.send("o-2", Submit())
            await engine.wait("o-2")
            with pytest.raises(WorkflowNotFound):
                await engine.why("nobody")

    run(scenario)
