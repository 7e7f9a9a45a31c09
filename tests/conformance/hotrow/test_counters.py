"""Counters, wherever the database lives: no add is lost and none counts twice, whatever form it had (D5, D6, D7)."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from interlock.errors import BadUsage, InvalidPayload, KeyReused
from interlock.hotrow.counters.choice import Form, Kind
from interlock.hotrow.counters.counter import Counter
from interlock.hotrow.counters.counters import Counters
from interlock.seams import Chance, Clock
from interlock.sql.executor import Executor
from tests.conformance.hotrow.failing import Failing
from tests.conformance.hotrow.places import Place, run

FORMS: tuple[Form, ...] = ("exact", "sharded", "event_log")
KINDS: tuple[Kind, ...] = (*FORMS, "auto")

NEVER_S = 3_600.0
"""A cadence that no test waits for: these roll up when they say so."""

of_every_kind = pytest.mark.parametrize("kind", KINDS)


@asynccontextmanager
async def counters(
    db: Executor,
    *,
    shard_count: int = 4,
    clock: Clock | None = None,
    chance: Chance | None = None,
) -> AsyncIterator[Counters]:
    """The counters of a database, as one process has them."""
    opened = Counters(db, shard_count=shard_count, clock=clock, chance=chance, roll_up_every_s=NEVER_S)
    try:
        yield opened
    finally:
        await opened.close()


def chosen(counter: Counter, form: Form) -> None:
    """Let an auto counter have chosen this form."""
    counter._known.automatic.form = form


@of_every_kind
def test_a_new_counter_is_zero_and_then_what_was_added(place: Place, kind: Kind) -> None:
    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            views = here.open("video:42", kind=kind)
            assert await views.value() == 0
            await views.add()
            await views.add(41)
            assert await views.value() == 42

    run(scenario)


@of_every_kind
def test_adds_of_many_tasks_are_all_counted(place: Place, kind: Kind) -> None:
    """D5, D6: also those that come before anything was made."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            await asyncio.gather(*[here.open("video:42", kind=kind).add(n) for n in range(1, 101)])
            assert await here.open("video:42", kind=kind).value() == 5_050

    run(scenario)


def test_one_counter_is_opened_as_everything_at_once(place: Place) -> None:
    """D7: opening a counter under another kind keeps its value; two processes may disagree."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here, counters(db, shard_count=7) as there:
            opened = [process.open("n", kind=kind) for process in (here, there) for kind in KINDS]
            await asyncio.gather(*[counter.add(3) for counter in opened for _ in range(10)])
            assert [await counter.value() for counter in opened] == [240] * 8
            await here.open("n").roll_up()
            assert [await counter.value() for counter in opened] == [240] * 8

    run(scenario)


def test_counters_do_not_see_each_other(place: Place) -> None:
    """Names are values: quotes, wildcards and other alphabets mean nothing to SQL."""
    names = ["a", "A", "a ", "%", "'; DROP TABLE hotrow_counter; --", '"', "视频:4️⃣", "a:b", "\n", "x" * 500]

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            for amount, name in enumerate(names, start=1):
                for kind in KINDS:
                    await here.open(name, kind=kind).add(amount, key="same")
                    await here.open(name, kind=kind).add(amount)
            assert [await here.open(name).value() for name in names] == [amount * 5 for amount in range(1, 11)]

    run(scenario)


def test_everything_is_there_after_closing(kept: Place) -> None:
    async def scenario() -> None:
        for round_number in range(1, 3):
            async with kept.opened() as db, counters(db) as here:
                for kind in KINDS:
                    await here.open("n", kind=kind).add(10)
                    await here.open("n", kind=kind).add(1, key="once")
                assert await here.open("n").value() == 40 * round_number + 1

    run(scenario)


# --- Keys -------------------------------------------------------------------------------------------------------------


@of_every_kind
def test_an_add_with_a_key_counts_once(place: Place, kind: Kind) -> None:
    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            views = here.open("n", kind=kind)
            await asyncio.gather(*[views.add(2, key=f"k{n % 10}") for n in range(40)])
            assert await views.value() == 20

    run(scenario)


@pytest.mark.parametrize(("made", "later"), list(itertools.permutations(KINDS, 2)))
def test_a_key_is_found_again_under_another_kind(place: Place, made: Kind, later: Kind) -> None:
    """D5: in another process, which has another number of shards, too."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here, counters(db, shard_count=9) as there:
            for n in range(6):
                await here.open("n", kind=made).add(n + 1, key=f"k{n}")
            for n in range(6):
                await there.open("n", kind=later).add(n + 1, key=f"k{n}")
            assert await here.open("n").value() == 21

    run(scenario)


