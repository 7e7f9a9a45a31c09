"""Counters, wherever the database lives: no add is lost and none counts twice, whatever form it had (D5, D6, D7)."""

import asyncio
import itertools
from typing import cast

import pytest

from interlock.errors import BadUsage, InvalidPayload, KeyReused, TransactionError
from interlock.hotrow.counters import Counter, Kind
from interlock.sql.stored_values import Statements
from tests.conformance.hotrow.counting import FORMS, KINDS, chosen, counters, of_every_kind
from tests.conformance.hotrow.places import Place, run


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


@pytest.mark.campaign
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


# --- Both ways --------------------------------------------------------------------------------------------------------


@of_every_kind
def test_what_was_counted_is_taken_back_in_every_form(place: Place, kind: Kind) -> None:
    """D18: with keys and without, past zero, in parallel, and across the forms."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            likes = here.open("n", kind=kind)
            await asyncio.gather(*(likes.add(amount) for amount in [2, -3] * 10))
            assert await likes.value() == -10
            for _ in range(2):
                await likes.add(-3, key="taken back")
                await likes.add(20, key="given")
            with pytest.raises(KeyReused):
                await likes.add(3, key="taken back")
            assert await likes.value() == 7
            for other in KINDS:
                await here.open("n", kind=other).add(-1)
            await likes.roll_up()
            assert await likes.value() == 7 - len(KINDS)
            assert 1.0 <= (await likes.shards()).skew <= 16

    run(scenario)


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0, True, 1.5, "1", None, 2**63, -(2**63)])
def test_nothing_and_what_is_no_number_is_refused(place: Place, amount: int) -> None:
    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            for kind in KINDS:
                with pytest.raises(ValueError, match="cannot be added to a counter"):
                    await here.open("n", kind=kind).add(amount)
                with pytest.raises(ValueError, match="cannot be added to a counter"):
                    await here.open("n", kind=kind).add(amount, key="k")
            assert await here.open("n").value() == 0

    run(scenario)


@of_every_kind
def test_a_counter_is_no_part_of_a_transaction(place: Place, kind: Kind) -> None:
    """D17: it says so, whether it was used before or not, and counts nothing."""

    async def add(_tx: Statements, counter: Counter) -> None:
        await counter.add()

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            for used in range(2):
                with pytest.raises(TransactionError):
                    await db.transact(add, here.open("n", kind=kind))
                assert await here.open("n", kind=kind).value() == used
                await here.open("n", kind=kind).add()

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
