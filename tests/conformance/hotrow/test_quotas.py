"""Quotas on every engine: at most so many in a window, by the database's clock (D15, G8).

The windows are years long, so that none ends during a test; a statement makes the present one a window of the past.
"""

import asyncio

import pytest

from interlock.errors import TransactionError
from interlock.hotrow import window_quotas as module
from interlock.hotrow.window_quotas import WINDOW_S_MAX, Quota
from interlock.sql.stored_values import Executor
from tests.conformance.hotrow.places import Place, run


async def let_the_window_end(db: Executor, window_s: float = WINDOW_S_MAX) -> None:
    await db.execute(
        "UPDATE hotrow_quota SET starts_us = starts_us - $1, ends_us = ends_us - $1", int(window_s * 1_000_000)
    )


def test_no_more_than_the_limit_is_taken_in_a_window(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            quota = Quota(db, "api", limit=5, window_s=WINDOW_S_MAX)
            assert await quota.left() == 5
            assert await quota.take(3)
            assert not await quota.take(3)
            assert await quota.take(2)
            assert not await quota.take()
            assert await quota.left() == 0
            await let_the_window_end(db)
            assert await quota.left() == 5
            assert await quota.take(5)
            assert not await quota.take()
            assert not await Quota(db, "closed", limit=0, window_s=60).take()
            assert await Quota(db, "other", limit=1, window_s=60).left() == 1

    run(scenario)


def test_a_crowd_gets_exactly_the_limit(place: Place) -> None:
    """D15: the window ends in the middle, and each of the two gives what it has."""

    async def scenario() -> None:
        async with place.opened() as db:
            quota = Quota(db, "api", limit=40, window_s=WINDOW_S_MAX)
            first = await asyncio.gather(*(quota.take() for _ in range(100)))
            assert sum(first) == 40
            await let_the_window_end(db)
            second = await asyncio.gather(*(quota.take(3) for _ in range(60)))
            assert sum(second) == 13
            assert await quota.left() == 1

    run(scenario)


def test_old_windows_are_replaced_and_not_kept(place: Place) -> None:
    """G6."""

    async def scenario() -> None:
        async with place.opened() as db:
            quota = Quota(db, "api", limit=2, window_s=WINDOW_S_MAX)
            for _ in range(5):
                assert await quota.take()
                await let_the_window_end(db)
            assert len(await db.query("SELECT name FROM hotrow_quota")) == 1

    run(scenario)


def test_a_key_takes_once_with_one_answer(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            quota = Quota(db, "api", limit=2, window_s=WINDOW_S_MAX)
            assert [await quota.take(key="r-1") for _ in range(2)] == [True, True]
            assert await quota.take(key="r-2")
            assert not await quota.take(key="r-3")
            await let_the_window_end(db)
            assert not await quota.take(key="r-3")
            assert await quota.left() == 2

    run(scenario)


def test_who_comes_late_counts_in_the_window_that_is_open(place: Place) -> None:
    """G8: a transaction that began in the window before does not reopen it."""

    async def scenario() -> None:
        async with place.opened() as db:
            quota = Quota(db, "api", limit=3, window_s=WINDOW_S_MAX)
            assert await quota.take()
            await let_the_window_end(db, -WINDOW_S_MAX)  # Somebody with a later time has opened the next one.
            assert await quota.take(2)
            assert not await quota.take()

    run(scenario)


class Never:
    """No take sweeps."""

    def fraction(self) -> float:
        return 0.999


class Always:
    """Every take does."""

    def fraction(self) -> float:
        return 0.0


def test_names_that_do_not_come_back_are_removed_a_few_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: a name may be an address of the network, and there is no end of those."""
    monkeypatch.setattr(module, "SWEPT_MAX", 4)

    async def scenario() -> None:
        async with place.opened() as db:
            for number in range(10):
                assert await Quota(db, f"old-{number}", limit=1, window_s=60, chance=Never()).take()
            await db.execute("UPDATE hotrow_quota SET ends_us = ends_us - $1", module.SWEPT_AFTER_US + 60_000_000)
            present = Quota(db, "present", limit=2, window_s=WINDOW_S_MAX, chance=Never())
            assert await present.take()
            assert [await present.sweep() for _ in range(4)] == [4, 4, 2, 0]
            assert await db.query("SELECT name FROM hotrow_quota") == [("present",)]
            await Quota(db, "old-1", limit=1, window_s=60, chance=Never()).take()
            await db.execute("UPDATE hotrow_quota SET ends_us = 0 WHERE name = 'old-1'")
            assert await Quota(db, "present", limit=2, window_s=WINDOW_S_MAX, chance=Always()).take()
            assert await db.query("SELECT name, used FROM hotrow_quota") == [("present", 2)]

    run(scenario)


def test_a_sweep_that_fails_does_not_change_the_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with place.opened() as db:

            async def fails(_self: Quota) -> int:
                raise TransactionError("others were faster.")

            monkeypatch.setattr(Quota, "sweep", fails)
            quota = Quota(db, "api", limit=1, window_s=WINDOW_S_MAX, chance=Always())
            assert await quota.take()
            assert not await quota.take()

    run(scenario)


def test_what_makes_no_quota_is_refused() -> None:
    for limit, window_s in ((-1, 60), (1.5, 60), (1, 0), (1, -1), (1, float("nan")), (1, 1e9), (1, "60")):
        with pytest.raises(ValueError, match="quota"):
            Quota(None, "api", limit=limit, window_s=window_s)  # type: ignore[arg-type]
