"""Two engines on one schema: whatever one has done, the other knows, and nothing is done twice (B2, B5, B6, G5, G7).

Each engine has connections of its own, as two processes would. Nothing here waits for a lease to be over: what one
leaves is taken up by the other at once, or not at all.
"""

import asyncio

import pytest

from interlock import Engine, InvalidTransition, Moved
from interlock.engine.open_engine import EngineOpening
from tests.conformance.engine.places import AnyMachine, NoDelay, run
from tests.conformance.engine.shop import (
    Cancel,
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Pause,
    Ship,
    State,
    Submit,
    World,
    shop,
)


def opened(url: str, *machines: AnyMachine, worker: bool = True, **settings: float) -> EngineOpening[Engine]:
    """One process."""
    chosen = {"stall_check_s": 0.0, "poll_s": 0.2} | settings
    return Engine.open(url, machines=machines, worker=worker, chance=NoDelay(), **chosen)  # type: ignore[arg-type]


def test_an_event_is_decided_on_what_the_other_engine_has_made_of_the_workflow(postgres_url: str) -> None:
    """G7: it is applied, or refused, on the row of the database and not on what is remembered here."""

    async def scenario() -> None:
        order = shop().machine
        async with (
            opened(postgres_url, order, worker=False) as here,
            opened(postgres_url, order, worker=False) as there,
        ):
            await here.start(order, "o-1", Order())
            await there.send("o-1", Submit())
            assert (await here.send("o-1", Pause())).state is State.PAUSED
            with pytest.raises(InvalidTransition) as caught:
                await there.send("o-1", Note("x"))
            assert "'paused'" in caught.value.what
            assert (await there.send("o-1", Note("x"), if_allowed=True)).ignored

    run(scenario)


def test_a_key_that_was_used_at_one_engine_is_a_duplicate_at_the_other(postgres_url: str) -> None:
    """B5."""

    async def scenario() -> None:
        order = shop().machine
        async with (
            opened(postgres_url, order, worker=False) as here,
            opened(postgres_url, order, worker=False) as there,
        ):
            await here.start(order, "o-1", Order())
            first = await there.send("o-1", Note("x"), key="k")
            again = await asyncio.gather(*(each.send("o-1", Note("x"), key="k") for each in (here, there, here)))
            assert {(each.duplicate, each.version) for each in again} == {(True, first.version)}
            assert (await here.get("o-1")).version == 2

    run(scenario)


def test_a_wait_at_one_engine_ends_with_a_move_at_the_other(postgres_url: str) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with (
            opened(postgres_url, order, worker=False) as here,
            opened(postgres_url, order, worker=False) as there,
        ):
            await here.start(order, "o-1", Order())
            waiting = asyncio.ensure_future(here.wait("o-1", State.CHARGING))
            await there.send("o-1", Submit())
            assert (await waiting).version == 2

    run(scenario)


@pytest.mark.slow
def test_one_takes_the_events_and_the_other_does_the_work(postgres_url: str) -> None:
    """A worker that looks every ten minutes hears of it at once."""

    async def scenario() -> None:
        order, world, _ = shop()
        async with opened(postgres_url, order, worker=False) as door, opened(postgres_url, order, poll_s=600):
            ids = [f"o-{number}" for number in range(30)]
            for each in ids:
                await door.start(order, each, Order())
            assert all(isinstance(each, Moved) for each in await door.send_many([(each, Submit()) for each in ids]))
            for each in ids:
                assert (await door.wait(each)).state is State.DONE
        assert len(world.charge.keys) == len(set(world.charge.keys)) == len(ids)

    run(scenario)


