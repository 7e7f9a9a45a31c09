"""B9: since when nobody has looked after the store, and how a worker shows that it does."""

import asyncio
from collections.abc import Callable

import pytest

from interlock.engine.bound_machine import BoundMachine
from interlock.engine.shared.claims import LOOK_S, SIGN_S, SILENT_S, gap_begun_us, gap_sensitive, show_signs, sign_of
from interlock.errors import OutcomeUnknown, UnavailableError
from tests.conformance.engine.places import AnyMachine
from tests.conformance.engine.shop import Cancel, Order, OrderMachine, State, shop
from tests.unit.engine.shared.stores import SharedMemory, engine_on, now_s, passed, play


def timed(policy: str | None) -> AnyMachine:
    def declare(order: OrderMachine) -> None:
        if policy is not None:
            order.after(State.DRAFT, after_s=60, send=Cancel(), policy=policy)  # type: ignore[arg-type]

    return shop(declare=declare).machine


@pytest.mark.parametrize(
    ("policy", "minds"), [(None, False), ("deadline", False), ("restart", True), ("remaining", True)]
)
def test_only_some_timers_mind_how_long_nobody_was_there(policy: str | None, minds: bool) -> None:
    assert gap_sensitive({"order": BoundMachine(timed(policy), {})}) == (["order"] if minds else [])


def test_without_a_sign_nobody_was_ever_there() -> None:
    async def scenario() -> None:
        assert await gap_begun_us(SharedMemory(), "order") == 0
        assert now_s() == 0.0

    play(scenario)


def test_an_old_sign_is_where_the_gap_begins() -> None:
    async def scenario() -> None:
        store = SharedMemory()
        last_us = store.now_us()
        await store.note(sign_of("order"), str(last_us))
        await passed(SILENT_S)
        begun_s = now_s()
        assert await gap_begun_us(store, "order") == last_us
        assert now_s() == begun_s

    play(scenario)


def test_a_fresh_sign_that_stays_the_same_is_one_of_the_dead() -> None:
    async def scenario() -> None:
        store = SharedMemory()
        last_us = store.now_us()
        await store.note(sign_of("order"), str(last_us))
        await passed(0.4)
        begun_s = now_s()
        assert await gap_begun_us(store, "order") == last_us
        assert now_s() - begun_s == pytest.approx(SILENT_S - 0.4, abs=2 * LOOK_S)

    play(scenario)


@pytest.mark.parametrize("every_s", [10.0, 0.05])
def test_a_sign_that_changes_is_one_of_the_living(every_s: float) -> None:
    """Also when its notes fail for a moment."""

    async def scenario() -> None:
        store = SharedMemory()
        living = asyncio.ensure_future(show_signs(store, ["order"], every_s))
        await passed(0.01)
        begun_s = now_s()
        assert await gap_begun_us(store, "order") is None
        assert now_s() - begun_s <= min(SIGN_S, every_s) + 2 * LOOK_S
        living.cancel()

    play(scenario)


@pytest.mark.parametrize("error", [UnavailableError, OutcomeUnknown, OSError])
def test_a_store_that_is_away_does_not_end_the_signs(error: Callable[[str], Exception]) -> None:
    async def scenario() -> None:
        store = SharedMemory()
        store.down["note"] = error("away.")
        living = asyncio.ensure_future(show_signs(store, ["order"], 1.0))
        await passed(5)
        assert await gap_begun_us(store, "order") == 0
        del store.down["note"]
        await passed(1)
        assert await gap_begun_us(store, "order") is None
        living.cancel()

    play(scenario)


@pytest.mark.parametrize(("policy", "left_s"), [("remaining", 40.0), ("restart", 60.0), ("deadline", 0.0)])
def test_a_timer_goes_on_by_its_policy_when_the_first_worker_comes_back(policy: str, left_s: float) -> None:
    """B9: the time while nobody was there."""

    async def scenario() -> None:
        store, order = SharedMemory(), timed(policy)
        async with engine_on(store, order) as engine:
            await engine.start(order, "o-1", Order())
            await passed(20)
        await passed(1_000)
        async with engine_on(store, order, seed=2) as engine:
            begun_s = now_s()
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert now_s() - begun_s == pytest.approx(left_s, abs=1.0)

    play(scenario)


@pytest.mark.parametrize("policy", ["remaining", "restart"])
def test_a_worker_that_joins_another_leaves_the_timers_as_they_are(policy: str) -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), timed(policy)
        async with engine_on(store, order) as first:
            await first.start(order, "o-1", Order())
            await passed(50)
            async with engine_on(store, order, seed=2):
                assert (await first.wait("o-1")).state is State.CANCELLED
                assert now_s() == pytest.approx(60, abs=1.0)

    play(scenario)


def test_a_note_that_fails_does_not_keep_a_worker_from_stopping() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), timed("remaining")
        async with engine_on(store, order):
            await passed(1)
            store.down["note"] = UnavailableError("away.")

    play(scenario)
