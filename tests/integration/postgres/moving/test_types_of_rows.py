"""Rows at both engines: put in each other's way, found by any key, read and replaced without one."""

from collections.abc import Callable, Coroutine

from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.postgres import key_noted, noted_keys
from interlock.relocate.postgres_rows import (
    count_in_postgres,
    delete_in_postgres,
    empty_in_postgres,
    postgres_rows,
    postgres_rows_of,
    put_in_postgres,
    to_postgres,
)
from interlock.relocate.rows import StoredRow, delete_in_lane, lane_rows_of, to_lane
from interlock.relocate.shape import Shape, Table
from tests.integration.postgres.moving.carrying import (
    lane_contents,
    linked,
    run,
    server_contents,
    server_pages,
    to_server,
)
from tests.integration.postgres.moving.schemas import EVERY
from tests.unit.relocate.lanes import defined

SEATS = (
    "CREATE TABLE seat (id integer PRIMARY KEY, guest text UNIQUE, hall integer, vip boolean NOT NULL)",
    "CREATE UNIQUE INDEX one_vip ON seat (hall) WHERE vip",
)
BEFORE: list[StoredRow] = [(1, "Ann", 1, 1), (2, "Bob", 1, 0), (3, "Cid", 2, 1), (4, None, 2, 0), (5, None, 1, 0)]

Puts = Callable[[Table, list[StoredRow]], Coroutine[object, object, None]]


async def exchanges(table: Table, put: Puts, remove: Puts, contents: Puts) -> None:
    """What a mover may have to put, at either engine."""
    # Two rows have exchanged a unique value.
    await put(table, [(1, "Bob", 1, 1), (2, "Ann", 1, 0)])
    await contents(table, [(1, "Bob", 1, 1), (2, "Ann", 1, 0), *BEFORE[2:]])
    # One has what another had when that one was read: the older one makes place, and comes again.
    await put(table, [(4, "Cid", 2, 0)])
    await contents(table, [(1, "Bob", 1, 1), (2, "Ann", 1, 0), (4, "Cid", 2, 0), BEFORE[4]])
    # In a partial index only those in its condition are in each other's way.
    await put(table, [(5, None, 1, 0), (6, "Eve", 1, 1)])
    await contents(table, [(2, "Ann", 1, 0), (4, "Cid", 2, 0), (5, None, 1, 0), (6, "Eve", 1, 1)])
    # Again changes nothing; a key without a row is removed.
    await put(table, [(6, "Eve", 1, 1)])
    await remove(table, [(2,), (99,)])
    await contents(table, [(4, "Cid", 2, 0), (5, None, 1, 0), (6, "Eve", 1, 1)])


def test_what_is_put_replaces_what_is_in_its_way_in_a_lane() -> None:
    async def scenario() -> None:
        lane = defined(*SEATS)
        table = shape_of_lane(lane).table("seat")
        to_lane(lane, table, BEFORE)

        async def put(table: Table, rows: list[StoredRow]) -> None:
            to_lane(lane, table, rows)

        async def remove(table: Table, keys: list[StoredRow]) -> None:
            delete_in_lane(lane, table, keys)

        async def contents(table: Table, rows: list[StoredRow]) -> None:
            assert lane_contents(lane, Shape((table,)))[table.name] == rows
            assert lane_rows_of(lane, table, [(row[0],) for row in rows]) == rows

        await exchanges(table, put, remove, contents)

    run(scenario())


def test_what_is_put_replaces_what_is_in_its_way_on_postgresql(postgres: str) -> None:
    async def scenario() -> None:
        lane = defined(*SEATS)
        table = shape_of_lane(lane).table("seat")
        to_lane(lane, table, BEFORE)
        async with linked(postgres) as link:
            schema = await to_server(lane, link)

            async def put(table: Table, rows: list[StoredRow]) -> None:
                await put_in_postgres(link, schema, table, rows)

            async def remove(table: Table, keys: list[StoredRow]) -> None:
                await delete_in_postgres(link, schema, table, keys)

            async def contents(table: Table, rows: list[StoredRow]) -> None:
                assert (await server_contents(link, schema, Shape((table,))))[table.name] == rows
                found = await postgres_rows_of(link, schema, table, [(row[0],) for row in rows])
                assert sorted(found, key=repr) == rows

            await exchanges(table, put, remove, contents)

    run(scenario())


def test_every_type_can_be_a_key_and_be_noted(postgres: str) -> None:
    """Pages, rows by key, and what a trigger notes of it."""

    async def scenario() -> None:
        lane = defined(EVERY)
        every = shape_of_lane(lane).table("every")
        kinds = [column for column in every.columns if column.type.name != "jsonb" and not column.type.is_array]
        listed = ", ".join(f'"{column.name}" {column.type}' for column in kinds)
        lane = defined(
            f"CREATE TABLE t ({listed}, PRIMARY KEY ({', '.join(column.name for column in reversed(kinds))}))"
        )
        table = shape_of_lane(lane).table("t")
        rows: list[StoredRow] = [
            (
                n - 5,
                n,
                n,
                f"{n}.50",
                f"{n}.25",
                n / 3,
                f"t{n}'\\",
                f"{n}",
                n % 2,
                bytes([n]),
                n * 10**12,
                bytes([n] * 16),
            )
            for n in range(20)
        ]
        to_lane(lane, table, rows)
        async with linked(postgres) as link:
            schema = await to_server(lane, link)
            assert (await server_contents(link, schema, Shape((table,))))["t"] == sorted(rows, key=repr)
            notes = await link.driver.fetch(f'SELECT {noted_keys(table, "t")} FROM "{schema}".t')
            keys = [key_noted(table, row[0]) for row in notes]
            assert sorted(lane_rows_of(lane, table, keys), key=repr) == sorted(rows, key=repr)
            assert len(await postgres_rows_of(link, schema, table, keys[:5])) == 5
            await delete_in_postgres(link, schema, table, keys[:5])
            assert await count_in_postgres(link, schema, table) == 15

    run(scenario())


def test_a_table_without_a_key_is_read_whole_and_replaced_whole(postgres: str) -> None:
    async def scenario() -> None:
        lane = defined("CREATE TABLE log (line text, n integer)")
        table = shape_of_lane(lane).table("log")
        rows: list[StoredRow] = [("same", 1)] * 20 + [("other", None)]
        to_lane(lane, table, rows)
        async with linked(postgres) as link:
            schema = await to_server(lane, link)
            assert (await server_contents(link, schema, Shape((table,))))["log"] == sorted(rows, key=repr)
            await empty_in_postgres(link, schema, table)
            assert (await postgres_rows(link, schema, table)).rows == []
            long: list[StoredRow] = [("x" * 1000, n) for n in range(5_000)]
            await to_postgres(link, schema, table, long)
            pages = [len(page) async for page in server_pages(link, schema, table)]
            assert sum(pages) == 5_000
            assert len(pages) > 1

    run(scenario())
