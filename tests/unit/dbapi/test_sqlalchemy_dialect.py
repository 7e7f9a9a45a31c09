"""SQLAlchemy's dialect: addresses, isolation, read-only connections, documents, streams, and a lost database."""

import asyncio
import gc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from interlock import dbapi, errors
from interlock.dbapi import connections
from interlock.dbapi.sqlalchemy_dialect import AsyncLaneDialect, LaneDialect

for scheme in ("lanes", "memory", "s3"):
    registry.register(f"interlock.{scheme}", "interlock.dbapi.sqlalchemy_dialect", "LaneDialect")

DATA = sa.MetaData()
ITEM = sa.Table(
    "item",
    DATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(20), unique=True),
    sa.Column("doc", JSONB(none_as_null=True)),
    sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.now()),
    sa.Index("item_backwards", sa.desc("name")),
)
PART = sa.Table(
    "part",
    DATA,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column(
        "item_id",
        sa.ForeignKey("item.id", ondelete="CASCADE", onupdate="SET NULL", deferrable=True, initially="DEFERRED"),
    ),
    sa.Column("prices", sa.ARRAY(sa.Numeric)),
    sa.Column("labels", sa.ARRAY(sa.String(5))),
    sa.Column("shares", sa.ARRAY(sa.Numeric(5, 2))),
    sa.Column("price", sa.Numeric(8, 3)),
    sa.Column("hour", sa.Time),
    sa.CheckConstraint("item_id > 0", name="positive"),
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"interlock+lanes://{tmp_path}/shop"


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(url)
    DATA.create_all(made)
    yield made
    made.dispose()


@pytest.mark.parametrize(
    ("url", "address", "settings"),
    [
        ("interlock+lanes:///var/shop/stock", "lanes:///var/shop/stock", {}),
        ("interlock+memory://", "memory:", {}),
        ("interlock+s3://bucket/shop?region=eu", "s3://bucket/shop?region=eu", {}),
        (
            "interlock+lanes:///x/y?transaction_timeout_s=2.5&queue_max=7&db_per_write_stream=true",
            "lanes:///x/y",
            {"transaction_timeout_s": 2.5, "queue_max": 7, "db_per_write_stream": True},
        ),
    ],
)
def test_the_address_is_that_of_the_database(url: str, address: str, settings: dict[str, float]) -> None:
    dialect = LaneDialect()  # type: ignore[no-untyped-call]
    assert dialect.create_connect_args(make_url(url)) == ([address], settings)


@pytest.mark.parametrize("query", ["queue_max=abc", "queue_max=1&queue_max=2"])
def test_a_setting_in_the_address_is_one_number(query: str) -> None:
    dialect = LaneDialect()  # type: ignore[no-untyped-call]
    with pytest.raises(sa.exc.ArgumentError, match="queue_max in the address"):
        dialect.create_connect_args(make_url(f"interlock+lanes:///x/y?{query}"))


def test_an_async_engine_takes_the_same_address() -> None:
    assert LaneDialect.get_async_dialect_cls(make_url("interlock+memory://")) is AsyncLaneDialect


def test_connections_of_a_pool_share_one_database(engine: sa.Engine) -> None:
    with engine.connect() as one, engine.connect() as two:
        assert driver(one).database is driver(two).database
    engine.dispose()
    assert not connections._databases._open


def driver(connection: sa.Connection) -> dbapi.Connection:
    found = connection.connection.dbapi_connection
    assert isinstance(found, dbapi.Connection)
    return found


def test_autocommit_is_an_isolation_level_and_every_other_is_serializable(engine: sa.Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.insert(ITEM).values(name="a"))
        assert connection.get_isolation_level() == "AUTOCOMMIT"
        assert not driver(connection).in_transaction
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as other:
            assert other.scalar(sa.select(sa.func.count()).select_from(ITEM)) == 1
            assert other.get_isolation_level() == "SERIALIZABLE"
            assert driver(other).in_transaction


def test_a_read_only_connection_stops_no_writer(engine: sa.Engine) -> None:
    reading = engine.execution_options(postgresql_readonly=True)
    with reading.connect() as one, engine.connect() as two:
        assert one.scalar(sa.select(sa.func.count()).select_from(ITEM)) == 0
        two.execute(sa.insert(ITEM).values(name="a"))
        two.commit()
        assert one.scalar(sa.select(sa.func.count()).select_from(ITEM)) == 0
        with pytest.raises(sa.exc.ProgrammingError, match="read-only"):
            one.execute(sa.insert(ITEM).values(name="b"))
    with engine.connect() as again:
        again.execute(sa.insert(ITEM).values(name="b"))
        again.commit()


def test_documents_are_documents(engine: sa.Engine) -> None:
    documents: list[object] = [{"a": [1, None, {"b": "ü"}]}, [], "text", 1.5, True, JSONB.NULL, None]
    with engine.begin() as connection:
        connection.execute(sa.insert(ITEM), [{"doc": each} for each in documents])
        found = connection.execute(sa.select(ITEM.c.doc, ITEM.c.doc.is_(None)).order_by(ITEM.c.id)).all()
    assert [tuple(row) for row in found] == [*((each, False) for each in documents[:5]), (None, False), (None, True)]


def test_floats_and_decimals_go_into_columns_of_each_other(engine: sa.Engine) -> None:
    data = sa.MetaData()
    table = sa.Table("weighed", data, sa.Column("price", sa.Numeric), sa.Column("weight", sa.Double))
    data.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(table), {"price": 15.7563, "weight": Decimal("1.5")})
        connection.execute(sa.insert(table), {"price": None, "weight": None})
        [row, empty] = connection.execute(sa.select(table).order_by(table.c.price)).all()
    assert (tuple(row), type(row.price), tuple(empty)) == ((Decimal("15.7563"), 1.5), Decimal, (None, None))


