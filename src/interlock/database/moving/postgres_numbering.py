"""Numbering of a table on PostgreSQL: a sequence, read and set as `numbering` describes.

It is a module of its own because it needs the driver, which is an extra: a lane moves to a lane without it.
"""

# ruff: noqa: S608 -- made of quoted names alone.

from collections.abc import Mapping
from typing import Final, cast

from interlock.database.moving.numbering import numbered
from interlock.database.moving.shape import Shape, Table
from interlock.sql.postgres.client import said
from interlock.sql.postgres.link import Link
from interlock.sql.syntax import quoted

SEQUENCE: Final = "SELECT pg_get_serial_sequence($1, $2)"


async def postgres_positions(link: Link, schema: str, shape: Shape) -> dict[str, int]:
    """Return the last number of each numbered table."""
    found: dict[str, int] = {}
    for table in numbered(shape):
        sequence = await _sequence(link, schema, table)
        with said(writing=False):
            [[position]] = await link.driver.fetch(
                f"SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {sequence}"
            )
        found[table.name] = cast("int", position)
    return found


async def set_postgres_positions(link: Link, schema: str, shape: Shape, positions: Mapping[str, int]) -> None:
    """Set the last numbers of the tables. A rollback does not undo it, which does no harm."""
    for table in numbered(shape):
        column = table.numbered
        assert column is not None
        sequence = await _sequence(link, schema, table)
        position = positions[table.name]
        with said(writing=False):
            if not table.ours:  # Numbers of our own tables have no index, and only the database assigns them.
                [[highest]] = await link.driver.fetch(
                    f"SELECT coalesce(max({quoted(column.name)}), 0) FROM {quoted(schema)}.{quoted(table.name)}"
                )
                position = max(position, cast("int", highest))
            # No number was ever assigned: the next number is the first one.
            _ = await link.driver.fetch(
                "SELECT setval($1::text::regclass, $2, $3)", sequence, max(position, 1), position > 0
            )


async def _sequence(link: Link, schema: str, table: Table) -> str:
    column = table.numbered
    assert column is not None
    with said(writing=False):
        [[sequence]] = await link.driver.fetch(SEQUENCE, f"{quoted(schema)}.{quoted(table.name)}", column.name)
    return cast("str", sequence)
