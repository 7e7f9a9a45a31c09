"""`interlock backup` and `restore` of PostgreSQL: a database as a lane and back, and workflows that go on."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import pytest

from interlock import Database, Engine, Event, Machine, StepContext
from interlock.backup.backup import back_up_database, put_back
from interlock.errors import BadUsage, ConstraintViolation, CorruptionError, DialectError, UnusableFile
from tests.unit.cli import shop

MADE = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE SEQUENCE spare START WITH 7;
CREATE TABLE feeling (
    mood mood PRIMARY KEY DEFAULT 'happy', n bigint DEFAULT nextval('spare'),
    more bigint GENERATED ALWAYS AS (n + 1) STORED
);
CREATE VIEW feelings AS SELECT mood, more FROM feeling WHERE mood > 'sad';
CREATE TABLE shelf (code text PRIMARY KEY, label varchar(20) NOT NULL DEFAULT 'none');
CREATE TABLE item (
    id serial PRIMARY KEY, shelf text REFERENCES shelf (code), price numeric(12, 4) CHECK (price >= 0), ratio float8,
    large bigint, made timestamptz, tags text[], data jsonb, raw bytea, other uuid UNIQUE, yes boolean
);
CREATE INDEX item_by_price ON item (price DESC) WHERE yes"""
ROW = (
    "a", Decimal("12.5000"), 1.5e300, 2**62, datetime(2026, 1, 1, 10, 0, 0, 123456, tzinfo=UTC), ["x", None, 'y"z'],
    {"a": [1, None]}, b"\x00\xff", UUID(int=5), True,
)  # fmt: skip
INSERT = (
    "INSERT INTO item (shelf, price, ratio, large, made, tags, data, raw, other, yes) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)


class Reminded(Enum):
    WAITING = "waiting"
    DONE = "done"


@dataclass(frozen=True)
class Reminder:
    """Nothing but a timer."""


class ReminderEvent(Event):
    """What can happen to it."""


@dataclass(frozen=True)
class Remind(ReminderEvent):
    """The timer."""


reminder = Machine(
    "reminder",
    states=Reminded,
    context=Reminder,
    events=ReminderEvent,
    initial=Reminded.WAITING,
    final={Reminded.DONE},
)
reminder.on(Remind, Reminded.WAITING, to=Reminded.DONE)
reminder.after(Reminded.WAITING, after_s=0.001, send=Remind())


async def fill(url: str) -> None:
    async with Database.open(url, db_per_write_stream=True) as db:
        for sql in MADE.split(";\n"):
            await db.execute(sql.strip())
        await db.execute("INSERT INTO shelf (code) VALUES ('a')")
        await db.execute("INSERT INTO feeling DEFAULT VALUES")
        await db.execute(INSERT, *ROW, key="first")
        await db.execute("INSERT INTO item (price) SELECT n FROM generate_series(1, 50) AS s (n)")


async def look(url: str) -> list[object]:
    async with Database.open(url) as db:
        assert await db.execute(INSERT, *ROW, key="first") == 1, "the key is remembered"
        rows = await db.query("SELECT * FROM item ORDER BY id")
        shelves = await db.query("SELECT * FROM shelf")
        feelings = await db.query("SELECT * FROM feelings")
        return [list(map(tuple, rows)), list(map(tuple, shelves)), list(map(tuple, feelings))]


async def still_holds(url: str) -> None:
    """Numbering goes on, and every constraint is there."""
    async with Database.open(url) as db:
        [(number,)] = await db.query("INSERT INTO item (price) VALUES (1) RETURNING id")
        assert number == 52
        [(spare,)] = await db.query("SELECT nextval('spare')")
        assert spare == 8
        for sql in (
            "INSERT INTO item (price) VALUES (-1)",
            "INSERT INTO item (shelf) VALUES ('nowhere')",
            "INSERT INTO item (other) SELECT other FROM item WHERE id = 1",
        ):
            with pytest.raises(ConstraintViolation):
                await db.execute(sql)


def test_a_database_of_postgresql_becomes_a_lane_and_comes_back(postgres_url: str, tmp_path: Path) -> None:
    asyncio.run(fill(postgres_url))
    expected = asyncio.run(look(postgres_url))
    copy = tmp_path / "copy.lane"
    done = back_up_database(postgres_url, copy)
    assert (done.rows, done.url, done.amount) == (54, f"lanes://{tmp_path}/copy", "54 rows")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.lane"]
    assert asyncio.run(look(f"lanes://{tmp_path}/copy")) == expected
    for there in (f"{postgres_url}_there", f"lanes://{tmp_path}/there"):
        put_back(copy, there)
        assert asyncio.run(look(there)) == expected
        asyncio.run(still_holds(there))
    with pytest.raises(UnusableFile):
        put_back(copy, f"{postgres_url}_there")
    put_back(copy, f"{postgres_url}_there", force=True)
    assert asyncio.run(look(f"{postgres_url}_there")) == expected
    copy.write_bytes(copy.read_bytes()[:9_000])
    with pytest.raises((CorruptionError, UnusableFile)):
        put_back(copy, f"{postgres_url}_never")


def test_streams_of_postgresql_are_below_the_lane(postgres_url: str, tmp_path: Path) -> None:
    async def fill_stream() -> None:
        async with Database.open(postgres_url, db_per_write_stream=True) as db:
            stream = await db.stream("alpha")
            await stream.execute("CREATE TABLE t (n integer)")
            await stream.execute("INSERT INTO t VALUES (7)")

    async def look_stream() -> object:
        async with Database.open(f"lanes://{tmp_path}/copy", db_per_write_stream=True) as db:
            return await (await db.stream("alpha")).query("SELECT n FROM t")

    asyncio.run(fill_stream())
    assert back_up_database(postgres_url, tmp_path / "copy.lane").parts == 1
    assert asyncio.run(look_stream()) == [(7,)]
    with pytest.raises(BadUsage, match="streams or shards"):
        put_back(tmp_path / "copy.lane", f"{postgres_url}_there")


def test_what_a_lane_cannot_hold_is_named_and_goes_into_an_archive(postgres_url: str, tmp_path: Path) -> None:
    async def fill_counter() -> None:
        async with Database.open(postgres_url) as db:
            await db.counter("views", kind="sharded").add(5)

    async def value(url: str) -> int:
        async with Database.open(url) as db:
            return await db.counter("views").value()

    asyncio.run(fill_counter())
    with pytest.raises(DialectError, match="counters with shards"):
        back_up_database(postgres_url, tmp_path / "copy.lane")
    assert list(tmp_path.iterdir()) == []
    back_up_database(postgres_url, tmp_path / "copy.archive")
    put_back(tmp_path / "copy.archive", f"{postgres_url}_there")
    assert asyncio.run(value(f"{postgres_url}_there")) == 5
    with pytest.raises(BadUsage, match="archive of PostgreSQL"):
        put_back(tmp_path / "copy.archive", f"lanes://{tmp_path}/there")


def test_restored_workflows_go_on_where_they_were(postgres_url: str, tmp_path: Path) -> None:
    """A step that is owed runs, a timer that is set fires, keys and history are there."""

    async def begin() -> None:
        async with Engine.open(postgres_url, machines=[shop.order, reminder], worker=False) as engine:
            await engine.start(shop.order, "owed", shop.Order())
            await engine.send("owed", shop.Submit(cents=5), key="click")
            await engine.start(shop.order, "waiting", shop.Order(note="1e22 \u00e9"))
            await engine.start(reminder, "due", Reminder())

    charged: list[str] = []

    async def charge(order: shop.Order, ctx: StepContext) -> shop.Charged:
        del order
        charged.append(ctx.key)
        return shop.Charged()

    async def go_on(url: str) -> None:
        async with Engine.open(url, machines=[shop.order, reminder], steps={shop.charge: charge}) as engine:
            await engine.wait("owed", shop.State.PACKING, timeout_s=30)
            assert (await engine.send("owed", shop.Submit(cents=5), key="click")).duplicate
            assert [row.event for row in await engine.history("owed")] == ["STARTED", "SUBMIT", "CHARGED"]
            view = await engine.of(shop.order).get("waiting")
            assert view.context.note == "1e22 \u00e9"
            await engine.wait("due", Reminded.DONE, timeout_s=30)
            await engine.start(shop.order, "new", shop.Order())
            page = await engine.find(shop.order)
            assert [each.id for each in page.items] == ["owed", "waiting", "new"]

    asyncio.run(begin())
    with pytest.raises(BadUsage, match="has workflows"):
        back_up_database(postgres_url, tmp_path / "shop.lane")
    back_up_database(postgres_url, tmp_path / "shop.archive")
    there = f"{postgres_url}_there"
    put_back(tmp_path / "shop.archive", there)
    asyncio.run(go_on(there))
    assert len(charged) == 1
