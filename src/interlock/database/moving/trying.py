"""Trial translations of types and expressions for a lane.

An expression cannot be translated alone: it needs its columns. So a table with the columns and this expression is
translated, and only the expression is taken from the result. Raises DialectError for what a lane does not support, or
TransactionError if PostgreSQL does not support it either.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from interlock.database.moving.catalog_text import table_of, where_of
from interlock.database.moving.shape import Check, Column, Index, Table
from interlock.sql.columntypes import column_type
from interlock.sql.datatypes import Type
from interlock.sql.refusal import refuse
from interlock.sql.schema import Column as KnownColumn
from interlock.sql.schema import Schema
from interlock.sql.schema import Table as KnownTable
from interlock.sql.syntax import Node, child, parse
from interlock.sql.translate import translate


def type_in_lane(shown: str) -> Type:
    """Return the type of a text of PostgreSQL's format_type."""
    definition = parse(f"CREATE TABLE tried (tried {shown})").find(exp.ColumnDef)
    assert definition is not None
    kind, _ = column_type(child(definition, "kind"))
    return kind


def default_in_lane(column: Column, expression: str) -> str:
    """Return SQLite's text of a default."""
    tried = Table("tried", (replace(column, default=expression, numbered=None),))
    return table_of(translate(tried.create, Schema(0)).text).defaults[column.name]


def check_in_lane(table: str, columns: Sequence[Column], expression: str) -> str:
    """Return SQLite's text of a check."""
    listed = tuple(replace(each, default=None, numbered=None) for each in columns)
    tried = Table(table, listed, checks=(Check("tried", expression),))
    [(_, condition)] = table_of(translate(tried.create, Schema(0)).text).checks
    return condition


def condition_in_lane(table: str, columns: Sequence[Column], expression: str) -> str:
    """Return SQLite's text of the condition of an index."""
    listed = [column.name for column in columns if column.type.name != "jsonb" and not column.type.is_array]
    if not listed:
        raise refuse("an index on a table of documents and arrays alone.")
    [indexed, *_] = listed
    tried = Table(table, tuple(columns), indexes=(Index("tried", ((indexed, False),), where=expression),))
    return where_of(translate(tried.indexing[0], Schema(0, {table: known_table(tried)})).text) or ""


def same_in_lane(one: str, other: str) -> bool:
    """Return whether both texts mean the same to SQLite: they may differ in redundant parentheses."""
    if one == other:
        return True
    try:
        return _bare(one) == _bare(other)
    except SqlglotError:
        return False


def _bare(text: str) -> Node:
    # The outermost node is not a parenthesis, so that every parenthesis has a parent.
    tree = exp.Tuple(expressions=[parse_one(text, dialect="sqlite")])
    while (paren := tree.find(exp.Paren)) is not None:
        paren.replace(child(paren))
    return tree


def known_table(table: Table) -> KnownTable:
    """Return the table in the dialect's form."""
    columns = tuple(
        KnownColumn(
            column.name,
            column.type,
            nullable=column.nullable and column.name not in table.key,
            serial=column.numbered is not None,
            has_default=column.default is not None or column.numbered is not None,
        )
        for column in table.columns
    )
    return KnownTable(table.name, columns, table.key, frozenset(each.table for each in table.references))
