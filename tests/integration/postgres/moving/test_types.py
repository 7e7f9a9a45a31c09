"""Values of every type at both engines, what has no place in a lane, and rows that are in each other's way."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import apsw
import pytest

from interlock import Database
from interlock.clock import RandomIds, SystemChance
from interlock.database.lane_engine import Translator, register
from interlock.errors import DialectError, KeyReused
from interlock.hotrow.tables import TABLES
from interlock.postgres.statements import StatementLink
from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.local_lane import make_in_lane
from interlock.relocate.postgres_rows import postgres_rows, postgres_rows_of, refuse_unfit
from interlock.relocate.postgres_shape import shape_of_postgres
from interlock.relocate.rows import StoredRow, to_lane
from interlock.relocate.shape import KEYS_TABLE, Shape
from tests.integration.postgres.moving.carrying import (
    empty_schema,
    from_server,
    lane_contents,
    linked,
    run,
    server_contents,
    server_pages,
    to_server,
)
from tests.integration.postgres.moving.schemas import EVERY
from tests.unit.relocate.lanes import defined

FIRST, LAST = datetime(1, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999998, tzinfo=UTC)
NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)
ROWS: list[tuple[object, ...]] = [
    (
        2**63 - 1, -(2**15), 2**31 - 1, Decimal("1.500"), Decimal("-9999999999.99"), 0.1, "naïve 🐘\t\\N\n", "'\"\\;--",
        True, bytes(range(256)), LAST, UUID(int=2**128 - 1), {"a": [1, None, 1.50], "ü": {"b": "\\u0000".strip()}},
        [2**63 - 1, None, -(2**63)], ["", "NULL", '{"a,b\\"}', None], [True, None, False], [UUID(int=1)],
        [Decimal("1.50"), None], [FIRST, None],
    ),
    (-(2**63), *([None] * 18)),
    (
        0, 0, 0, Decimal("123456789012345678901234567890.000000001"), Decimal("0.00"), 1.7976931348623157e308, "", "",
        False, b"", FIRST, UUID(int=0), [], [], [], [], [], [], [],
    ),
    (
        1, 1, -(2**31), Decimal("-0.10"), Decimal("1.00"), 5e-324, "\u2028\x01\x7f", "x" * 8, None, b"\\x", NOON,
        UUID(int=5), "text", [1], ["a\nb"], [], [], [], [],
    ),
]  # fmt: skip


def opened_lane(path: Path) -> apsw.Connection:
    """A lane that its owner has closed, as a mover has it."""
    connection = apsw.Connection(str(path))
    register(connection, lambda: 1_000_000, chance=SystemChance(), ids=RandomIds())
    connection.execute("PRAGMA foreign_keys = OFF")
    return connection


async def filled(db: Database) -> None:
    """Every type, every extreme."""
    await db.execute(EVERY)
    places = ", ".join(f"${place}" for place in range(1, 20))
    for row in ROWS:
        await db.execute(f"INSERT INTO every VALUES ({places})", *row)


async def read(db: Database) -> list[tuple[object, ...]]:
    """All of it."""
    return [tuple(row) for row in await db.query("SELECT * FROM every ORDER BY id")]


def test_values_are_the_same_at_the_other_engine(postgres: str, tmp_path: Path) -> None:
    """Written and read by users at both places; in between as a mover carries them, there and back."""

    async def scenario() -> None:
        async with Database.open(f"lanes://{tmp_path}/one") as db:
            await filled(db)
            expected = await read(db)
        assert sorted(ROWS, key=lambda row: int(str(row[0]))) == expected
        async with linked(postgres) as link:
            schema = await to_server(opened_lane(tmp_path / "one.lane"), link)
            async with Database.open(f"{postgres}&schema={schema}") as db:
                assert await read(db) == expected
            back = await from_server(link, schema)
        one = opened_lane(tmp_path / "one.lane")
        shape = shape_of_lane(one)
        assert lane_contents(back, shape) == lane_contents(one, shape)

    run(scenario())


COMPUTED = (
    (
        "CREATE TABLE made (id int PRIMARY KEY, d jsonb, n numeric, f double precision, t text[], i bigint[], "
        "p numeric[], w varchar(3)[], s numeric(5,2)[], c char(4))"
    ),
    "INSERT INTO made VALUES (1, '{\"b\": 1.50, \"a\": [1e3, 2E-3, -0, 0.10]}', 1.10, 0.1, '{a}', '{1}', '{1.50}')",
    "INSERT INTO made VALUES (2, jsonb_build_object('x', 1.5::double precision, 'longer', 0.1, 'n', NULL), 7, 3)",
    "UPDATE made SET d = jsonb_set(d, '{a,0}', to_jsonb(n * 2)), n = n * 1.230 / 3, f = f * 3 WHERE id = 1",
    'UPDATE made SET d = d || \'{"é": "\\u00e9\\u001f\\/"}\', n = round(n, 2) - n, f = -f * 0 WHERE id = 2',
    "UPDATE made SET t = t || ARRAY['\"q', 'b\\c'], i = array_append(i, 9), p = p || ARRAY[0.10] WHERE id = 1",
    "UPDATE made SET c = lower('AB')",
    "UPDATE made SET w = '{abc,NULL,\"\"}', s = ARRAY[1.005, 2, NULL] WHERE id = 1",
)


def test_what_a_lane_has_computed_is_written_as_postgresql_writes_it(postgres: str) -> None:
    """Otherwise the digests of the same rows would differ."""

    async def scenario() -> None:
        lane = defined(COMPUTED[0])
        for sql in COMPUTED[1:]:
            lane.execute(Translator(lane).statement(sql).text)
        shape = shape_of_lane(lane)
        async with linked(postgres) as link:
            schema = await to_server(lane, link)
            assert await server_contents(link, schema, shape) == lane_contents(lane, shape)
            assert shape_of_lane(await from_server(link, schema)).tables == shape.tables

    run(scenario())


def test_values_of_postgresql_are_the_same_in_a_lane(postgres_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        schema = postgres_url.rpartition("schema=")[2]
        async with Database.open(postgres_url) as db:
            await filled(db)
            expected = await read(db)
        async with Database.open(f"lanes://{tmp_path}/two") as db:
            pass
        async with linked(postgres_url) as link:
            lane = opened_lane(tmp_path / "two.lane")
            shape = await shape_of_postgres(link, schema)
            with lane:
                make_in_lane(lane, shape)
                for table in shape.tables:
                    async for rows in server_pages(link, schema, table):
                        to_lane(lane, table, rows)
            lane.close()
        async with Database.open(f"lanes://{tmp_path}/two") as db:
            assert await read(db) == expected

    run(scenario())


def test_the_first_and_the_last_moment_are_no_infinities(postgres: str) -> None:
    """The driver takes them for infinity; they go around it."""

    async def scenario() -> None:
        lane = defined("CREATE TABLE t (at timestamptz PRIMARY KEY)")
        table = shape_of_lane(lane).table("t")
        moments: list[StoredRow] = [(-62135596800000000,), (253402300799999999,)]
        to_lane(lane, table, moments)
        async with linked(postgres) as link:
            schema = await to_server(lane, link)
            assert (await server_contents(link, schema, shape_of_lane(lane)))["t"] == moments
            shown = await link.driver.fetch(f'SELECT isfinite(at) FROM "{schema}".t')
            assert [tuple(row) for row in shown] == [(True,), (True,)]

    run(scenario())


UNFIT = [
    ("double precision", "'NaN'"),
    ("double precision", "'-Infinity'"),
    ("numeric", "'NaN'"),
    ("numeric", "'Infinity'"),
    ("numeric", "1e1000"),
    ("numeric", "1e-1000"),
    ("timestamptz", "'infinity'"),
    ("timestamptz", "'-infinity'"),
    ("timestamptz", "'0044-03-15 12:00:00+00 BC'"),
    ("timestamptz", "'20000-01-01 00:00:00+00'"),
    ("bigint[]", "'{{1},{2}}'"),
    ("text[]", "'[0:1]={a,b}'"),
    ("double precision[]", "'{1,NaN}'"),
    ("timestamptz[]", "'{infinity}'"),
]


@pytest.mark.parametrize(("kind", "value"), UNFIT)
def test_what_has_no_place_in_a_lane_is_found_and_never_copied(postgres: str, kind: str, value: str) -> None:
    async def scenario() -> None:
        async with linked(postgres) as link:
            schema = await empty_schema(link)
            await link.driver.execute(
                f'CREATE TABLE "{schema}".t (id integer PRIMARY KEY, v {kind}); '
                f'INSERT INTO "{schema}".t VALUES (1, NULL), (7, {value})'
            )
            shape = await shape_of_postgres(link, schema)
            table = shape.table("t")
            with pytest.raises(DialectError, match="cannot move") as caught:
                await refuse_unfit(link, schema, shape)
            assert "t.v of the row '7': a lane holds neither NaN" in caught.value.what
            with pytest.raises(DialectError, match="has no place in a lane"):
                await postgres_rows(link, schema, table)
            assert await postgres_rows_of(link, schema, table, [(1,)]) == [(1, None)]

    run(scenario())


def test_zero_loses_its_sign(postgres: str) -> None:
    """A lane has one zero; equal it is at both."""

    async def scenario() -> None:
        async with linked(postgres) as link:
            schema = await empty_schema(link)
            await link.driver.execute(
                f'CREATE TABLE "{schema}".t (v double precision, w double precision[]); '
                f"INSERT INTO \"{schema}\".t VALUES ('-0', '{{-0,NULL}}')"
            )
            table = (await shape_of_postgres(link, schema)).table("t")
            [(v, w)] = (await postgres_rows(link, schema, table)).rows
            assert (repr(v), w) == ("0.0", "[0.0,null]")

    run(scenario())


def test_tables_of_helpers_go_along_and_go_on(postgres: str, tmp_path: Path) -> None:
    """Counters, stock, balances, quotas and parents: ordinary tables, whose helpers find them where they are."""

    async def scenario() -> None:
        async with Database.open(f"lanes://{tmp_path}/one") as db:
            for sql in (sql for parts in TABLES.values() for sql in parts):
                await db.execute(sql)
            await db.execute("INSERT INTO hotrow_balance VALUES ('till', 5)")
            await db.execute("INSERT INTO hotrow_counter_event (name, delta) VALUES ('hits', 3), ('hits', 4)")
        async with linked(postgres) as link:
            schema = await to_server(opened_lane(tmp_path / "one.lane"), link)
            async with Database.open(f"{postgres}&schema={schema}") as db:
                assert await db.query("SELECT value FROM hotrow_balance") == [(5,)]
                added = await db.query("INSERT INTO hotrow_counter_event (name, delta) VALUES ('hits', 1) RETURNING id")
                assert added == [(3,)]
            back = await from_server(link, schema)
            names = [table.name for table in shape_of_lane(back).tables]
            assert len(names) == 1 + len([sql for sqls in TABLES.values() for sql in sqls if "TABLE" in sql])
            assert len(lane_contents(back, shape_of_lane(back))["hotrow_counter_event"]) == 3

    run(scenario())


# --- Idempotency keys -------------------------------------------------------------------------------------------------


async def keyed(db: Database) -> list[object]:
    """The same three calls, each with its key."""
    return [
        await db.execute("INSERT INTO t VALUES ($1)", 1, key="first"),
        await db.query("INSERT INTO t VALUES ($1) RETURNING n, n * 1.5 AS more", 2, key="größte"),
        await db.execute("UPDATE t SET n = n + 10", key="third"),
    ]


async def carried_keys(link: StatementLink, schema: str, path: Path) -> None:
    """Keys and rows to a lane that exists."""
    lane = opened_lane(path)
    shape = await shape_of_postgres(link, schema)
    with lane:
        make_in_lane(lane, shape)
        for table in shape.tables:
            async for rows in server_pages(link, schema, table):
                to_lane(lane, table, rows)
    lane.close()


def test_a_repeated_key_is_answered_as_before_at_the_other_place(postgres: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(f"lanes://{tmp_path}/one") as db:
            await db.execute("CREATE TABLE t (n bigint)")
            answers = await keyed(db)
        async with linked(postgres) as link:
            schema = await to_server(opened_lane(tmp_path / "one.lane"), link)
            async with Database.open(f"{postgres}&schema={schema}") as db:
                assert await keyed(db) == answers
                assert await db.query("SELECT n FROM t ORDER BY n") == [(11,), (12,)]
                with pytest.raises(KeyReused):
                    await db.execute("DELETE FROM t", key="first")
                assert await db.execute("DELETE FROM t", key="fourth") == 2
            async with Database.open(f"lanes://{tmp_path}/two"):
                pass
            await carried_keys(link, schema, tmp_path / "two.lane")
        async with Database.open(f"lanes://{tmp_path}/two") as db:
            assert await keyed(db) == answers
            assert await db.execute("DELETE FROM t", key="fourth") == 2
            assert await db.query("SELECT n FROM t") == []
            with pytest.raises(KeyReused):
                await db.execute("UPDATE t SET n = 1", key="fourth")

    run(scenario())


def test_keys_are_numbered_behind_those_that_came_along(postgres: str, tmp_path: Path) -> None:
    """The oldest are removed by their numbers: one that is new must not look old."""

    async def scenario() -> None:
        async with Database.open(f"lanes://{tmp_path}/one") as db:
            await db.execute("CREATE TABLE t (n bigint)")
            await keyed(db)
        async with linked(postgres) as link:
            schema = await to_server(opened_lane(tmp_path / "one.lane"), link)
            async with Database.open(f"{postgres}&schema={schema}") as db:
                await db.execute("DELETE FROM t", key="fourth")
            rows = (await server_contents(link, schema, Shape((KEYS_TABLE,))))[KEYS_TABLE.name]
            assert [(row[0], row[1]) for row in rows] == [(1, "first"), (2, "größte"), (3, "third"), (4, "fourth")]

    run(scenario())
