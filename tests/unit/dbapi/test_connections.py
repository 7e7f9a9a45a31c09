"""The DB-API: PEP 249's calls over a database, one open database per address, and Interlock's errors as its own."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from interlock import dbapi, errors
from interlock.database.database import Database
from interlock.database.transactions import TransactionEnded
from interlock.dbapi import connections
from interlock.dbapi.pep249 import translate_errors


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lanes://{tmp_path}/shop"


@pytest.fixture
def connection(url: str) -> Iterator[dbapi.Connection]:
    opened = dbapi.connect(url)
    opened.cursor().execute("CREATE TABLE stock (id integer PRIMARY KEY, item text UNIQUE, n integer CHECK (n >= 0))")
    opened.commit()
    yield opened
    opened.close()


def count(connection: dbapi.Connection) -> object:
    row = connection.cursor().execute("SELECT count(*) FROM stock").fetchone()
    assert row is not None
    return row[0]


def test_the_module_says_what_it_is() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "numeric_dollar")
    assert issubclass(dbapi.IntegrityError, dbapi.DatabaseError)
    assert issubclass(dbapi.InterfaceError, dbapi.Error)
    assert not issubclass(dbapi.InterfaceError, dbapi.DatabaseError)
    assert dbapi.Connection.OperationalError is dbapi.OperationalError


def test_a_cursor_has_rows_a_description_and_a_count(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert (cursor.description, cursor.rowcount) == (None, -1)
    cursor.executemany("INSERT INTO stock VALUES ($1, $2, $3)", [(1, "a", 5), (2, "b", 6), (3, "c", None)])
    assert (cursor.rowcount, cursor.description) == (3, None)
    cursor.execute("SELECT id, item, n FROM stock WHERE id > $1 ORDER BY id", [0])
    assert [column[:2] for column in cursor.description or ()] == [("id", 23), ("item", 25), ("n", 23)]
    assert cursor.description is not None
    assert cursor.description[0][1] == dbapi.NUMBER
    assert cursor.description[1][1] == dbapi.STRING
    assert cursor.description[1][1] != dbapi.DATETIME
    assert cursor.fetchone() == (1, "a", 5)
    assert cursor.fetchmany() == [(2, "b", 6)]
    assert cursor.fetchmany(7) == [(3, "c", None)]
    assert cursor.fetchone() is None
    assert list(cursor.execute("SELECT id FROM stock ORDER BY id")) == [(1,), (2,), (3,)]
    cursor.execute("UPDATE stock SET n = 9 WHERE id < 3")
    assert cursor.rowcount == 2
    with pytest.raises(dbapi.ProgrammingError, match="no rows"):
        cursor.fetchall()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
        cursor.execute("SELECT 1")


def test_the_constructors_make_values_of_the_dialect(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    values = (dbapi.Date(2026, 1, 2), dbapi.Timestamp(2026, 1, 2, tzinfo=UTC), dbapi.Binary(b"x"))
    cursor.execute("SELECT $1::date, $2::timestamptz, $3::bytea", values)
    assert cursor.fetchall() == [values]
    assert dbapi.DateFromTicks(0) == date(1970, 1, 1)
    assert dbapi.TimestampFromTicks(1) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert dbapi.TimeFromTicks(61).minute == 1


def test_changes_are_seen_by_others_after_the_commit(connection: dbapi.Connection, url: str) -> None:
    other = dbapi.connect(url, read_only=True)
    connection.cursor().execute("INSERT INTO stock VALUES (1, 'a', 5)")
    assert connection.in_transaction
    assert count(other) == 0
    other.rollback()
    connection.commit()
    assert not connection.in_transaction
    assert count(other) == 1
    with pytest.raises(dbapi.ProgrammingError, match="read-only"):
        other.cursor().execute("DELETE FROM stock")
    other.close()
    with connection:
        connection.cursor().execute("DELETE FROM stock")
    assert count(connection) == 0


def test_leaving_the_block_with_an_error_rolls_back(connection: dbapi.Connection) -> None:
    def fail() -> None:
        with connection:
            connection.cursor().execute("INSERT INTO stock VALUES (1, 'a', 5)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert count(connection) == 0


def test_in_autocommit_each_statement_is_a_transaction(connection: dbapi.Connection) -> None:
    connection.autocommit = True
    connection.cursor().execute("INSERT INTO stock VALUES (1, 'a', 5)")
    assert not connection.in_transaction
    connection.rollback()
    assert count(connection) == 1
    with pytest.raises(dbapi.IntegrityError):
        connection.cursor().executemany("INSERT INTO stock VALUES ($1, $2, 0)", [(2, "b"), (3, "a")])
    assert count(connection) == 1
    with pytest.raises(dbapi.ProgrammingError, match="SAVEPOINT is only allowed inside a transaction"):
        connection.cursor().execute("SAVEPOINT s")
    connection.read_only = True
    assert count(connection) == 1
    with pytest.raises(dbapi.ProgrammingError, match="read-only"):
        connection.cursor().execute("DELETE FROM stock")


def test_savepoints_are_statements(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO stock VALUES (1, 'a', 5)")
    cursor.execute('SAVEPOINT "S 1"')
    with pytest.raises(dbapi.IntegrityError):
        cursor.execute("INSERT INTO stock VALUES (2, 'a', 5)")
    with pytest.raises(dbapi.ProgrammingError, match="aborted"):
        cursor.execute("SELECT 1")
    cursor.execute('rollback to savepoint "S 1";')
    cursor.execute('RELEASE SAVEPOINT "S 1"')
    cursor.execute("savepoint Two")
    cursor.execute("DELETE FROM stock")
    cursor.execute("ROLLBACK TO two")
    connection.commit()
    assert count(connection) == 1


def test_the_mode_changes_outside_of_a_transaction_only(connection: dbapi.Connection) -> None:
    _ = count(connection)
    with pytest.raises(dbapi.ProgrammingError, match="autocommit cannot change inside a transaction"):
        connection.autocommit = True
    with pytest.raises(dbapi.ProgrammingError, match="read_only cannot change inside a transaction"):
        connection.read_only = True
    connection.rollback()
    connection.autocommit = True
    assert connection.autocommit


def test_parameters_are_a_sequence(connection: dbapi.Connection) -> None:
    for wrong in ({"n": 1}, "text", 7):
        with pytest.raises(dbapi.ProgrammingError, match="not a sequence"):
            connection.cursor().execute("SELECT $1::integer", wrong)  # type: ignore[arg-type]


def test_a_closed_connection_is_refused_and_rolled_back(connection: dbapi.Connection, url: str) -> None:
    other = dbapi.connect(url)
    other.cursor().execute("INSERT INTO stock VALUES (1, 'a', 5)")
    other.close()
    other.close()
    assert other.closed
    with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
        other.cursor()
    assert count(connection) == 0


def test_all_connections_to_one_address_share_one_database(tmp_path: Path, url: str) -> None:
    one, two = dbapi.connect(url), dbapi.connect(f"lanes://{tmp_path}/../{tmp_path.name}/shop")
    assert one.database is two.database
    with pytest.raises(dbapi.ProgrammingError, match="open in this process with other settings"):
        dbapi.connect(url, transaction_timeout_s=1.0)
    one.close()
    assert count_tables(two) == 0
    two.close()
    three = dbapi.connect(url, transaction_timeout_s=1.0)  # The last one has closed it.
    assert three.database is not one.database
    three.close()
    assert not connections._databases._open


def test_each_spelling_of_an_address_is_the_same_database(connection: dbapi.Connection, tmp_path: Path) -> None:
    for spelled in (f"lanes:{tmp_path}/shop", f"LANES://{tmp_path}/shop", f"lanes://{tmp_path}/%73hop"):
        with dbapi.connect(spelled) as same:
            assert same.database is connection.database
        same.close()
    with pytest.raises(dbapi.ProgrammingError, match="not the address of a database"):
        dbapi.connect(f"lanes://{tmp_path}/sh\nop")


def test_a_statement_is_a_text(connection: dbapi.Connection) -> None:
    with pytest.raises(dbapi.ProgrammingError, match="the statement is int, not a text"):
        connection.cursor().execute(5)  # type: ignore[arg-type]


def count_tables(connection: dbapi.Connection) -> int:
    return len(connection.read_shape().tables)


def test_threads_that_connect_simultaneously_share_one_database(url: str) -> None:
    ready = threading.Barrier(8)
    opened: list[dbapi.Connection] = []

    def work() -> None:
        ready.wait()
        for _ in range(3):
            dbapi.connect(url).close()
        opened.append(dbapi.connect(url))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each.database) for each in opened}) == 1
    for each in opened:
        each.close()


def test_threads_may_share_a_connection(connection: dbapi.Connection) -> None:
    def work(first: int) -> None:
        for number in range(first, first + 10):
            connection.cursor().execute("INSERT INTO stock VALUES ($1, $2, 0)", [number, str(number)])

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection.commit()
    assert count(connection) == 40


def test_a_failed_opening_is_an_operational_error_for_each_caller(url: str) -> None:
    program = f"import interlock.dbapi, sys; c = interlock.dbapi.connect({url!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        for _ in range(2):
            with pytest.raises(dbapi.OperationalError) as caught:
                dbapi.connect(url)
            assert isinstance(caught.value.__cause__, errors.LaneOwned)
        owner.communicate()
    dbapi.connect(url).close()


def test_what_a_killed_process_had_not_committed_is_gone(connection: dbapi.Connection, url: str) -> None:
    connection.close()
    program = f"""
