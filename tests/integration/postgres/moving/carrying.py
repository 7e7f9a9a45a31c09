"""A whole database carried from one engine to the other, the way a mover does it, with nobody writing."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import apsw

from interlock.postgres.statements import StatementLink, opened
from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.local_lane import index_in_lane, make_in_lane
from interlock.relocate.postgres_rows import (
    postgres_positions,
    postgres_rows,
    set_postgres_positions,
    to_postgres,
)
from interlock.relocate.postgres_shape import shape_of_postgres
from interlock.relocate.rows import Digest, StoredRow, lane_positions, lane_rows, set_lane_positions, to_lane
from interlock.relocate.shape import Check, Shape, Table
from interlock.urls import parse_postgres_url
from tests.unit.relocate.lanes import empty_lane

PAGE = 7
"""Small, so that a few rows are several pages."""


@asynccontextmanager
async def linked(url: str) -> AsyncGenerator[StatementLink]:
    """A connection to PostgreSQL."""
    link = await opened(parse_postgres_url(url))
    try:
        yield link
    finally:
        await link.end(1.0)


async def empty_schema(link: StatementLink) -> str:
    """The name of a schema that nobody has used."""
    name = f"carried_{uuid.uuid4().hex}"
    await link.driver.execute(f'CREATE SCHEMA "{name}"')
    return name


async def to_server(connection: apsw.Connection, link: StatementLink) -> str:
    """Carry a lane's database to a schema of its own."""
    shape, schema = shape_of_lane(connection), await empty_schema(link)
    for table in shape.tables:
        await link.driver.execute(table.first(schema))
        for rows in lane_pages(connection, table):
            await to_postgres(link, schema, table, rows)
    for part in (Table.after, Table.last, Table.validated):
        for table in shape.tables:
            for sql in part(table, schema):
                await link.driver.execute(sql)
    await set_postgres_positions(link, schema, shape, lane_positions(connection, shape))
    return schema


async def from_server(link: StatementLink, schema: str) -> apsw.Connection:
    """Carry the database in a schema to a lane of its own."""
    shape, connection = await shape_of_postgres(link, schema), empty_lane()
    make_in_lane(connection, shape)
    for table in shape.tables:
        async for rows in server_pages(link, schema, table):
            to_lane(connection, table, rows)
    index_in_lane(connection, shape)
    set_lane_positions(connection, shape, await postgres_positions(link, schema, shape))
    assert not connection.execute("SELECT * FROM pragma_foreign_key_check").fetchall()
    return connection


def lane_pages(connection: apsw.Connection, table: Table) -> Iterator[list[StoredRow]]:
    """All rows of a table."""
    page = lane_rows(connection, table, limit=PAGE)
    yield page.rows
    while page.after is not None:
        page = lane_rows(connection, table, page.after, limit=PAGE)
        yield page.rows


async def server_pages(link: StatementLink, schema: str, table: Table) -> AsyncGenerator[list[StoredRow]]:
    """All rows of a table."""
    page = await postgres_rows(link, schema, table, limit=PAGE)
    yield page.rows
    while page.after is not None:
        page = await postgres_rows(link, schema, table, page.after, limit=PAGE)
        yield page.rows


def lane_contents(connection: apsw.Connection, shape: Shape) -> dict[str, list[StoredRow]]:
    """All rows, sorted."""
    return {
        table.name: sorted((row for page in lane_pages(connection, table) for row in page), key=repr)
        for table in shape.tables
    }


async def server_contents(link: StatementLink, schema: str, shape: Shape) -> dict[str, list[StoredRow]]:
    """All rows, sorted."""
    return {
        table.name: sorted([row async for page in server_pages(link, schema, table) for row in page], key=repr)
        for table in shape.tables
    }


def digests(contents: dict[str, list[StoredRow]]) -> dict[str, Digest]:
    """Of each table."""
    found: dict[str, Digest] = {}
    for name, rows in contents.items():
        found[name] = Digest()
        found[name].add(rows)
    return found


def skeleton(shape: Shape) -> Shape:
    """The shape without the texts of its expressions, which each engine shows in its own way."""
    return Shape(
        tuple(
            replace(
                table,
                columns=tuple(
                    replace(column, default=None if column.default is None else "…") for column in table.columns
                ),
                checks=tuple(Check(check.name, "…") for check in table.checks),
                indexes=tuple(replace(index, where=None if index.where is None else "…") for index in table.indexes),
            )
            for table in shape.tables
        )
    )


def texts(shape: Shape) -> list[str]:
    """The shape as statements, which show a difference better."""
    return [text for table in shape.tables for text in (table.create, *table.indexing)]


def run(scenario: Coroutine[object, object, None]) -> None:
    """Run it to its end."""
    asyncio.run(scenario)
