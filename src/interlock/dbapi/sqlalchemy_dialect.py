"""SQLAlchemy's dialect of lanes: `create_engine("interlock+lanes:///var/shop/stock")`, and `create_async_engine`.

It is SQLAlchemy's dialect of PostgreSQL, so compiled SQL, DDL and types are those that PostgreSQL gets, and its name is
`postgresql` to applications and Alembic. Different are the connections (`interlock.dbapi`), reflection (the lane's
shape instead of pg_catalog), and JSON values, which travel as text with a cast. A transaction is serializable
whatever isolation level is chosen; AUTOCOMMIT lets each statement join a group.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false, reportMissingParameterType=false, reportPrivateUsage=false
# pyright: reportIncompatibleMethodOverride=false, reportMissingTypeArgument=false, reportUnknownLambdaType=false
# SQLAlchemy's dialects have few types; mypy --strict looks at what is ours.

# ruff: noqa: ARG001, ARG002, ARG003, FBT001 -- the signatures are SQLAlchemy's.

import importlib
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from types import ModuleType
from typing import Any, Final, Literal, cast

from sqlalchemy import Connection as EngineConnection
from sqlalchemy.dialects.postgresql import ARRAY, ENUM
from sqlalchemy.dialects.postgresql.asyncpg import AsyncpgFloat, AsyncpgNumeric, PGDialect_asyncpg
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDialect, PGExecutionContext, ischema_names
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect, IsolationLevel
from sqlalchemy.engine.reflection import ObjectKind, ObjectScope
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import AsyncAdaptedQueuePool, Pool, QueuePool
from sqlalchemy.types import JSON, Float, Numeric, TypeEngine
from sqlalchemy.util import await_only

from interlock.dbapi.connections import Connection, connect_in_loop
from interlock.errors import Fenced, MovedElsewhere, OutcomeUnknown, UnavailableError
from interlock.lanes.lane_settings import KINDS
from interlock.relocate.lane_shape import read_schema
from interlock.relocate.shape import Check, Column, Index, Reference, Shape, Table, Unique
from interlock.sql.types import INTEGER_RANGE, Type

Reflected = dict[str, object]
_Described = tuple[tuple[str | None, str], object]

PREFIX: Final = "interlock+"
SCHEMA: Final = "public"
"""The only schema of a lane, as the dialect of SQL has it."""

SERVER_VERSION: Final = (18, 0)
"""The version of PostgreSQL whose dialect a lane follows."""

_LOST: Final = (OutcomeUnknown, Fenced, MovedElsewhere)


# --- Parts of a shape as SQLAlchemy describes them -------------------------------------------------------------------

_ISCHEMA_NAMES: Final = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float8": "double precision",
    "varchar": "character varying",
    "bpchar": "character",
    "bool": "boolean",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
"""Internal names of PostgreSQL whose types SQLAlchemy knows by another name."""


def _shape(connection: EngineConnection) -> Shape:
    return _driver(connection).read_shape()


def _driver(connection: EngineConnection) -> Connection:
    return cast("Connection", connection.connection.dbapi_connection)


def _tables(connection: EngineConnection, schema: str | None) -> tuple[Table, ...]:
    return _shape(connection).tables if schema in {None, SCHEMA} else ()


def _enums(connection: EngineConnection) -> Mapping[str, Type]:
    return _driver(connection).inspect(read_schema).enumerations


def _reflect(describe: Callable[[Table, Shape, str | None], object]) -> Callable[..., Any]:
    """Return a method of the dialect that describes a part of each table."""

    def reflect(
        self: Dialect,
        connection: EngineConnection,
        schema: str | None = None,
        filter_names: Collection[str] | None = None,
        scope: ObjectScope = ObjectScope.DEFAULT,
        kind: ObjectKind = ObjectKind.TABLE,
        **kw: object,
    ) -> Iterator[_Described]:
        if schema not in {None, SCHEMA} or ObjectScope.DEFAULT not in scope or ObjectKind.TABLE not in kind:
            return
        shape = _shape(connection)
        for table in shape.tables:
            if filter_names is None or table.name in filter_names:
                yield (schema, table.name), describe(table, shape, schema)

    return reflect


def _column(column: Column) -> Reflected:
    found: Reflected = {
        "name": column.name,
        "type": _type(column.type),
        "nullable": column.nullable,
        "default": column.default,
        "autoincrement": column.numbered is not None,
        "comment": None,
    }
    if column.numbered in {"always", "by default"}:
        found["identity"] = {
            "always": column.numbered == "always",
            "start": 1,
            "increment": 1,
            "minvalue": 1,
            "maxvalue": INTEGER_RANGE[column.type.name][1],
            "cycle": False,
            "cache": 1,
        }
    return found


def _type(kind: Type) -> object:
    if kind.is_array:
        element = replace(kind, name=kind.element.name) if kind.sizes else kind.element
        return ARRAY(cast("TypeEngine[object]", _type(element)))
    if kind.labels:
        return ENUM(*kind.labels, name=kind.title)
    make = cast("Callable[..., object]", ischema_names[_ISCHEMA_NAMES.get(kind.name, kind.name)])
    if kind.name in {"time", "timestamp", "timestamptz"}:
        return make(timezone=kind.name == "timestamptz", precision=kind.precision)
    if kind.name == "numeric":
        return make(kind.precision, kind.scale)
    return make(kind.length) if kind.name in {"varchar", "bpchar"} else make()


def _primary_key(table: Table) -> Reflected:
    name = (table.key_name or f"{table.name}_pkey") if table.key else None
    return {"constrained_columns": list(table.key), "name": name, "comment": None}


def _unique(unique: Unique) -> Reflected:
    return {"name": unique.name, "column_names": list(unique.columns), "comment": None, "dialect_options": {}}


def _check(check: Check) -> Reflected:
    return {"name": check.name, "sqltext": check.condition, "comment": None}


def _indexes(table: Table) -> list[Reflected]:
    """Return the indexes; those of unique constraints too, as PostgreSQL has them."""
    found = [_index(each) for each in table.indexes]
    for unique in table.uniques:
        index = _index(Index(unique.name, tuple((name, False) for name in unique.columns), unique=True))
        found.append({**index, "duplicates_constraint": unique.name})
    return found


def _foreign_key(reference: Reference, schema: str | None) -> Reflected:
    actions = {"ondelete": reference.on_delete, "onupdate": reference.on_update}
    options: Reflected = {name: action for name, action in actions.items() if action != "NO ACTION"}
    if reference.deferrable:
        options |= {"deferrable": True, "initially": "DEFERRED" if reference.deferred else "IMMEDIATE"}
    return {
        "name": reference.name,
        "constrained_columns": list(reference.columns),
        "referred_schema": schema,
        "referred_table": reference.table,
        "referred_columns": list(reference.key),
        "options": options,
        "comment": None,
    }


def _index(index: Index) -> Reflected:
    found: Reflected = {
        "name": index.name,
        "unique": index.unique,
        "column_names": [None if index.computed else name for name, _ in index.columns],
        "dialect_options": {} if index.where is None else {"postgresql_where": index.where},
    }
    if index.computed:
        found["expressions"] = [name for name, _ in index.columns]
    descending = {name: ("desc",) for name, down in index.columns if down}
    return {**found, "column_sorting": descending} if descending else found


# --- Dialects --------------------------------------------------------------------------------------------------------


class LaneCompiler(PGCompiler):
    """Compiles statements as for PostgreSQL. A JSON value is sent as text, and read as a document by the database."""

    def render_bind_cast(self, type_: TypeEngine[object], dbapi_type: TypeEngine[object], sqltext: str) -> str:
        """Cast a parameter to its type."""
        through = "::TEXT" if isinstance(dbapi_type, JSON) else ""
        rendered: str = super().render_bind_cast(type_, dbapi_type, f"{sqltext}{through}")  # type: ignore[no-untyped-call]
        return rendered


class LaneExecutionContext(PGExecutionContext):
    """Runs statements. A result is wholly in memory, so a server-side cursor is an ordinary one."""

    def create_server_side_cursor(self) -> DBAPICursor:
        """Return a cursor."""
        return self._dbapi_connection.cursor()


class LaneNumeric(AsyncpgNumeric):
    """NUMERIC. A float is sent with its fifteen certain digits, as PostgreSQL casts one."""

    def bind_processor(self, dialect: Dialect) -> Callable[[object], object]:
        """Return what makes a Decimal of a float."""
        return lambda value: Decimal(f"{value:.15g}") if isinstance(value, float) else value


class LaneFloat(AsyncpgFloat):
    """FLOAT and DOUBLE PRECISION."""

    def bind_processor(self, dialect: Dialect) -> Callable[[object], object]:
        """Return what makes a float of a Decimal."""
        return lambda value: float(value) if isinstance(value, Decimal) else value


class DialectOfLanes(PGDialect):
    """PostgreSQL's dialect with the connections and the catalog of lanes."""

    supports_statement_cache = True
    default_paramstyle = "numeric_dollar"
    supports_server_side_cursors = True
    supports_comments = False
    supports_constraint_comments = False
    supports_sane_multi_rowcount = True
    supports_native_json_deserialization = True
    statement_compiler = LaneCompiler
    execution_ctx_cls = LaneExecutionContext
    colspecs = {**PGDialect_asyncpg.colspecs, Numeric: LaneNumeric, Float: LaneFloat}  # noqa: RUF012 -- SQLAlchemy's.

    def create_connect_args(self, url: URL) -> tuple[list[str], dict[str, float]]:
        """Return the address without `interlock+`. Settings of lanes in its query are keyword arguments."""
        settings = {name: _setting(name, str(text)) for name, text in url.query.items() if name in KINDS}
        rest = url.difference_update_query(list(settings))
        address = rest.render_as_string(hide_password=False).removeprefix(PREFIX)
        return ["memory:" if address.startswith("memory:") else address], settings

    def initialize(self, connection: EngineConnection) -> None:
        """Set what PostgreSQL would be asked for."""
        self.server_version_info = SERVER_VERSION
        self.default_schema_name = SCHEMA
        self.default_isolation_level = "SERIALIZABLE"

    def _get_server_version_info(self, connection: EngineConnection) -> tuple[int, ...]:
        return SERVER_VERSION

    def _get_default_schema_name(self, connection: EngineConnection) -> str:
        return SCHEMA

    # --- connections ---

    def get_isolation_level_values(self, dbapi_conn: object) -> list[IsolationLevel]:
        """Return the levels of PostgreSQL: a lane gives more than each of them asks for."""
        return ["AUTOCOMMIT", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]

    def get_default_isolation_level(self, dbapi_conn: object) -> Literal["SERIALIZABLE"]:
        """Return the level of a new connection."""
        return "SERIALIZABLE"

    def set_isolation_level(self, dbapi_connection: object, level: str) -> None:
        """Turn autocommit on or off."""
        cast("Connection", dbapi_connection).autocommit = level == "AUTOCOMMIT"

    def get_isolation_level(self, dbapi_connection: object) -> Literal["AUTOCOMMIT", "SERIALIZABLE"]:
        """Return the level."""
        return "AUTOCOMMIT" if cast("Connection", dbapi_connection).autocommit else "SERIALIZABLE"

    def detect_autocommit_setting(self, dbapi_conn: object) -> bool:
        """Return whether the connection is in autocommit."""
        return cast("Connection", dbapi_conn).autocommit

    def set_readonly(self, connection: object, value: bool) -> None:
        """Make its transactions read-only: `execution_options(postgresql_readonly=True)`."""
        cast("Connection", connection).read_only = value

    def get_readonly(self, connection: object) -> bool:
        """Return whether its transactions are read-only."""
        return cast("Connection", connection).read_only

    def set_deferrable(self, connection: object, value: bool) -> None:
        """Do nothing: no transaction of a lane waits for a safe snapshot."""

    def get_deferrable(self, connection: object) -> bool:
        """Return False."""
        return False

    def do_ping(self, dbapi_connection: object) -> bool:
        """Return whether the connection is usable, without a statement, which would take the writer."""
        connection = cast("Connection", dbapi_connection)
        return not connection.closed and not connection.database.is_lost

    def is_disconnect(self, e: Exception, connection: object, cursor: object) -> bool:
        """Return whether all connections must be made anew, so that the database is opened again."""
        cause = e.__cause__
        return isinstance(cause, _LOST) or type(cause) is UnavailableError

    # --- reflection ---

    def get_table_names(self, connection: EngineConnection, schema: str | None = None, **kw: object) -> list[str]:
        """Return the names of all tables."""
        return [table.name for table in _tables(connection, schema)]

    def get_schema_names(self, connection: EngineConnection, **kw: object) -> list[str]:
        """Return the one schema of a lane."""
        return [SCHEMA]

    def has_schema(self, connection: EngineConnection, schema: str, **kw: object) -> bool:  # type: ignore[override]
        """Return whether it is the one schema of a lane."""
        return schema == SCHEMA

    def has_table(self, connection: EngineConnection, table_name: str, schema: str | None = None, **kw: object) -> bool:
        """Return whether there is a table of that name."""
        return table_name in self.get_table_names(connection, schema)

    def has_multi_table(
        self, connection: EngineConnection, table_names: Collection[str], schema: str | None = None, **kw: object
    ) -> list[tuple[tuple[str | None, str], bool]]:
        """Return for each name whether there is a table."""
        known = set(self.get_table_names(connection, schema))
        return [((schema, name), name in known) for name in table_names]

    def has_sequence(
        self, connection: EngineConnection, sequence_name: str, schema: str | None = None, **kw: object
    ) -> bool:
        """Return whether there is a sequence of that name."""
        return sequence_name in self.get_sequence_names(connection, schema)

    def get_sequence_names(self, connection: EngineConnection, schema: str | None = None, **kw: object) -> list[str]:
        """Return the names of all sequences, those of columns included."""
        return sorted(_driver(connection).inspect(read_schema).sequences) if schema in {None, SCHEMA} else []

    def has_type(self, connection: EngineConnection, type_name: str, schema: str | None = None, **kw: object) -> bool:
        """Return whether there is an enumeration of that name."""
        return type_name in _enums(connection)

    def _load_enums(
        self, connection: EngineConnection, schema: str | None = None, **kw: object
    ) -> list[dict[str, object]]:
        return [
            {"name": name, "schema": SCHEMA, "visible": True, "labels": list(kind.labels)}
            for name, kind in _enums(connection).items()
        ]

    def get_view_names(self, connection: EngineConnection, schema: str | None = None, **kw: object) -> list[str]:
        """Return the names of all views."""
        return sorted(_driver(connection).inspect(read_schema).views) if schema in {None, SCHEMA} else []

    def get_materialized_view_names(
        self, connection: EngineConnection, schema: str | None = None, **kw: object
    ) -> list[str]:
        """Return nothing: a lane has no materialized views."""
        return []

    get_temp_table_names = get_temp_view_names = get_materialized_view_names

    get_multi_columns = _reflect(lambda table, _shape, _: [_column(each) for each in table.columns])
    get_multi_pk_constraint = _reflect(lambda table, _shape, _: _primary_key(table))
    get_multi_foreign_keys = _reflect(
        lambda table, _, schema: [_foreign_key(each, schema) for each in table.references]
    )
    get_multi_indexes = _reflect(lambda table, _shape, _: _indexes(table))
    get_multi_unique_constraints = _reflect(lambda table, _shape, _: [_unique(each) for each in table.uniques])
    get_multi_check_constraints = _reflect(lambda table, _shape, _: [_check(each) for each in table.checks])
    get_multi_table_comment = _reflect(lambda _table, _shape, _: {"text": None})
    get_multi_table_options = _reflect(lambda _table, _shape, _: {})