import os, interlock.dbapi
connection = interlock.dbapi.connect({url!r})
connection.cursor().execute("INSERT INTO stock VALUES (1, 'kept', 5)")
connection.commit()
connection.cursor().execute("INSERT INTO stock VALUES (2, 'lost', 5)")
os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
    again = dbapi.connect(url)
    assert again.cursor().execute("SELECT item FROM stock").fetchall() == [("kept",)]
    again.close()


def test_a_connection_does_not_come_through_a_fork(connection: dbapi.Connection, url: str, tmp_path: Path) -> None:
    _ = count(connection)
    child = os.fork()
    if child == 0:  # pragma: no cover -- in the child.
        code = 1
        try:
            with pytest.raises(dbapi.OperationalError, match="the database belongs to process"):
                connection.cursor().execute("SELECT 1")
            connection.close()  # It stays open in the parent.
            with pytest.raises(dbapi.OperationalError, match="was open when this process was forked"):
                dbapi.connect(url)
            other = dbapi.connect(f"lanes://{tmp_path}/other")
            other.cursor().execute("CREATE TABLE t (id integer)")
            other.commit()
            other.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    connection.commit()
    assert count(connection) == 0


def test_the_shape_is_what_the_transaction_sees(connection: dbapi.Connection) -> None:
    connection.cursor().execute("CREATE TABLE sale (id serial PRIMARY KEY, stock_id integer REFERENCES stock)")
    [stock, sale] = connection.read_shape().tables
    assert [column.name for column in stock.columns] == ["id", "item", "n"]
    assert [(each.name, each.condition) for each in stock.checks] == [("stock_n_check", "n >= 0")]
    assert [(each.name, each.columns) for each in stock.uniques] == [("stock_item_key", ("item",))]
    assert [(each.table, each.key) for each in sale.references] == [("stock", ("id",))]
    connection.rollback()
    assert [table.name for table in connection.read_shape().tables] == ["stock"]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (errors.ConstraintViolation("x"), dbapi.IntegrityError),
        (errors.TransactionError("x"), dbapi.ProgrammingError),
        (TransactionEnded("x"), dbapi.OperationalError),
        (errors.DialectError("x"), dbapi.NotSupportedError),
        (errors.LaneOwned("x"), dbapi.OperationalError),
        (errors.Fenced("x"), dbapi.OperationalError),
        (errors.MovedElsewhere("x"), dbapi.OperationalError),
        (errors.OutcomeUnknown("x"), dbapi.OperationalError),
        (errors.BadUsage("x"), dbapi.ProgrammingError),
        (errors.InternalError("x"), dbapi.InternalError),
        (errors.InterlockError("x"), dbapi.DatabaseError),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_errors_of_interlock_are_errors_of_the_module(raised: Exception, expected: type[Exception]) -> None:
    with pytest.raises(dbapi.Error) as caught, translate_errors():
        raise raised
    assert type(caught.value) is expected
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT 1 / $1::integer", [0]),
        ("SELECT 1 / 0", []),
        ("SELECT $1::text::integer", ["x"]),
        ("SELECT 'x'::integer", []),
        ("SELECT $1::integer", [2**31]),
        ("SELECT 2147483647 + $1::integer", [1]),
        ("ALTER TABLE stock ALTER COLUMN item TYPE varchar(2)", []),
        ("SELECT 'x' ~ $1::text", ["("]),
        ("SELECT $1::text::jsonb", ["{"]),
    ],
)
def test_a_value_that_its_type_does_not_have_is_a_data_error(
    connection: dbapi.Connection, sql: str, values: list[object]
) -> None:
    connection.cursor().execute("INSERT INTO stock VALUES (1, 'long', 1)")
    with pytest.raises(dbapi.DataError):
        connection.cursor().execute(sql, values).fetchall()


