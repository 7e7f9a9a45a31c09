"""The counters of a database: what they are opened with, and what they say of themselves."""

import asyncio

import pytest

from interlock.database.database import Database
from interlock.errors import BadUsage, DefinitionError
from interlock.hotrow.counters import Counters, Kind
from interlock.lanes.lane_settings import COUNTER_SHARDS_MAX


@pytest.mark.parametrize("count", [0, -1, COUNTER_SHARDS_MAX + 1, True, 1.5, "4", None])
def test_what_is_no_number_of_shards_is_refused(count: int) -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            with pytest.raises(DefinitionError) as caught:
                Counters(db, shard_count=count)
            assert repr(count) in caught.value.what

    asyncio.run(scenario())


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            with pytest.raises(BadUsage) as caught:
                Counters(db).open("n", kind="fast")  # type: ignore[arg-type]
            assert "'fast' is not a kind of counter; exact, sharded, event_log, auto are." in caught.value.what

    asyncio.run(scenario())


@pytest.mark.parametrize(("kind", "form"), [("auto", "exact"), ("sharded", "sharded"), ("event_log", "event_log")])
def test_a_counter_says_what_it_is(kind: Kind, form: str) -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            views = Counters(db).open("video:42", kind=kind)
            assert (views.name, views.kind) == ("video:42", form)
            assert repr(views) == f"<Counter 'video:42', {kind}: {form}>"

    asyncio.run(scenario())


def test_what_is_appended_is_rolled_up_by_itself_and_ends_with_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """D6."""

    async def scenario() -> None:
        async with Database.open("memory:") as db:
            counters = Counters(db, roll_up_every_s=0.0)
            views = counters.open("n", kind="event_log")
            folded = asyncio.Event()
            fold = counters.rollup._fold

            async def fold_and_tell(name: str) -> bool:
                again = await fold(name)
                folded.set()
                return again

            monkeypatch.setattr(counters.rollup, "_fold", fold_and_tell)
            await views.add(3)
            await folded.wait()
            assert await db.query("SELECT n FROM hotrow_counter_snapshot WHERE name = 'n'") == [(3,)]
            assert await views.value() == 3
            assert (counters.roll_up_failures, counters.signal_failures) == (0, 0)
            await counters.close()

    asyncio.run(scenario())


def test_an_auto_counter_moves_when_its_row_is_hot_and_keeps_every_count() -> None:
    """D7: measured on a real lane; a threshold of nothing makes one hand-off enough."""

    class SetClock:
        now_s = 0.0

        def wall_s(self) -> float:
            return self.now_s

        def monotonic_s(self) -> float:
            return self.now_s

    async def scenario() -> None:
        clock = SetClock()
        async with Database.open("memory:") as db:
            counters = Counters(db, shard_count=3, clock=clock, contention=db.contention, threshold=0.0)
            views = counters.open("n")
            await asyncio.gather(*[views.add() for _ in range(50)])
            assert views.kind == "exact"
            clock.now_s = 1.0
            await asyncio.gather(*[views.add() for _ in range(50)])
            assert counters.open("n").kind == "sharded", "whoever opens it anew"
            assert await views.value() == 100
            assert (await views.shards()).total > 0
            await counters.close()

    asyncio.run(scenario())
