"""Transactions as their users see them: that of a function, and interactive ones.

A function given to `transact` awaits `tx.query` and `tx.execute` inside the writer. It may use nothing else: another
database would make a transaction over two (D17), which is not atomic in a crash, and the database itself would wait for
the running transaction.

An interactive transaction is begun, driven and ended by the caller, statement by statement:

    async with db.transaction() as tx:
        rows = await tx.query("SELECT n FROM counter WHERE id = $1", 1)
        await tx.execute("UPDATE counter SET n = $1 WHERE id = 1", rows[0].n + 1)

On a lane it holds the writer from its first statement to its end, so it is serializable and no other writer runs
meanwhile. So it is bounded by `transaction_timeout_s`: then it is rolled back, its next call raises TransactionEnded,
and the lane goes on. A read-only one runs on a reader with one snapshot. As on PostgreSQL a failed statement aborts
the transaction until it is rolled back, or rolled back to a savepoint.

Sections: transaction of a function, interactive transactions of an engine, on a lane, the public one.
"""

import asyncio
import contextlib
import contextvars
import itertools
import queue
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextvars import Token
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar, cast

import apsw

from interlock.clock import Clock
from interlock.errors import (
    BadUsage,
    DialectError,
    Fenced,
    InterlockError,
    MovedElsewhere,
    TransactionError,
    UnavailableError,
)
from interlock.lanes.lane import Lane
from interlock.lanes.sqlite_connection import copy_error, overdue_read, translate_error
from interlock.lanes.transact import PendingRequest, Requests
from interlock.lanes.writer import Session, Work, settle
from interlock.sql.stored_values import Answer, Row

# --- Transaction of a function ---------------------------------------------------------------------------------------

_inside: contextvars.ContextVar[tuple[str, object] | None] = contextvars.ContextVar("transaction", default=None)
"""The database whose transaction is running in this context."""


class OpenBlock(Protocol):
    """An interactive transaction whose block may be left already."""

    @property
    def is_over(self) -> bool:
        """Whether it was committed or rolled back."""
        ...


_block: contextvars.ContextVar[tuple[object, OpenBlock] | None] = contextvars.ContextVar("block", default=None)
"""The engine and the interactive transaction of the innermost block in this context."""


class TransactionEnded(TransactionError):
    """The transaction is over, and nothing of it remains: it took too long, or its database was closed or moved."""

    retry = "now"


Performing = Callable[[str, tuple[object, ...]], Callable[[], object]]
"""Returns the call that a driver performs for a statement and its arguments."""


class Transaction:
    """The running transaction. Await only its methods; it may run more than once, so do nothing outside it."""

    def __init__(self, requests: Requests, *, query: Performing, execute: Performing) -> None:
        self._requests = requests
        self._query = query
        self._execute = execute

    def query(self, sql: str, /, *args: object) -> PendingRequest[list[Row]]:
        """Run one statement; return its rows."""
        return self._requests.ask("query", sql, self._query(sql, args))

    def execute(self, sql: str, /, *args: object) -> PendingRequest[int]:
        """Run one statement; return the number of changed rows."""
        return self._requests.ask("execute", sql, self._execute(sql, args))


def inside_of(context: contextvars.Context, database: tuple[str, object]) -> contextvars.Context:
    """Return a copy of the context for a transaction of this database, so that a second run starts anew."""
    inside = context.copy()
    inside.run(_inside.set, database)
    return inside


def enter_block(engine: object, transaction: OpenBlock) -> contextvars.Token[tuple[object, OpenBlock] | None]:
    """Record that this context is inside the block of an interactive transaction."""
    return _block.set((engine, transaction))


def leave_block(token: contextvars.Token[tuple[object, OpenBlock] | None]) -> None:
    """Take back what `enter_block` recorded. A block that is left by another task has recorded nothing there."""
    with contextlib.suppress(ValueError):
        _block.reset(token)


def schema_inside() -> str | None:
    """Return the schema of PostgreSQL whose transaction runs this code; None in a lane or outside a transaction."""
    found = _inside.get()
    schema: object = None if found is None else getattr(found[1], "schema", None)
    return schema if isinstance(schema, str) else None


