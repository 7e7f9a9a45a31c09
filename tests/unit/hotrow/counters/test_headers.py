"""What a process remembers of counters: it is bounded, and never less than what is durable (D5, G6)."""

import asyncio

import pytest

from interlock.database.database import Database
from interlock.hotrow import counters
from interlock.hotrow.counters import Header, Headers, Kind


def make(db: Database, *, shard_count: int = 4) -> Headers:
    return Headers(db, shard_count=shard_count, threshold=50.0)


def test_no_more_counters_are_remembered_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "NAMES_MAX", 3)

    async def scenario() -> None:
        async with Database.open("memory:") as db:
            found = make(db)
            kept = found.known("a")
            for name in ("b", "c", "a", "d"):
                found.known(name)
            assert list(found._known) == ["c", "a", "d"]
            assert found.known("a") is kept

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "keyed"),
    [("exact", "exact"), ("sharded", "sharded"), ("event_log", "event_log"), ("auto", "sharded")],
)
def test_where_keys_go_is_decided_once_by_whoever_makes_the_counter(kind: Kind, keyed: str) -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            first, second = make(db), make(db, shard_count=9)
            known = first.known("n")
            assert await first.made(known, kind) == Header(keyed, 4, 0)  # type: ignore[arg-type]  # One of the kinds.
            assert known.header == Header(keyed, 4, 0)  # type: ignore[arg-type]
            for other in ("exact", "sharded", "event_log", "auto"):
                assert (await second.made(second.known("n"), other))[:2] == (keyed, 4)

    asyncio.run(scenario())


def test_the_number_of_shards_is_durable_before_it_is_believed_and_only_grows() -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            first, second = make(db), make(db)
            known = first.known("n")
            header = await first.made(known, "auto")
            assert (await first.widened(known, header, 5)).shard_count == 5
            assert (await first.widened(known, header, 3)).shard_count == 5
            assert known.header is not None
            assert known.header.shard_count == 5
            assert (await second.made(second.known("n"), "auto")).shard_count == 5

    asyncio.run(scenario())
