"""Users' statements on a connection: any text, in one schema at a time, without state after a call.

Such a connection differs from the store's own in three ways. The planner keeps its settings: these are not our
statements. Names are looked up in the schema of the database only. And the number of prepared statements is bounded,
because a program may have any number of texts.

Where a connection is shared by several schemas, or by a pooler, the settings go with each transaction instead.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# asyncpg has no types of its own; mypy --strict looks at what is ours.

import contextlib
import json
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, Protocol, cast
from uuid import UUID

from interlock.errors import ConstraintViolation, InterlockError, OutcomeUnknown, TransactionError
from interlock.postgres.pool import Driver, Link, driver_of
from interlock.postgres.translate_errors import (
    CONNECTION_STATES,
    LostConnection,
    asyncpg,
    is_stale,
    state_of,
    translate_errors,
)
from interlock.sql.stored_values import (
    TIME_MAX,
    TIME_MIN,
    Answer,
    Encoder,
    Row,
    encoder,
    json_text,
    refuse_dumped,
    row_class,
)
from interlock.sql.types import PLAIN_TYPES, InvalidValue
from interlock.urls import PostgresAddress

# --- Values: the same Python types as on a lane, and the same refusals -----------------------------------------------
# A parameter is checked by the lane's own encoder of its type before the driver sees it, so that both engines take the
# same values and refuse the others in the same words. The driver keeps JSON as text; here it is a document. Types that
# a lane does not have are left to the driver.

Send = Callable[[object, int], object]
Receive = Callable[[object], object]


class TypeOf(Protocol):
    """A type, as the driver tells it."""

    @property
    def name(self) -> str:
        """PostgreSQL's name of it."""
        ...


def encoders_of(kinds: Sequence[TypeOf]) -> tuple[Send | None, ...]:
    """Return the conversion of each parameter for the driver; None for one that needs none."""
    return tuple([_encoder_of(kind.name) for kind in kinds])


def decoders_of(kinds: Sequence[TypeOf]) -> tuple[Receive | None, ...] | None:
    """Return the conversion of each column; None when no column needs one."""
    found = tuple([_DECODERS.get(kind.name) for kind in kinds])
    return found if any(found) else None


def encode_args(args: Sequence[object], how: tuple[Send | None, ...]) -> list[object]:
    """Return the arguments as the driver takes them, checked against the parameters' number and types."""
    if len(args) != len(how):
        raise TransactionError(
            f"the statement has {len(how)} parameters and was given {len(args)} values.",
            why="Every $n needs exactly one value.",
            fix="Pass as many values as the highest $n.",
        )
    return [
        value if send is None or value is None else send(value, place)
        for place, (value, send) in enumerate(zip(args, how, strict=True), start=1)
    ]


def _encoder_of(name: str) -> Send | None:
    if name == "json":
        return _encode_json
    element = name.removesuffix("[]")
    if element not in PLAIN_TYPES or element == "unknown":
        return None
    if element != name:
        return lambda value, place: _encode_list(value, place, element)
    check = encoder(PLAIN_TYPES[element])
    if name in {"jsonb", "float8"}:
        return check  # A document is text on a lane, and to the driver too.
    sending = {"numeric": _encode_numeric, "timestamptz": _encode_time}.get(name, _checked)
    return lambda value, place: sending(value, place, check)


def _encode_numeric(value: object, place: int, check: Encoder) -> object:
    return Decimal(cast("str", check(value, place)))


def _encode_time(value: object, place: int, check: Encoder) -> object:
    # The driver takes the first and the last moment for infinity.
    if check(value, place) in {TIME_MIN, TIME_MAX}:
        raise TransactionError(
            f"${place} is {value}, which would become infinity on its way to PostgreSQL.",
            fix="Use any other moment, or None for NULL.",
        )
    return value


def _checked(value: object, place: int, check: Encoder) -> object:
    _ = check(value, place)
    return value


def _encode_json(value: object, place: int) -> object:
    refuse_dumped(value, place)
    try:
        return json_text(value)
    except ValueError as error:
        raise TransactionError(f"${place} is not a JSON document: {error}.") from error


def _encode_list(value: object, place: int, element: str) -> object:
    if not isinstance(value, list | tuple):
        raise TransactionError(
            f"${place} must be a list ({element}[]), not {type(value).__name__}.",
            why="PostgreSQL would refuse it; a lane does, too.",
            fix="Pass a list, or None for NULL.",
        )
    send = _encoder_of(element)
    items = cast("list[object]", value)
    return [item if item is None or send is None else send(item, place) for item in items]


_DECODERS: Final[dict[str, Receive]] = {
    "jsonb": lambda value: None if value is None else json.loads(cast("str", value)),
    "json": lambda value: None if value is None else json.loads(cast("str", value)),
    "uuid": lambda value: None if value is None else UUID(int=cast("UUID", value).int),
}


# --- Connection ------------------------------------------------------------------------------------------------------

