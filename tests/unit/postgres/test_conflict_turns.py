"""Who takes a turn after a conflict, and for how long what is known about a table is believed (D1, G6)."""

import asyncio
from collections.abc import Sequence

from interlock.database.postgres_transactions import CALLS_MAX, HOT_S, PAUSE_S_MAX, ConflictTurns, pause_s, turns_of
from interlock.postgres.isolation import KNOWN_S, TABLES_MAX, PlainTables
from interlock.sql.stored_values import Answer, row_class
from tests.unit.lanes.lanes import SetClock


def test_a_call_is_hot_for_a_moment_after_its_conflict() -> None:
    clock = SetClock()
    turns = ConflictTurns(clock)
    assert not turns.is_hot("a")
    turns.conflicted("a")
    assert turns.is_hot("a")
    assert not turns.is_hot("b")
    clock.now_monotonic_s += HOT_S
    assert not turns.is_hot("a")


def test_no_more_calls_are_remembered_than_allowed() -> None:
    turns = ConflictTurns(SetClock())
    for number in range(CALLS_MAX + 1):
        turns.conflicted(number)
    assert not turns.is_hot(0)
    assert turns.is_hot(1)


def test_a_turn_belongs_to_its_event_loop_and_turns_to_their_schema() -> None:
    clock = SetClock()
    turns = turns_of("postgresql://x", "a", clock)
    assert turns is turns_of("postgresql://x", "a", clock)
    assert turns is not turns_of("postgresql://x", "b", clock)

    async def lock() -> asyncio.Lock:
        assert turns.lock() is turns.lock()
        return turns.lock()

    assert asyncio.run(lock()) is not asyncio.run(lock())


def test_a_pause_grows_and_is_never_long() -> None:
    assert pause_s(0, 1.0) < pause_s(3, 1.0) <= pause_s(100, 1.0) == PAUSE_S_MAX
    assert pause_s(5, 0.0) == 0.0


class Catalog:
    """What the server says about tables; `tables` are forgotten while it is asked."""

    def __init__(self, *rows: tuple[object, ...]) -> None:
        self.rows = [row_class(("plain",))(row) for row in rows]
        self.asked = 0
        self.tables: PlainTables | None = None

    async def run(self, _sql: str, _args: Sequence[object]) -> Answer:
        self.asked += 1
        if self.tables is not None:
            self.tables.forget()
        return Answer(self.rows, len(self.rows))


def test_a_table_is_known_for_a_while_and_forgotten_with_a_change() -> None:
    clock = SetClock()
    tables, catalog = PlainTables(clock), Catalog((True,))
    assert tables.known("t") is None
    assert asyncio.run(tables.look_up("t", catalog.run))
    assert tables.known("t")
    clock.now_monotonic_s += KNOWN_S + 0.001
    assert tables.known("t") is None
    assert asyncio.run(tables.look_up("t", catalog.run))
    tables.forget()
    assert tables.known("t") is None


def test_an_answer_from_before_a_change_is_not_kept() -> None:
    """D1: the trigger was made while the catalog was asked, so the next call asks again."""
    tables, catalog = PlainTables(SetClock()), Catalog((True,))
    catalog.tables = tables
    assert asyncio.run(tables.look_up("t", catalog.run))
    assert tables.known("t") is None


def test_what_is_no_table_is_not_plain_and_asked_again() -> None:
    tables, catalog = PlainTables(SetClock()), Catalog()
    assert not asyncio.run(tables.look_up("missing", catalog.run))
    assert tables.known("missing") is None


def test_no_more_tables_are_known_than_allowed() -> None:
    tables, catalog = PlainTables(SetClock()), Catalog((True,))

    async def ask() -> None:
        for number in range(TABLES_MAX + 1):
            await tables.look_up(f"t{number}", catalog.run)

    asyncio.run(ask())
    assert tables.known("t0") is None
    assert tables.known(f"t{TABLES_MAX}")
