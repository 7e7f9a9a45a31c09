"""Following a database that was moved: at opening, and while it is open (decision 0018)."""

import asyncio
import threading
from itertools import count, pairwise
from pathlib import Path

import pytest

from interlock import Database
from interlock.catalog.catalog import Catalog, FolderCatalog
from interlock.catalog.catalog_entries import CatalogEntry
from interlock.database.database import HOPS_MAX, Hop, _open_hop
from interlock.errors import CorruptionError, LaneOwned, MovedElsewhere, OutcomeUnknown, UnavailableError
from tests.unit.database.places import Gate, Places, left_for

A, B, C = "lanes:///places/a", "lanes:///places/b", "postgresql://u@host/c"


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(monkeypatch)


def opened(url: str, home: str | None = None) -> str:
    """Open it; its address then."""

    async def look() -> str:
        async with Database.open(url, home=home) as db:
            return db.url

    return asyncio.run(look())


def test_opening_a_place_that_was_left_opens_the_one_where_it_lives(places: Places) -> None:
    places[A].leave(B, 1)
    places[B].leave(C, 2)
    assert opened(A) == C
    assert places[C].hops == [Hop(C, 2, sent=True)], "and says that a tombstone with this epoch has sent it there"


def test_a_database_that_came_back_is_found_where_it_was(places: Places) -> None:
    """What is left of the first tenant is put aside, but not before the second one has arrived."""
    places[A].first = [left_for(B, 1)]
    places[B].leave(A, 2)
    assert opened(A) == A
    assert places[A].hops == [Hop(A), Hop(A, 2, sent=True)]


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_chain_that_leads_back_in_time_is_refused_by_name(places: Places, epoch: int) -> None:
    places[A].leave(B, 2)
    places[B].leave(A, epoch)
    with pytest.raises(CorruptionError) as caught:
        opened(A)
    assert f"{A} (epoch 0) → {B} (epoch 2) → {A} (epoch {epoch})" in caught.value.what


def test_a_chain_that_goes_on_and_on_is_refused(places: Places) -> None:
    for number in range(HOPS_MAX + 1):
        places[f"lanes:///places/{number}"].leave(f"lanes:///places/{number + 1}", number + 1)
    with pytest.raises(CorruptionError, match=f"more than {HOPS_MAX} times"):
        opened("lanes:///places/0")


def test_a_mover_that_still_holds_what_it_has_filled_is_waited_for(places: Places) -> None:
    places[A].leave(B, 1)
    places[B].first = [LaneOwned("the mover has it."), LaneOwned("the mover has it.")]
    assert opened(A) == B
    assert len(places[B].hops) == 3


def test_an_owner_of_a_place_that_nobody_was_sent_to_is_not_waited_for(places: Places) -> None:
    places[A].first = [LaneOwned("somebody has it.")]
    with pytest.raises(LaneOwned):
        opened(A)
    assert len(places[A].hops) == 1


def test_a_tombstone_without_an_address_is_told_as_it_is(places: Places) -> None:
    places[A].leave("", 1)
    with pytest.raises(MovedElsewhere):
        opened(A)


def test_the_secrets_of_the_place_that_was_left_open_the_next_one_on_the_same_server(places: Places) -> None:
    places["postgresql://u:pw@host/a"].leave("postgresql://u@host/b?schema=x", 1)
    opened("postgresql://u:pw@host/a")
    assert "postgresql://u:pw@host/b?schema=x" in places.known


def test_a_catalog_that_is_behind_is_told_by_whoever_was_sent_on(places: Places, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}"
    catalog = FolderCatalog(home)
    places[f"{home}/stock"].leave(A, 1)
    assert opened("stock", home) == A
    assert catalog.names() == {"stock": CatalogEntry(A, 1)}
    places[A].leave(C, 2)
    assert opened("stock", home) == C
    assert catalog.names() == {"stock": CatalogEntry(C, 2)}
    places[f"{home}/stock"].hops.clear()
    places[A].hops.clear()
    assert opened("stock", home) == C
    assert places[f"{home}/stock"].hops == places[A].hops == [], "from then on the way is short"