def test_a_key_is_found_again_after_auto_has_moved_on(place: Place) -> None:
    """D7: the place of keys does not move."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            views = here.open("n")
            for form in (*FORMS, *reversed(FORMS)):
                chosen(views, form)
                for n in range(8):
                    await views.add(1, key=f"k{n}")
            assert await views.value() == 8

    run(scenario)


@of_every_kind
def test_the_same_key_for_another_amount_is_refused(place: Place, kind: Kind) -> None:
    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            await here.open("n", kind=kind).add(2, key="k")
            with pytest.raises(KeyReused):
                await here.open("n", kind=kind).add(3, key="k")
            assert await here.open("n", kind=kind).value() == 2

    run(scenario)


def test_a_key_belongs_to_its_counter(place: Place) -> None:
    """No two pairs of counter and key are the same text, however they are cut; long ones neither."""
    pairs = [("a:b", "c"), ("a", "b:c"), ("1:a", "b"), ("n" * 499, "k" * 500), ("n" * 499, "k" * 499 + "l")]

    async def scenario() -> None:
        async with place.opened() as db, counters(db, shard_count=1) as here:
            for amount, (name, key) in enumerate(pairs, start=1):
                await here.open(name, kind="exact").add(amount, key=key)
                await here.open(name, kind="exact").add(amount, key=key)
            assert [await here.open(name).value() for name, _ in pairs] == [1, 2, 3, 9, 9]

    run(scenario)


# --- Shards -----------------------------------------------------------------------------------------------------------


def test_the_skew_between_shards_is_reported(place: Place) -> None:
    """D5: 1.0 is even; when one shard of four holds all, it is four times the mean."""

    class Cycling:
        def __init__(self) -> None:
            self.given = itertools.cycle([0.0, 0.25, 0.5, 0.75])

        def fraction(self) -> float:
            return next(self.given)

    async def scenario() -> None:
        async with place.opened() as db:
            async with counters(db, chance=Cycling()) as even:
                for _ in range(8):
                    await even.open("even", kind="sharded").add()
                found = await even.open("even").shards()
                assert (found.values, found.skew, found.total) == ((2, 2, 2, 2), 1.0, 8)
            async with counters(db) as here:
                await here.open("never").add(5)
                assert (await here.open("never").shards()).values == ()
                for _ in range(5):
                    await here.open("keyed").add(3, key="k")
                found = await here.open("keyed").shards()
                assert sorted(found.values) == [0, 0, 0, 3]
                assert found.skew == 4.0

    run(scenario)


def test_shards_run_apart_on_a_lane(place: Place) -> None:
    """D5: inside one lane sharded rows still serialize, so there each shard is in a database of its own."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            views = here.open("n", kind="sharded")
            await asyncio.gather(*[views.add() for _ in range(40)])
            parts = {id(await db.shard(number)) for number in range(4)}
            assert len(parts) == (4 if db.engine == "lane" else 1)
            assert sum((await views.shards()).values) == 40

    run(scenario)


def test_more_and_fewer_shards_keep_the_value(kept: Place) -> None:
    async def scenario() -> None:
        total = 0
        for shard_count in (2, 6, 1, 3):
            async with kept.opened() as db, counters(db, shard_count=shard_count) as here:
                views = here.open("n", kind="sharded")
                for n in range(12):
                    await views.add()
                    await views.add(key=f"{shard_count}-{n}")
                total += 24
                assert await views.value() == total
                for n in range(12):
                    await views.add(key=f"2-{n}")
                assert await views.value() == total
                assert len((await views.shards()).values) == max(2, shard_count, 6 if total > 24 else 0)

    run(scenario)


