"""Connection of Django with a database of Interlock.

    DATABASES = {"default": {"ENGINE": "interlock.django", "NAME": "lanes:///var/shop/app"}}

A statement outside of `atomic` is a transaction of its own and joins a group of the lane. `atomic` is an interactive
transaction: it holds the lane's writer from its first statement to its end. All connections of a process share one
open lane. OPTIONS are settings of the database, such as `transaction_timeout_s`.

Sections: cursor, open lanes and test databases, connection.
"""

# pyright: basic, reportAssignmentType=false, reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Django has no types, and what basedpyright infers from its source is too narrow for a backend; mypy sees Any.

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Self

import apsw
from django.conf import settings
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.client import BaseDatabaseClient
from django.db.backends.base.creation import BaseDatabaseCreation
from django.db.backends.base.validation import BaseDatabaseValidation
from django.db.models import Field

from interlock import dbapi
from interlock.django.parameters import Parameters, convert, converters
from interlock.django.postgres_sql import (
    DatabaseFeatures,
    DatabaseIntrospection,
    DatabaseOperations,
    DatabaseSchemaEditor,
)
from interlock.urls import lane_path

# --- Cursor ----------------------------------------------------------------------------------------------------------

Row = tuple[object, ...]


class DjangoCursor:
    """A cursor with Django's placeholders and values."""

    def __init__(self, cursor: dbapi.Cursor) -> None:
        self._cursor = cursor
        self._converters: list[tuple[int, Callable[..., object]]] = []
        self.rowcount = -1
        """Number of rows that the last call found or changed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Row]:
        while (row := self.fetchone()) is not None:
            yield row

    @property
    def description(self) -> Sequence[Sequence[object]] | None:
        """Name and type of each column of the result."""
        return self._cursor.description

    def execute(self, sql: str, params: Parameters | None = None) -> None:
        """Run one statement. Without parameters its percent signs stay as they are."""
        text, values = (str(sql), []) if params is None else convert(str(sql), params)
        self._cursor.execute(text, values)
        self.rowcount = self._cursor.rowcount
        self._converters = converters(self._cursor.description or (), _without_zone)

    def executemany(self, sql: str, param_list: Iterable[Parameters]) -> None:
        """Run one statement for each list of parameters."""
        changed = 0
        for params in param_list:
            self.execute(sql, params)
            changed += max(self.rowcount, 0)
        self.rowcount = changed

    def fetchone(self) -> Row | None:
        """Return the next row."""
        row = self._cursor.fetchone()
        return None if row is None else self._converted(row)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next rows."""
        rows = self._cursor.fetchmany(self._cursor.arraysize if size is None else size)
        return [self._converted(row) for row in rows]

    def fetchall(self) -> list[Row]:
        """Return all further rows."""
        return [self._converted(row) for row in self._cursor.fetchall()]

    def close(self) -> None:
        """Release the rows."""
        self._cursor.close()

    def _converted(self, row: Sequence[object]) -> Row:
        values = list(row)
        for place, convert_one in self._converters:
            if values[place] is not None:
                values[place] = convert_one(values[place])
        return tuple(values)


def _without_zone(value: datetime) -> datetime:
    return value if settings.USE_TZ else value.replace(tzinfo=None)


# --- Open lanes and test databases ----------------------------------------------------------------------------------

_kept: Final[dict[str, dbapi.Connection]] = {}
"""One connection for each address, until the process ends: a lane is closed with its last connection.

Django closes connections at the end of a request, and opening a lane for each request would be slow.
"""
_kept_lock: Final = threading.Lock()
_FOLDER: Final = "interlock-django-"


