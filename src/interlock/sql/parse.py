"""Parse a text with PostgreSQL's own grammar, and read the tree it gives.

The parser is libpg_query: PostgreSQL's scanner and grammar as a library, from the wheel of `postgast`. A text that
PostgreSQL cannot parse is refused with PostgreSQL's own message and position. Of the tree only listed nodes with listed
fields are read (`only`): a field that is not read would change the meaning.

The tree is taken as JSON and not as the binding's protobuf messages: those nest 100 levels at most, which is a sum of
48 terms, and take twice as long. A node is a dict with one member, {"ColumnRef": {…}}.
"""

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from interlock.errors import DialectError, UnavailableError
from interlock.sql.types import refuse, wrong

Body = dict[str, Any]
"""The fields of a node."""

Node = dict[str, Body]
"""A node: its kind, and its fields."""

TEXT_LENGTH_MAX: Final = 1_000_000
IDENTIFIER_BYTES_MAX: Final = 63
NESTING: Final = "the statement is nested too deeply."
UNPARSABLE: Final = "PostgreSQL cannot parse it."

_POSITIONS: Final = frozenset(
    {"location", "stmt_location", "stmt_len", "list_start", "list_end", "rexpr_list_start", "rexpr_list_end"}
)
"""Fields that say where something stands in the text."""

_DEFAULTS: Final = frozenset(
    {
        "LIMIT_OPTION_DEFAULT", "LIMIT_OPTION_COUNT", "SETOP_NONE", "OVERRIDING_NOT_SET", "CTEMaterializeDefault",
        "COERCE_EXPLICIT_CALL", "ONCOMMIT_NOOP", "DROP_RESTRICT", "SORTBY_DEFAULT", "SORTBY_NULLS_DEFAULT",
    }
)  # fmt: skip
"""Values of fields that say nothing."""


# --- The library -----------------------------------------------------------------------------------------------------


class _Error(ctypes.Structure):
    _fields_ = (
        ("message", ctypes.c_char_p),
        ("funcname", ctypes.c_char_p),
        ("filename", ctypes.c_char_p),
        ("lineno", ctypes.c_int),
        ("cursorpos", ctypes.c_int),
        ("context", ctypes.c_char_p),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        ("parse_tree", ctypes.c_char_p),
        ("stderr_buffer", ctypes.c_char_p),
        ("error", ctypes.POINTER(_Error)),
    )


_FILES: Final = {"darwin": "libpg_query.dylib", "win32": "pg_query.dll"}


@cache
def _library() -> ctypes.CDLL:
    """Load the library alone: importing the binding would import protobuf, a tenth of a second."""
    found = find_spec("postgast")
    file = Path(found.origin).with_name(_FILES.get(sys.platform, "libpg_query.so")) if found and found.origin else None
    if file is None or not file.is_file():
        raise UnavailableError(
            "SQL on a lane needs PostgreSQL's parser, the package postgast, which is not installed.",
            why="There is a wheel for Linux and macOS. Workflows do not need it.",
            fix="Install it: pip install postgast",
        )
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:
        raise UnavailableError(
            f"SQL on a lane needs PostgreSQL's parser, which this system cannot load: {error}.",
            why="The package postgast was installed for another system. Workflows do not need it.",
            fix="Install it for this one: pip install --force-reinstall postgast",
        ) from error
    library.pg_query_parse.argtypes, library.pg_query_parse.restype = [ctypes.c_char_p], _Result
    library.pg_query_free_parse_result.argtypes = [_Result]
    return library


def parse(sql: str) -> Node:
    """Return the tree of the one statement in the text. Raises DialectError with PostgreSQL's message."""
    if len(sql) > TEXT_LENGTH_MAX:
        raise refuse(
            f"a statement of {len(sql):,} characters; the limit is {TEXT_LENGTH_MAX:,}.", fix="Use parameters."
        )
    if "\0" in sql:
        raise wrong("the statement contains NUL.")
    try:
        statements = _statements(sql)
    except UnicodeEncodeError as error:
        raise wrong("the statement has a lone surrogate in it.") from error
    except RecursionError as error:
        raise refuse(NESTING, fix="Split it into several statements.") from error
    if not statements:
        raise refuse("the statement is empty.", fix="Pass one statement.")
    if len(statements) > 1:
        raise refuse(
            f"{len(statements)} statements in one string.",
            why="Each statement has its own parameters and result.",
            fix="Pass them one by one, inside transact() if they belong together.",
        )
    return cast("Node", statements[0]["stmt"])


