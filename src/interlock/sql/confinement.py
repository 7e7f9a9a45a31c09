"""Statements that stay inside the schema of their database, for SQL that comes from outside the program.

On PostgreSQL one login often owns several schemas: those of databases, and that of the workflows with the audit log and
the API keys. A statement of a program may use them all. A statement that comes over HTTP may not, so it is admitted
here before PostgreSQL sees it: one statement of the documented subset, on tables without a prefix, with functions of
the list.

It is read three times: as characters, so that nothing is hidden in a comment or a quote that two readers read in two
ways; as tokens, so that a name before a dot is a table or an alias of this statement, and the name after it no function
that PostgreSQL would call; and as a tree, by an allow-list.
Views and triggers that an operator made in the schema run as they were made.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from interlock.sql.grammar import CALLABLE_NAMES, RESERVED, folded
from interlock.sql.parse import LanePostgres, Node, argument, children, flag, parse, refuse_elsewhere, unsupported
from interlock.sql.types import refuse

_QUERIES: Final = (exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Subquery, exp.Values, exp.Table)
_CHANGES: Final = (exp.Insert, exp.Update, exp.Delete)
_ACTIONS: Final = (exp.ColumnDef, exp.RenameColumn, exp.AlterRename, exp.AddConstraint, exp.AlterColumn, exp.Drop)
_CREATES: Final = frozenset({"this", "kind", "exists", "unique"})
_FOREIGN: Final = (
    exp.Command,
    exp.Dot,
    exp.Into,
    exp.ObjectIdentifier,
    exp.PseudoType,
    exp.AnonymousAggFunc,
    exp.ParameterizedAgg,
)
_TYPES: Final = frozenset({exp.DType.USERDEFINED, exp.DType.UNKNOWN})
_SYSTEM: Final = ("pg_", "interlock_")
"""Catalogs of the server begin so, and are found without a prefix: pg_stats shows values of all tables. Ours, too."""


def confine(sql: str) -> None:
    """Raise DialectError unless the statement stays inside the schema of its database."""
    _refuse_hidden(sql)
    tree = parse(sql)
    try:
        _refuse_statement(tree)
        for node in tree.walk():
            _refuse_node(node)
        _refuse_prefixes(sql, tree)
    except RecursionError as error:
        raise refuse("the statement is nested too deeply.", fix="Split it into several statements.") from error


def _refuse_hidden(sql: str) -> None:
    """Refuse comments and every quote but '…' and "…": PostgreSQL and the parser could end them at two places."""
    at = 0
    while at < len(sql):
        letter, pair = sql[at], sql[at : at + 2]
        if letter in "'\"":
            if letter == "'" and at and (sql[at - 1].isalnum() or sql[at - 1] in "_&"):
                raise refuse(f"the literal {sql[at - 1]}'….", fix="Write 'plain text', or pass a parameter $1.")
            end = sql.find(letter, at + 1)
            if end < 0:
                raise refuse("a quote without an end.")
            at = end
        elif pair in {"--", "/*"}:
            raise refuse("a comment.", why="Over HTTP a statement is read as it will be run.", fix="Leave it out.")
        elif letter == "$" and (not sql[at + 1 : at + 2].isdigit() or (at and _is_name(sql[at - 1]))):
            raise refuse("the symbol $ outside of a parameter.", fix="Write parameters as $1, $2, …")
        at += 1


def _is_name(letter: str) -> bool:
    return letter.isalnum() or letter in "_$"


def _refuse_statement(tree: Node) -> None:
    if isinstance(tree, _QUERIES + _CHANGES):
        return
    kind = str(argument(tree, "kind") or "TABLE").upper()
    match tree:
        case exp.Create():
            named = {name for name, value in tree.args.items() if value}
            allowed = named <= _CREATES and kind in {"TABLE", "INDEX"}
        case exp.Alter():
            actions = children(tree, "actions")
            allowed = kind == "TABLE" and bool(actions) and all(isinstance(each, _ACTIONS) for each in actions)
        case exp.Drop():
            allowed = kind in {"TABLE", "INDEX"} and not flag(tree, "cascade")
        case exp.TruncateTable():
            allowed = str(argument(tree, "option") or "").upper() != "CASCADE"
        case _:
            allowed = False
    if not allowed:
        raise unsupported(tree)


def _refuse_node(node: Node) -> None:
    if isinstance(node, _FOREIGN):
        raise unsupported(node)
    if isinstance(node, (exp.Table, exp.Column)) and (argument(node, "db") or argument(node, "catalog")):
        raise refuse_elsewhere(node)
    if isinstance(node, exp.Table) and node.name.lower().startswith(_SYSTEM):
        raise refuse(f"the table {node.name}, which is a system table.", fix="Read tables of this database.")
    if isinstance(node, exp.Anonymous) and node.name.lower() not in CALLABLE_NAMES:
        raise refuse(f"the function {node.name}().", fix="Use a function of the subset; compute the rest elsewhere.")
    if isinstance(node, exp.DataType) and node.this in _TYPES:
        raise unsupported(node)


def _refuse_prefixes(sql: str, tree: Node) -> None:
    """Refuse a name before a dot that is neither a table nor an alias of this statement, from the tokens alone."""
    known = {name.lower() for name in _names(tree)} | {"excluded"}
    columns, has_unnamed = _columns_of_calls(tree), _has_unnamed_call(tree)
    tokens = LanePostgres().tokenize(sql)
    for (prefix, dot), (_, column) in pairwise(pairwise(tokens)):
        name = prefix.text.lower()
        if dot.text != ".":
            continue
        if has_unnamed:
            # PostgreSQL makes up a name for it, which may be that of another alias of the statement.
            raise refuse(f"the prefix {prefix.text}. beside a function in FROM without an alias.", fix="Give it one.")
        if name in columns:
            is_quoted = column.token_type is TokenType.IDENTIFIER
            _refuse_call(name, column.text if is_quoted else folded(column.text), columns[name])
        elif name not in known:
            raise refuse(
                f"the prefix {prefix.text}., which is neither a table nor an alias of the statement.",
                why="Over HTTP a statement reaches the tables of its own database alone.",
                fix="Name the table alone, or give it an alias.",
            )


def _refuse_call(alias: str, column: str, columns: set[str]) -> None:
    """Refuse q.f where q is the alias of a function: PostgreSQL reads it as the call f(q) if q has no column f."""
    if column != "*" and column not in columns:
        raise refuse(
            f"{alias}.{column}, which is not a column of {alias}.",
            why="PostgreSQL would call a function of that name with the value.",
            fix="Name the columns in the alias, as in unnest($1) AS q(x), and write q.x.",
        )


def _columns_of_calls(tree: Node) -> dict[str, set[str]]:
    """Return the columns of each alias that names the result of a function. One value has no row type to look into."""
    found: dict[str, set[str]] = {}
    for alias in tree.find_all(exp.TableAlias):
        call = alias.parent
        if call is None or _has_rows(call):
            continue
        listed = [*(alias.columns or [alias.this]), argument(call, "offset")]
        columns = [each for each in listed if isinstance(each, exp.Identifier)]
        # As PostgreSQL reads them: "F" is another column than f, and f may be a function.
        names = {each.name if flag(each, "quoted") else folded(each.name) for each in columns}
        # Two queries of a statement may use one alias: only what is a column of both is certain to be one.
        name = alias.name.lower()
        found[name] = found.get(name, names) & names
    return found


def _has_unnamed_call(tree: Node) -> bool:
    """Return whether a function stands in FROM without an alias."""
    return any(
        not node.alias and not _has_rows(node)
        for node in tree.find_all(exp.Table, exp.Lateral, exp.Unnest)
        if not isinstance(node, exp.Unnest) or isinstance(node.parent, (exp.From, exp.Join, exp.Delete))
    )


def _has_rows(node: Node) -> bool:
    """Return whether an alias of this part of a statement names rows, and not the value that a function returns."""
    if isinstance(node, exp.Table):
        named = node.this
        return isinstance(named, exp.Identifier) and (flag(named, "quoted") or named.name.lower() not in RESERVED)
    if isinstance(node, exp.Lateral):
        return isinstance(node.this, exp.Subquery)
    if isinstance(node, exp.Subquery):
        return not isinstance(node.this, exp.Unnest)
    return isinstance(node, (exp.CTE, exp.Values, exp.Insert, exp.Update, exp.Delete))


def _names(tree: Node) -> Iterator[str]:
    for node in tree.walk():
        if isinstance(node, exp.Table) and _has_rows(node):
            yield node.name
        if _has_rows(node) or isinstance(node, exp.TableAlias):
            yield node.alias_or_name
