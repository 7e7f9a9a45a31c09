"""B12: a transition owes durable side messages, each with its key, retries and dead letter; none moves the machine."""

import asyncio
import uuid

import pytest

from interlock import Engine, Event, NonRetryable, StepContext
from interlock.engine.path.engine_commands import EffectBegun
from interlock.store.records import OwedEffect
from tests.conformance.engine.places import Place, crash, run, settled
from tests.conformance.engine.shop import Held, Note, Order, OrderMachine, Outside, Ship, State, Submit, World, shop


async def done(engine: Engine, order: OrderMachine, workflow: str = "o-1") -> None:
    await engine.start(order, workflow, Order())
    await engine.send(workflow, Submit())
    await engine.wait(workflow, State.DONE)


async def called(engine: Engine, outside: Outside, times: int) -> None:
    while len(outside.calls) < times:
        await settled(engine)


def test_an_effect_has_its_own_key_and_the_context_as_of_the_transition(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(mail=Outside(OSError("net"), held)))
        async with place.engine(order) as engine:
            await done(engine, order)
            await engine.send("o-1", Note("later"))
            await held.begun.wait()
            held.go.set()
            first, second = world.mail.calls
            assert first.context == second.context == Order(cents=5, receipt="r")
            assert first.ctx.key == second.ctx.key
            assert uuid.UUID(first.ctx.key.removeprefix("mail-")).version == 4
            assert (first.ctx.attempt, second.ctx.attempt, first.ctx.workflow) == (1, 2, "o-1")

    run(scenario)


def test_an_effect_does_not_move_the_machine_whatever_it_does(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(mail=Outside(OSError("net"))))
        async with place.engine(order) as engine:
            await done(engine, order)
            await engine.send("o-1", Ship())
            while not (letters := await engine.dead_letters("effect")):
                await settled(engine)
            [letter] = letters
            assert (letter.kind, letter.workflow, letter.name, letter.attempts) == ("effect", "o-1", "mail", 3)
            assert letter.key == world.mail.keys[0]
            view = await engine.get("o-1")
            assert (view.state, view.version, view.waiting) == (State.SHIPPED, 5, None)

    run(scenario)


def test_a_dead_effect_is_retried_with_its_key_and_context(kept: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(mail=Outside(NonRetryable("no address"), None)))
        async with kept.engine(order) as engine:
            await done(engine, order)
            while not await engine.dead_letters():
                await settled(engine)
        async with kept.engine(order) as engine:
            await engine.send("o-1", Note("later"))
            [letter] = await engine.dead_letters("effect")
            assert world.mail.attempts == [1]
            await engine.retry_dead_letter(letter.id)
            await called(engine, world.mail, 2)
            first, second = world.mail.calls
            assert (first.ctx.key, first.context) == (second.ctx.key, second.context)
            await settled(engine)
            assert await engine.dead_letters() == []
        async with kept.engine(order) as engine:
            await settled(engine)
            assert len(world.mail.calls) == 2

    run(scenario)


def test_a_letter_is_ruled_upon_once_however_many_do_it_at_the_same_time(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(mail=Outside(NonRetryable("no address"), held)))
        async with place.engine(order, drain_s=0) as engine:
            await done(engine, order)
            while not (letters := await engine.dead_letters()):
                await settled(engine)
            retries = (engine.retry_dead_letter(letters[0].id) for _ in range(3))
            answers = await asyncio.gather(*retries, return_exceptions=True)
            assert [type(answer).__name__ for answer in answers] == ["NoneType", *["WorkflowNotFound"] * 2]
            await held.begun.wait()
            await settled(engine)
            assert world.mail.attempts == [1, 1]

    run(scenario)


def test_a_resolved_effect_is_not_tried_again(kept: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(mail=Outside(NonRetryable("no address"))))
        async with kept.engine(order) as engine:
            await done(engine, order)
            while not (letters := await engine.dead_letters()):
                await settled(engine)
            await engine.resolve_dead_letter(letters[0].id, note="called them")
        async with kept.engine(order) as engine:
            await settled(engine)
            assert await engine.dead_letters() == []
            assert len(world.mail.calls) == 1

    run(scenario)


def test_an_effect_that_was_under_way_at_a_crash_is_tried_again_and_counts(kept: Place) -> None:
    async def scenario() -> None:
        world = World(mail=Outside(Held()))
        order = shop(world).machine
        for life in (1, 2, 3):
            engine = await kept.engine(order)
            if life == 1:
                await done(engine, order)
            await called(engine, world.mail, life)
            await crash(engine)
        assert world.mail.attempts == [1, 2, 3]
        assert len(set(world.mail.keys)) == 1
        async with kept.engine(order) as engine:
            while not (letters := await engine.dead_letters("effect")):
                await settled(engine)
            assert (letters[0].attempts, letters[0].key) == (3, world.mail.keys[0])
        assert len(world.mail.calls) == 3

    run(scenario)


