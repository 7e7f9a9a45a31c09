"""D9: a hot row of a lane is flagged with its key, whatever becomes of its table, and volume on many rows is not."""

import pytest

from interlock.hotrow.contention_windows import look, worst
from interlock.lanes.hot_rows import EVERY_S
from interlock.lanes.lane import Lane
from interlock.lanes.writer import Session, Work
from tests.conformance.lanes.places import Place, opened
from tests.unit.lanes.lanes import SetClock, group, increment, make_counter, rested, run, sql

MANY = """
INSERT INTO counter WITH RECURSIVE r (x) AS (SELECT 2 UNION ALL SELECT x + 1 FROM r WHERE x < 500) SELECT x, 0 FROM r
"""


async def storm(lane: Lane, clock: SetClock, *rows: int) -> None:
    """Groups of clients that all wait before the first of them writes; each transaction takes a moment."""
    for _ in range(50):
        works = [sql("UPDATE counter SET n = n + tick() WHERE id = ?1", row) for row in rows]
        await group(lane, *works)
        clock.now_monotonic_s += 0.01


@pytest.mark.parametrize("size", [4, 20], ids=["small groups", "large groups"])
def test_a_hot_row_of_a_lane_is_flagged_by_its_key(place: Place, size: int) -> None:
    clock = SetClock()

    def tick(*_values: object) -> int:
        clock.now_monotonic_s += 0.000_1
        return 1

    async def scenario() -> None:
        with opened(
            place,
            clock=clock,
            prepare=lambda connection, _now: connection.create_scalar_function("tick", tick, 0),
        ) as lane:
            await make_counter(lane)
            await lane.run(sql(MANY))
            await storm(lane, clock, *range(100, 100 + size))
            assert lane.contention.worst(clock.now_monotonic_s) == [], "volume on many rows is not contention"
            await storm(lane, clock, *([7] * size))
            worst = lane.contention.worst(clock.now_monotonic_s)
            assert [(row.table, row.key, row.flagged) for row in worst] == [("counter", 7, True)]

    run(scenario)


def test_rows_are_known_by_their_key_whatever_it_is(place: Place) -> None:
    clock = SetClock()

    def tick(*_values: object) -> int:
        clock.now_monotonic_s += 0.000_1
        return 1

    tables = {
        "CREATE TABLE named (name TEXT PRIMARY KEY, n INTEGER)": "INSERT INTO named VALUES ('a', 0)",
        "CREATE TABLE pairs (a INTEGER, b TEXT, n INTEGER, PRIMARY KEY (a, b))": "INSERT INTO pairs VALUES (1, 'b', 0)",
        "CREATE TABLE bare (n INTEGER)": "INSERT INTO bare VALUES (0)",
    }

    async def scenario() -> None:
        with opened(
            place,
            clock=clock,
            prepare=lambda connection, _now: connection.create_scalar_function("tick", tick, 0),
        ) as lane:
            for create, insert in tables.items():
                await lane.run(sql(create))
                await lane.run(sql(insert))
            for _ in range(30):
                for table in ("named", "pairs", "bare"):
                    await group(lane, *(sql(f"UPDATE {table} SET n = n + tick()") for _ in range(3)))
            found = {(row.table, row.key) for row in lane.contention.worst(clock.now_monotonic_s)}
            assert found == {("named", "a"), ("pairs", (1, "b")), ("bare", 1)}

    run(scenario)