def test_errors_are_those_of_sqlalchemy(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.execute(sa.insert(ITEM).values(name="a"))
        with pytest.raises(sa.exc.IntegrityError) as caught, connection.begin_nested():
            connection.execute(sa.insert(ITEM).values(name="a"))
        assert isinstance(caught.value.orig, dbapi.IntegrityError)
        connection.commit()
        with pytest.raises(sa.exc.ProgrammingError, match="there is no table"):
            connection.execute(sa.text("SELECT * FROM missing"))
        connection.rollback()
        with pytest.raises(sa.exc.NotSupportedError):
            connection.execute(sa.text("LISTEN channel"))


def test_tables_are_reflected_as_they_were_made(engine: sa.Engine) -> None:
    found = sa.MetaData()
    found.reflect(engine)
    inspector = sa.inspect(engine)
    assert set(found.tables) == {"item", "part"}
    for table in (ITEM, PART):
        for column in table.columns:
            other = found.tables[table.name].columns[column.name]
            compiled = column.type.compile(engine.dialect)
            assert (other.type.compile(engine.dialect), other.nullable) == (compiled, column.nullable)
    assert inspector.get_columns("part")[0]["identity"]["always"]
    [key] = inspector.get_foreign_keys("part")
    assert key["options"] == {
        "ondelete": "CASCADE",
        "onupdate": "SET NULL",
        "deferrable": True,
        "initially": "DEFERRED",
    }
    assert [each["name"] for each in inspector.get_check_constraints("part")] == ["positive"]
    assert inspector.get_pk_constraint("item")["name"] == "item_pkey"
    assert {each["name"] for each in inspector.get_indexes("item")} == {"item_backwards", "item_name_key"}
    assert inspector.has_table("item")
    assert not inspector.has_table("item", schema="elsewhere")
    assert inspector.get_schema_names() == ["public"]
    assert inspector.get_view_names() == []
    assert inspector.get_sequence_names() == ["item_id_seq", "part_id_seq"]
    with pytest.raises(sa.exc.NoSuchTableError):
        inspector.get_columns("missing")


def test_a_sequence_is_made_once_and_numbers_rows(engine: sa.Engine) -> None:
    data = sa.MetaData()
    numbers = sa.Sequence("numbers", start=7, metadata=data)
    table = sa.Table(
        "numbered", data, sa.Column("id", sa.BigInteger, numbers, primary_key=True), sa.Column("n", sa.Integer)
    )
    for _ in range(2):
        data.create_all(engine)
    with engine.begin() as connection:
        assert [connection.execute(sa.insert(table).values(n=n)).inserted_primary_key for n in (1, 2)] == [(7,), (8,)]
    data.drop_all(engine)
    assert "numbers" not in sa.inspect(engine).get_sequence_names()


def test_a_pool_that_pings_takes_no_writer(url: str, engine: sa.Engine) -> None:
    other = sa.create_engine(url, pool_pre_ping=True)
    for _ in range(2):
        with other.connect() as connection:
            assert not driver(connection).in_transaction
    other.dispose()


def test_a_lost_database_is_opened_again(engine: sa.Engine) -> None:
    lost: Any = dbapi.OperationalError("x")
    lost.__cause__ = errors.OutcomeUnknown("x")
    assert engine.dialect.is_disconnect(lost, None, None)
    busy: Any = dbapi.OperationalError("x")
    busy.__cause__ = errors.Overloaded(1.0)
    assert not engine.dialect.is_disconnect(busy, None, None)
    with engine.connect() as connection:
        before = driver(connection).database
        lane = before._engine.lane  # type: ignore[attr-defined]
        lane._die(errors.OutcomeUnknown("the disk has failed."), ())
        with pytest.raises(sa.exc.OperationalError) as caught:
            connection.execute(sa.select(1))
        assert caught.value.connection_invalidated
    with engine.connect() as connection:
        assert connection.scalar(sa.select(1)) == 1
        assert driver(connection).database is not before


def test_a_ping_finds_a_lost_database(url: str, engine: sa.Engine) -> None:
    engine.dispose()
    pinging = sa.create_engine(url, pool_pre_ping=True)
    with pinging.connect() as connection:
        driver(connection).database._engine.lane._die(errors.OutcomeUnknown("the disk has failed."), ())  # type: ignore[attr-defined]
    with pinging.connect() as connection:
        assert connection.scalar(sa.select(1)) == 1
    pinging.dispose()


def test_an_async_engine_streams_and_reflects(url: str, engine: sa.Engine) -> None:
    async def scenario() -> None:
        made = create_async_engine(url)
        async with made.begin() as connection:
            await connection.execute(sa.insert(ITEM), [{"name": str(n)} for n in range(5)])
        async with made.connect() as connection:
            result = await connection.stream(sa.select(ITEM.c.name).order_by(ITEM.c.id))
            assert [row[0] async for row in result] == list("01234")
            names = await connection.run_sync(lambda given: sa.inspect(given).get_table_names())
            assert set(names) == {"item", "part"}
        await made.dispose()

    asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore:The garbage collector is trying to clean up")
def test_an_async_connection_that_was_forgotten_releases_the_writer(url: str, engine: sa.Engine) -> None:
    async def scenario() -> None:
        made = create_async_engine(url + "?transaction_timeout_s=3600")
        connection = await made.connect()
        await connection.execute(sa.insert(ITEM).values(name="lost"))
        del connection
        gc.collect()
        async with made.begin() as other:
            assert await other.scalar(sa.select(sa.func.count()).select_from(ITEM)) == 0
        await made.dispose()

    engine.dispose()
    asyncio.run(scenario())


@pytest.mark.parametrize("address", ["interlock+lanes://./shop", "interlock+lanes://~/shop"])
def test_an_address_may_be_relative_or_below_the_home_directory(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    made = sa.create_engine(address)
    with made.begin() as connection:
        assert connection.scalar(sa.text("SELECT 1")) == 1
    made.dispose()
    assert (tmp_path / "shop.lane").exists()
