"""SQL of the backend: that of Django's backend for PostgreSQL, without its driver, and with the features of a lane.

Sections: operations, changes of the schema, introspection, features.
"""

# pyright: basic, reportAssignmentType=false, reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Django has no types, and what basedpyright infers from its source is too narrow for a backend; mypy sees Any.

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final, cast

import apsw
from django.db import DataError, ProgrammingError
from django.db.backends.base.operations import BaseDatabaseOperations
from django.db.backends.postgresql.features import DatabaseFeatures as PostgresFeatures
from django.db.backends.postgresql.introspection import DatabaseIntrospection as PostgresIntrospection
from django.db.backends.postgresql.introspection import FieldInfo, TableInfo
from django.db.backends.postgresql.operations import DatabaseOperations as PostgresOperations
from django.db.backends.postgresql.schema import DatabaseSchemaEditor as PostgresSchemaEditor
from django.db.models import Index
from django.db.models.sql.compiler import SQLInsertCompiler

from interlock.dbapi.pep249 import type_code
from interlock.django.parameters import JsonText, literal, literals
from interlock.sql.schema import (
    COLUMNS_QUERY,
    OBJECTS_QUERY,
    REFERENCES_QUERY,
    ColumnRow,
    Constraint,
    ObjectRow,
    ReferenceRow,
    Schema,
    Table,
    definition_parts,
    names_in,
    parts_of,
    schema_from_rows,
)

_PARAMETERS_MAX: Final = 32_766
"""Parameters of one statement, a limit of SQLite."""
_BATCH_ROWS: Final = 500

# --- Operations ------------------------------------------------------------------------------------------------------