# --- The log ----------------------------------------------------------------------------------------------------------


async def entries(db: Executor) -> int:
    [(count,)] = await db.query("SELECT count(*) FROM hotrow_counter_event")
    return cast("int", count)


def test_a_roll_up_keeps_the_value_and_empties_the_log(place: Place) -> None:
    """D6: read = snapshot + tail."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            views, other = here.open("n", kind="event_log"), here.open("other", kind="event_log")
            await asyncio.gather(*[counter.add(2) for counter in (views, other) for _ in range(25)])
            assert await entries(db) == 50
            assert await views.roll_up() == 25
            assert await entries(db) == 25
            assert await views.roll_up() == 0
            assert (await views.value(), await other.value()) == (50, 50)

    run(scenario)


@pytest.mark.parametrize("statement", [1, 2])
def test_a_crash_inside_a_fold_loses_and_doubles_nothing(place: Place, statement: int) -> None:
    """D6: neither before the entries are taken nor between that and the row."""

    async def scenario() -> None:
        async with place.opened() as db:
            failing = Failing(db)
            async with counters(failing) as here:
                views = here.open("n", kind="event_log")
                await asyncio.gather(*[views.add(3) for _ in range(10)])
                failing.fail_at = statement
                with pytest.raises(ConnectionAbortedError):
                    await views.roll_up()
                assert await entries(db) == 10
                assert await views.value() == 30
                failing.fail_at = None
                assert await views.roll_up() == 10
                assert await views.value() == 30

    run(scenario)


async def in_between(attempted: Sequence[int], acknowledged: list[int], views: Counter) -> None:
    """One look at the counter: not less than was acknowledged before it, not more than was attempted after it."""
    least = sum(acknowledged)
    seen = await views.value()
    assert least <= seen <= sum(attempted)


def test_readers_never_see_less_than_acknowledged_nor_more_than_attempted(place: Place) -> None:
    """D6: while others append, fold and change the form."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here, counters(db) as there:
            views = [process.open("n", kind=kind) for process in (here, there) for kind in KINDS]
            attempted: list[int] = []
            acknowledged: list[int] = []
            done = asyncio.Event()

            async def write(counter: Counter, amounts: Sequence[int]) -> None:
                for amount in amounts:
                    attempted.append(amount)
                    await counter.add(amount)
                    acknowledged.append(amount)

            async def read(counter: Counter) -> None:
                while not done.is_set():
                    await in_between(attempted, acknowledged, counter)

            async def fold(counter: Counter) -> None:
                while not done.is_set():
                    await counter.roll_up()

            async with asyncio.TaskGroup() as tasks:
                for counter in (views[0], views[7]):
                    tasks.create_task(read(counter))
                    tasks.create_task(fold(counter))
                await asyncio.gather(*[write(counter, range(1, 16)) for counter in views for _ in range(2)])
                done.set()
            assert await views[0].value() == sum(attempted) == 16 * 120

    run(scenario)


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0, -1, True, 1.5, "1", None, 2**63])
def test_less_than_one_and_what_is_no_number_is_refused(place: Place, amount: int) -> None:
    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            for kind in KINDS:
                with pytest.raises(ValueError, match="cannot be added to a counter"):
                    await here.open("n", kind=kind).add(amount)
                with pytest.raises(ValueError, match="cannot be added to a counter"):
                    await here.open("n", kind=kind).add(amount, key="k")
            assert await here.open("n").value() == 0

    run(scenario)


@pytest.mark.parametrize("key", ["", "k" * 501, "\x00", "\ud800", 7])
def test_what_is_no_key_is_refused(place: Place, key: str) -> None:
    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            with pytest.raises(InvalidPayload):
                await here.open("n").add(key=key)
            assert await here.open("n").value() == 0

    run(scenario)


@pytest.mark.parametrize("name", ["", "n" * 501, "a\x00", "\udfff", 7, None])
def test_what_is_no_name_is_refused(place: Place, name: str) -> None:
    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            with pytest.raises(InvalidPayload):
                here.open(name)
            with pytest.raises(BadUsage):
                here.open("n", kind=cast("Kind", "fast"))

    run(scenario)
