"""Statements that stay inside the schema of their database, for SQL that comes from outside the program.

On PostgreSQL one login often owns several schemas: those of databases, and that of the workflows with the audit log and
the API keys. A statement of a program may use them all. A statement that comes over HTTP may not, so its tree is
admitted here before PostgreSQL sees it: listed kinds of nodes, tables without a prefix, functions and types of the
list. It is the tree that PostgreSQL's own grammar gives, so both read the same statement.
Views and triggers that an operator made in the schema run as they were made.
"""

import re
from collections.abc import Iterator
from typing import Final, cast

from interlock.sql.aggregates import NAMES as AGGREGATES
from interlock.sql.operators_and_functions import CALLABLE_NAMES
from interlock.sql.parse import (
    NESTING,
    Body,
    Node,
    described,
    kind_of,
    names_of,
    only,
    parse,
    split,
    unsupported,
    walk,
)
from interlock.sql.types import PLAIN_TYPES, SERIALS, refuse
from interlock.sql.windows import WINDOW_FUNCTIONS

_STATEMENTS: Final = frozenset(
    {
        "SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "CreateStmt", "IndexStmt", "AlterTableStmt",
        "RenameStmt", "DropStmt", "TruncateStmt",
    }
)  # fmt: skip
_NODES: Final = _STATEMENTS - {"RenameStmt", "DropStmt", "TruncateStmt"} | frozenset(
    {
        "A_ArrayExpr", "A_Const", "A_Expr", "A_Indices", "A_Indirection", "A_Star", "AlterTableCmd", "BoolExpr",
        "BooleanTest", "CaseExpr", "CaseWhen", "CoalesceExpr", "CollateClause", "ColumnDef", "ColumnRef",
        "CommonTableExpr", "Constraint", "FuncCall", "IndexElem", "JoinExpr", "List", "LockingClause", "MinMaxExpr",
        "MultiAssignRef", "NullTest", "ParamRef", "RangeFunction", "RangeSubselect", "RangeVar", "ResTarget", "RowExpr",
        "SQLValueFunction", "SetToDefault", "SortBy", "String", "Integer", "SubLink", "TypeCast", "WindowDef",
    }
)  # fmt: skip
_ALTERATIONS: Final = frozenset(
    {
        "AT_AddColumn", "AT_DropColumn", "AT_ColumnDefault", "AT_SetNotNull", "AT_DropNotNull", "AT_AddConstraint",
        "AT_DropConstraint", "AT_AlterColumnType",
    }
)  # fmt: skip
_INDEX: Final = (
    "idxname", "relation", "accessMethod", "indexParams", "indexIncludingParams", "whereClause", "unique",
    "if_not_exists", "nulls_not_distinct",
)  # fmt: skip
_PREFIXED: Final = ("operName", "opclass", "collation", "collname")
"""Names of operators, their classes and collations. One of another schema runs functions of that schema."""

_VALUES: Final = frozenset({"SVFOP_CURRENT_DATE", "SVFOP_CURRENT_TIMESTAMP", "SVFOP_LOCALTIME", "SVFOP_LOCALTIMESTAMP"})
_FUNCTIONS: Final = CALLABLE_NAMES | AGGREGATES | WINDOW_FUNCTIONS | {"generate_series", "unnest", "like_escape"}
_TYPES: Final = frozenset(PLAIN_TYPES) | frozenset(SERIALS) | {"bpchar", "float4", "char"}
_SEQUENCES: Final = frozenset({"nextval", "setval", "pg_get_serial_sequence"})
_PLAIN_NAME: Final = re.compile(r'[A-Za-z_][A-Za-z0-9_]*|"[A-Za-z_][A-Za-z0-9_]*"')
_SYSTEM: Final = ("pg_", "interlock_")
"""Catalogs of the server begin so, and are found without a prefix: pg_stats shows values of all tables. Ours, too."""


def confine(sql: str) -> None:
    """Raise DialectError unless the statement stays inside the schema of its database."""
    tree = parse(sql)
    try:
        _refuse_statement(tree)
        found = list(walk(tree))
        for kind, body in found:
            _refuse_node(kind, body)
        for body in _tables(tree):
            _refuse_table(body)
        _refuse_prefixes(tree, found)
    except RecursionError as error:
        raise refuse(NESTING, fix="Split it into several statements.") from error