class DatabaseOperations(PostgresOperations):
    """Statements and values as a lane takes them."""

    def compiler(self, compiler_name: str) -> type:
        """Return a compiler by its name. Rows are inserted as a list of VALUES, not as arrays of UNNEST."""
        return cast(
            "type", SQLInsertCompiler if compiler_name == "SQLInsertCompiler" else super().compiler(compiler_name)
        )

    def compose_sql(self, sql: str, params: Sequence[object] | None) -> str:
        """Return a statement with its values as literals: definitions have no parameters."""
        return literals(sql, params) if params else sql

    def last_executed_query(self, cursor: object, sql: str, params: Sequence[object] | None) -> str:
        """Return the statement for logs and `connection.queries`."""
        del cursor
        return self.compose_sql(sql, params)

    def prepare_sql_script(self, sql: str) -> list[str]:
        """Return the statements of a script: each is executed alone."""
        return list(BaseDatabaseOperations.prepare_sql_script(self, sql))

    def bulk_batch_size(self, fields: Sequence[object], objs: Sequence[object]) -> int:
        """Return the number of rows of one INSERT. Equal numbers give equal texts, which are translated once."""
        return max(1, min(len(objs), _BATCH_ROWS, _PARAMETERS_MAX // max(len(fields), 1)))

    def adapt_integerfield_value(self, value: object, internal_type: str) -> object:
        """Return the number: its type depends on its size, as that of a literal."""
        del internal_type
        return value

    def adapt_json_value(self, value: object, encoder: type[json.JSONEncoder] | None) -> JsonText:
        """Return a document as the field's own encoder writes it."""
        return JsonText(json.dumps(value, cls=encoder))

    def adapt_ipaddressfield_value(self, value: str | None) -> str | None:
        """Return an address as text."""
        return value or None

    def lookup_cast(self, lookup_type: str, internal_type: str | None = None) -> str:
        """Return the cast of a column for a lookup. An address is text already, without a network mask."""
        return str(super().lookup_cast(lookup_type, internal_type)).replace("HOST(%s)", "%s::text")

    def adapt_datetimefield_value(self, value: object) -> object:
        """Return a time with a zone. Without USE_TZ the only zone of a connection is UTC."""
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


# --- Changes of the schema -------------------------------------------------------------------------------------------


class DatabaseSchemaEditor(PostgresSchemaEditor):
    """Definitions as Django sends them to PostgreSQL, one statement at a time.

    PostgreSQL changes no table with pending checks of deferred constraints, so Django adds SET CONSTRAINTS there. A
    lane counts violations and has no pending checks.
    """

    sql_update_with_default = "UPDATE %(table)s SET %(column)s = %(default)s WHERE %(column)s IS NULL"
    sql_create_column_inline_fk = "CONSTRAINT %(name)s REFERENCES %(to_table)s(%(to_column)s)%(deferrable)s"
    sql_delete_fk = "ALTER TABLE %(table)s DROP CONSTRAINT %(name)s"

    def quote_value(self, value: object) -> str:
        """Return a value as a literal."""
        return literal(value)

    def _get_sequence_name(self, table: str, column: str) -> None:
        """Return no name: columns are identities, whose sequences change with them."""
        del table, column

    def _is_collation_deterministic(self, collation_name: str) -> bool:
        del collation_name
        return True  # A lane has no other ones.


# --- Introspection ---------------------------------------------------------------------------------------------------
# For `migrate`, `inspectdb` and `flush`: from the lane's own catalog, as the open transaction sees it.

_OWN: Final = ("interlock_", "sqlite_")


class DatabaseIntrospection(PostgresIntrospection):
    """What Django asks about a schema. Types of columns have the codes of PostgreSQL."""

    def get_table_list(self, cursor: object) -> list[TableInfo]:
        """Return the tables and views of the application."""
        del cursor
        schema = self._schema()
        tables = [TableInfo(name, "t", None) for name in schema.tables if not name.startswith(_OWN)]
        return tables + [TableInfo(name, "v", None) for name in schema.views]

    def get_table_description(self, cursor: object, table_name: str) -> list[FieldInfo]:
        """Return the columns of a table or a view."""
        del cursor
        if table_name in self._schema().views:
            with self.connection.cursor() as reading:
                reading.execute(f"SELECT * FROM {self.connection.ops.quote_name(table_name)} LIMIT 0")  # noqa: S608 -- a name of the catalog, quoted.
                return [FieldInfo(*column[:6], True, None, None, False, None) for column in reading.description]  # noqa: FBT003 -- by position.
        return [
            FieldInfo(
                column.name,
                type_code(column.type.name),
                column.type.length,
                column.type.length,
                column.type.precision,
                column.type.scale,
                column.nullable,
                None if column.sequence or column.is_generated else column.default,
                None,
                column.sequence is not None,
                None,
            )
            for column in self._table(table_name).columns
        ]

    def get_sequences(self, cursor: object, table_name: str, table_fields: object = ()) -> list[dict[str, str]]:
        """Return the columns that the database numbers."""
        del cursor, table_fields
        return [
            {"name": column.sequence.name, "table": table_name, "column": column.name}
            for column in self._table(table_name).columns
            if column.sequence is not None
        ]

    def get_relations(self, cursor: object, table_name: str) -> dict[str, tuple[str, str]]:
        """Return the column and table that each foreign key of one column refers to."""
        del cursor
        _, constraints = definition_parts(self._table(table_name).definition)
        return {each.columns[0]: (each.key[0], each.table) for each in constraints if each.kind == "FOREIGN KEY"}

    def get_constraints(self, cursor: object, table_name: str) -> dict[str, dict[str, object]]:
        """Return constraints and indexes by name."""
        del cursor
        table = self._table(table_name)
        _, constraints = definition_parts(table.definition)
        found = {each.name: _described(each) for each in constraints if each.name}
        if table.primary_key and not any(each.kind == "PRIMARY KEY" for each in constraints):
            # SQLite has the key of a numbered column in the column's own definition.
            name = f"{table_name}_pkey"
            found[name] = _described(Constraint(name, "PRIMARY KEY", table.primary_key, ""))
        return found | {name: _described_index(text) for name, text in table.indexes}

    def _schema(self) -> Schema:
        self.connection.ensure_connection()
        schema: Schema = self.connection.connection.inspect(_read_schema)
        return schema

    def _table(self, name: str) -> Table:
        table = self._schema().table(name)
        if table is None:
            raise ProgrammingError(f"the table {name!r} does not exist.")
        return table


def _read_schema(connection: apsw.Connection) -> Schema:
    return schema_from_rows(
        cast("list[ColumnRow]", connection.execute(COLUMNS_QUERY).fetchall()),
        version=0,
        references=cast("list[ReferenceRow]", connection.execute(REFERENCES_QUERY).fetchall()),
        objects=cast("list[ObjectRow]", connection.execute(OBJECTS_QUERY).fetchall()),
    )


def _described(constraint: Constraint) -> dict[str, object]:
    return {
        "columns": list(constraint.columns),
        "primary_key": constraint.kind == "PRIMARY KEY",
        "unique": constraint.kind in {"PRIMARY KEY", "UNIQUE"},
        "foreign_key": (constraint.table, constraint.key[0]) if constraint.kind == "FOREIGN KEY" else None,
        "check": constraint.kind == "CHECK",
        "index": False,
        "definition": None,
        "options": None,
    }


def _described_index(text: str) -> dict[str, object]:
    parts = parts_of(text[text.index("(") :])
    columns = [None if "(" in part else names_in(part)[0] for part in parts]
    return {
        "columns": [] if columns == [None] else columns,
        "orders": ["DESC" if re.search(r"\bDESC$", part) else "ASC" for part in parts],
        "primary_key": False,
        "unique": text.upper().startswith("CREATE UNIQUE"),
        "foreign_key": None,
        "check": False,
        "index": True,
        "type": Index.suffix,
        "definition": text if None in columns else None,
        "options": None,
    }


# --- Features --------------------------------------------------------------------------------------------------------


class DatabaseFeatures(PostgresFeatures):
    """PostgreSQL's features, except for those that a lane does not have."""

    minimum_database_version = None
    max_query_params = _PARAMETERS_MAX
    is_postgresql_15 = True
    is_postgresql_16 = is_postgresql_17 = False  # Without JSON_OBJECT(… VALUE …): Django calls JSONB_BUILD_OBJECT then.
    uses_server_side_binding = False
    can_clone_databases = False
    can_introspect_materialized_views = False
    create_test_procedure_with_int_param_sql = None
    create_test_procedure_without_params_sql = None
    django_test_expected_failures: ClassVar[set[str]] = set()
    prohibits_null_characters_in_text_exception = (DataError, "NUL")
    supported_explain_formats: ClassVar[set[str]] = set()
    supports_comments = False
    supports_covering_indexes = False
    supports_deferrable_unique_constraints = False
    supports_nulls_distinct_unique_constraints = False
    supports_tablespaces = False
    test_collations: ClassVar[dict[str, str | None]] = {
        "deterministic": "C",
        **dict.fromkeys(("ci", "cs", "non_default", "swedish_ci", "virtual")),
    }
