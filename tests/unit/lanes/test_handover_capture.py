"""Whatever is written to a watched table is noted: every row that differs from before has its key among the notes."""

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from interlock.clock import SeededIds
from interlock.lanes import handover
from interlock.lanes.handover import FORGOTTEN_AT_ONCE
from interlock.lanes.sqlite_connection import open_beside
from interlock.testing.stepped_lane import SteppedLane
from tests.unit.lanes.lanes import SetClock, sql
from tests.unit.lanes.movers import leaving

TABLES = {
    "plain": ("id",),
    "texts": ("name",),
    "pairs": ("a", "b"),
    "values_of": ("v",),
    "keyless": ("rowid",),
    'owner\'s "things"': ("the key",),
    "child": ("id",),
}
MADE = (
    "CREATE TABLE plain (id INTEGER PRIMARY KEY, u INTEGER UNIQUE, n INTEGER)",
    "CREATE TABLE texts (name TEXT PRIMARY KEY COLLATE NOCASE, n INTEGER) WITHOUT ROWID",
    "CREATE TABLE pairs (a INTEGER, b TEXT, n INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID",
    "CREATE TABLE values_of (v PRIMARY KEY, n INTEGER)",
    "CREATE TABLE keyless (n INTEGER)",
    'CREATE TABLE "owner\'s ""things""" ("the key" BLOB PRIMARY KEY, n INTEGER) WITHOUT ROWID',
    "CREATE TABLE child (id INTEGER PRIMARY KEY, n INTEGER, parent INTEGER REFERENCES plain (id) ON DELETE CASCADE)",
)
WRITES = (
    "INSERT OR REPLACE INTO plain VALUES (abs(random() % 9), abs(random() % 9), {n})",
    "INSERT OR IGNORE INTO plain VALUES (abs(random() % 9), abs(random() % 9), {n})",
    "INSERT INTO plain VALUES ({n} % 9, {n}, 0) ON CONFLICT (id) DO UPDATE SET n = excluded.u",
    "UPDATE OR REPLACE plain SET u = {n} % 9, id = {n} % 7 WHERE id = {n} % 5",
    "UPDATE OR IGNORE plain SET n = {n} WHERE id > {n} % 9",
    "DELETE FROM plain WHERE id = {n} % 9",
    "INSERT OR REPLACE INTO texts VALUES (char(65 + {n} % 3, 0, 39, 34, 92), {n})",
    "UPDATE OR REPLACE texts SET name = lower(name) WHERE n % 2",
    "INSERT OR REPLACE INTO pairs VALUES ({n} % 3, 'é' || {n} % 3, {n}), ({n} % 2, NULL, {n})",
    "UPDATE OR REPLACE pairs SET b = b || 'x' WHERE a = {n} % 3",
    "INSERT OR IGNORE INTO values_of VALUES (x'00ff{n:02x}', 1), ({n} / 7.0, 2), ({n}, 3), ('{n}', 4), (1e308 * 10, 5)",
    "INSERT INTO values_of VALUES (NULL, 1)",
    "UPDATE values_of SET n = n + 1 WHERE typeof(v) = 'real'",
    "UPDATE OR IGNORE values_of SET v = v + 0.1 WHERE typeof(v) = 'real'",
    "INSERT INTO keyless VALUES ({n})",
    "UPDATE keyless SET n = n + 1 WHERE rowid % 2",
    "DELETE FROM keyless",
    'INSERT OR REPLACE INTO "owner\'s ""things""" VALUES (x\'0{n:01x}\', {n})',
    "INSERT OR IGNORE INTO child SELECT {n} % 20, {n}, id FROM plain LIMIT 1",
    "UPDATE child SET n = 7",
    "DELETE FROM values_of",
)

Rows = dict[str, dict[tuple[object, ...], tuple[object, ...]]]


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[SteppedLane]:
    running = SteppedLane(tmp_path / "x", clock=SetClock(), ids=SeededIds(1))
    for statement in MADE:
        running.submit(sql(statement))
        assert [work.error for work in running.run()] == [None]
    yield running
    running.close()


def rows_of(connection: apsw.Connection) -> Rows:
    """All rows by their keys; a key with NULL in it may be there twice, and then counts as one."""
    found: Rows = {}
    for table, key in TABLES.items():
        name, columns = '"' + table.replace('"', '""') + '"', ", ".join(f'"{column}"' for column in key)
        found[table] = {}
        for row in connection.execute(f"SELECT {columns}, * FROM {name} ORDER BY 1, 2"):
            found[table][row[: len(key)]] = (*found[table].get(row[: len(key)], ()), *row[len(key) :])
    return found


def differing(before: Rows, after: Rows) -> set[tuple[str, tuple[object, ...]]]:
    """The keys of the rows that are not what they were."""
    return {
        (table, key)
        for table in before
        for key in before[table].keys() | after[table].keys()
        if repr(before[table].get(key)) != repr(after[table].get(key))
    }


