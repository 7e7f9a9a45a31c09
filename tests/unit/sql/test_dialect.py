"""Translations are remembered, as many as the bound allows, and forgotten when the schema changes."""

import pytest

from interlock.errors import DialectError, TransactionError
from interlock.sql.dialect import Dialect
from interlock.sql.schema import Schema, schema_from_rows
from tests.unit.sql.lane import SCHEMA

ROWS = [
    ("counter", "id", "bigint", 1, None, 1),
    ("counter", "n", "bigint", 1, "0", 0),
    ("numbered", "id", "INTEGER", 0, "'serial'", 1),
    ("numbered", "price", "numeric text(10,2)", 0, None, 0),
    ("foreign", "x", "INTEGER", 0, None, 1),
    ("seat", "number", "int4", 1, None, 2),
    ("seat", "hall", "int4", 1, None, 1),
]


def test_a_translation_is_made_once() -> None:
    dialect = Dialect(lambda: SCHEMA)
    assert dialect.statement("SELECT id FROM counter") is dialect.statement("SELECT id FROM counter")
    assert len(dialect) == 1


def test_the_cache_has_a_bound_and_keeps_what_is_used() -> None:
    dialect = Dialect(lambda: SCHEMA, statements_max=2)
    kept = dialect.statement("SELECT 1")
    for number in range(2, 6):
        dialect.statement(f"SELECT {number}")
        assert dialect.statement("SELECT 1") is kept
    assert len(dialect) == 2


def test_another_schema_is_another_translation() -> None:
    schema = Schema(1, SCHEMA.tables)
    dialect = Dialect(lambda: schema)
    before = dialect.statement("SELECT * FROM counter")
    schema = Schema(2, {})
    with pytest.raises(TransactionError):
        dialect.statement("SELECT * FROM counter")
    schema = Schema(3, SCHEMA.tables)
    assert dialect.statement("SELECT * FROM counter") == before


def test_a_refusal_is_not_kept() -> None:
    dialect = Dialect(lambda: SCHEMA)
    for _ in range(2):
        with pytest.raises(DialectError):
            dialect.statement("VACUUM")
    assert len(dialect) == 0


@pytest.mark.parametrize("call", ["random()", "gen_random_uuid()", "lastval()"])
def test_a_refusal_names_the_call_that_gives_another_value_each_time(call: str) -> None:
    dialect = Dialect(lambda: SCHEMA)
    for sql in (f"SELECT coalesce({call})", f"SELECT (SELECT {call})"):
        with pytest.raises(DialectError) as raised:
            dialect.statement(sql)
        assert str(raised.value).startswith(f"{call} in ")


def test_the_schema_is_read_from_the_catalog() -> None:
    schema = schema_from_rows(ROWS, version=7, references=[("numbered", "counter")])
    assert schema.version == 7
    assert set(schema.tables) == {"counter", "numbered", "seat"}
    numbered = schema.tables["numbered"]
    assert numbered.columns[0].sequence
    assert [str(column.type) for column in numbered.columns] == ["integer", "numeric(10,2)"]
    assert numbered.references == {"counter"}
    assert schema.tables["seat"].primary_key == ("hall", "number")
    assert schema.tables["counter"].columns[1].has_default
