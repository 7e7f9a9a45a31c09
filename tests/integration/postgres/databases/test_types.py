"""Values and errors of a database on PostgreSQL are those of a lane, and no exception of the driver escapes."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import DialectError, InterlockError, OutcomeUnknown, TransactionError, UnavailableError

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)
VALUES: list[tuple[str, object]] = [
    ("boolean", True),
    ("integer", -(2**31)),
    ("bigint", 2**63 - 1),
    ("smallint", -5),
    ("double precision", 1.5),
    ("numeric", Decimal("12345678901234567890.0010")),
    ("text", "naïve 🐘 'quoted' \\ "),
    ("text", ""),
    ("bytea", b"\x00\xff"),
    ("timestamptz", NOON),
    ("uuid", UUID(int=7)),
    ("jsonb", {"a": [1, None, {"b": 1.5}], "ü": "x"}),
    ("jsonb", [1, "two", None]),
    ("jsonb", "text"),
    ("jsonb", 5),
    ("jsonb", True),
    ("integer[]", [1, None, 3]),
    ("text[]", []),
    ("text[]", ["a", 'b"', "{c}", "NULL"]),
    ("uuid[]", [UUID(int=1)]),
    ("boolean[]", [True, None]),
    *[(kind, None) for kind in ("boolean", "bigint", "numeric", "text", "bytea", "timestamptz", "jsonb", "text[]")],
]


@asynccontextmanager
async def both(url: str) -> AsyncGenerator[tuple[Database, Database]]:
    """A lane and PostgreSQL."""
    async with Database.open("memory:") as lane, Database.open(url) as postgres:
        yield lane, postgres


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_comes_back_as_it_was_sent(postgres_url: str, kind: str, value: object) -> None:
    async def scenario() -> None:
        async with both(postgres_url) as engines:
            for db in engines:
                if "[]" not in kind:  # A lane has arrays as parameters, not as columns.
                    await db.execute(f"CREATE TABLE t (id integer PRIMARY KEY, v {kind})")
                    await db.execute("INSERT INTO t VALUES (1, $1)", value)
                    [(kept,)] = await db.query("SELECT v FROM t")
                    assert (type(kept), kept) == (type(value), value), db.engine
                elif db.engine == "postgres":
                    [(back,)] = await db.query(f"SELECT $1::{kind}", value)
                    assert (type(back), back) == (type(value), value)

    asyncio.run(scenario())


def test_lists_find_rows_by_any_and_times_come_back_in_utc(postgres_url: str) -> None:
    async def scenario() -> None:
        async with both(postgres_url) as engines:
            for db in engines:
                await db.execute("CREATE TABLE t (id integer PRIMARY KEY, name text, at timestamptz)")
                late = NOON.astimezone(timezone(timedelta(hours=5)))
                for number in range(4):
                    await db.execute("INSERT INTO t VALUES ($1, $2, $3)", number, f"n{number}", late)
                found = await db.query("SELECT id FROM t WHERE id = ANY ($1) ORDER BY id", [1, 3, 9])
                assert found == [(1,), (3,)], db.engine
                assert await db.query("SELECT id FROM t WHERE name = ANY ($1)", ["n2"]) == [(2,)]
                [(at,)] = await db.query("SELECT at FROM t WHERE id = 1")
                assert (at, at.tzinfo) == (NOON, UTC)  # type: ignore[attr-defined]  # It is a time.

    asyncio.run(scenario())


WRONG: list[tuple[str, tuple[object, ...]]] = [
    ("SELECT 1 / $1::integer", (0,)),
    ("SELECT a FROM missing", ()),
    ("SELECT missing FROM t", ()),
    ("SELECT CAST($1::text AS integer)", ("x",)),
    ("INSERT INTO t VALUES ($1, 'x')", ()),
    ("INSERT INTO t VALUES ($1, 'x')", (1, 2)),
    ("INSERT INTO t VALUES ($1, $2)", (1, "a\x00b")),
    ("INSERT INTO t VALUES ($1, $2)", (1, "\ud800")),
    ("INSERT INTO t VALUES ($1, 'x')", (2**31,)),
    ("INSERT INTO t VALUES ($1, 'x')", (2**200,)),
    ("INSERT INTO t VALUES ($1, 'x')", ("1",)),
    ("INSERT INTO t VALUES ($1, 'x')", (1.5,)),
    ("INSERT INTO t VALUES ($1, 'x')", (True,)),
    ("INSERT INTO t VALUES ($1, $2)", (1, 5)),
    ("INSERT INTO t VALUES ($1, $2)", (1, b"x")),
    ("INSERT INTO t (id, at) VALUES (1, $1)", (datetime(2026, 1, 1),)),  # noqa: DTZ001 -- that is what is wrong.
    ("INSERT INTO t (id, at) VALUES (1, $1)", ("2026-01-01",)),
    ("INSERT INTO t (id, d) VALUES (1, $1)", ({"a": object()},)),
    ("INSERT INTO t (id, d) VALUES (1, $1)", ({"a": "\x00"},)),
    ("INSERT INTO t (id, d) VALUES (1, $1)", ({"a": math.nan},)),
    ("INSERT INTO t (id, d) VALUES (1, $1)", ('{"a": 1}',)),
    ("INSERT INTO t (id, d) VALUES (1, $1::jsonb)", (" [1, 2]",)),
    ("INSERT INTO t (id, d) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET d = excluded.d", ("[]",)),
    ("UPDATE t SET d = $1", ("{}",)),
    ("SELECT id FROM t WHERE d @> $1", ('{"a": 1}',)),
    ("SELECT d || $1 FROM t", ('{"a": 1}',)),
    ("SELECT id FROM t WHERE id = ANY ($1)", (5,)),
    ("SELECT id FROM t WHERE id = ANY ($1)", (["x"],)),
    ("SELECT id FROM t WHERE id = ANY ($1)", ([2**40],)),
    ("SELEC 1", ()),
    ("SELECT 'open", ()),
    ("SELECT $1", (object(),)),
]
TABLE = "CREATE TABLE t (id integer PRIMARY KEY, name text, at timestamptz, d jsonb)"


TEXTS: list[tuple[str, str, object]] = [
    ("$1", "text", "text"),
    ("$1", "{half", "{half"),
    ("$1", "[1, 2", "[1, 2"),
    ("$1", '"{}"', '"{}"'),
    ("$1", "5", "5"),
    ("$1::text::jsonb", '{"a": [1]}', {"a": [1]}),
    ("to_jsonb($1::text)", '{"a": [1]}', '{"a": [1]}'),
]


@pytest.mark.parametrize(("value", "text", "stored"), TEXTS)
def test_a_text_is_a_json_string_unless_the_database_reads_it(
    postgres_url: str, value: str, text: str, stored: object
) -> None:
    """And a text that is an object or an array is refused: whoever passes it has meant the document."""

    async def scenario() -> None:
        async def within(tx: Transaction, given: str) -> None:
            await tx.execute(f"INSERT INTO t (id, d) VALUES (2, {value})", given)

        async def dumped(tx: Transaction) -> None:
            await tx.execute("INSERT INTO t (id, d) VALUES (3, $1)", '{"a": 1}')

        async with both(postgres_url) as engines:
            for db in engines:
                await db.execute(TABLE)
                await db.execute(f"INSERT INTO t (id, d) VALUES (1, {value})", text)
                await db.transact(within, text)
                assert await db.query("SELECT d FROM t ORDER BY id") == [(stored,), (stored,)]
                with pytest.raises(TransactionError, match="not the text of an object") as told:
                    await db.transact(dumped)
                assert "$1::text::jsonb" in told.value.fix

    asyncio.run(scenario())


@pytest.mark.parametrize(("sql", "args"), WRONG)
def test_what_is_wrong_is_refused_by_both_engines_alike(postgres_url: str, sql: str, args: tuple[object, ...]) -> None:
    async def scenario() -> None:
        async with both(postgres_url) as engines:
            for db in engines:
                await db.execute(TABLE)
                for call in (db.query, db.execute):
                    with pytest.raises((TransactionError, DialectError)):
                        await call(sql, *args)
                assert await db.query("SELECT count(*) FROM t") == [(0,)]

    asyncio.run(scenario())


TOKENS = """SELECT INSERT UPDATE DELETE FROM INTO VALUES SET WHERE t id name at d = + - * / ( ) , ; $1 $2 $3 $0 $99999
    'x' 'x "id" "q NULL 1 1.5 99999999999999999999 :: ::integer ::jsonb ::integer[] ::uuid ANY ARRAY [ ] {} \\
    \x00 \ud800 -- RETURNING WITH AS EXPLAIN SHOW FETCH LOCK ANALYZE CASE END NOT IN count abs f @> ->> ? % ~
    ORDER BY LIMIT ROW $$ é /*"""
WORDS = st.sampled_from(TOKENS.split())
ARGUMENTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.decimals(),
    st.datetimes(),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
    st.complex_numbers(),
    st.recursive(
        st.none() | st.floats() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=5
    ),
    st.dictionaries(st.text(max_size=3) | st.integers(), st.text(max_size=3), max_size=2),
    st.sets(st.integers(), max_size=2),
)
CALLS = st.lists(
    st.tuples(
        st.lists(WORDS, max_size=12).map(" ".join)
        | st.sampled_from([sql for sql, _ in WRONG])
        | st.sampled_from([f"SELECT $1::{kind}" for kind in (*{kind for kind, _ in VALUES}, "date", "interval", "xml")])
        | st.sampled_from(["INSERT INTO t (id, d, name, at) VALUES ($1, $2, $3, $4)", "SELECT $1 || $2"]),
        st.lists(ARGUMENTS, max_size=4),
    ),
    min_size=5,
    max_size=20,
)


def test_a_value_that_python_has_not_is_said_honestly(postgres_url: str) -> None:
    """G9: a statement that is a transaction of its own has happened when its answer cannot be read."""

    async def scenario() -> None:
        async with Database.open(postgres_url) as db:
            await db.execute("CREATE TABLE t (id integer PRIMARY KEY, at timestamptz)")
            with pytest.raises(OutcomeUnknown, match="cannot be read"):
                await db.query("INSERT INTO t VALUES (1, '20000-01-01 00:00:00Z') RETURNING at")
            with pytest.raises(TransactionError, match="cannot be read"):
                await db.query("INSERT INTO t VALUES (2, '20000-01-01 00:00:00Z') RETURNING at", key="k")
            with pytest.raises(TransactionError, match="cannot be read"):
                await db.query("SELECT at FROM t")
            assert await db.query("SELECT id FROM t") == [(1,)]

    asyncio.run(scenario())


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(CALLS)
def test_no_exception_of_the_driver_escapes(postgres_url: str, calls: list[tuple[str, list[object]]]) -> None:
    async def scenario() -> None:
        async with Database.open(postgres_url) as db:
            await db.execute("CREATE TABLE IF NOT EXISTS t (id integer, name text, at timestamptz, d jsonb)")
            for sql, args in calls:
                try:
                    await db.query(sql, *args)
                except InterlockError as error:
                    assert not isinstance(error, UnavailableError), (sql, args)  # noqa: PT017 -- any other will do.
            assert await db.query("SELECT 1") == [(1,)]

    asyncio.run(scenario())
