"""B6: a worker that stops gives back what it has claimed and not begun, or says in the log that it could not."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from interlock import Engine, OutcomeUnknown, TransactionError, UnavailableError
from interlock.engine.shared.claims import GIVE_BACK_S
from interlock.store.records import OwedEffect, Row
from tests.conformance.engine.places import turns
from tests.conformance.engine.shop import Charged, Held, Order, OrderMachine, Outside, State, Submit, World, shop
from tests.unit.engine.shared.stores import LEASE_S, SharedMemory, engine_on, inside, now_s, passed, play

GONE = UnavailableError("the connection was lost.")


async def submitted(store: SharedMemory, order: OrderMachine, *workflows: str) -> None:
    """Leave work for workers."""
    async with engine_on(store, order, worker=False, seed=9) as door:
        for workflow in workflows:
            await door.start(order, workflow, Order())
            await door.send(workflow, Submit())


@contextlib.asynccontextmanager
async def stopping(engine: Engine) -> AsyncIterator[asyncio.Task[None]]:
    """Stop it, and wait for its end after the block."""
    end = asyncio.ensure_future(engine.close())
    await turns(20)
    yield end
    await end
    await turns(20)


class Completing(SharedMemory):
    """A store that completes a claim although the caller is cancelled, as PostgreSQL does."""

    async def claim(self, machine: str, **how: Any) -> list[Row]:  # noqa: ANN401 -- as it comes.
        return await asyncio.shield(super().claim(machine, **how))

    async def claim_effects(self, machines: Sequence[str], **how: Any) -> list[OwedEffect]:  # noqa: ANN401
        return await asyncio.shield(super().claim_effects(machines, **how))


@pytest.mark.parametrize("drain_s", [0.0, 60.0])
def test_what_is_claimed_while_it_stops_is_given_back(drain_s: float) -> None:
    """The claim is on its way to the store: nobody can call it back."""

    async def scenario() -> None:
        store, held = Completing(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)))
        await submitted(store, order, "o-1")
        store.gates["claim"] = asyncio.Event()
        async with engine_on(store, order, drain_s=drain_s) as worker:
            while not store.calls("claim"):
                await passed(0.1)
            async with stopping(worker):
                store.gates["claim"].set()
            assert store.held == {}
            assert world.charge.calls == []

    play(scenario)


def test_an_effect_that_is_claimed_while_it_stops_is_given_back() -> None:
    async def scenario() -> None:
        store = Completing()
        order, world, _ = shop(World(mail=Outside(Held())))
        async with engine_on(store, order) as first:
            await first.start(order, "o-1", Order())
            await first.send("o-1", Submit())
            await first.wait("o-1", State.DONE)
            await passed(1)
        assert (len(world.mail.calls), store.held_effects) == (1, {})
        store.gates["claim_effects"] = asyncio.Event()
        async with engine_on(store, order, seed=2) as worker:
            while not store.calls("claim_effects"):
                await passed(0.1)
            async with stopping(worker):
                store.gates["claim_effects"].set()
            assert store.held_effects == {}
            assert len(world.mail.calls) == 1

    play(scenario)


class Refusing(SharedMemory):
    """A store that does not give workflows back the first times."""

    def __init__(self, *refusals: Exception | str) -> None:
        super().__init__()
        self.refusals = list(refusals)

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        refusal = self.refusals.pop(0) if self.refusals else None
        if isinstance(refusal, Exception):
            raise refusal
        kept = set(leases) if refusal == "all are written" else set(list(leases)[:1]) if refusal else set()
        return await super().release({each: lease for each, lease in leases.items() if each not in kept}, owner=owner)


@pytest.mark.parametrize(
    "refusals",
    [
        (),
        (GONE,),
        (OutcomeUnknown("nobody knows."), GONE),
        (TransactionError("the table is locked."),),
        ("one is written",),
        ("all are written", "one is written", GONE, "one is written"),
    ],
)
def test_it_goes_on_until_all_are_given_back(refusals: tuple[Exception | str, ...]) -> None:
    """A lost connection, or a row that is being written at that moment, keeps nothing from the others."""

    async def scenario() -> None:
        store, held = Refusing(*refusals), Held(Charged())
        order, _, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        await submitted(store, order, "o-1", "o-2", "o-3")
        async with engine_on(store, order, steps_max=1) as worker:
            await held.begun.wait()
            await turns(50)
            assert len(inside(worker).runner.claimed) == 2
        assert store.held == {}
        assert store.refusals == []

    play(scenario)


class Answering(SharedMemory):
    """A store that gives workflows back, and takes its time for the second answer."""

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        lost = await super().release(leases, owner=owner)
        if self.calls("release") > 1:
            await passed(LEASE_S / 2)
        return lost


def test_leases_that_are_renewed_meanwhile_do_not_break_the_end() -> None:
    """The renewal finds out first that they are given back, while the answer to the worker is on its way."""

    async def scenario() -> None:
        store, held = Answering(), Held(Charged())
        order, _, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        await submitted(store, order, "o-1", "o-2", "o-3")
        async with engine_on(store, order, steps_max=1) as worker:
            await held.begun.wait()
            await turns(50)
            assert len(inside(worker).runner.claimed) == 2
        assert store.held == {}

    play(scenario)


def test_it_says_so_when_they_could_not_be_given_back(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, _, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        await submitted(store, order, "o-1", "o-2", "o-3")
        async with engine_on(store, order, steps_max=1) as worker:
            await held.begun.wait()
            await turns(50)
            store.down["release"] = GONE
            begun_s = now_s()
            await worker.close()
            assert now_s() - begun_s < 2 * GIVE_BACK_S
        assert len(store.held) == 2

    with caplog.at_level(logging.WARNING, "interlock.steps"):
        play(scenario)
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("2 workflows and 0 effects that this worker has claimed and not begun could not be")
    assert warning.endswith("when their leases end, in at most 9 s.")


def test_others_have_what_was_not_begun_while_it_waits_for_what_runs() -> None:
    """And nobody begins what runs: its lease is renewed until it has ended."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held, Charged())), timeout_s=1_000)
        await submitted(store, order, "o-1", "o-2")
        async with engine_on(store, order, steps_max=1, drain_s=20 * LEASE_S) as worker:
            await held.begun.wait()
            await turns(50)
            async with stopping(worker), engine_on(store, order, seed=2) as other:
                assert (await other.wait("o-2")).state is State.DONE
                await passed(5 * LEASE_S)
                assert len(world.charge.calls) == 2
                held.go.set()
                assert (await other.wait("o-1")).state is State.DONE
        assert world.charge.attempts == [1, 1]

    play(scenario)


def test_a_result_that_the_store_cannot_take_just_then_is_brought_again_before_it_ends() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held, Charged())), timeout_s=1_000)
        await submitted(store, order, "o-1")
        async with engine_on(store, order, drain_s=60) as worker:
            await held.begun.wait()
            async with stopping(worker):
                store.fates.append(GONE)
                held.go.set()
        assert store.row("o-1").state == "reserving"
        assert store.held == {}
        assert world.charge.attempts == [1]

    play(scenario)