class DatabaseCreation(BaseDatabaseCreation):
    """A test database is a lane of its own: TEST NAME, or one in a new folder, which is removed."""

    def _get_test_db_name(self) -> str:
        found = self.connection.settings_dict["TEST"]["NAME"]
        if not found:
            folder = tempfile.mkdtemp(prefix=_FOLDER)
            found = self.connection.settings_dict["TEST"]["NAME"] = f"lanes://{folder}/{self.connection.alias}"
        return str(found)

    def _create_test_db(self, verbosity: int, autoclobber: bool, keepdb: bool = False) -> str:  # noqa: FBT001, FBT002 -- Django's signature.
        del verbosity, autoclobber
        name = self._get_test_db_name()
        if not keepdb:
            _remove(name)
        # A test case holds a transaction from its first test to its last one.
        self.connection.settings_dict["OPTIONS"].setdefault("transaction_timeout_s", 600.0)
        return name

    def _destroy_test_db(self, test_database_name: str, verbosity: int) -> None:
        del verbosity
        _remove(test_database_name)

    def test_db_signature(self) -> tuple[str, str]:
        """Return what makes a test database the same as another one."""
        return self.connection.settings_dict["ENGINE"], self._get_test_db_name()


def _remove(url: str) -> None:
    with _kept_lock:
        if (kept := _kept.pop(url, None)) is not None:
            kept.close()
    path = lane_path(url)
    if path is not None and path.parent.name.startswith(_FOLDER):
        shutil.rmtree(path.parent)
    elif path is not None:
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()


# --- Connection ------------------------------------------------------------------------------------------------------

_AUTO_FIELDS: Final = ("AutoField", "BigAutoField", "SmallAutoField")
_POSITIVE_FIELDS: Final = ("PositiveBigIntegerField", "PositiveIntegerField", "PositiveSmallIntegerField")


def _varchar(field: Mapping[str, object]) -> str:
    return "varchar" if field["max_length"] is None else f"varchar({field['max_length']})"


class DatabaseValidation(BaseDatabaseValidation):
    """What `check --database` and `migrate` say about the fields of a model."""

    def check_field_type(self, field: Field, field_type: str) -> list[CheckWarning]:
        """Warn of an address, whose column has another type on PostgreSQL."""
        del field_type
        if field.get_internal_type() != "GenericIPAddressField":
            return []
        table, column = field.model._meta.db_table, field.column  # noqa: SLF001 -- Django's own way to a table's name.
        return [
            CheckWarning(
                "an address is kept as text on a lane, and sorted and compared as text.",
                hint=f'After a move to PostgreSQL run ALTER TABLE "{table}" ALTER COLUMN "{column}" TYPE inet '
                f'USING "{column}"::inet.',
                obj=field,
                id="interlock.W001",
            )
        ]


def _is_violated(connection: apsw.Connection) -> bool:
    return connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0] > 0


class DatabaseClient(BaseDatabaseClient):
    """`manage.py dbshell`, which a lane does not have."""

    def runshell(self, parameters: Sequence[str]) -> None:
        """Raise CommandError."""
        del parameters
        raise CommandError("a lane has no shell for SQL. Use `manage.py shell`, with connection.cursor().")