def fail_commit(connection: dbapi.Connection) -> None:
    """Kill the lane, as a commit does whose outcome is unknown."""
    connection.database._engine.lane._die(errors.OutcomeUnknown("the disk has failed."), ())  # type: ignore[attr-defined]


def test_a_database_that_has_stopped_is_opened_again_by_the_next_connection(
    connection: dbapi.Connection, url: str
) -> None:
    fail_commit(connection)
    again = dbapi.connect(url, autocommit=True)
    assert again.database is not connection.database
    with pytest.raises(dbapi.OperationalError, match="has stopped"):
        count(connection)
    connection.close()  # It was the last one of the old database.
    assert count(again) == 0
    with dbapi.connect(url) as third:
        assert third.database is again.database
    third.close()
    again.close()


def test_a_connection_that_is_closed_by_two_threads_is_released_once(connection: dbapi.Connection, url: str) -> None:
    closed = dbapi.connect(url)
    wait = closed._wait

    def meanwhile(function: Callable[[], Coroutine[object, object, object]]) -> object:
        for close in (closed.close, closed.terminate):
            thread = threading.Thread(target=close)
            thread.start()
            thread.join()
        return wait(function)

    closed._wait = meanwhile
    closed.close()
    join("interlock-terminate")
    assert count(connection) == 0