class LaneDialect(DialectOfLanes):
    """The dialect for code that blocks."""

    driver = "lanes"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """Return the DB-API module."""
        return importlib.import_module("interlock.dbapi")

    @classmethod
    def get_pool_class(cls, url: URL) -> type[Pool]:
        """Return the pool: its connections share one open database."""
        return QueuePool

    @classmethod
    def get_async_dialect_cls(cls, url: URL) -> type[Dialect]:
        """Return the dialect that `create_async_engine` uses for the same address."""
        return AsyncLaneDialect


class AsyncLaneDialect(DialectOfLanes):
    """The dialect for `create_async_engine`. Statements run in the engine's event loop."""

    driver = "aiolanes"
    is_async = True
    has_terminate = True
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """Return a module whose `connect` gives connections for SQLAlchemy's greenlets."""
        return cast("ModuleType", _AsyncModule(LaneDialect.import_dbapi()))

    @classmethod
    def get_pool_class(cls, url: URL) -> type[Pool]:
        """Return the pool."""
        return AsyncAdaptedQueuePool

    def do_terminate(self, dbapi_connection: object) -> None:
        """Close a connection that was garbage collected, where nothing can be awaited."""
        cast("Connection", dbapi_connection).terminate()

    def get_driver_connection(self, connection: object) -> object:
        """Return the connection itself."""
        return connection


class _AsyncModule:
    """The DB-API module with another `connect`."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> object:
        found: object = getattr(self._module, name)
        return found

    @staticmethod
    def connect(url: str, **settings: float) -> Connection:
        """Open a connection, in the greenlet of the caller."""
        options = cast("dict[str, Any]", settings)
        return await_only(connect_in_loop(_await_in_greenlet, url, **options))


def _await_in_greenlet(function: Callable[[], Coroutine[object, object, object]]) -> object:
    return await_only(function())


def _setting(name: str, text: str) -> float:
    if KINDS[name] is bool:
        return text.lower() in {"true", "1", "on", "yes"}
    try:
        return KINDS[name](text)
    except ValueError:
        raise ArgumentError(f"{name} in the address is {text!r}, not a number. Write one, once: ?{name}=5.") from None