PLAIN_TEXTS: Final = {"standard_conforming_strings": "on"}
"""A backslash is a letter, as everywhere: another reading would let a query hide in a text (`isolation`)."""

STATEMENTS_MAX: Final = 256
"""Prepared statements that one connection keeps; the least recently used one is dropped first."""

CONFLICT_STATES: Final = ("40001", "40P01")
"""Serialization failure and deadlock: the server has undone the transaction, and it may work the next time."""

DENIED: Final = "42501"
"""SQLSTATE of a missing privilege: preparing the statement again does not help."""

Isolation = Literal["READ COMMITTED", "SERIALIZABLE"]


class Conflict(Exception):
    """The transaction met another one and was undone by the server."""


class _Statement(Protocol):
    async def fetch(self, *values: object, timeout: float) -> list[Any]: ...  # noqa: ASYNC109 -- the driver's.
    def get_attributes(self) -> Sequence[Any]: ...
    def get_parameters(self) -> Sequence[Any]: ...
    def get_statusmsg(self) -> str: ...


class _Prepared(NamedTuple):
    statement: _Statement
    encoders: tuple[Send | None, ...]
    decoders: tuple[Receive | None, ...] | None
    row: type[Row]
    columns: tuple[tuple[str, str], ...]


class StatementLink(Link):
    """A connection that runs what users write."""

    def __init__(self, driver: Driver, address: PostgresAddress) -> None:
        super().__init__(driver, address)
        self._known: OrderedDict[tuple[str, str], _Prepared] = OrderedDict()
        self._timeout = address.statement_timeout_s
        self.pooled = address.pgbouncer
        self._begun = False
        self._unsettled = False
        self._names = 0

    async def run(self, sql: str, args: Sequence[object], *, schema: str, writing: bool) -> Answer:
        """Run one statement, in the transaction that is open or as one of its own.

        Raises Conflict when the server has undone it because of another one, and OutcomeUnknown when it is `writing`,
        a transaction of its own, and its outcome cannot be known.
        """
        kept = (schema, sql) in self._known
        try:
            return await self._run(sql, args, schema, writing=writing)
        except TransactionError as error:
            cause = error.__cause__
            state = None if cause is None else state_of(cause)
            old = cause is not None and is_stale(cause)
            if not old and (state is None or not state.startswith("42") or state == DENIED):
                raise
            # The table may have changed since the statement was prepared, and the server has rolled it back.
            self._known.pop((schema, sql), None)
            if not kept:
                raise
            if old:
                self._known.clear()
            if self._begun:
                raise Conflict from error
        return await self._run(sql, args, schema, writing=writing)

    async def begin(self, isolation: Isolation, *, first: str = "", read_only: bool = False, schema: str = "") -> None:
        """Begin a transaction; `first` is run before anything is looked at. A schema is set for it alone."""
        local = f"; SET LOCAL search_path = \"{schema}\"; SET LOCAL timezone = 'UTC'" if schema else ""
        mode = " READ ONLY" if read_only else ""
        self._begun = True
        with translate_user_errors(writing=False):
            await self.driver.execute(
                f"BEGIN ISOLATION LEVEL {isolation}{mode}{local}{first and f'; {first}'}", timeout=self._timeout
            )

    async def commit(self) -> None:
        """Commit. Raises Conflict when the server has rolled back instead, OutcomeUnknown when it cannot be known."""
        self._refuse_lost("a commit")
        self._begun = False
        with translate_user_errors(writing=True):
            await self.driver.execute("COMMIT", timeout=self._timeout)

    async def rollback(self) -> None:
        """Undo what is open. A connection on which that fails is not used again, and its end undoes it."""
        self._begun = False
        if self.driver.is_closed():
            return
        try:
            await self.driver.execute("ROLLBACK", timeout=self._timeout)
        except BaseException as error:
            self.spent = True
            if not isinstance(error, Exception):
                raise

    async def _run(self, sql: str, args: Sequence[object], schema: str, *, writing: bool) -> Answer:
        try:
            with translate_user_errors(writing=False):
                # To prepare a statement is not to run it: what breaks here has changed nothing.
                known, values = await self._ready(sql, args, schema)
            self._refuse_lost("a statement")
            with translate_user_errors(writing=writing), _translate_decoding_errors(writing=writing):
                rows = await known.statement.fetch(*values, timeout=self._timeout)
        except Exception:
            if self._unsettled:
                await self._settle()
            raise
        self._unsettled = False
        read, row = known.decoders, known.row
        if read is None:
            made = [row(each) for each in rows]
        else:
            made = [
                row([value if how is None else how(value) for how, value in zip(read, each, strict=True)])
                for each in rows
            ]
        return Answer(made, _changed_rows(known.statement.get_statusmsg(), len(made)), known.columns)

    def _refuse_lost(self, what: str) -> None:
        if self.driver.is_closed():
            raise LostConnection(f"the connection to PostgreSQL was lost before {what} was sent.")

    async def _settle(self) -> None:
        """End what a statement has begun that was prepared and not run: the driver leaves that to its run.

        Otherwise the next transaction would be a part of it, and could not choose its isolation.
        """
        self._unsettled = False
        if self.driver.is_closed():
            return
        try:
            await self.driver.execute("SELECT", timeout=self._timeout)
        except Exception:  # noqa: BLE001 -- whatever it is, the connection is not used again.
            self.spent = True

    async def _ready(self, sql: str, args: Sequence[object], schema: str) -> tuple[_Prepared, list[object]]:
        """Return the prepared statement and the encoded values."""
        kept = (schema, sql) in self._known
        known = await self._prepared_for(sql, schema)
        try:
            return known, encode_args(args, known.encoders)
        except TransactionError:
            # The parameters may have other types by now.
            self._known.pop((schema, sql), None)
            if not kept:
                raise
        known = await self._prepared_for(sql, schema)
        return known, encode_args(args, known.encoders)

    async def _prepared_for(self, sql: str, schema: str) -> _Prepared:
        known = self._known.get((schema, sql))
        if known is not None:
            self._known.move_to_end((schema, sql))
            return known
        # Without a name the driver would send the text again each time, and read the answer by what it knew before: if
        # the table has changed, the values are wrong. With a pooler a name may be another client's, so none is kept.
        self._names += 1
        name = "" if self.pooled else f"interlock_{self._names}"
        statement = await self.driver.prepare(sql, name=name, timeout=self._timeout)
        self._unsettled = not self._begun
        attributes = cast("_Statement", statement).get_attributes()
        known = _Prepared(
            cast("_Statement", statement),
            encoders_of(cast("_Statement", statement).get_parameters()),
            decoders_of([attribute.type for attribute in attributes]),
            row_class(tuple([str(attribute.name) for attribute in attributes])),
            tuple([(str(attribute.name), str(attribute.type.name)) for attribute in attributes]),
        )
        if not self.pooled:
            self._known[schema, sql] = known
            if len(self._known) > STATEMENTS_MAX:
                self._known.popitem(last=False)
        return known


