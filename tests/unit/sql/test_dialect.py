"""Translations are remembered, as many as the bound allows, and forgotten when the schema changes."""

import asyncio
import ctypes
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from interlock import Database, Engine, Event, Machine
from interlock.errors import DialectError, TransactionError, UnavailableError
from interlock.sql import parse
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


@pytest.fixture
def unloaded() -> Iterator[None]:
    """The parser's library is looked up anew, in the test and after it."""
    parse._library.cache_clear()
    yield
    parse._library.cache_clear()


def not_found(_: str) -> None:
    """Answer as for a package that is not installed."""


@pytest.mark.usefixtures("unloaded")
def test_without_the_parser_statements_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "find_spec", not_found)
    with pytest.raises(UnavailableError, match="postgast, which is not installed") as caught:
        Dialect(lambda: SCHEMA).statement("SELECT 1")
    assert "pip install postgast" in str(caught.value)


@pytest.mark.usefixtures("unloaded")
def test_a_parser_of_another_system_is_no_foreign_exception(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("libpg_query.so", "libpg_query.dylib", "pg_query.dll"):
        (tmp_path / name).write_bytes(b"made for another system")

    def found(name: str) -> ModuleSpec:
        return ModuleSpec(name, None, origin=str(tmp_path / "__init__.py"))

    monkeypatch.setattr(parse, "find_spec", found)
    with pytest.raises(UnavailableError, match="cannot load") as caught:
        Dialect(lambda: SCHEMA).statement("SELECT 1")
    assert "pip install --force-reinstall postgast" in str(caught.value)


class Lamp(StrEnum):
    OFF = "off"
    ON = "on"


@dataclass(frozen=True)
class Context:
    pass


class LampEvent(Event):
    pass


@dataclass(frozen=True)
class Press(LampEvent):
    pass


lamp = Machine("lamp", states=Lamp, context=Context, events=LampEvent, initial=Lamp.OFF, final={Lamp.ON})
lamp.on(Press, Lamp.OFF, to=Lamp.ON)


@pytest.mark.usefixtures("unloaded")
def test_workflows_run_without_the_parser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parse, "find_spec", not_found)

    async def scenario() -> None:
        async with Engine.open(f"lanes://{tmp_path}/work", machines=[lamp]) as engine:
            await engine.start(lamp, "hall", Context())
            await engine.send("hall", Press())
            assert (await engine.get("hall")).state is Lamp.ON
        async with Database.open(f"lanes://{tmp_path}/stock") as database:
            with pytest.raises(UnavailableError, match="postgast"):
                await database.query("SELECT 1")

    asyncio.run(scenario())


def test_threads_that_parse_take_no_keys_of_the_process() -> None:
    """The parser would take one for each of them, for ever; without any left other libraries fail."""
    library = ctypes.CDLL(None)

    def next_key() -> int:
        key = ctypes.c_uint()
        assert library.pthread_key_create(ctypes.byref(key), None) == 0
        assert library.pthread_key_delete(key) == 0
        return key.value

    _ = parse.parse("SELECT 1")
    before = next_key()
    for _ in range(3):
        thread = threading.Thread(target=parse.parse, args=("SELECT 1",))
        thread.start()
        thread.join()
    assert next_key() == before