def test_an_effect_is_done_once_although_its_workflow_was_taken_up_after_a_crash(kept: Place) -> None:
    """What this life owes is not mistaken for what the last one owed."""

    async def scenario() -> None:
        held, mail = Held(), Held()
        order, world, _ = shop(World(reserve=Outside(held, held.answer), mail=Outside(mail)))
        world.reserve.answers = [held, *shop().world.reserve.answers]
        engine = await kept.engine(order)
        await engine.start(order, "o-1", Order())
        await engine.send("o-1", Submit())
        await held.begun.wait()
        await crash(engine)
        async with kept.engine(order) as engine:
            await engine.wait("o-1", State.DONE)
            await mail.begun.wait()
            await settled(engine)
            mail.go.set()
            await settled(engine)
            assert world.mail.attempts == [1]

    run(scenario)


def test_an_effect_that_is_done_is_not_begun_again(place: Place) -> None:
    """B17: after a move its result may come when the engine at the new place has queued it again already."""

    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await done(engine, order)
            while len(attempts := (await engine.attempts("o-1")).items) < 3 or attempts[2].ended_at is None:
                await settled(engine)
            mail = OwedEffect(attempts[2].key, "o-1", (await engine.get("o-1")).version, "mail", 1, 0, b"")
            await engine._pipeline.admit(EffectBegun(mail, lambda _effect: None, claimed=engine._store.shared))
            await settled(engine)
            assert len(world.mail.calls) == 1
            assert (await engine.attempts("o-1")).items == attempts

    run(scenario)


def test_effects_beyond_effects_max_wait_for_a_slot_and_all_run(place: Place) -> None:
    """G6: also when they come back for their retries at the same moment."""

    async def scenario() -> None:
        order, _, _ = shop(attempts=10)
        [mail] = order.compiled.declared.effects
        seen: dict[str, int] = {}
        under_way = most = 0
        everything = asyncio.Event()

        async def fails_twice(order: Order, ctx: StepContext) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            seen[ctx.workflow] = seen.get(ctx.workflow, 0) + 1
            if len(seen) == 12 and all(count == 3 for count in seen.values()):
                everything.set()
            if ctx.attempt < 3:
                raise OSError("net")

        async with place.engine(order, steps={mail.function: fails_twice}, effects_max=2) as engine:
            ids = [f"o-{number}" for number in range(12)]
            await asyncio.gather(*(done(engine, order, each) for each in ids))
            await everything.wait()
            assert most <= 2

    run(scenario)


def test_an_effect_that_takes_too_long_is_cancelled_and_tried_again(place: Place) -> None:
    async def scenario() -> None:
        def declare(order: OrderMachine) -> None:
            @order.effect(State.SHIPPED, timeout_s=0.05)
            async def publish(order: Order, ctx: StepContext) -> None:
                attempts.append(ctx.attempt)
                if ctx.attempt == 1:
                    await asyncio.Event().wait()
                finished.set()

        attempts: list[int] = []
        finished = asyncio.Event()
        order = shop(declare=declare).machine
        async with place.engine(order) as engine:
            await done(engine, order)
            await engine.send("o-1", Ship())
            await finished.wait()
            assert attempts == [1, 2]

    run(scenario)


def test_one_transition_owes_any_number_of_effects(place: Place) -> None:
    async def scenario() -> None:
        seen: dict[str, str] = {}

        def declare(order: OrderMachine) -> None:
            for number in range(3):

                @order.effect(State.SHIPPED, name=f"publish-{number}")
                async def publish(order: Order, ctx: StepContext, number: int = number) -> None:
                    seen[f"publish-{number}"] = ctx.key

        order = shop(declare=declare).machine
        async with place.engine(order) as engine:
            await done(engine, order)
            await engine.send("o-1", Ship())
            await settled(engine)
            while len(seen) < 3:
                await settled(engine)
            assert all(key.startswith(name) for name, key in seen.items())
            assert len(set(seen.values())) == 3

    run(scenario)


@pytest.mark.parametrize("event", [Note("x")])
def test_an_internal_transition_owes_no_effect_again(place: Place, event: Event) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await done(engine, order)
            await called(engine, world.mail, 1)
            await engine.send("o-1", event)
            await settled(engine)
            assert len(world.mail.calls) == 1

    run(scenario)