def _refuse_statement(tree: Node) -> None:
    kind, body = split(tree)
    if kind not in _STATEMENTS:
        raise unsupported(tree)
    match kind:
        case "CreateStmt":
            only(kind, body, "relation", "tableElts", "oncommit", "if_not_exists")
        case "AlterTableStmt":
            subtypes = {node["AlterTableCmd"]["subtype"] for node in body["cmds"]}
            if body["objtype"] != "OBJECT_TABLE" or not subtypes <= _ALTERATIONS:
                raise unsupported(tree)
        case "IndexStmt":
            only(kind, body, *_INDEX)
        case "RenameStmt":
            if body["renameType"] not in {"OBJECT_TABLE", "OBJECT_COLUMN"}:
                raise unsupported(tree)
            if body["renameType"] == "OBJECT_TABLE":
                _refuse_system(body["newname"])
        case "DropStmt":
            names = [names_of(node["List"]["items"]) for node in body["objects"] if kind_of(node) == "List"]
            dropped = body["removeType"] in {"OBJECT_TABLE", "OBJECT_INDEX"} and all(len(name) == 1 for name in names)
            if not dropped or not names:
                raise unsupported(tree)
            for [name] in names:
                _refuse_system(name)
        case _:
            pass


def _refuse_node(kind: str, body: Body) -> None:
    if kind not in _NODES and kind not in _STATEMENTS:
        raise unsupported({kind: body})
    _refuse_fields(kind, body)
    match kind:
        case "SelectStmt" if "intoClause" in body:
            raise refuse("SELECT … INTO.", fix="Create the table, then INSERT … SELECT.")
        case "FuncCall":
            names = names_of(body["funcname"])
            # PostgreSQL's grammar itself gives the functions of EXTRACT, TRIM and the like that prefix.
            is_plain = len(names) == 1 or (names[0] == "pg_catalog" and body["funcformat"] == "COERCE_SQL_SYNTAX")
            if names[-1] in _SEQUENCES and len(names) == 1:
                _refuse_sequence(names[-1], body)
            elif not is_plain or names[-1] not in _FUNCTIONS:
                raise refuse(f"the function {'.'.join(names)}().", fix="Use a function of the documented subset.")
        case "A_Expr" if len(body["name"]) > 1:
            raise refuse("an operator with a prefix.", fix="Write the operator alone.")
        case "RangeFunction":
            _refuse_source(body)
        case "SortBy" if body.get("useOp"):
            raise refuse("ORDER BY … USING.", fix="Write ASC or DESC.")
        case "A_Indirection" if any(kind_of(node) == "String" for node in body["indirection"]):
            raise refuse("a name after a value in parentheses.", why="It may be a function.", fix="Select columns.")
        case "SQLValueFunction" if body["op"] not in _VALUES:
            raise refuse(f"{body['op'].removeprefix('SVFOP_')}.", fix="Pass the value as a parameter.")
        case _:
            pass


def _refuse_sequence(name: str, body: Body) -> None:
    """Refuse a sequence that is not named by a plain constant: a text may have the name of another schema in it."""
    for node in body.get("args", ())[: 2 if name == "pg_get_serial_sequence" else 1]:
        if kind_of(node) == "FuncCall" and names_of(node["FuncCall"]["funcname"]) == ["pg_get_serial_sequence"]:
            continue  # It is verified itself.
        text: str = node.get("A_Const", {}).get("sval", {}).get("sval", ".")
        if not _PLAIN_NAME.fullmatch(text):
            raise refuse(f"{name}() of {text!r}.", fix="Write the plain name of a sequence of this database.")
        _refuse_system(text.strip('"'))


def _refuse_fields(kind: str, body: Body) -> None:
    """Refuse fields that reach further in every kind of node that has them."""
    if body.get("behavior") == "DROP_CASCADE":
        raise refuse("CASCADE.", why="It may reach other schemas.", fix="Change one table after the other.")
    prefixed = any(len(body.get(name, ())) > 1 for name in _PREFIXED)
    prefixed = prefixed or len(body.get("collClause", {}).get("collname", ())) > 1
    if prefixed or "exclusions" in body or "indexspace" in body:
        raise refuse(f"{described(kind)} with a name of another schema.", fix="Write the operator or name alone.")
    for name in ("typeName", "ofTypename"):
        if name in body:
            _refuse_type(body[name])


