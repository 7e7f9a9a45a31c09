"""The shape of a lane's database: what users wrote, from SQLite's catalog and the notes, or a refusal that names it."""

import apsw
import pytest

from interlock.errors import DialectError
from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.shape import Check, Column, Index, Reference, Table, Unique
from interlock.sql.schema import COLUMNS_QUERY
from interlock.sql.types import BOOL, INT4, INT8, NUMERIC, TEXT, TIMESTAMPTZ, Type
from tests.unit.relocate.lanes import defined

ITEM = """CREATE TABLE item (
  id bigint PRIMARY KEY, -- a comment, with a comma
  name varchar(20) NOT NULL CHECK (name <> ''),
  stock integer NOT NULL DEFAULT 0,
  price numeric DEFAULT 1.5 CHECK (price > 0.5),
  active boolean DEFAULT true,
  added timestamptz DEFAULT (now() + interval '10 minutes'),
  CONSTRAINT enough CHECK (stock >= 0 OR name IN ('a', 'it''s (so)')),
  UNIQUE (name, stock)
)"""
ORDERS = """CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  item bigint NOT NULL REFERENCES item ON DELETE CASCADE,
  before bigint REFERENCES orders (id) ON UPDATE SET NULL
)"""


def test_everything_is_told_as_it_was_written() -> None:
    lane = defined(
        ITEM,
        ORDERS,
        "CREATE INDEX by_price ON item (price DESC, id)",
        "CREATE UNIQUE INDEX active_name ON item (name) WHERE active AND stock > 3",
    )
    item, orders = shape_of_lane(lane).tables
    assert item == Table(
        "item",
        (
            Column("id", INT8, nullable=False),
            Column("name", Type("varchar", length=20), nullable=False),
            Column("stock", INT4, nullable=False, default="0"),
            Column("price", NUMERIC, default="1.5"),
            Column("active", BOOL, default="true"),
            Column("added", TIMESTAMPTZ, default="(now() + interval '10 minutes')"),
        ),
        ("id",),
        checks=(
            Check("enough", "stock >= 0 OR name IN ('a', 'it''s (so)')"),
            Check("item_name_check", "name <> ''"),
            Check("item_price_check", "price > 0.5"),
        ),
        uniques=(Unique("item_name_stock_key", ("name", "stock")),),
        indexes=(
            Index("active_name", (("name", False),), unique=True, where="active AND stock > 3"),
            Index("by_price", (("price", True), ("id", False))),
        ),
    )
    assert orders.numbered == (Column("id", INT8, nullable=False, numbered="always"),)
    assert orders.references == (
        Reference("orders_before_fkey", ("before",), "orders", ("id",), on_update="SET NULL"),
        Reference("orders_item_fkey", ("item",), "item", ("id",), on_delete="CASCADE"),
    )


def test_changes_of_tables_are_followed() -> None:
    lane = defined(
        ITEM,
        ORDERS,
        "CREATE INDEX large ON item (id) WHERE item.stock > 3",
        "ALTER TABLE item RENAME COLUMN stock TO amount",
        "ALTER TABLE item RENAME TO thing",
        "ALTER TABLE orders ADD COLUMN urgent boolean NOT NULL DEFAULT false",
        "ALTER TABLE orders RENAME COLUMN id TO number",
        "CREATE TABLE gone (id integer CHECK (id > 5))",
        "DROP TABLE gone",
        "CREATE TABLE gone (id text DEFAULT 'back')",
    )
    gone, thing, orders = shape_of_lane(lane).tables
    assert gone.columns == (Column("id", TEXT, default="'back'"),)
    assert [check.condition for check in thing.checks if check.name == "enough"] == [
        "\"amount\" >= 0 OR name IN ('a', 'it''s (so)')"
    ]
    assert [index.where for index in thing.indexes] == ['"thing"."amount" > 3']
    assert orders.columns[-1] == Column("urgent", BOOL, nullable=False, default="false")
    assert (orders.key, orders.columns[0].numbered) == (("number",), "always")
    assert {reference.table for reference in orders.references} == {"thing", "orders"}