@pytest.mark.parametrize("seed", range(12))
def test_every_row_that_differs_is_noted(tmp_path: Path, lane: SteppedLane, seed: int) -> None:
    luck = random.Random(seed)
    with leaving(tmp_path / "x") as mover:
        mover.watch(TABLES)
        last = 0
        for _ in range(10):
            before = rows_of(mover.connection)
            for _ in range(luck.randrange(1, 30)):
                lane.submit(sql(luck.choice(WRITES).format(n=luck.randrange(16))))
            lane.run()
            found = mover.touched(last, 10_000)
            noted = {(table, key) for _, table, key in found}
            assert len(noted) == len(found), "a row is noted once"
            missed = differing(before, rows_of(mover.connection)) - noted
            assert not missed, f"seed {seed}: {missed}"
            last = max([number for number, _, _ in found], default=last)
            if luck.random() < 0.5:
                mover.forget(last)
                assert mover.touched(0, 10) == []


def test_keys_come_back_as_the_values_that_they_are(tmp_path: Path, lane: SteppedLane) -> None:
    values: list[str | bytes | float | None] = [
        b"\x00\xff",
        b"",
        0.1 + 0.2,
        1e-320,
        float("inf"),
        2**63 - 1,
        -(2**63),
        "\x00 'q\" \\ é 🜁",
        "",
        None,
    ]
    with leaving(tmp_path / "x") as mover:
        mover.watch({"values_of": ["v"]})
        for value in values:
            lane.submit(sql("INSERT INTO values_of VALUES (?1, 1)", value))
        lane.run()
        assert [repr(key) for _, _, key in mover.touched(0, 100)] == [repr((value,)) for value in values]


def test_a_statement_that_is_rolled_back_notes_nothing(tmp_path: Path, lane: SteppedLane) -> None:
    with leaving(tmp_path / "x") as mover:
        mover.watch(TABLES)
        lane.submit(sql("INSERT INTO plain VALUES (1, 1, 1)"))
        lane.submit(sql("INSERT INTO plain VALUES (2, 2, 2), (1, 3, 3)"))
        lane.run()
        assert [key for _, _, key in mover.touched(0, 10)] == [(1,)]


def test_a_table_without_any_key_is_noted_as_a_whole(tmp_path: Path, lane: SteppedLane) -> None:
    with leaving(tmp_path / "x") as mover:
        mover.watch({"keyless": ()})
        lane.submit(sql("INSERT INTO keyless VALUES (1), (2)"))
        lane.submit(sql("UPDATE keyless SET n = 4"))
        lane.submit(sql("DELETE FROM keyless"))
        lane.run()
        [(_, table, key)] = mover.touched(0, 10)
        assert (table, key) == ("keyless", ())


def test_what_is_watched_can_change_and_end(tmp_path: Path, lane: SteppedLane) -> None:
    with leaving(tmp_path / "x") as mover:
        mover.watch({"plain": ["id"], "texts": ["name"]})
        mover.watch({"plain": ["u"]})
        lane.submit(sql("INSERT INTO plain VALUES (1, 77, 1)"))
        lane.submit(sql("INSERT INTO texts VALUES ('a', 1)"))
        lane.run()
        assert [(table, key) for _, table, key in mover.touched(0, 10)] == [("plain", (77,))]
        assert handover.is_watched(mover.connection)
        mover.unwatch()
        assert not handover.is_watched(mover.connection)
        lane.submit(sql("UPDATE plain SET n = 2"))
        assert [work.error for work in lane.run()] == [None]


def test_notes_are_forgotten_in_portions_and_numbers_never_come_again(tmp_path: Path, lane: SteppedLane) -> None:
    many = 2 * FORGOTTEN_AT_ONCE + 1
    counting = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?1)"
    with leaving(tmp_path / "x") as mover:
        mover.watch({"keyless": ["rowid"]})
        lane.submit(sql(f"{counting} INSERT INTO keyless SELECT n FROM c", many))
        lane.run()
        assert len(mover.touched(0, 100_000)) == many
        mover.forget(many - 1)
        [(number, _, _)] = mover.touched(0, 100)
        mover.forget(number)
        lane.submit(sql("UPDATE keyless SET n = 0 WHERE rowid = 1"))
        lane.run()
        [(later, _, key)] = mover.touched(number, 100)
        assert (later > number, key) == (True, (1,))


def test_the_notes_of_a_file_that_nobody_has_open(tmp_path: Path, lane: SteppedLane) -> None:
    lane.close()
    with leaving(tmp_path / "x") as mover:
        mover.watch(TABLES)
    other = open_beside(tmp_path / "x")
    other.execute("INSERT INTO plain VALUES (5, 5, 5)")
    other.close()
    with leaving(tmp_path / "x") as mover:
        assert [key for _, _, key in mover.touched(0, 10)] == [(5,)]
