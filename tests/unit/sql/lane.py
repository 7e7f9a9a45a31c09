"""A schema for tests of translation: what a lane would read from its catalog."""

from datetime import UTC, datetime
from uuid import UUID

from interlock.sql.dialect import translate
from interlock.sql.functions.sequence_positions import Positions
from interlock.sql.registered_functions import Sources
from interlock.sql.schema import Column, NumberSequence, Schema, Table
from interlock.sql.stored_values import Statement
from interlock.sql.types import BOOL, FLOAT8, INT4, INT8, JSONB, NUMERIC, TEXT, Type

COUNTER = Table(
    "counter",
    (Column("id", INT8, nullable=False), Column("n", INT8, nullable=False), Column("i", INT4)),
    primary_key=("id",),
)
ITEM = Table(
    "item",
    (
        Column("id", INT8, nullable=False, has_default=True, sequence=NumberSequence("item_id_seq", "serial")),
        Column("name", Type("varchar", length=5)),
        Column("price", NUMERIC),
        Column("weight", FLOAT8),
        Column("ok", BOOL),
        Column("note", TEXT),
        Column("document", JSONB),
    ),
    primary_key=("id",),
    references=frozenset({"counter"}),
)
SCHEMA = Schema(1, {table.name: table for table in (COUNTER, ITEM)})


SOURCES = Sources(
    now=lambda: datetime(2030, 1, 1, tzinfo=UTC),
    random=lambda: 0.5,
    uuid=lambda: UUID(int=1),
    positions=Positions(lambda _: None),
)


def translated(sql: str) -> Statement:
    return translate(sql, SCHEMA)