def test_a_lane_without_notes_tells_what_it_can() -> None:
    """Lanes are older than their notes."""
    lane = defined(
        """CREATE TABLE t (id bigserial PRIMARY KEY, a text DEFAULT 'x''y', b numeric DEFAULT 1.50 CHECK (b > 0.5),
           c timestamptz DEFAULT now(), d uuid DEFAULT gen_random_uuid(), e bytea DEFAULT '\\x00ff',
           f jsonb DEFAULT '[]', g boolean DEFAULT false, h double precision DEFAULT -1.5, i timestamptz
           DEFAULT '2030-01-01', j text[] DEFAULT '{}', k integer CHECK (k >= 0 AND k < 10),
           l text CHECK (length(l) < 5 OR l IN ('a', 'b') AND NOT (g AND k IS NULL)))""",
        "CREATE INDEX some_of ON t (k) WHERE g OR k BETWEEN 3 AND 5",
        noted=False,
    )
    [table] = shape_of_lane(lane).tables
    again = defined(table.create, *table.indexing)
    first, second = (connection.execute(COLUMNS_QUERY).fetchall() for connection in (lane, again))
    assert [row for row in first if row[0] == "t"] == [row for row in second if row[0] == "t"]
    assert shape_of_lane(again).tables == (table,)


def test_what_cannot_be_told_is_named_all_at_once() -> None:
    lane = defined(
        "CREATE TABLE t (at timestamptz DEFAULT (now() + interval '1 day'), n numeric, m numeric, CHECK (n * 2 > m))",
        noted=False,
    )
    lane.execute("CREATE TABLE foreign_one (id INTEGER PRIMARY KEY, name GEOMETRY)")
    with pytest.raises(DialectError, match="3 things") as caught:
        shape_of_lane(lane)
    assert "the default of t.at" in caught.value.what
    assert "the check t_check of t" in caught.value.what
    assert "the table foreign_one: it was not made by a statement of the dialect" in caught.value.what


def test_a_note_that_says_something_else_is_not_believed() -> None:
    lane = defined("CREATE TABLE t (n integer CHECK (n > 5))", noted=False)
    lane.execute("INSERT INTO interlock_definitions (sql) VALUES ('CREATE TABLE t (n integer CHECK (n > 6))')")
    [table] = shape_of_lane(lane).tables
    assert [check.condition for check in table.checks] == ['"n" > 5']


def test_names_that_one_schema_cannot_have_twice_are_numbered() -> None:
    """A lane has no names for unique constraints; on PostgreSQL they stand beside those of tables and indexes."""
    lane = defined(
        "CREATE TABLE a (n integer, CONSTRAINT once UNIQUE (n), CHECK (n > 1), CHECK (n > 2))",
    )
    # As lanes made them before they gave names.
    lane.execute('CREATE TABLE "b" ("n" int4, CONSTRAINT "once" UNIQUE ("n"))')
    lane.execute('CREATE TABLE "c" ("n" int4, UNIQUE ("n"))')
    lane.execute('CREATE INDEX "c_n_key" ON "b" ("n")')
    a, b, c = shape_of_lane(lane).tables
    names = [unique.name for table in (a, b, c) for unique in table.uniques]
    assert names == ["once", "once_key", "c_n_key1"]
    assert [check.name for check in a.checks] == ["a_n_check", "a_n_check1"]


def test_tables_of_the_lane_are_not_part_of_it_but_keys_are() -> None:
    lane = defined("CREATE TABLE t (n integer)")
    lane.execute(
        "CREATE TABLE interlock_keys (number INTEGER PRIMARY KEY, key TEXT, digest BLOB, result BLOB, at_us INTEGER)"
    )
    lane.execute("CREATE TABLE interlock_lane (id INTEGER PRIMARY KEY, time_us INTEGER)")
    assert [(table.name, table.ours) for table in shape_of_lane(lane).tables] == [
        ("interlock_keys", True),
        ("t", False),
    ]


def test_an_empty_database_has_an_empty_shape() -> None:
    assert shape_of_lane(apsw.Connection(":memory:")).tables == ()