def test_a_catalog_that_cannot_be_told_keeps_nobody_out(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = f"lanes://{tmp_path}"
    places[f"{home}/stock"].leave(A, 1)

    async def refuse(*_args: object) -> None:
        raise UnavailableError("not now")

    monkeypatch.setattr(Catalog, "enter", refuse)
    assert opened("stock", home) == A


def test_a_place_that_was_put_back_from_an_old_copy_is_not_followed(places: Places, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}"
    FolderCatalog(home).enter("stock", CatalogEntry(A, 3))
    places[A].leave(B, 2)
    with pytest.raises(CorruptionError, match="leads back in time"):
        opened("stock", home)


# --- while it is open ------------------------------------------------------------------------------------------------


async def add(_tx: object, _n: int) -> None:
    """Some transaction."""


@pytest.mark.parametrize("key", [None, "click-7"])
def test_a_call_at_a_place_that_was_left_is_made_again_where_it_lives_with_the_same_key(
    places: Places, key: str | None
) -> None:
    async def use() -> None:
        async with Database.open(A) as db:
            await db.execute("one")
            places[A].leave(C, 1)
            await db.execute("two", 2, key=key)
            await db.query("three", 3, key=key)
            await db.transact(add, 4, key=key)
            assert (db.url, db.engine) == (C, "postgres")
            assert db.stats().transactions == 3
            assert await db.contention() == []

    asyncio.run(use())
    assert [call[:2] for call in places[A].calls] == [("execute", "one")]
    assert places[C].calls == [
        ("execute", "two", (2,), key),
        ("query", "three", (3,), key),
        ("transact", add, (4,), key),
    ]
    assert places[C].hops == [Hop(C, 1, sent=True)]
    assert (places[A].closed, places[C].closed) == (1, 1), "the old place is given up at once"


def test_many_who_are_sent_on_open_the_new_place_once(places: Places) -> None:
    async def use() -> list[int]:
        async with Database.open(A) as db:
            calls = [db.execute(f"{number}") for number in range(50)]
            places[A].leave(B, 1)
            return await asyncio.gather(*calls)

    assert sorted(asyncio.run(use())) == list(range(1, 51))
    assert len(places[B].hops) == 1
    assert len(places[B].calls) == 50


def test_it_is_followed_as_often_as_it_is_moved(places: Places, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}"
    urls = [f"{home}/stock", A, B, C]

    async def use() -> str:
        async with Database.open("stock", home=home) as db:
            for epoch, (url, following) in enumerate(pairwise(urls), 1):
                places[url].leave(following, epoch)
                await db.execute(f"{epoch}")
            return db.url

    assert asyncio.run(use()) == C
    assert [len(places[url].calls) for url in urls] == [0, 1, 1, 1]
    assert FolderCatalog(home).names() == {"stock": CatalogEntry(C, 3)}


def test_one_who_gives_up_while_it_is_opened_takes_it_from_nobody(places: Places) -> None:
    async def use() -> None:
        async with Database.open(A) as db:
            places[A].leave(B, 1)
            gate = places[B].gate = Gate()
            first, second = (asyncio.ensure_future(db.execute(sql)) for sql in ("first", "second"))
            await gate.asked.wait()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            gate.open.set()
            await second

    asyncio.run(use())
    assert [call[1] for call in places[B].calls] == ["second"]
    assert len(places[B].hops) == 1


def test_a_new_place_that_cannot_be_opened_is_told_to_everybody_and_tried_again_by_the_next(places: Places) -> None:
    async def use() -> None:
        async with Database.open(A, seal_wait_s=0.001) as db:
            places[A].leave(B, 1)
            places[B].opening = UnavailableError("the server is away.")
            failed = await asyncio.gather(*(db.execute("x") for _ in range(5)), return_exceptions=True)
            assert [str(error).partition("\n")[0] for error in failed] == ["the server is away."] * 5
            assert len({id(error) for error in failed}) == 5, "each has an error of its own"
            assert db.url == A
            assert places[A].closed == 0
            places[B].opening = None
            assert await db.execute("y") == 1
            assert db.url == B

    asyncio.run(use())
    assert len(places[B].hops) == 3, "it was tried again while the callers waited"


@pytest.mark.parametrize("error", [OutcomeUnknown("who knows."), UnavailableError("away.")])
def test_what_may_have_happened_or_is_only_away_is_not_made_again_elsewhere(
    places: Places, error: UnavailableError
) -> None:
    async def use() -> None:
        async with Database.open(A) as db:
            places[A].error = error
            with pytest.raises(type(error)):
                await db.execute("x")
            places[A].error = None
            assert await db.execute("y") == 1

    asyncio.run(use())
    assert len(places[A].hops) == 1


def test_a_call_that_comes_late_to_the_old_place_finds_it_closed_and_is_made_again(places: Places) -> None:
    async def use() -> None:
        async with Database.open(A) as db:
            late = [db.execute("late"), db.query("later"), db.transact(add, 1)]
            places[A].leave(B, 1)
            await db.execute("first")
            places[A].error = UnavailableError("the store or database is closed.")
            for call in late:
                await call

    asyncio.run(use())
    assert [call[1] for call in places[B].calls] == ["first", "late", "later", add]
    assert len(places[B].hops) == 1


def test_closed_while_it_is_opened_elsewhere_it_is_closed_there_too(places: Places) -> None:
    async def use() -> None:
        db = await Database.open(A)
        places[A].leave(B, 1)
        gate = places[B].gate = Gate()
        call = asyncio.ensure_future(db.execute("x"))
        await gate.asked.wait()
        closing = asyncio.ensure_future(db.close())
        for _ in range(5):
            await asyncio.sleep(0)
        gate.open.set()
        await closing
        await asyncio.gather(call, return_exceptions=True)

    asyncio.run(use())
    assert places[A].closed == places[B].closed == 1


def test_event_loops_of_several_threads_are_sent_on_together(places: Places) -> None:
    """A database is used from any event loop; the one that opens the new place does so for all."""
    gathered: list[int] = []

    async def main() -> None:
        async with Database.open(A) as db:
            places[A].leave(B, 1)
            gate = places[B].gate = Gate()
            mine = asyncio.ensure_future(db.execute("mine"))
            await gate.asked.wait()
            begun = threading.Event()

            def other() -> None:
                async def call() -> int:
                    asyncio.get_running_loop().call_soon(begun.set)
                    return await db.execute("theirs")

                gathered.append(asyncio.run(call()))

            thread = threading.Thread(target=other)
            thread.start()
            await asyncio.to_thread(begun.wait)
            gate.open.set()
            gathered.append(await mine)
            await asyncio.to_thread(thread.join)

    asyncio.run(main())
    assert sorted(gathered) == [1, 2]
    assert len(places[B].hops) == 1


def test_an_event_loop_that_ends_while_it_opens_lets_the_others_go(places: Places) -> None:
    """Otherwise those of another loop would wait for ever for one that is no more."""
    failed: list[BaseException] = []

    async def main() -> None:
        db = await Database.open(A)
        places[A].leave(B, 1)
        reached = threading.Event()
        waiting = threading.Event()

        def other() -> None:
            async def give_up() -> None:
                gate = places[B].gate = Gate()
                call = asyncio.ensure_future(db.execute("theirs"))
                await gate.asked.wait()
                reached.set()
                await asyncio.to_thread(waiting.wait)
                call.cancel()

            asyncio.run(give_up())
            places[B].gate = None

        thread = threading.Thread(target=other)
        thread.start()
        await asyncio.to_thread(reached.wait)
        mine = asyncio.ensure_future(db.execute("mine"))
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.set()
        try:
            await mine
        except UnavailableError as error:
            failed.append(error)
        await asyncio.to_thread(thread.join)
        assert await db.execute("again") == 1
        await db.close()

    asyncio.run(main())
    assert [error.what.rpartition(" ")[2] for error in failed if isinstance(error, UnavailableError)] == ["ended."]
    assert len(places[B].hops) == 2


def test_the_wait_for_a_new_place_counts_the_time_of_its_attempts() -> None:
    attempts: list[Hop] = []

    async def opens(hop: Hop) -> None:
        attempts.append(hop)
        raise UnavailableError("the server does not answer")

    async def scenario() -> None:
        now_s = count(asyncio.get_running_loop().time())
        asyncio.get_running_loop().time = lambda: next(now_s)  # type: ignore[method-assign]
        await _open_hop(Hop(A, 1, sent=True), opens, 4.0)

    with pytest.raises(UnavailableError, match="does not answer"):
        asyncio.run(scenario())
    assert 0 < len(attempts) < 5