@cache
def _parsing_thread() -> ThreadPoolExecutor:
    """Return the one thread that parses.

    libpg_query takes a thread-specific key of the process for each thread that calls it, and never returns it. There
    are 1,024 of them: without any left, other libraries fail, OpenSSL with a "malloc failure". Lanes have many threads.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="interlock-sql")


os.register_at_fork(after_in_child=_parsing_thread.cache_clear)  # A child has no thread of its parent.


def _statements(sql: str) -> list[Body]:
    return _parsing_thread().submit(_parse_text, sql).result()


def _parse_text(sql: str) -> list[Body]:
    library = _library()
    result = library.pg_query_parse(sql.encode())
    try:
        if result.error:
            error = result.error.contents
            raise _syntax_error(sql, error.message.decode(), error.cursorpos)
        return cast("list[Body]", msgspec.json.decode(result.parse_tree).get("stmts", []))
    finally:
        library.pg_query_free_parse_result(result)


def _syntax_error(sql: str, message: str, position: int) -> Exception:
    """Return PostgreSQL's message with line and column, and a hint for the placeholders of other drivers."""
    before = sql.encode()[: max(position - 1, 0)].decode(errors="replace")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    around = sql[max(len(before) - 1, 0) : len(before) + 2]
    # A question mark is an operator, so the error comes after it.
    around += before.rstrip()[-1:]
    fix = "Use $1, $2, … for parameters." if set(around) & set("%?:@") else "Correct the text at that place."
    return refuse(f"{message}, at line {line}, column {column}.", why=UNPARSABLE, fix=fix)


def is_syntax_error(error: Exception) -> bool:
    """Return whether PostgreSQL cannot parse the text at all."""
    return isinstance(error, DialectError) and error.why == UNPARSABLE


# --- Access to the tree ----------------------------------------------------------------------------------------------


def split(node: Node) -> tuple[str, Body]:
    """Return the kind of a node and its fields."""
    [(kind, body)] = node.items()
    return kind, body


def kind_of(node: Node | None) -> str:
    """Return the kind of a node; empty for None."""
    return next(iter(node)) if node else ""


def only(kind: str, body: Body, *names: str) -> None:
    """Refuse the node if any other field is set: what is not read here would change the meaning."""
    for name, value in body.items():
        if name not in names and name not in _POSITIONS and value not in _DEFAULTS_OR_EMPTY:
            what, fix = _NAMED.get((kind, name), (f"{described(kind)} with {_spelled(name).strip()}", ""))
            raise refuse(f"{what} is outside the subset.", fix=fix)


_NAMED: Final = {
    ("ResTarget", "indirection"): (
        "an assignment to a part of a column, as in SET a[1] = … and SET data['k'] = …,",
        "Assign the whole value: jsonb_set(data, '{k}', …).",
    ),
    ("SelectStmt", "intoClause"): ("SELECT … INTO", "Write CREATE TABLE … AS."),
    ("CreateStmt", "options"): ("CREATE TABLE … WITH (…)", "Leave it out: a lane has no storage parameters."),
    ("CreateStmt", "inhRelations"): ("INHERITS", "Create an ordinary table with all columns."),
    ("CreateStmt", "partspec"): ("PARTITION BY", "Create an ordinary table."),
    ("CreateStmt", "oncommit"): ("ON COMMIT", "Create an ordinary table, and drop it."),
    ("IndexStmt", "options"): ("CREATE INDEX … WITH (…)", "Leave it out: a lane has no storage parameters."),
    ("IndexStmt", "tableSpace"): ("TABLESPACE", "Leave it out: a lane is one file."),
    ("CreateStmt", "tablespacename"): ("TABLESPACE", "Leave it out: a lane is one file."),
    ("IndexStmt", "indexIncludingParams"): ("CREATE INDEX … INCLUDE", "Leave it out, or index these columns, too."),
    ("IndexStmt", "nulls_not_distinct"): ("NULLS NOT DISTINCT", "Declare the columns NOT NULL."),
    ("Constraint", "nulls_not_distinct"): ("NULLS NOT DISTINCT", "Declare the columns NOT NULL."),
    ("Constraint", "deferrable"): ("DEFERRABLE of another constraint than a reference", "Leave it out."),
    ("Constraint", "initdeferred"): ("DEFERRABLE of another constraint than a reference", "Leave it out."),
    ("ExplainStmt", "options"): ("EXPLAIN with options", "Write EXPLAIN alone: it gives the plan of SQLite."),
    ("JoinExpr", "alias"): ("an alias of a join in parentheses", "Write the join as a subquery."),
    ("SortBy", "useOp"): ("ORDER BY … USING", "Write ASC or DESC."),
}
"""What readers call a field that is outside the subset, and what to write instead."""