def timed_out_error(limit_s: float) -> TransactionEnded:
    """Return the error for an interactive transaction that was open too long."""
    return TransactionEnded(
        f"the transaction was open for more than {limit_s:g} s (transaction_timeout_s) and was rolled back.",
        why="On a lane it holds the single writer while it is open, on PostgreSQL rows that others wait for.",
        fix="Repeat it, and do slow work before or after it; or raise transaction_timeout_s.",
    )


def over_error() -> TransactionEnded:
    """Return the error for an interactive transaction that is used after its end."""
    return TransactionEnded(
        "the transaction has ended.",
        why="It was committed or rolled back, or its database was closed.",
        fix="Begin another one.",
    )


def aborted_error() -> TransactionError:
    """Return the error for a statement after one that failed, as PostgreSQL has it."""
    return TransactionError(
        "the transaction is aborted; statements are ignored until it is rolled back.",
        why="One of its statements has failed.",
        fix="Roll it back, or back to a savepoint that was defined before the failed statement.",
    )


def rolled_back_instead() -> TransactionError:
    """Return the error for the commit of an aborted transaction."""
    return TransactionError(
        "the transaction was rolled back instead of committed.",
        why="One of its statements has failed, and it was not rolled back to a savepoint since.",
        fix="Handle the error of that statement; nothing needs to be undone.",
    )


def not_a_text(sql: object, on: str) -> DialectError:
    """Return the error for a statement that is not a text; `on` is the object that runs it, for the example."""
    return DialectError(
        f"the statement is {type(sql).__name__}, not a text.",
        why="A statement is SQL as text; its values are passed beside it.",
        fix=f'Write {on}.execute("UPDATE counter SET n = $1", n).',  # noqa: S608 -- an example.
    )


def refuse_no_function(function: object) -> None:
    """Raise TransactionError unless the argument is callable."""
    if not callable(function):
        raise TransactionError(
            f"transact was given {type(function).__name__}, which cannot be called.",
            why="It runs a function inside the lane; for one statement there are execute and query.",
            fix="Write `async def function(tx, ...)` and pass the function itself, without calling it.",
        )


def refuse_inside(url: str, database: object = None) -> None:
    """Raise TransactionError inside a function given to `transact`: there only its tx may be used (D17)."""
    block = _block.get()
    if block is not None and block[0] is database and not block[1].is_over:
        raise TransactionError(
            f"{url} was used inside the block of a transaction of its own.",
            why="It would be a transaction beside the one of the block, and wait for its end.",
            fix="Use tx.execute and tx.query inside the block, or do this after it.",
        )
    found = _inside.get()
    if found is None:
        return
    around, its_own = found
    if database is its_own:
        raise TransactionError(
            f"{url} was used inside a transaction of its own.",
            why="It would be a transaction beside the one that is running: a lane's single writer is busy with that, "
            "and in PostgreSQL each could commit without the other.",
            fix="Use tx.execute and tx.query inside the function, and helpers such as stock and counter outside of it.",
        )
    raise TransactionError(
        f"{url} was used inside a transaction of {around}; a transaction cannot span databases.",
        why="Each database commits alone: after a crash one of them could have happened without the other.",
        fix="Do one after the other, each with a key, so that a repeated one happens once; or keep rows that must "
        "change together in one database.",
    )


ResultT = TypeVar("ResultT")


# --- Interactive transactions of an engine ---------------------------------------------------------------------------


