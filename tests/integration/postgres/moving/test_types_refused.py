"""What a lane could not take of a schema of PostgreSQL is named before anything is copied, all of it at once."""

import pytest

from interlock.errors import DialectError
from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.postgres import refuse_untaken
from interlock.relocate.postgres_rows import postgres_rows
from interlock.relocate.postgres_shape import shape_of_postgres
from interlock.relocate.rows import lane_positions
from interlock.relocate.shape import Column
from interlock.sql.types import INT4
from tests.integration.postgres.moving.carrying import empty_schema, from_server, linked, run
from tests.unit.relocate.lanes import defined

TRIGGER = """
CREATE TABLE t (a integer); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()"""
REFUSED = [
    ("CREATE TABLE t (d real)", "the column t.d"),
    ("CREATE TABLE t (d numeric(3,-1))", "the column t.d"),
    ("CREATE TABLE t (d inet)", "the column t.d"),
    ('CREATE TYPE "Mood" AS ENUM (\'a\'); CREATE TABLE t (d "Mood")', "the name 'Mood' of a type"),
    ("CREATE DOMAIN positive AS integer CHECK (VALUE > 0); CREATE TABLE t (d positive)", "the type positive"),
    ("CREATE TABLE t (a integer, b integer GENERATED ALWAYS AS (a + 1) VIRTUAL)", "the column t.b: it is VIRTUAL"),
    ("CREATE TABLE t (a inet, b text GENERATED ALWAYS AS (host(a)) STORED)", "the generated column t.b"),
    ("CREATE TABLE t (a text COLLATE ucs_basic)", "the column t.a: it is sorted by the collation ucs_basic"),
    ("CREATE TABLE t (a integer DEFAULT pg_backend_pid())", "the default of t.a, pg_backend_pid()"),
    ('CREATE SEQUENCE "S"; CREATE TABLE t (a integer DEFAULT nextval(\'"S"\'))', "the sequence name 'S'"),
    ("CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY (INCREMENT 2) PRIMARY KEY)", "the sequence t_a_seq"),
    ("CREATE TABLE t (a text CHECK (a SIMILAR TO 'x'))", "the check t_a_check of t"),
    (
        "CREATE TABLE t (a integer); ALTER TABLE t ADD CHECK (a > 0) NOT VALID",
        "the constraint t_a_check of t: it was not",
    ),
    ("CREATE TABLE t (a integer UNIQUE DEFERRABLE)", "the constraint t_a_key of t: it can be deferred"),
    ("CREATE TABLE t (a integer UNIQUE NULLS NOT DISTINCT)", "the constraint t_a_key of t: it takes NULLs for equal"),
    ("CREATE TABLE t (a int4range, EXCLUDE USING gist (a WITH &&))", "the constraint t_a_excl of t"),
    (
        "CREATE TABLE p (a integer PRIMARY KEY); CREATE TABLE t (b integer REFERENCES p ON DELETE SET DEFAULT)",
        "SET DEFAULT",
    ),
    ("CREATE TABLE t (a jsonb); CREATE INDEX i ON t USING gin (a)", "the index i: it is of the kind gin"),
    ("CREATE TABLE t (a text); CREATE INDEX i ON t (reverse(a))", "the index i, reverse(a)"),
    ("CREATE TABLE t (a text, b text); CREATE INDEX i ON t (a) INCLUDE (b)", "the index i: it has extras"),
    ("CREATE TABLE t (a text); CREATE INDEX i ON t (a text_pattern_ops)", "the index i: it has an operator class"),
    ("CREATE TABLE t (a integer); CREATE VIEW v AS SELECT a, ctid FROM t", "the view v"),
    ("CREATE TABLE t (a integer); CREATE VIEW v AS SELECT a FROM t ORDER BY pg_backend_pid()", "the view v"),
    ("CREATE TABLE t (a integer); CREATE MATERIALIZED VIEW v AS SELECT a FROM t", "it is a materialized view"),
    ("CREATE TABLE t (a integer) PARTITION BY LIST (a)", "the table t: it is a partitioned table"),
    ("CREATE TABLE p (a integer); CREATE TABLE t () INHERITS (p)", "the table t: it is a part or a parent"),
    ("CREATE UNLOGGED TABLE t (a integer)", "the table t: it is unlogged"),
    ("CREATE TABLE t (a integer); ALTER TABLE t ENABLE ROW LEVEL SECURITY", "the table t: it has row level security"),
    ("CREATE TABLE t (a integer); CREATE RULE r AS ON DELETE TO t DO INSTEAD NOTHING", "the table t: it has rules"),
    (TRIGGER, "the trigger g of t"),
    ('CREATE TABLE "T" (a integer); CREATE TABLE t (a integer)', "differs from it in case alone"),
    ("CREATE TABLE t ()", "the table t: a table of 0 columns"),
]