def test_what_migrations_define_is_told() -> None:
    lane = defined(
        "CREATE TABLE p (id bigint PRIMARY KEY, code integer UNIQUE)",
        """CREATE TABLE c (id bigint PRIMARY KEY, n integer CHECK (n > 0),
           code integer REFERENCES p (code) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
           other bigint REFERENCES p DEFERRABLE)""",
        "ALTER TABLE c ALTER n SET NOT NULL, ALTER COLUMN n SET DEFAULT 2 + 3, ADD CONSTRAINT odd CHECK (n % 2 = 1)",
        "ALTER TABLE IF EXISTS c ADD COLUMN IF NOT EXISTS at timestamptz NOT NULL DEFAULT now()",
        "CREATE TABLE x (id integer)",
        "DROP TABLE IF EXISTS x, y",
    )
    child = shape_of_lane(lane).table("c")
    assert child.columns[1] == Column("n", INT4, nullable=False, default="2 + 3")
    assert child.columns[-1] == Column("at", TIMESTAMPTZ, nullable=False, default="now()")
    assert child.checks == (Check("c_n_check", "n > 0"), Check("odd", "n % 2 = 1"))
    assert child.references == (
        Reference("c_code_fkey", ("code",), "p", ("code",), on_delete="CASCADE", deferrable=True, deferred=True),
        Reference("c_other_fkey", ("other",), "p", ("id",), deferrable=True),
    )
    again = defined(
        *(statement for table in shape_of_lane(lane).tables for statement in (table.create, *table.indexing))
    )
    assert shape_of_lane(again).tables == shape_of_lane(lane).tables
    assert "DEFERRABLE INITIALLY DEFERRED NOT VALID" in child.last("s")[0]


def test_the_expressions_of_an_index_are_known() -> None:
    statements = "CREATE TABLE t (a text, b text)", "CREATE INDEX ON t (lower(a) DESC, b)"
    [guessed] = shape_of_lane(defined(*statements, noted=False)).tables
    assert guessed.indexes[0].columns[0] == ('((lower("a")))', True)
    lane = defined(*statements)
    [table] = shape_of_lane(lane).tables
    assert table.indexes == (Index("t_lower_b_idx", (("(lower(a))", True), ('"b"', False)), computed=True),)
    assert table.indexing == ('CREATE INDEX "t_lower_b_idx" ON "t" ((lower(a)) DESC, "b")',)


def test_an_index_whose_expression_is_unknown_keeps_a_database_from_moving() -> None:
    lane = defined("CREATE TABLE t (a jsonb)", "CREATE INDEX ON t ((a -> 'b' ->> 'c'))", noted=False)
    with pytest.raises(DialectError, match="the index t_expr_idx: its PostgreSQL text is not known"):
        shape_of_lane(lane)


def test_generated_columns_and_defaults_of_sequences_are_known_without_notes() -> None:
    lane = defined(
        "CREATE SEQUENCE s START WITH 5",
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE t (a integer DEFAULT nextval('s'), b integer GENERATED ALWAYS AS (a + 1) STORED, "
        "m mood DEFAULT 'happy')",
        noted=False,
    )
    shape = shape_of_lane(lane)
    assert shape.before == (
        "CREATE TYPE \"mood\" AS ENUM ('sad', 'happy')",
        'CREATE SEQUENCE "s" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 5',
    )
    again = defined(*shape.before, shape.table("t").create)
    assert shape_of_lane(again) == shape


def test_a_view_names_no_schema_and_comes_after_those_that_it_reads() -> None:
    lane = defined(
        "CREATE TABLE t (public text)",
        "CREATE VIEW z AS SELECT t.public, 'public.t' AS x FROM public.t",
        "CREATE VIEW a AS SELECT public FROM public.z",
    )
    assert [view.create for view in shape_of_lane(lane).views] == [
        "CREATE VIEW z AS SELECT t.public, 'public.t' AS x FROM t",
        "CREATE VIEW a AS SELECT public FROM z",
    ]


def test_a_generated_column_whose_expression_is_unknown_keeps_a_database_from_moving() -> None:
    lane = defined("CREATE TABLE t (a numeric, b numeric GENERATED ALWAYS AS (a * 2) STORED)", noted=False)
    lane.execute("CREATE VIEW foreign_one AS SELECT 1")
    with pytest.raises(DialectError, match="2 things") as caught:
        shape_of_lane(lane)
    assert "the generated column t.b" in caught.value.what
    assert "the view foreign_one: it was not made by a statement of the dialect" in caught.value.what