class EngineTransaction(Protocol):
    """A transaction at one engine. It begins with its first call; calls are served one after the other."""

    async def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        """Run one statement."""
        ...

    async def run_many(self, sql: str, many: Sequence[Sequence[object]]) -> int:
        """Run one statement with each of several arguments; return the number of changed rows."""
        ...

    async def inspect(self, look: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Run a function on the connection of a lane. Raises BadUsage if the engine is not a lane."""
        ...

    async def savepoint(self, name: str) -> None:
        """Define a savepoint."""
        ...

    async def rollback_to(self, name: str) -> None:
        """Undo everything since the savepoint, which stays defined. It ends the abort."""
        ...

    async def release(self, name: str) -> None:
        """Forget the savepoint, and keep its changes."""
        ...

    async def commit(self) -> None:
        """Return when everything is durable. Raises TransactionError for an aborted one, which is rolled back."""
        ...

    async def rollback(self) -> None:
        """Undo everything. It may have ended already."""
        ...

    def abandon(self) -> None:
        """Roll it back soon, from any thread: its database is being closed."""
        ...


class OpensTransactions(Protocol):
    """An engine, as much of it as a transaction needs."""

    @property
    def url(self) -> str:
        """The address, without its secrets."""
        ...

    def begin(self, *, read_only: bool) -> EngineTransaction:
        """Return a transaction that begins with its first call."""
        ...


# --- On a lane -------------------------------------------------------------------------------------------------------
# The requests go through a queue to the thread that has the connection: the lane's driver, inside a work that is alone
# in its group, or a thread of the readers. That thread waits for the next request, at most until the transaction's
# time is over. So a client that vanished releases the writer then, at the latest.

_Perform = Callable[["_Served"], object]


class Host(Protocol):
    """The connection of a transaction, in the thread that has it."""

    @property
    def is_intact(self) -> bool:
        """Whether SQLite's transaction still exists: an interrupt or a full disk ends it."""
        ...

    def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        """Run one statement."""
        ...

    def inspect(self, look: Callable[[apsw.Connection], object]) -> object:
        """Run a function that reads the catalog."""
        ...

    def control(self, sql: str, *, undoes: bool) -> None:
        """Run a statement about savepoints; one that `undoes` changes takes a change of the schema back too."""
        ...


class _RolledBack(Exception):
    """Ends the work of a transaction that its caller has rolled back."""


class _Served:
    """State of a transaction in the thread of its connection."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._savepoints: list[str] = []
        self.is_aborted = False
        self.commits = False

    def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        self._refuse_aborted()
        return self._host.run(sql, args)

    def inspect(self, look: Callable[[apsw.Connection], object]) -> object:
        self._refuse_aborted()
        return self._host.inspect(look)

    def savepoint(self, name: str) -> None:
        self._refuse_aborted()
        self._host.control(f"SAVEPOINT interlock_{len(self._savepoints)}", undoes=False)
        self._savepoints.append(name)

    def rollback_to(self, name: str) -> None:
        place = self._place(name)
        self._host.control(f"ROLLBACK TO interlock_{place}", undoes=True)
        del self._savepoints[place + 1 :]
        self.is_aborted = False

    def release(self, name: str) -> None:
        self._refuse_aborted()
        place = self._place(name)
        self._host.control(f"RELEASE interlock_{place}", undoes=False)
        del self._savepoints[place:]

    def commit(self) -> None:
        if self.is_aborted:
            raise rolled_back_instead()
        self.commits = True

    def _place(self, name: str) -> int:
        for place in reversed(range(len(self._savepoints))):
            if self._savepoints[place] == name:
                return place
        raise TransactionError(f"savepoint {name!r} does not exist in this transaction.")

    def _refuse_aborted(self) -> None:
        if self.is_aborted:
            raise aborted_error()


class LaneTransaction:
    """An interactive transaction on a lane: the side of its event loop, and its loop in the thread."""

    def __init__(
        self,
        lane: Lane,
        clock: Clock,
        *,
        on_writer: Callable[[Session], Host],
        on_reader: Callable[[apsw.Connection], Host] | None,
    ) -> None:
        self._lane = lane
        self._clock = clock
        self._on_writer = on_writer
        self._on_reader = on_reader
        self._requests: queue.SimpleQueue[tuple[_Perform, asyncio.Future[object]] | None] = queue.SimpleQueue()
        self._pending: set[asyncio.Future[object]] = set()
        self._outcome: asyncio.Future[object] | None = None
        self._groups_seen = 0

    async def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        """Run one statement."""
        return cast("Answer", await self._ask(lambda served: served.run(sql, args)))

    async def run_many(self, sql: str, many: Sequence[Sequence[object]]) -> int:
        """Run one statement with each of several arguments, in one request."""
        ask = self._ask(lambda served: sum(served.run(sql, tuple(args)).changed for args in many))
        return cast("int", await ask)

    async def inspect(self, look: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Run a function that reads the catalog as the transaction sees it."""
        return cast("ResultT", await self._ask(lambda served: served.inspect(look)))

    async def savepoint(self, name: str) -> None:
        """Define a savepoint."""
        _ = await self._ask(lambda served: served.savepoint(name))

    async def rollback_to(self, name: str) -> None:
        """Undo everything since the savepoint."""
        _ = await self._ask(lambda served: served.rollback_to(name))

    async def release(self, name: str) -> None:
        """Forget the savepoint, and keep its changes."""
        _ = await self._ask(lambda served: served.release(name))

    async def commit(self) -> None:
        """Return when everything is durable (G2)."""
        if self._outcome is None:
            return  # It has asked for nothing.
        try:
            _ = await self._ask(lambda served: served.commit())
        except TransactionError:
            await self.rollback()
            raise
        _ = await asyncio.shield(self._outcome)

    async def rollback(self) -> None:
        """Undo everything, and return when the writer is free again."""
        if self._outcome is None:
            return
        self.abandon()
        self._refuse_other_loop(self._outcome)
        with contextlib.suppress(_RolledBack, InterlockError):
            _ = await asyncio.shield(self._outcome)

    def abandon(self) -> None:
        """Roll it back soon. From any thread; it may have ended already."""
        self._requests.put(None)

    async def _ask(self, perform: _Perform) -> object:
        """Have the thread perform a request, and return its answer. The first one begins the transaction."""
        if self._outcome is None:
            self._outcome = self._begin()
            self._outcome.add_done_callback(self._ended)
        self._refuse_other_loop(self._outcome)
        if self._outcome.done():
            raise self._end_error(self._outcome)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._pending.add(answer)
        self._requests.put((perform, answer))
        try:
            value = await answer
        except asyncio.CancelledError:
            self.abandon()  # Whether the statement has run is unknown to its caller.
            raise
        finally:
            self._pending.discard(answer)
        if groups := self._groups_seen:
            await self._lane.durable_up_to(groups)  # G7
            self._groups_seen = 0  # Not before: a concurrent request, or the next after a cancelled one, waits too.
        return value

    def _begin(self) -> asyncio.Future[object]:
        if self._on_reader is None:
            return self._lane.submit(Work(self._serve_writer), alone=True)
        limit_s = self._lane.settings.transaction_timeout_s
        return asyncio.ensure_future(self._lane.read(self._serve_reader, pinned_s=limit_s))

    def _ended(self, outcome: asyncio.Future[object]) -> None:
        """Fail the requests that the thread did not serve. Runs in the event loop."""
        error = None if outcome.cancelled() else outcome.exception()  # Retrieved, so that asyncio does not log it.
        for answer in list(self._pending):
            if not answer.done():
                answer.set_exception(self._end_error(outcome) if error is not None else over_error())

    @staticmethod
    def _refuse_other_loop(outcome: asyncio.Future[object]) -> None:
        if outcome.get_loop() is not asyncio.get_running_loop():
            raise BadUsage(
                "the transaction was begun in another event loop.",
                why="Its end is announced there, and cannot be awaited here.",
                fix="Use each transaction in one event loop; the database may be used in several.",
            )

    @staticmethod
    def _end_error(outcome: asyncio.Future[object]) -> Exception:
        error = None if outcome.cancelled() else outcome.exception()
        return copy_error(error) if isinstance(error, InterlockError) else over_error()

    # --- in the thread of the connection ---

    def _serve_writer(self, session: Session) -> None:
        session.ends_s = ends_s = self._clock.monotonic_s() + self._lane.settings.transaction_timeout_s
        try:
            self._serve(self._on_writer(session), ends_s)
        finally:
            session.ends_s = float("inf")  # The commit of the group has no limit.

    def _serve_reader(self, connection: apsw.Connection) -> None:
        assert self._on_reader is not None
        self._groups_seen = self._lane.committed
        ends_s = self._clock.monotonic_s() + self._lane.settings.transaction_timeout_s
        with contextlib.suppress(_RolledBack):
            self._serve(self._on_reader(connection), ends_s)

    def _serve(self, host: Host, ends_s: float) -> None:
        """Perform requests until the transaction ends. Returns to commit, raises to roll back."""
        served = _Served(host)
        while not served.commits:
            try:
                request = self._requests.get(timeout=max(0.0, ends_s - self._clock.monotonic_s()))
            except queue.Empty:
                raise timed_out_error(self._lane.settings.transaction_timeout_s) from None
            if request is None:
                raise _RolledBack
            perform, answer = request
            value: object = None
            failure: Exception | None = None
            is_interrupted = False
            try:
                value = perform(served)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is the caller's.
                # The limit of a reader began before this transaction's own, so it may interrupt just ahead of it.
                is_interrupted = self._on_reader is not None and isinstance(error.__cause__, apsw.InterruptError)
                failure = translate_error(error)
                served.is_aborted = True
            is_late = is_interrupted or self._clock.monotonic_s() > ends_s
            if failure is not None and (is_late or not host.is_intact):
                raise timed_out_error(self._lane.settings.transaction_timeout_s) if is_late else failure
            try:
                answer.get_loop().call_soon_threadsafe(settle, answer, value, failure)
            except RuntimeError as error:
                raise _RolledBack from error  # The client's event loop is closed: no caller is left.
            del value, failure, answer, request  # Not kept alive while the transaction waits.


class WriterHost:
    """The session of the writer."""

    def __init__(self, session: Session, run: Callable[[Session, str, tuple[object, ...]], Answer]) -> None:
        self._session = session
        self._run = run
        self._marks: dict[str, int] = {}
        """By savepoint, what the writer's memory of positions goes back to."""

    @property
    def is_intact(self) -> bool:
        """Whether SQLite's transaction still exists."""
        return self._session.connection.in_transaction

    def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        """Run one statement."""
        return self._run(self._session, sql, args)

    def inspect(self, look: Callable[[apsw.Connection], object]) -> object:
        """Run a function that reads the catalog."""
        return self._session.inspect(look)

    def control(self, sql: str, *, undoes: bool) -> None:
        """Run a statement about savepoints."""
        self._session.own(lambda run: run(sql))
        memory, savepoint = self._session.memory, sql.rpartition(" ")[2]
        if memory is not None and sql.startswith("SAVEPOINT "):
            self._marks[savepoint] = memory.mark
        if undoes:
            self._session.undone += 1
            if memory is not None:
                memory.undo(self._marks[savepoint])


class ReaderHost:
    """The connection of a reader. Savepoints need no work: nothing changes."""

    is_intact = True

    def __init__(
        self,
        connection: apsw.Connection,
        run: Callable[[apsw.Connection, str, tuple[object, ...]], Answer | None],
    ) -> None:
        self._connection = connection
        self._run = run

    def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        """Run one statement that only reads."""
        try:
            answer = self._run(self._connection, sql, args)
        except apsw.InterruptError as error:
            raise overdue_read() from error
        if answer is None:
            raise TransactionError(
                "a read-only transaction cannot change anything.",
                fix="Run the statement in a transaction that is not read-only.",
            )
        return answer

    def inspect(self, look: Callable[[apsw.Connection], object]) -> object:
        """Refuse: readers may not read Interlock's own tables, which hold the definitions."""
        del look
        raise TransactionError("a read-only transaction cannot read the catalog.", fix="Read it outside of it.")

    def control(self, sql: str, *, undoes: bool) -> None:
        """Do nothing."""
        del sql, undoes


# --- The public one --------------------------------------------------------------------------------------------------

_NAMES: Final = itertools.count(1)


class InteractiveTransaction:
    """One transaction, driven by its caller. Made by `Database.transaction`; it begins with its first statement."""

    def __init__(
        self,
        engine: Callable[[], OpensTransactions],
        follow: Callable[[OpensTransactions, UnavailableError], Awaitable[None]],
        *,
        read_only: bool,
    ) -> None:
        self._engine = engine
        self._follow = follow
        self._read_only = read_only
        self._begun: EngineTransaction | None = None
        self._is_over = False
        self._block: Token[tuple[object, OpenBlock] | None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it was committed or rolled back."""
        return self._is_over

    async def query(self, sql: str, /, *args: object) -> list[Row]:
        """Run one statement; return its rows."""
        return (await self.run(sql, *args)).rows

    async def execute(self, sql: str, /, *args: object) -> int:
        """Run one statement; return the number of changed rows."""
        return (await self.run(sql, *args)).changed

    async def run(self, sql: str, /, *args: object) -> Answer:
        """Run one statement; return its rows, the number of changed rows, and the names and types of its columns."""
        return await self._call(lambda tx: tx.run(sql, args))

    async def run_many(self, sql: str, many: Sequence[Sequence[object]], /) -> int:
        """Run one statement with each of several arguments; return the number of changed rows."""
        return await self._call(lambda tx: tx.run_many(sql, many))

    async def inspect(self, look: Callable[[apsw.Connection], ResultT], /) -> ResultT:
        """Run a function that reads the lane's catalog as the transaction sees it; as `Database.inspect`."""
        return await self._call(lambda tx: tx.inspect(look))

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """Enter a block whose changes are undone when it raises; the transaction goes on."""
        name = f"interlock_{next(_NAMES)}"
        await self.define_savepoint(name)
        try:
            yield
        except BaseException:
            with contextlib.suppress(InterlockError):  # A transaction that has ended has undone it.
                await self.rollback_to(name)
                await self.release(name)
            raise
        await self.release(name)

    async def define_savepoint(self, name: str) -> None:
        """As SAVEPOINT: define a savepoint, which hides an earlier one of the same name."""
        await self._call(lambda tx: tx.savepoint(name))

    async def rollback_to(self, name: str) -> None:
        """As ROLLBACK TO SAVEPOINT: undo everything since the savepoint; it stays defined."""
        await self._call(lambda tx: tx.rollback_to(name))

    async def release(self, name: str) -> None:
        """As RELEASE SAVEPOINT: forget the savepoint, and keep its changes."""
        await self._call(lambda tx: tx.release(name))

    async def commit(self) -> None:
        """Return when everything is durable. Raises OutcomeUnknown if that cannot be known."""
        await self._end(lambda tx: tx.commit())

    async def rollback(self) -> None:
        """Undo everything. Harmless after the end."""
        if not self._is_over:
            await self._end(lambda tx: tx.rollback())

    def abandon(self) -> None:
        """Roll it back soon, from any thread: its database is being closed."""
        if self._begun is not None:
            self._begun.abandon()

    async def __aenter__(self) -> Self:
        """Return the transaction. Inside the block its database is used through the transaction only."""
        self._block = enter_block(self._engine(), self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back after an error in the block. It may have been ended in the block."""
        if self._block is not None:
            leave_block(self._block)
        if error is not None:
            await self.rollback()
        elif not self._is_over:
            await self.commit()

    async def _end(self, end: Callable[[EngineTransaction], Awaitable[None]]) -> None:
        if self._is_over:
            raise over_error()
        self._is_over = True
        if self._begun is not None:
            with _ended_by_the_engine():
                await end(self._begun)

    async def _call(self, call: Callable[[EngineTransaction], Awaitable[ResultT]]) -> ResultT:
        """Make a call of the transaction. The first one begins it, and follows a move."""
        if self._is_over:
            raise over_error()
        if self._begun is not None:
            with _ended_by_the_engine():
                return await call(self._begun)
        while True:
            engine = self._engine()
            self._begun = engine.begin(read_only=self._read_only)
            try:
                return await call(self._begun)
            except UnavailableError as error:
                self._begun = None
                self._is_over = True  # Unless it can be repeated: what follows must not be committed without it.
                await self._follow(engine, error)
                self._is_over = False


@contextlib.contextmanager
def _ended_by_the_engine() -> Generator[None]:
    """Raise TransactionEnded when the engine is lost during a transaction: nothing of it has happened."""
    try:
        yield
    except (MovedElsewhere, Fenced) as error:
        raise TransactionEnded(
            f"the transaction was rolled back, because its database has left: {error.what}",
            fix="Repeat the transaction: it runs where the database is now.",
        ) from error