_KINDS: Final = {
    "TableLikeClause": ("CREATE TABLE (LIKE …)", "Name the columns."),
    "VariableSetStmt": ("SET", "A lane has no settings of a session; times are in UTC."),
    "VariableShowStmt": ("SHOW", "A lane has no settings of a session."),
    "VacuumStmt": ("VACUUM and ANALYZE", "Leave it out: a lane needs none."),
    "LockStmt": ("LOCK TABLE", "Leave it out: the transactions of a lane run one after the other."),
    "ConstraintsSetStmt": ("SET CONSTRAINTS", "Leave it out: deferred references are checked at the commit."),
    "CreateExtensionStmt": ("CREATE EXTENSION", "Leave it out: gen_random_uuid() and the digests are there without."),
    "GrantStmt": ("GRANT and REVOKE", "Leave it out: a lane has no roles."),
    "CreateDomainStmt": ("CREATE DOMAIN", "Use the type below it, with CHECK in the tables."),
    "CompositeTypeStmt": ("CREATE TYPE of several columns", "Use columns, or jsonb."),
    "CreateFunctionStmt": ("CREATE FUNCTION", "Compute it in Python, inside transact()."),
    "DefineStmt": ("CREATE COLLATION, AGGREGATE and OPERATOR", "Leave it out: a lane sorts text by its bytes."),
    "CreateTrigStmt": ("CREATE TRIGGER", "Do it in Python, inside transact()."),
    "CopyStmt": ("COPY", "Use INSERT … SELECT * FROM unnest($1::…[], …) for many rows."),
    "MergeStmt": ("MERGE", "Use INSERT … ON CONFLICT."),
    "RangeTableSample": ("TABLESAMPLE", "Use ORDER BY random() LIMIT."),
    "RowExpr": ("ROW(…) as a value", "Use columns, or jsonb_build_object()."),
}
"""The same of whole nodes."""


class _NothingSaid:
    """Contains the values of fields that say nothing. Lists and dicts have no hash, so a set cannot do."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and value in _DEFAULTS


_DEFAULTS_OR_EMPTY: Final = _NothingSaid()


def names_of(nodes: Iterable[Node]) -> list[str]:
    """Return the strings of a list of string nodes: the parts of a name, or several names."""
    return [cast("str", node["String"].get("sval", "")) for node in nodes]


def _spelled(name: str) -> str:
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).replace("_", " ").upper()


def described(kind: str) -> str:
    """Return the kind of a node in words, for refusals: A_ArrayExpr is ARRAY, DeleteStmt is DELETE."""
    return _spelled(kind.removeprefix("A_").removesuffix("Stmt").removesuffix("Expr")).strip()


def unsupported(node: Node) -> Exception:
    """Return the refusal of a node that is not in the list."""
    kind = kind_of(node)
    what, fix = _KINDS.get(kind, (described(kind), ""))
    return refuse(f"{what} {'are' if ' and ' in what else 'is'} outside the subset.", fix=fix)


def walk(value: object) -> Iterator[tuple[str, Body]]:
    """Yield every node below a value, parents first, as kind and fields."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from walk(item)
    elif isinstance(value, Mapping):
        for name, member in cast("Mapping[str, object]", value).items():
            inner: object = member
            if name[:1].isupper() and isinstance(inner, dict):
                yield name, cast("Body", inner)
            yield from walk(member)


def without_positions(value: object) -> object:
    """Return a part of a tree without the places in the text: equal for texts that mean the same."""
    if isinstance(value, list):
        return [without_positions(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return {name: without_positions(member) for name, member in members if name not in _POSITIONS}
    return value


def quoted_name(name: str) -> str:
    """Return the name as SQLite reads it, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def quoted_list(names: Iterable[str]) -> str:
    """Return several names, separated by commas."""
    return ", ".join(quoted_name(name) for name in names)
