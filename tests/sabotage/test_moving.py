"""The suite must be able to fail: a catalog, a mover and an undo that break one promise of a move are noticed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.catalog import catalog_entries
from interlock.catalog.catalog import Catalog
from interlock.catalog.catalog_entries import CatalogEntry
from interlock.cli import advise
from interlock.cli.advise import DatabaseRouter
from interlock.clock import SystemClock
from interlock.database.database import Database
from interlock.errors import UnavailableError
from interlock.hotrow.applied_advice import AppliedAdvice, Journal, State
from interlock.relocate.local_lane import LaneSource
from interlock.relocate.mover import move_database

Check = Callable[[Path], None]
Sabotage = Callable[[pytest.MonkeyPatch], None]
CLOCK = SystemClock()


def the_highest_epoch_counts(folder: Path) -> None:
    """A late mover that tells the catalog of an earlier move changes nothing."""
    home = f"lanes://{folder}"
    for url, epoch in (("lanes:///a", 1), ("lanes:///b", 3), ("lanes:///a", 2)):
        asyncio.run(Catalog(home).enter("stock", url, epoch))
    assert asyncio.run(Catalog(home).entry("stock")) == CatalogEntry("lanes:///b", 3)


def one_mover_at_a_time(folder: Path) -> None:
    """Whoever comes second is sent away, before it can forget what the first has to bring over."""
    source = f"lanes://{folder}/stock"

    async def move(name: str, at: Callable[[str], None]) -> None:
        await move_database(source, f"lanes://{folder}/{name}", name="stock", clock=CLOCK, at=at)

    async def second() -> None:
        refused = ""
        try:
            await move("second", lambda _point: None)
        except UnavailableError as error:
            refused = error.what
        assert "another mover" in refused

    async def first() -> None:
        async with Database.open(source) as db:
            await db.execute("CREATE TABLE t (n bigint PRIMARY KEY)")
            loop = asyncio.get_running_loop()

            def at(point: str) -> None:
                if point == "seal/0/before":
                    asyncio.run_coroutine_threadsafe(second(), loop).result()

            await asyncio.to_thread(lambda: asyncio.run(move("first", at)))

    asyncio.run(first())


def what_was_applied_is_taken_back_once(folder: Path) -> None:
    """The settings are as they were, and nothing more is to be undone."""
    file = folder / "interlock.toml"
    file.write_text("[tools.stock]\nlatency_critical = true\ncounter_shard_count = 32\n")
    journal = Journal(folder)
    begun = AppliedAdvice(
        number=0, time="2026-01-01T00:00:00+00:00", name="stock", action="helper", target="more_shards",
        file=str(file), set={"counter_shard_count": 32}, before={"counter_shard_count": None},
    )  # fmt: skip
    journal.mark(journal.begin(begun), "done")
    where = advise.AdvicePlaces(f"lanes://{folder}", None, None, {})
    applying = advise.VerdictApplier(where, yes=True, clock=CLOCK, router=DatabaseRouter())
    assert applying.undo("stock") is not None
    assert file.read_text() == "[tools.stock]\nlatency_critical = true\n"
    assert journal.last("stock") is None


def the_last_who_tells_counts(patch: pytest.MonkeyPatch) -> None:
    def newer(_name: str, _known: CatalogEntry, entry: CatalogEntry) -> CatalogEntry:
        return entry

    patch.setattr(catalog_entries, "newer", newer)


def no_lock_of_movers(patch: pytest.MonkeyPatch) -> None:
    async def take(_source: LaneSource) -> None:
        pass

    patch.setattr(LaneSource, "take", take)


def nothing_is_taken_back(patch: pytest.MonkeyPatch) -> None:
    def change(*_: object) -> None:
        pass

    patch.setattr(advise, "change_settings", change)


def nobody_notes_that_it_was_undone(patch: pytest.MonkeyPatch) -> None:
    mark = Journal.mark

    def marked(journal: Journal, entry: AppliedAdvice, state: State) -> None:
        if state != "undone":
            mark(journal, entry, state)

    patch.setattr(Journal, "mark", marked)


SABOTAGED: list[tuple[Check, Sabotage]] = [
    (the_highest_epoch_counts, the_last_who_tells_counts),
    (one_mover_at_a_time, no_lock_of_movers),
    (what_was_applied_is_taken_back_once, nothing_is_taken_back),
    (what_was_applied_is_taken_back_once, nobody_notes_that_it_was_undone),
]


@pytest.mark.parametrize("check", dict.fromkeys(check for check, _ in SABOTAGED))
def test_it_is_kept(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(tmp_path)


@pytest.mark.parametrize(("check", "sabotage"), SABOTAGED)
def test_who_breaks_it_is_noticed(
    check: Check, sabotage: Sabotage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        check(tmp_path)