def _changed_rows(status: str, found: int) -> int:
    word, *numbers = status.split()
    if word in {"INSERT", "UPDATE", "DELETE", "MERGE"}:
        return int(numbers[-1])
    return found


@contextlib.contextmanager
def _translate_decoding_errors(*, writing: bool) -> Generator[None]:
    """Translate errors of decoding (the year 20000): the server has run the statement by then."""
    try:
        yield
    except (asyncpg.InterfaceError, asyncpg.PostgresError):
        raise  # It is about the arguments, which were not sent, or reported by the server.
    except (ArithmeticError, BufferError, LookupError, ValueError) as error:
        if writing:
            raise OutcomeUnknown(
                f"a statement was run, and a value that it returned cannot be read: {error}.",
                why="PostgreSQL has values that Python has not, such as a time after the year 9999.",
                fix="Return it as text, or leave it out of RETURNING; look whether the statement has happened.",
            ) from None  # A chained error would be reported as an error of the arguments.
        raise TransactionError(
            f"a value that a statement returned cannot be read: {error}.",
            why="PostgreSQL has values that Python has not, such as a time after the year 9999.",
            fix="Return it as text.",
        ) from None


@contextlib.contextmanager
def translate_user_errors(*, writing: bool) -> Generator[None]:
    """As `translate_errors`, but a mistake in the user's statement or values becomes a TransactionError."""
    try:
        with translate_errors(writing=writing):
            yield
    except InterlockError as error:
        cause = error.__cause__
        state = None if cause is None else state_of(cause)
        if state in CONFLICT_STATES:
            raise Conflict from cause
        if state is not None and state.startswith(CONNECTION_STATES):
            raise
        refused = None if cause is None else _user_error(cause, state)
        if refused is None:
            raise
        raise refused from cause


def _user_error(cause: BaseException, state: str | None) -> TransactionError | None:
    """Return the error for a mistake in the statement or its values; None for everything else."""
    first = str(cause).partition("\n")[0].rstrip(".")
    if state is not None and state.startswith("23"):
        return ConstraintViolation(f"the transaction violates a constraint: {first}.")
    if state is not None and state.startswith("22"):
        return InvalidValue(f"a statement failed: {first}.")
    if state is not None and not state.startswith(("53", "55", "57", "58", "XX", "26", "25P")):
        return TransactionError(f"a statement failed: {first}.")
    if state is None and isinstance(cause, (ValueError, TypeError, OverflowError, asyncpg.DataError)):
        return InvalidValue(
            f"a value cannot be passed to PostgreSQL: {first}.", fix="Pass a value of the parameter's type."
        )
    return None


async def opened(address: PostgresAddress) -> StatementLink:
    """Open a connection for statements of users."""
    settings = {"search_path": address.schema, "timezone": "UTC", "jit": "off", **PLAIN_TEXTS}
    return StatementLink(await driver_of(address, settings), address)