def _refuse_source(body: Body) -> None:
    """Refuse what is not one call in FROM: PostgreSQL names the value after it, which may be another alias, too."""
    if len(body["functions"]) > 1 or kind_of(body["functions"][0]["List"]["items"][0]) != "FuncCall":
        raise refuse("such a function in FROM.", fix="Use unnest() or generate_series(), with an alias.")


def _refuse_system(name: str) -> None:
    if name.lower().startswith(_SYSTEM):
        raise refuse(f"the name {name}, which is that of a system table.", fix="Use tables of this database.")


def _refuse_type(body: Body) -> None:
    *prefix, name = names_of(body["names"])
    if prefix not in ([], ["pg_catalog"]) or name not in _TYPES:
        raise refuse(f"the type {'.'.join([*prefix, name])}.", fix="Use one of the documented types.")


def _tables(value: object) -> Iterator[Body]:
    """Yield the fields of every table that a statement names, those it changes or refers to included."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _tables(item)
    elif isinstance(value, dict):
        body = cast("Body", value)
        if "relname" in body:
            yield body
        for member in body.values():
            yield from _tables(member)


def _refuse_table(body: Body) -> None:
    name = body["relname"]
    if "schemaname" in body or "catalogname" in body or not body.get("inh"):
        raise refuse(
            f"the table {body.get('schemaname', '')}.{name} with a prefix.",
            why="Over HTTP a statement reaches the tables of its own database alone.",
            fix="Name the table alone.",
        )
    if body.get("relpersistence", "p") != "p":
        raise refuse("a temporary or unlogged table.", fix="Create an ordinary table.")
    _refuse_system(name)


def _refuse_prefixes(tree: Node, found: list[tuple[str, Body]]) -> None:
    """Refuse a name before a dot that is not a table or an alias, and after it a name that may be a function.

    PostgreSQL reads q.f as the call f(q) if q is the value of a function in FROM and has no column f. Two queries of a
    statement may use one alias: only what is a column of both is certain to be one.
    """
    known = {"excluded"} | {body.get("alias", {}).get("aliasname", body["relname"]) for body in _tables(tree)}
    columns: dict[str, set[str]] = {}
    for kind, body in found:
        if kind == "CommonTableExpr":
            known.add(body["ctename"])
        elif kind == "RangeSubselect" and "alias" in body:
            known.add(body["alias"]["aliasname"])
        elif kind == "RangeFunction":
            alias, names = _function_columns(body)
            columns[alias] = columns.get(alias, names) & names
    for kind, body in found:
        if kind != "ColumnRef" or len(body["fields"]) == 1:
            continue
        *prefix, last = body["fields"]
        [name, *more] = names_of(prefix)
        if more or (name not in known and name not in columns):
            raise refuse(
                f"the prefix {name}., which is neither a table nor an alias of the statement.",
                why="Over HTTP a statement reaches the tables of its own database alone.",
                fix="Name the table alone, or give it an alias.",
            )
        if name in columns and kind_of(last) != "A_Star" and names_of([last])[0] not in columns[name]:
            raise refuse(
                f"{name}.{names_of([last])[0]}, which is not a column of {name}.",
                why="PostgreSQL would call a function of that name with the value.",
                fix="Name the columns in the alias, as in unnest($1) AS q(x), and write q.x.",
            )


def _function_columns(body: Body) -> tuple[str, set[str]]:
    """Return the alias of a function in FROM, and the names that are certain to be its columns."""
    call = body["functions"][0]["List"]["items"][0]
    alias = body.get("alias")
    if alias is None:
        # PostgreSQL names it after the function: no column is certain.
        return names_of(call["FuncCall"]["funcname"])[-1], set()
    names = set(names_of(alias.get("colnames", ()))) or {alias["aliasname"]}
    return alias["aliasname"], names
