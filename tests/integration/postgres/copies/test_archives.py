"""An archive of a schema: one instant of it while others write, in one file, that makes the same schema elsewhere."""

import asyncio
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import Database
from interlock.backup.postgres_archive import MANIFEST
from interlock.backup.postgres_copies import copy_schema, restore_schema
from interlock.clock import SystemClock
from interlock.errors import BadUsage, CorruptionError, DialectError, TargetNotFound, UnusableFile
from interlock.urls import parse_postgres_url
from tests.integration.postgres.stores import somebody

EVERYTHING = """
CREATE SEQUENCE tickets START WITH 100 INCREMENT BY 5;
CREATE TABLE shelf (code text COLLATE "C" PRIMARY KEY, label varchar(20) NOT NULL DEFAULT 'none');
CREATE TABLE item (
    id bigint GENERATED ALWAYS AS IDENTITY, number serial, ticket bigint DEFAULT nextval('tickets'),
    shelf text COLLATE "C" REFERENCES shelf (code) ON DELETE CASCADE,
    price numeric(12, 4) CHECK (price >= 0), whole numeric, ratio double precision, small real,
    made timestamptz DEFAULT now(), day date, span interval, spot point,
    tags text[], data jsonb, raw bytea, other uuid, yes boolean,
    twice numeric GENERATED ALWAYS AS (price * 2) STORED,
    PRIMARY KEY (id), UNIQUE (number), EXCLUDE USING btree (ticket WITH =)
) WITH (fillfactor = 70);
CREATE INDEX item_by_label ON item (lower(shelf), price DESC) WHERE price IS NOT NULL;
CREATE UNIQUE INDEX "Item by other" ON item (other);
CREATE VIEW dear AS SELECT id, price FROM item WHERE price > 10;
CREATE TABLE empty ();
CREATE TYPE mood AS ENUM ('sad', 'it''s ok');
CREATE TABLE feeling (mood mood DEFAULT 'sad', moods mood[] CHECK (moods[1] > 'sad'::mood));
INSERT INTO feeling VALUES (DEFAULT, NULL), ('it''s ok', '{it''s ok,sad}');
INSERT INTO shelf VALUES ('a', 'A'), ('b', DEFAULT);
INSERT INTO item (shelf, price, whole, ratio, small, made, day, span, spot, tags, data, raw, other, yes) VALUES
    ('a', 12.5, 123456789012345678901234567890.5, 1e300, 0.1, '2026-01-01 10:00:00.123456+02', '2026-02-03',
     '1 day 2 h', '(1,2)', ARRAY['x', NULL, 'y"z'], '{"a": [1, null]}', '\\x00ff', gen_random_uuid(), true),
    (NULL, NULL, 'NaN', 'infinity', '-0', 'infinity', NULL, NULL, NULL, '{}', 'null', '', NULL, NULL);
"""


DEFINED = """
SELECT relname, relkind::text, reloptions::text,
    (SELECT string_agg(format('%s %s %s %s %s %s', attname, format_type(atttypid, atttypmod), attnotnull,
        pg_get_expr(adbin, adrelid), attidentity, attgenerated), ',' ORDER BY attnum)
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = c.oid AND attnum > 0),
    (SELECT string_agg(conname || pg_get_constraintdef(oid), ',' ORDER BY conname)
    FROM pg_constraint WHERE conrelid = c.oid),
    CASE relkind WHEN 'v' THEN pg_get_viewdef(oid) WHEN 'i' THEN replace(pg_get_indexdef(oid), $1, '') END
FROM pg_class c WHERE relnamespace = $1::regnamespace ORDER BY relname"""


async def made(url: str, sql: str) -> None:
    async with somebody(url) as connection:
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {parse_postgres_url(url).schema}")
        await connection.execute(sql)


async def definitions(url: str) -> list[object]:
    """What the server says of the schema, by its own names."""
    async with somebody(url) as connection:
        sql = DEFINED
        return [tuple(row) for row in await connection.fetch(sql, parse_postgres_url(url).schema)]


async def rows(url: str, *tables: str) -> list[list[str]]:
    async with somebody(url) as connection:
        return [
            sorted(str(row[0]) for row in await connection.fetch(f"SELECT t::text FROM {table} t")) for table in tables
        ]