@pytest.mark.slow
def test_what_a_lane_could_not_take_is_named(postgres: str) -> None:
    async def scenario() -> None:
        async with linked(postgres) as link:
            for sql, named in REFUSED:
                schema = await empty_schema(link)
                await link.driver.execute(f'SET search_path = "{schema}"; {sql}')
                with pytest.raises(DialectError, match="cannot move") as caught:
                    await shape_of_postgres(link, schema)
                assert named in caught.value.what

    run(scenario())


def test_everything_is_named_at_once(postgres: str) -> None:
    async def scenario() -> None:
        async with linked(postgres) as link:
            schema = await empty_schema(link)
            await link.driver.execute(
                f"SET search_path = \"{schema}\"; CREATE TABLE t (a money, b text CHECK (b SIMILAR TO 'x'), c inet); "
                "CREATE MATERIALIZED VIEW v AS SELECT a FROM t; CREATE INDEX i ON t (reverse(b))"
            )
            with pytest.raises(DialectError, match="5 things") as caught:
                await shape_of_postgres(link, schema)
            for part in ("t.a", "t.c", "t_b_check", "the table v", "the index i"):
                assert part in caught.value.what

    run(scenario())


def test_what_differs_without_loss_is_said(postgres: str) -> None:
    async def scenario() -> None:
        async with linked(postgres) as link:
            schema = await empty_schema(link)
            await link.driver.execute(
                f'SET search_path = "{schema}"; CREATE TABLE t (a text COLLATE "C", b integer DEFAULT NULL); '
                "CREATE TABLE interlock_gate ()"
            )
            shape = await shape_of_postgres(link, schema)
            assert shape.notes == ("t.a would come back without COLLATE 'C'.",)
            [table] = shape.tables
            assert table.columns[1] == Column("b", INT4)

    run(scenario())


def test_what_postgresql_could_not_take_is_named_before_there_are_rows(postgres: str) -> None:
    """A lane is more generous in two places; the server says so on empty tables, and nothing is left of the look."""

    async def scenario() -> None:
        lane = defined(
            "CREATE TABLE t (id integer PRIMARY KEY, at timestamptz UNIQUE)",
            "CREATE INDEX late ON t (at) WHERE extract(year FROM at) > 2000",
            "CREATE INDEX later ON t (at) WHERE date_trunc('day', at) = at",
            "CREATE INDEX fine ON t (at) WHERE at > '2020-01-01'",
        )
        shape = shape_of_lane(lane)
        async with linked(postgres) as link:
            schema = await empty_schema(link)
            await link.driver.execute(f"BEGIN; {shape.table('t').first(schema)}")
            with pytest.raises(DialectError, match="2 things") as caught:
                await refuse_untaken(link, schema, shape)
            assert '"late"' in caught.value.what
            assert '"later"' in caught.value.what
            await link.driver.execute("COMMIT")
            table = (await shape_of_postgres(link, schema)).table("t")
            assert (table.indexes, table.uniques) == ((), ())

    run(scenario())


def test_a_document_that_a_lane_could_not_read_again_is_refused(postgres: str) -> None:
    async def scenario() -> None:
        async with linked(postgres) as link:
            for document, fits in (
                ("[" * 200 + "]" * 200, True),
                ("[" * 201 + "]" * 201, False),
                (f'["{"[" * 500}\\"{"1" * 2000}"]', True),
                (f"[{'1' * 2000}]", False),
                ("[[]" + ", []" * 500 + "]", True),
            ):
                schema = await empty_schema(link)
                await link.driver.execute(f'SET search_path = "{schema}"; CREATE TABLE t (d jsonb)')
                _ = await link.driver.fetch("INSERT INTO t VALUES ($1)", document)
                table = (await shape_of_postgres(link, schema)).table("t")
                if fits:
                    assert (await postgres_rows(link, schema, table)).rows == [(document,)]
                else:
                    with pytest.raises(DialectError, match="a document has no place in a lane"):
                        await postgres_rows(link, schema, table)

    run(scenario())


def test_where_numbers_begin_and_what_a_key_is_called_survive(postgres: str) -> None:
    async def scenario() -> None:
        async with linked(postgres) as link:
            schema = await empty_schema(link)
            await link.driver.execute(
                f'SET search_path = "{schema}"; CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY (START 1000) '
                "CONSTRAINT the_key PRIMARY KEY, n integer); CREATE TABLE u (id integer CONSTRAINT other PRIMARY KEY)"
            )
            shape = await shape_of_postgres(link, schema)
            lane = await from_server(link, schema)
            assert lane_positions(lane, shape) == {"t.id": 999}
            assert shape_of_lane(lane) == shape
            assert [table.key_name for table in shape.tables] == ["the_key", "other"]

    run(scenario())


def test_a_schema_that_is_not_there_has_no_tables(postgres: str) -> None:
    async def scenario() -> None:
        async with linked(postgres) as link:
            assert (await shape_of_postgres(link, "nobody's")).tables == ()

    run(scenario())
