"""Hot parents on every engine: children append, nobody waits for the parent, nothing is lost or doubled (D15)."""

import asyncio
import random
from datetime import timedelta

import pytest

from interlock.errors import TransactionError
from interlock.hotrow import parents as module
from interlock.hotrow.parents import Parent, Touched
from tests.conformance.hotrow.places import Place, run


class Never:
    """No touch rolls up by itself."""

    def fraction(self) -> float:
        return 0.999


class Always:
    """Every touch does."""

    def fraction(self) -> float:
        return 0.0


def test_a_touch_is_seen_at_once_and_stays_after_a_roll_up(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            thread = Parent(db, "thread", chance=Never())
            assert await thread.state() == Touched(0, None)
            await thread.touch()
            await thread.touch(n=4)
            before = await thread.state()
            assert before.touches == 5
            assert before.last_touched_at is not None
            assert await thread.roll_up() == 2
            assert await thread.state() == before
            assert await thread.roll_up() == 0
            await thread.touch()
            after = await thread.state()
            assert after.touches == 6
            assert after.last_touched_at is not None
            assert after.last_touched_at >= before.last_touched_at
            assert await thread.roll_up() == 1
            assert await thread.state() == after
            assert await Parent(db, "other").state() == Touched(0, None)

    run(scenario)


def test_a_child_counts_once_however_often_it_tells(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            thread = Parent(db, "thread", chance=Never())
            for _ in range(3):
                await thread.touch("reply-1")
            await thread.roll_up()
            await thread.touch("reply-1")
            await thread.touch("reply-2")
            assert (await thread.state()).touches == 2
            await Parent(db, "other", chance=Never()).touch("reply-1")
            assert (await Parent(db, "other").state()).touches == 1

    run(scenario)


def test_touches_and_roll_ups_at_once_lose_and_double_nothing(place: Place) -> None:
    """D15: every state that is seen holds at least what was acknowledged before it was asked for."""

    async def scenario() -> None:
        async with place.opened() as db:
            thread = Parent(db, "thread", chance=Never())
            acknowledged = asked = 0

            async def child(number: int) -> None:
                nonlocal acknowledged, asked
                chance = random.Random(number)
                for _ in range(5):
                    n = chance.randint(1, 3)
                    asked += n
                    await thread.touch(n=n)
                    acknowledged += n

            async def folder() -> None:
                for _ in range(10):
                    await thread.roll_up()

            async def reader() -> None:
                for _ in range(10):
                    least = acknowledged
                    seen = (await thread.state()).touches
                    assert least <= seen <= asked

            await asyncio.gather(*(child(number) for number in range(30)), folder(), folder(), reader())
            assert (await thread.state()).touches == acknowledged == asked
            while await thread.roll_up():
                pass
            assert (await thread.state()).touches == acknowledged
            assert not await db.query("SELECT id FROM hotrow_parent_event")

    run(scenario)


def test_one_roll_up_folds_a_bounded_number(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """G6."""
    monkeypatch.setattr(module, "ROLLED_UP_MAX", 3)

    async def scenario() -> None:
        async with place.opened() as db:
            one, other = Parent(db, "one", chance=Never()), Parent(db, "other", chance=Never())
            for _ in range(7):
                await one.touch()
                await other.touch()
            assert [await one.roll_up() for _ in range(4)] == [3, 3, 1, 0]
            assert ((await one.state()).touches, (await other.state()).touches) == (7, 7)

    run(scenario)


def test_a_touch_now_and_then_rolls_up(place: Place) -> None:
    """G6: the tail stays short without anybody asking for it."""

    async def scenario() -> None:
        async with place.opened() as db:
            thread = Parent(db, "thread", chance=Always())
            for _ in range(3):
                await thread.touch()
            assert not await db.query("SELECT id FROM hotrow_parent_event")
            assert (await thread.state()).touches == 3

    run(scenario)


def test_a_roll_up_that_fails_does_not_fail_the_touch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with place.opened() as db:

            async def fails(_self: Parent) -> int:
                raise TransactionError("others were faster.")

            thread = Parent(db, "thread", chance=Always())
            with monkeypatch.context() as patched:
                patched.setattr(Parent, "roll_up", fails)
                await thread.touch()
            assert (await thread.state()).touches == 1
            for n in (0, -1, 1.0):
                with pytest.raises(ValueError, match="whole number from 1"):
                    await thread.touch(n=n)  # type: ignore[arg-type]

    run(scenario)


def test_an_event_older_than_the_snapshot_does_not_move_the_time_back(place: Place) -> None:
    """On PostgreSQL a touch that began earlier may be folded later."""

    async def scenario() -> None:
        async with place.opened() as db:
            thread = Parent(db, "thread", chance=Never())
            await thread.touch()
            await thread.roll_up()
            folded = await thread.state()
            assert folded.last_touched_at is not None
            await thread.touch()
            await db.execute(
                "UPDATE hotrow_parent_event SET touched_at = $1", folded.last_touched_at - timedelta(hours=1)
            )
            assert await thread.state() == Touched(2, folded.last_touched_at)
            await thread.roll_up()
            assert await thread.state() == Touched(2, folded.last_touched_at)

    run(scenario)