def join(*names: str) -> None:
    for name in names:
        for thread in threading.enumerate():
            if thread.name.startswith(name):
                thread.join()


def test_a_connection_that_is_no_longer_waited_for_is_released(url: str) -> None:
    async def scenario() -> None:
        connecting = asyncio.ensure_future(connections.connect_in_loop(lambda _: None, url))
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    asyncio.run(scenario())
    join("interlock-connect", "interlock-terminate")
    assert url not in {address.url for address in connections._databases._open}


def test_a_cancelled_wait_for_an_opening_is_not_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def opens(_url: str, **_settings: object) -> Database:
            await gate.wait()
            return await Database.open("memory:")

        monkeypatch.setattr(connections, "Database", SimpleNamespace(open=opens))
        databases, address = connections._OpenDatabases(), connections._Address("memory:", None, None)
        calls = [asyncio.ensure_future(databases.acquire(address, {})) for _ in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        gate.set()
        await asyncio.wait(calls)
        found, database = calls[2].result()
        assert found.connections == 2
        await databases.release(found)
        assert not database.is_lost
        await databases.release(found)
        assert database.is_lost

    asyncio.run(scenario())


def test_many_statements_change_nothing_on_a_read_only_connection(connection: dbapi.Connection, url: str) -> None:
    reading = dbapi.connect(url, autocommit=True, read_only=True)
    with pytest.raises(dbapi.ProgrammingError, match="read-only"):
        reading.cursor().executemany("INSERT INTO stock VALUES ($1, 'a', 5)", [[1]])
    reading.close()
    assert count(connection) == 0


def test_a_connection_that_was_forgotten_releases_the_writer(tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/forgotten"
    kept = dbapi.connect(url, autocommit=True, transaction_timeout_s=3_600.0)
    kept.cursor().execute("CREATE TABLE stock (id integer)")
    forgotten = dbapi.connect(url)
    forgotten.cursor().execute("INSERT INTO stock VALUES (1)")
    del forgotten
    gc.collect()
    kept.cursor().execute("INSERT INTO stock VALUES (2)")
    assert count(kept) == 1
    kept.close()