def test_a_step_that_is_interrupted_by_a_clean_stop_is_taken_over_at_once(postgres_url: str) -> None:
    """B6: it is not counted, has the same key, and nobody waits for a lease of ten minutes."""

    async def scenario() -> None:
        held = Held(Charged("never"))
        order, world, _ = shop(World(charge=Outside(held, Charged("second"))))
        async with opened(postgres_url, order, poll_s=600, lease_s=600) as other:
            async with opened(postgres_url, order, drain_s=0, lease_s=600) as first:
                await first.start(order, "o-1", Order())
                await first.send("o-1", Submit())
                await held.begun.wait()
            assert (await other.of(order).wait("o-1")).context.receipt == "second"
        assert world.charge.attempts == [1, 1]
        assert len(set(world.charge.keys)) == 1

    run(scenario)


def test_engines_of_different_machines_leave_each_other_alone(postgres_url: str) -> None:
    async def scenario() -> None:
        books, toys = shop(name="book"), shop(name="toy")
        async with opened(postgres_url, books.machine) as one, opened(postgres_url, toys.machine) as other:
            await one.start(books.machine, "b-1", Order())
            await other.start(toys.machine, "t-1", Order())
            await asyncio.gather(one.send("b-1", Submit()), other.send("t-1", Submit()))
            assert (await one.wait("b-1")).state is State.DONE
            assert (await other.wait("t-1")).state is State.DONE
        assert len(books.world.charge.calls) == len(toys.world.charge.calls) == 1
        assert len(books.world.mail.calls) == len(toys.world.mail.calls) == 1

    run(scenario)


def test_timers_fire_once_however_many_look_at_them(postgres_url: str) -> None:
    """B9."""

    async def scenario() -> None:
        def declare(order: OrderMachine) -> None:
            order.after(State.DRAFT, after_s=0.2, send=Cancel())

        order = shop(declare=declare).machine
        ids = [f"o-{number}" for number in range(40)]
        async with opened(postgres_url, order, poll_s=0.05) as one, opened(postgres_url, order, poll_s=0.05) as two:
            for number, each in enumerate(ids):
                await (one, two)[number % 2].start(order, each, Order())
            for each in ids:
                assert (await one.wait(each)).state is State.CANCELLED
                assert [row.event for row in await two.history(each)] == ["STARTED", "CANCEL", "UNWOUND"]

    run(scenario)


def test_effects_run_once_however_many_look_for_them(postgres_url: str) -> None:
    """B12: also those for which the engine that owes them has no slot."""

    async def scenario() -> None:
        order, world, _ = shop()
        ids = [f"o-{number}" for number in range(40)]
        first = opened(postgres_url, order, effects_max=2, poll_s=0.05)
        async with first as one, opened(postgres_url, order, effects_max=2, poll_s=0.05):
            for each in ids:
                await one.start(order, each, Order())
            await one.send_many([(each, Submit()) for each in ids])
            for each in ids:
                await one.wait(each)
            while await one._inside.store.effects(limit=1):
                pass
        assert sorted(call.ctx.workflow for call in world.mail.calls) == sorted(ids)
        assert len(set(world.mail.keys)) == len(ids)

    run(scenario)


def test_hundreds_of_events_from_two_engines_at_once_are_all_applied(postgres_url: str) -> None:
    """B2, B3: none is lost or applied twice, and the versions of history are dense."""

    async def scenario() -> None:
        order = shop().machine
        async with (
            opened(postgres_url, order, worker=False, conflicts_max=1_000) as here,
            opened(postgres_url, order, worker=False, conflicts_max=1_000) as there,
        ):
            await here.start(order, "hot", Order())
            answers = await asyncio.gather(
                *((here, there)[number % 2].send("hot", Note(f"<{number}>")) for number in range(200))
            )
            assert sorted(moved.version for moved in answers) == list(range(2, 202))
            rows = await there.history("hot")
            assert [row.version for row in rows] == list(range(1, 202))
            note = (await here.of(order).get("hot")).context.note
            assert all(note.count(f"<{number}>") == 1 for number in range(200))
            await there.send("hot", Cancel())
            with pytest.raises(InvalidTransition):
                await here.send("hot", Ship())

    run(scenario)