def test_a_failed_transaction_and_a_bulk_update_are_no_contention(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            await lane.run(sql(MANY))
            await lane.run(increment())
            lane.contention._rows.clear()
            await group(lane, *(sql("UPDATE counter SET n = -1 WHERE id = 1") for _ in range(5)))
            assert not lane.contention._rows
            await lane.run(sql("UPDATE counter SET n = 1"))
            assert len(lane.contention._rows) == 32

    run(scenario)


def test_a_table_made_anew_with_other_columns_is_written_as_ever(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await lane.run(sql("CREATE TABLE t (a, b, c INTEGER PRIMARY KEY)"))
            await lane.run(sql("INSERT INTO t VALUES (1, 2, 3)"))
            await lane.run(sql("DROP TABLE t"))
            await lane.run(sql("CREATE TABLE t (a INTEGER PRIMARY KEY)"))
            for number in range(3):
                assert await lane.run(sql("INSERT INTO t VALUES (?1)", number)) == 1

    run(scenario)


NEW_KEY = ("DROP TABLE t", "CREATE TABLE t (a TEXT, b TEXT PRIMARY KEY, n INTEGER)")


def changes_the_key(session: Session) -> object:
    for statement in NEW_KEY:
        session.execute(statement)
    return session.execute("INSERT INTO t VALUES ('old', 'new', 0)")


def changes_the_key_and_fails(session: Session) -> object:
    changes_the_key(session)
    raise KeyError("after all not")


def changes_the_key_once_and_fails_when_it_runs_again(session: Session, runs: list[int]) -> object:
    runs.append(1)
    if len(runs) > 1:
        raise KeyError("after all not")
    changes_the_key(session)
    # Its rows are written, and the new key is learned, by the works behind it.
    return None


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ([sql("SELECT 1")], {"old"}),
        ([sql(NEW_KEY[0]), sql(NEW_KEY[1]), sql("INSERT INTO t VALUES ('old', 'new', 0)")], {"new"}),
        ([Work(changes_the_key)], {"new"}),
        ([Work(changes_the_key_and_fails)], {"old"}),
        ([sql("ALTER TABLE t RENAME TO was"), sql("ALTER TABLE other RENAME TO t")], {"new"}),
    ],
    ids=["not at all", "statement by statement", "in one transaction", "and it is undone", "by new names"],
)
def test_a_table_made_anew_with_another_key_is_known_by_it(place: Place, change: list[Work], keys: set[str]) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await lane.run(sql("CREATE TABLE t (a TEXT PRIMARY KEY, b TEXT, n INTEGER)"))
            await lane.run(sql("CREATE TABLE other (a TEXT, b TEXT PRIMARY KEY, n INTEGER)"))
            for table in ("t", "other"):
                await lane.run(sql(f"INSERT INTO {table} VALUES ('old', 'new', 0)"))
            for _ in range(2):
                await lane.run(sql("UPDATE t SET n = n + 1"))
            lane.contention._rows.clear()
            await group(lane, *change)
            for _ in range(3):
                await lane.run(sql("UPDATE t SET n = n + 1"))
            assert {key for table, key in lane.contention._rows if table == "t"} == keys

    run(scenario)


def test_the_key_of_a_table_that_vanished_with_its_group_is_forgotten(place: Place) -> None:
    runs: list[int] = []

    async def scenario() -> None:
        with opened(place, idle_s=0.1) as lane:  # A writer that rests between two works forgets the keys.
            await lane.run(sql("CREATE TABLE t (a TEXT PRIMARY KEY, b TEXT, n INTEGER)"))
            await lane.run(sql("INSERT INTO t VALUES ('old', 'new', 0)"))
            await rested(lane)  # So that they are one group.
            once = Work(lambda session: changes_the_key_once_and_fails_when_it_runs_again(session, runs))
            vanishes = sql("INSERT OR ROLLBACK INTO t VALUES ('x', 'new', 0)")
            await group(lane, once, sql("UPDATE t SET n = n + 1"), vanishes)
            assert len(runs) == 2
            lane.contention._rows.clear()
            for _ in range(3):
                await lane.run(sql("UPDATE t SET n = n + 1"))
            assert {key for _, key in lane.contention._rows} == {"old"}

    run(scenario)


def test_the_owner_tells_beside_its_local_file_and_whoever_looks_from_outside_finds_it(place: Place) -> None:
    """D9: in a folder, and on the host of the owner for a bucket; a lane that is closed tells nothing any more."""
    clock = SetClock()

    def tick(*_values: object) -> int:
        clock.now_monotonic_s += 0.000_1
        return 1

    async def scenario() -> None:
        with opened(
            place,
            clock=clock,
            prepare=lambda connection, _now: connection.create_scalar_function("tick", tick, 0),
        ) as lane:
            await make_counter(lane)
            await storm(lane, clock, 1, 1, 1, 1)
            clock.now_monotonic_s += EVERY_S
            await lane.run(increment())
            # A group is told about after its clients were: the next one ends behind that.
            await lane.run(increment())
            seen = await look(place.url("x"), 0.0, clock=clock, cache=str(place.folder))
            rows = [(row.database, row.source, row.table, row.key) for row in worst(seen.windows, 10)]
            assert [row[1:] for row in rows] == [("lane", "counter", 1)]
        seen = await look(place.url("x"), 0.0, clock=clock, cache=str(place.folder))
        assert seen.windows == []

    run(scenario)
