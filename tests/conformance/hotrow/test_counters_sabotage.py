"""The suite of counters can fail: each of these mistakes is caught by a test of it."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from interlock.errors import KeyReused
from interlock.hotrow import counters
from interlock.hotrow.counters import CachedCounter, Counter, Header, Headers, Rollup, whole
from interlock.sql.stored_values import Statements
from tests.conformance.hotrow import test_counters, test_counters_log
from tests.conformance.hotrow.places import Place

Sabotage = Callable[[pytest.MonkeyPatch], None]
ResultT = TypeVar("ResultT")


def a_fold_in_two_transactions(patch: pytest.MonkeyPatch) -> None:
    """First it adds what it saw, then it deletes all up to the largest number that it saw."""

    async def run(self: Rollup, name: str) -> int:
        log = "FROM hotrow_counter_event WHERE name = $1"
        [(largest, total)] = await self._executor.query(f"SELECT max(id), sum(delta) {log}", name)
        if largest is None:
            return 0

        async def add(tx: Statements) -> None:
            await tx.execute(counters.SNAP, name, whole(total))

        async def delete(tx: Statements) -> int:
            await tx.query("SELECT 1")
            return await tx.execute(f"DELETE {log} AND id <= $2", name, largest)

        await self._executor.transact(add)
        return await self._executor.transact(delete)

    patch.setattr(Rollup, "run", run)


def a_fold_that_deletes_what_it_did_not_add(patch: pytest.MonkeyPatch) -> None:
    async def fold(tx: Statements, name: str, rows_max: int) -> int:
        del rows_max
        seen = await tx.query("SELECT delta FROM hotrow_counter_event WHERE name = $1 ORDER BY id LIMIT 20", name)
        await tx.execute(counters.SNAP, name, sum([whole(delta) for (delta,) in seen]) or 0)
        return await tx.execute("DELETE FROM hotrow_counter_event WHERE name = $1", name)

    patch.setattr(counters, "fold", fold)


def the_snapshot_and_the_log_read_one_after_the_other(patch: pytest.MonkeyPatch) -> None:
    async def read(self: Counter) -> tuple[int, int]:
        executor = self._parts.executor
        [(n, shards)] = await executor.query("SELECT n, shard_count FROM hotrow_counter WHERE name = $1", self.name)
        found = whole(n)
        for part in ("sum(n) FROM hotrow_counter_snapshot", "sum(delta) FROM hotrow_counter_event"):
            [(total,)] = await executor.query(f"SELECT {part} WHERE name = $1", self.name)
            found += whole(total or 0)
        return found, whole(shards)

    patch.setattr(Counter, "_read", read)


def a_key_where_the_other_adds_go(patch: pytest.MonkeyPatch) -> None:
    made = Headers.made

    async def add_once(self: Counter, amount: int, key: str, stored: str) -> None:
        header = await made(self._parts.headers, self._known, self._kind)
        count = self._parts.shard_count
        await self._write(header, self.kind, amount, shard=counters.shard_of(key, count), shard_count=count, key=stored)

    patch.setattr(Counter, "_add_once", add_once)


def a_key_spread_over_as_many_shards_as_there_are_now(patch: pytest.MonkeyPatch) -> None:
    made = Headers.made

    async def add_once(self: Counter, amount: int, key: str, stored: str) -> None:
        header = await made(self._parts.headers, self._known, self._kind)
        count = self._parts.shard_count
        await self._write(
            header, header.keyed, amount, shard=counters.shard_of(key, count), shard_count=count, key=stored
        )

    patch.setattr(Counter, "_add_once", add_once)


def a_key_without_its_counter(patch: pytest.MonkeyPatch) -> None:
    def stored(name: str, key: object) -> str:
        return f"counter:{name}:{key}"

    patch.setattr(counters, "stored_key", stored)


def shards_that_nobody_is_told_of(patch: pytest.MonkeyPatch) -> None:
    async def widened(self: Headers, known: CachedCounter, header: Header, shard_count: int) -> Header:
        del self, known, shard_count
        return header

    patch.setattr(Headers, "widened", widened)


def an_amount_that_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(counters, "refuse_amount", lambda _amount: None)


SABOTAGES: list[tuple[Sabotage, Callable[[Place], None]]] = [
    (
        a_fold_in_two_transactions,
        lambda place: test_counters_log.test_a_crash_inside_a_fold_loses_and_doubles_nothing(place, 2),
    ),
    (a_fold_that_deletes_what_it_did_not_add, test_counters_log.test_a_roll_up_keeps_the_value_and_empties_the_log),
    (
        the_snapshot_and_the_log_read_one_after_the_other,
        test_counters_log.test_a_roll_up_between_any_two_statements_of_a_reader_shows_nothing_twice,
    ),
    (a_key_where_the_other_adds_go, test_counters.test_a_key_is_found_again_after_auto_has_moved_on),
    (
        a_key_spread_over_as_many_shards_as_there_are_now,
        lambda place: test_counters.test_a_key_is_found_again_under_another_kind(place, "auto", "exact"),
    ),
    (a_key_without_its_counter, test_counters.test_a_key_belongs_to_its_counter),
    (
        shards_that_nobody_is_told_of,
        lambda place: test_counters.test_adds_of_many_tasks_are_all_counted(place, "sharded"),
    ),
    (
        an_amount_that_is_not_looked_at,
        lambda place: test_counters.test_nothing_and_what_is_no_number_is_refused(place, 0),
    ),
]


@pytest.mark.parametrize(("sabotage", "test"), SABOTAGES, ids=[sabotage.__name__ for sabotage, _ in SABOTAGES])
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_sabotage_is_caught(
    place: Place, monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage, test: Callable[[Place], None]
) -> None:
    """D5, D6, D7: what the same test says of sound counters is green in its own module."""
    sabotage(monkeypatch)
    with pytest.raises((AssertionError, KeyReused, pytest.fail.Exception)):
        test(place)