async def copied(url: str, path: Path) -> None:
    await copy_schema(parse_postgres_url(url), path, clock=SystemClock(), watch=lambda *_: None)


async def restored(path: Path, url: str, *, force: bool = False) -> None:
    await restore_schema(path, parse_postgres_url(url), force=force, watch=lambda *_: None)


def test_everything_that_a_schema_has_comes_back(postgres_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        await made(postgres_url, EVERYTHING)
        await copied(postgres_url, tmp_path / "copy")
        there = f"{postgres_url}_there"
        await restored(tmp_path / "copy", there)
        tables = ("shelf", "item", "dear", "empty", "feeling")
        assert await rows(there, *tables) == await rows(postgres_url, *tables)
        assert await definitions(there) == await definitions(postgres_url)
        fresh = "INSERT INTO item (shelf, price) VALUES ('b', 1) RETURNING id, number, ticket, twice"
        async with somebody(postgres_url) as one, somebody(there) as other:
            assert await one.fetchrow(fresh) == await other.fetchrow(fresh)

    asyncio.run(run())


@pytest.mark.slow
def test_the_copy_is_one_instant_while_sixteen_write(postgres_url: str, tmp_path: Path) -> None:
    """Units move between two accounts in different tables; in every committed state their sum is the same."""

    async def move(tx: Database, amount: int) -> None:
        await tx.execute("UPDATE one SET n = n - $1", amount)
        await tx.execute("UPDATE other SET n = n + $1", amount)
        await tx.execute("INSERT INTO moves (amount) VALUES ($1)", amount)

    async def run() -> None:
        async with Database.open(postgres_url) as db:
            await db.execute("CREATE TABLE one (n integer NOT NULL)")
            await db.execute("CREATE TABLE other (n integer NOT NULL)")
            await db.execute("CREATE TABLE moves (id bigserial PRIMARY KEY, amount integer NOT NULL)")
            await db.execute("INSERT INTO one VALUES (1000)")
            await db.execute("INSERT INTO other VALUES (0)")
            stop, moved = asyncio.Event(), asyncio.Event()
            counts: list[int] = [0]

            async def write(number: int) -> None:
                while not stop.is_set():
                    await db.transact(move, 1 + number % 3)
                    counts[0] += 1
                    moved.set()

            writers = [asyncio.create_task(write(number)) for number in range(16)]
            before = []
            for turn in range(3):
                moved.clear()
                await moved.wait()
                before.append(counts[0])
                await copied(postgres_url, tmp_path / f"{turn}")
            stop.set()
            await asyncio.gather(*writers)
        for turn in range(3):
            there = f"{postgres_url}_{turn}"
            await restored(tmp_path / f"{turn}", there)
            async with Database.open(there) as db:
                [(one,)], [(other,)] = await db.query("SELECT n FROM one"), await db.query("SELECT n FROM other")
                [(count, amount)] = await db.query("SELECT count(*), coalesce(sum(amount), 0) FROM moves")
                assert isinstance(one, int)
                assert isinstance(other, int)
                assert isinstance(count, int)
                assert one + other == 1000
                assert other == amount
                assert count >= before[turn], "what was acknowledged before is in it"
                await db.transact(move, 1)

    asyncio.run(run())


def test_streams_are_in_it_and_keys_are_remembered(postgres_url: str, tmp_path: Path) -> None:
    async def fill(db: Database) -> None:
        await db.execute("CREATE TABLE t (n integer)")
        await db.execute("INSERT INTO t VALUES (1)", key="once")

    async def run() -> None:
        async with Database.open(postgres_url, db_per_write_stream=True) as db:
            await fill(db)
            await fill(await db.stream("alpha"))
        await copied(postgres_url, tmp_path / "copy")
        there = f"{postgres_url}_there"
        await restored(tmp_path / "copy", there)
        async with Database.open(there, db_per_write_stream=True) as db:
            for each in (db, await db.stream("alpha")):
                assert await each.execute("INSERT INTO t VALUES (1)", key="once") == 1
                assert await each.query("SELECT n FROM t") == [(1,)]

    asyncio.run(run())


def test_streams_whose_keys_are_no_names_come_back_under_the_same_name_alone(postgres_url: str, tmp_path: Path) -> None:
    place, _, name = postgres_url.rpartition("test_")
    short, long = f"{place}{'t' + name[:11]}", f"{place}{'t' * 20 + name[:11]}"

    async def fill(url: str) -> None:
        async with Database.open(url, db_per_write_stream=True) as db:
            stream = await db.stream("other-key")
            await stream.execute("CREATE TABLE t (n integer)")
            await stream.execute("INSERT INTO t VALUES (1)")

    async def run() -> None:
        await fill(short)
        await copied(short, tmp_path / "copy")
        with pytest.raises(BadUsage, match="only found below a schema"):
            await restored(tmp_path / "copy", f"{short}_elsewhere")
        await restored(tmp_path / "copy", short, force=True)
        async with Database.open(short, db_per_write_stream=True) as db:
            assert await (await db.stream("other-key")).query("SELECT n FROM t") == [(1,)]
        await fill(long)
        with pytest.raises(BadUsage, match="may be a stream"):
            await copied(long, tmp_path / "long")

    asyncio.run(run())


def test_what_is_there_is_kept_under_another_name(postgres_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        await made(postgres_url, "CREATE TABLE t (n integer); INSERT INTO t VALUES (1)")
        await copied(postgres_url, tmp_path / "copy")
        await made(postgres_url, "UPDATE t SET n = 2")
        with pytest.raises(UnusableFile, match="has tables already: t"):
            await restored(tmp_path / "copy", postgres_url)
        assert await rows(postgres_url, "t") == [["(2)"]]
        for number in (1, 2):
            await restored(tmp_path / "copy", postgres_url, force=True)
            assert await rows(postgres_url, "t") == [["(1)"]]
            aside = f"{parse_postgres_url(postgres_url).schema}__replaced_{number}"
            assert await rows(postgres_url, f"{aside}.t") == [["(2)"] if number == 1 else ["(1)"]]
        await copied(postgres_url, tmp_path / "again")
        with zipfile.ZipFile(tmp_path / "again") as file:
            assert [name for name in file.namelist() if name.startswith("1/")] == [], "what was replaced is no stream"

    asyncio.run(run())


def cut_off(data: bytes) -> bytes:
    return data[:-40]


def changed(data: bytes) -> bytes:
    return data[:60] + b"\xa5\xa5\xa5" + data[63:]


def begun(data: bytes) -> bytes:
    return data[:4]


def rewritten(data: bytes) -> bytes:
    """A whole ZIP, in which the rows are others than those that were copied."""
    archive = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(archive, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name != MANIFEST and content:
                content = content.replace(b"\x00\x00\x00\x07", b"\x00\x00\x00\x08", 1)
                assert content != before.read(name)
            after.writestr(name, content)
    return archive.getvalue()


@pytest.mark.parametrize("damage", [cut_off, changed, begun, rewritten])
def test_a_damaged_archive_is_refused_and_nothing_is_made(
    damage: Callable[[bytes], bytes], postgres_url: str, tmp_path: Path
) -> None:
    async def run() -> None:
        await made(postgres_url, "CREATE TABLE t (n integer); INSERT INTO t SELECT generate_series(1, 1000)")
        path = tmp_path / "copy"
        await copied(postgres_url, path)
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(CorruptionError, match="not a complete archive"):
            await restored(path, f"{postgres_url}_there")
        async with somebody(postgres_url) as connection:
            schema = parse_postgres_url(f"{postgres_url}_there").schema
            assert await connection.fetchval("SELECT to_regnamespace($1)::text", schema) is None

    asyncio.run(run())


def test_what_it_cannot_hold_is_named(postgres_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        await made(
            postgres_url,
            "CREATE DOMAIN code AS text; CREATE TABLE t (m code); "
            "CREATE FUNCTION f() RETURNS integer LANGUAGE sql AS 'SELECT 1'; "
            "CREATE TABLE p (n int) PARTITION BY RANGE (n)",
        )
        with pytest.raises(DialectError, match="the function f; the partitioned table p; the type code"):
            await copied(postgres_url, tmp_path / "copy")
        with pytest.raises(TargetNotFound):
            await copied(f"{postgres_url}_nowhere", tmp_path / "none")

    asyncio.run(run())