class DatabaseWrapper(BaseDatabaseWrapper):
    """One thread's connection. The vendor is PostgreSQL: so is the SQL that Django compiles for it."""

    vendor = "postgresql"
    display_name = "Interlock"
    pg_version = 18_00_00
    Database = dbapi
    SchemaEditorClass = DatabaseSchemaEditor
    client_class = DatabaseClient
    creation_class = DatabaseCreation
    features_class = DatabaseFeatures
    introspection_class = DatabaseIntrospection
    ops_class = DatabaseOperations
    validation_class = DatabaseValidation

    data_types: ClassVar[dict[str, str | Callable[[Mapping[str, object]], str]]] = {
        "AutoField": "integer",
        "BigAutoField": "bigint",
        "BigIntegerField": "bigint",
        "BinaryField": "bytea",
        "BooleanField": "boolean",
        "CharField": _varchar,
        "DateField": "date",
        "DateTimeField": "timestamp with time zone",
        "DecimalField": "numeric(%(max_digits)s, %(decimal_places)s)",
        "DurationField": "interval",
        "FileField": "varchar(%(max_length)s)",
        "FilePathField": "varchar(%(max_length)s)",
        "FloatField": "double precision",
        "GenericIPAddressField": "varchar(39)",
        "IPAddressField": "varchar(15)",
        "IntegerField": "integer",
        "JSONField": "jsonb",
        "OneToOneField": "integer",
        "PositiveBigIntegerField": "bigint",
        "PositiveIntegerField": "integer",
        "PositiveSmallIntegerField": "smallint",
        "SlugField": "varchar(%(max_length)s)",
        "SmallAutoField": "smallint",
        "SmallIntegerField": "smallint",
        "TextField": "text",
        "TimeField": "time",
        "UUIDField": "uuid",
    }
    data_types_suffix: ClassVar[dict[str, str]] = dict.fromkeys(_AUTO_FIELDS, "GENERATED BY DEFAULT AS IDENTITY")
    data_type_check_constraints: ClassVar[dict[str, str]] = dict.fromkeys(_POSITIVE_FIELDS, '"%(column)s" >= 0')
    operators: ClassVar[dict[str, str]] = {
        "exact": "= %s",
        "gt": "> %s",
        "gte": ">= %s",
        "lt": "< %s",
        "lte": "<= %s",
        "iexact": "= UPPER(%s)",
        **dict.fromkeys(("contains", "startswith", "endswith"), "LIKE %s"),
        **dict.fromkeys(("icontains", "istartswith", "iendswith"), "LIKE UPPER(%s)"),
        "regex": "~ %s",
        "iregex": "~* %s",
    }
    # For patterns that are expressions: their special characters are escaped by the statement.
    pattern_esc = r"REPLACE(REPLACE(REPLACE({}, E'\\', E'\\\\'), E'%%', E'\\%%'), E'_', E'\\_')"
    pattern_ops: ClassVar[dict[str, str]] = {
        "contains": "LIKE '%%' || {} || '%%'",
        "endswith": "LIKE '%%' || {}",
        "startswith": "LIKE {} || '%%'",
        "icontains": "LIKE '%%' || UPPER({}) || '%%'",
        "iendswith": "LIKE '%%' || UPPER({})",
        "istartswith": "LIKE UPPER({}) || '%%'",
    }

    def get_connection_params(self) -> dict[str, object]:
        """Return the address and the settings of the database."""
        if not self.settings_dict["NAME"]:
            raise ImproperlyConfigured(
                f"DATABASES[{self.alias!r}] has no NAME. Set the address of the database, such as "
                '"lanes:///var/shop/app".'
            )
        return {"url": str(self.settings_dict["NAME"]), "autocommit": True, **self.settings_dict["OPTIONS"]}

    def get_new_connection(self, conn_params: Mapping[str, Any]) -> dbapi.Connection:
        """Connect with the open database of this process, or open it."""
        url = str(conn_params["url"])
        with _kept_lock:
            kept = _kept.get(url)
            if kept is None or kept.database.is_lost:
                _kept[url] = dbapi.connect(**conn_params)
                if kept is not None:
                    kept.close()
        return dbapi.connect(**conn_params)

    def get_database_version(self) -> tuple[int, ...]:
        """Return the version of PostgreSQL whose dialect it is."""
        return divmod(self.pg_version, 10_000)

    def init_connection_state(self) -> None:
        """Refuse a time zone: a lane has no sessions with one, and computes with days and hours in UTC."""
        if (self.timezone_name if settings.USE_TZ else settings.TIME_ZONE) != "UTC":
            raise ImproperlyConfigured(
                f"the time zone of DATABASES[{self.alias!r}] is {self.timezone_name}, and a lane computes in UTC. "
                'Set USE_TZ = True and leave TIME_ZONE out of DATABASES, or set TIME_ZONE = "UTC".'
            )
        super().init_connection_state()

    def create_cursor(self, name: str | None = None) -> DjangoCursor:
        """Return a cursor. A lane reads all rows of a statement, so a named one is the same."""
        del name
        return DjangoCursor(self.connection.cursor())

    def is_usable(self) -> bool:
        """Return whether the database answers."""
        try:
            self.connection.cursor().execute("SELECT 1")
        except dbapi.Error:
            return False
        return True

    def check_constraints(self, table_names: Sequence[str] | None = None) -> None:
        """Raise IntegrityError if a deferred foreign key of the open transaction is violated, in any table."""
        del table_names
        self.ensure_connection()
        if self.connection.inspect(_is_violated):
            raise IntegrityError("a deferred foreign key is violated: a row refers to a row that does not exist.")

    def _set_autocommit(self, autocommit: bool) -> None:  # noqa: FBT001 -- Django's signature.
        with self.wrap_database_errors:
            self.connection.autocommit = autocommit
