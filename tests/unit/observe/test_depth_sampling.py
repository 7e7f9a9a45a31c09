"""C13: depth is sampled by a query: one at a time, kept for a while, and never waited for without bound."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from interlock.engine.operators.gauges import Depth, Gauges
from interlock.errors import UnavailableError
from interlock.observe import metrics
from interlock.observe.metrics import Sampled
from interlock.testing.virtual_time import VirtualClock, VirtualLoop

DEPTH = Depth({("ticket", "open"): 1}, {}, {}, {})


async def passed(seconds: float) -> None:
    """So much virtual time."""
    over = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, over.set_result, None)
    await over


class Store:
    """Figures whose count takes as long as the test says."""

    def __init__(self) -> None:
        self.counted = 0
        self.takes_s = 0.0
        self.closed = False
        self.wrong: Exception | None = None

    async def depth(self) -> Depth:
        self.counted += 1
        await passed(self.takes_s)
        if self.wrong is not None:
            raise self.wrong
        if self.closed:
            raise UnavailableError("the engine is closed.")
        return DEPTH

    def breakers(self) -> tuple[()]:
        if self.closed:
            raise UnavailableError("the engine is closed.")
        return ()


def virtually(scenario: Callable[[Store, Sampled], Awaitable[None]]) -> None:
    async def main() -> None:
        store = Store()
        await scenario(store, Sampled(cast("Gauges", store)))

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(VirtualClock())) as runner:
        runner.run(main())


def test_all_who_ask_at_once_share_one_count_and_it_is_kept() -> None:
    async def scenario(store: Store, sampled: Sampled) -> None:
        await asyncio.gather(*(sampled.fresh() for _ in range(5)))
        assert (store.counted, sampled.depth) == (1, DEPTH)
        await sampled.fresh()
        assert store.counted == 1
        await passed(metrics.KEPT_S)
        assert sampled.age_s == pytest.approx(metrics.KEPT_S)
        await sampled.fresh()
        assert store.counted == 2

    virtually(scenario)


def test_a_count_that_takes_long_is_kept_for_long() -> None:
    async def scenario(store: Store, sampled: Sampled) -> None:
        store.takes_s = 1.5
        await sampled.fresh()
        for _ in range(28):
            await passed(1)
            await sampled.fresh()
        assert store.counted == 1
        await passed(3)
        await sampled.fresh()
        assert store.counted == 2

    virtually(scenario)


def test_nobody_waits_for_a_count_without_bound_and_one_that_never_ends_is_given_up() -> None:
    async def scenario(store: Store, sampled: Sampled) -> None:
        loop = asyncio.get_running_loop()
        store.takes_s = 1_000.0
        begun_s = loop.time()
        await sampled.fresh()
        assert loop.time() - begun_s == pytest.approx(metrics.WAIT_S)
        assert sampled.depth is None
        await passed(metrics.COUNTED_S_MAX)
        store.takes_s = 0.0
        await passed(metrics.SHARE * metrics.COUNTED_S_MAX)
        await sampled.fresh()
        assert sampled.depth is DEPTH

    virtually(scenario)


def test_a_count_that_fails_is_a_warning_once_and_nothing_while_an_engine_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The runbook of InterlockSampleOld says that the log has the reason."""
    caplog.set_level("INFO", logger="interlock.observe")

    async def scenario(store: Store, sampled: Sampled) -> None:
        for wrong in (OSError("no route"), OSError("no route"), None, OSError("full")):
            store.wrong = wrong
            await sampled.fresh()
            await passed(metrics.KEPT_S)
        store.wrong, store.closed = None, True
        await sampled.fresh()

    virtually(scenario)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["no route", "full"]


def test_a_closed_engine_is_asked_no_more() -> None:
    async def scenario(store: Store, sampled: Sampled) -> None:
        store.closed = True
        await sampled.fresh()
        await passed(metrics.KEPT_S)
        await sampled.fresh()
        assert store.counted == 1
        assert sampled.closed
        assert sampled.breakers() is None

    virtually(scenario)
