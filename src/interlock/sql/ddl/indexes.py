"""CREATE INDEX, on columns and on expressions.

The name of an unnamed index is the one that PostgreSQL chooses: table, columns and `idx`, with a number if it is taken.
"""

from typing import Final

from interlock.sql.calls import comparable
from interlock.sql.ddl.tables import (
    NOTHING,
    check_collation,
    condition,
    index_name,
    index_names_of_constraints,
    relation_names,
)
from interlock.sql.expressions import expression
from interlock.sql.from_clause import table_name
from interlock.sql.parse import IDENTIFIER_BYTES_MAX, Body, Node, kind_of, names_of, only, quoted_name, walk
from interlock.sql.schema import Table
from interlock.sql.scope import Output, Relation, Scope, Translation
from interlock.sql.types import Type, refuse, wrong


def create_index(body: Body, translation: Translation) -> str:
    """Translate CREATE INDEX."""
    only(
        "IndexStmt",
        body,
        "idxname",
        "relation",
        "accessMethod",
        "indexParams",
        "whereClause",
        "unique",
        "if_not_exists",
        "concurrent",
    )
    method = body.get("accessMethod", "btree")
    if method not in {"btree", "hash"}:
        raise refuse(f"an index of kind {method}.", fix="Leave out USING: a lane has B-trees.")
    ordered = any(node["IndexElem"]["ordering"] != "SORTBY_DEFAULT" for node in body["indexParams"])
    if method == "hash" and (body.get("unique") or ordered or len(body["indexParams"]) > 1):
        # What finds equal values is all the same; a B-tree finds them, too.
        raise wrong("a hash index that is unique, sorted or on several columns.", fix="Leave out USING.")
    table = translation.table(table_name(body["relation"]))
    elements = [_index_element(node["IndexElem"], table, translation) for node in body["indexParams"]]
    exists = bool(body.get("if_not_exists"))
    if "idxname" in body:
        name = index_name(body["idxname"], translation)
        if name in index_names_of_constraints(translation):
            if exists:
                return NOTHING
            raise wrong(f"there is a constraint {name!r} already, whose index has that name.")
    else:
        name = _free_index_name(table.name, [title for title, _ in elements], translation)
    text = f"{'UNIQUE ' if body.get('unique') else ''}INDEX {'IF NOT EXISTS ' if exists else ''}"
    text = f"CREATE {text}{quoted_name(name)} ON {quoted_name(table.name)} ({', '.join(each for _, each in elements)})"
    if "whereClause" not in body:
        return text
    test = condition(body["whereClause"], table.name, table.columns, translation, "the condition of an index")
    return f"{text} WHERE {test}"


_PATTERN_CLASSES: Final = frozenset({"text_pattern_ops", "varchar_pattern_ops", "text_ops", "varchar_ops"})
_INDEXED_FUNCTIONS: Final = frozenset({"lower", "upper", "length", "char_length", "btrim", "md5"})
"""Functions of an index: their value depends on nothing but their arguments, on both engines."""


def _index_element(body: Body, table: Table, translation: Translation) -> tuple[str, str]:
    """Return one column or expression of an index: its name for PostgreSQL's choice of a name, and its text."""
    only("IndexElem", body, "name", "expr", "ordering", "nulls_ordering", "opclass", "collation")
    if "expr" in body:
        title, text, kind = _indexed_expression(body["expr"], table, translation)
    else:
        column = table.column(body["name"])
        if column is None:
            raise wrong(f"an index on a column that {table.name!r} does not have.")
        comparable(column.type, "an index")
        title, text, kind = column.name, quoted_name(column.name), column.type
    # In the collation C these classes have the order of the column itself.
    if "opclass" in body and not (kind.is_text and names_of(body["opclass"])[-1] in _PATTERN_CLASSES):
        raise refuse(f"the operator class {names_of(body['opclass'])[-1]} of an index.", fix="Leave it out.")
    if "collation" in body:
        check_collation(names_of(body["collation"]), kind, sorts=True)
    # The order of NULLs inside an index never shows.
    return title, text + (" DESC" if body.get("ordering") == "SORTBY_DESC" else "")


def _indexed_expression(node: Node, table: Table, translation: Translation) -> tuple[str, str, Type]:
    names: list[str] = []
    for kind, body in walk(node):
        name = names_of(body["funcname"])[-1] if kind == "FuncCall" else ""
        names += [name] if name else []
        if kind not in {"FuncCall", "ColumnRef", "A_Const", "String", "CoalesceExpr"} or (
            name and name not in _INDEXED_FUNCTIONS
        ):
            raise refuse(
                "an index on such an expression.",
                why=f"It may have columns, constants, coalesce and {', '.join(sorted(_INDEXED_FUNCTIONS))}.",
                fix="Index columns.",
            )
    scope = Scope(translation, subqueries=False, place="an index")
    outputs = tuple(Output(column.name, column.type, nullable=column.nullable) for column in table.columns)
    scope.add(Relation(table.name, outputs, ""))
    with scope.at("an index"):
        term = expression(node, scope).checked
    if not (term.type.is_text or term.type.is_integer):
        raise refuse(f"an index on an expression of type {term.type}.", fix="Index columns.")
    title = {"FuncCall": names[0] if names else "", "CoalesceExpr": "coalesce"}.get(kind_of(node), "expr")
    return title, f"({term.text})", term.type


def _free_index_name(table: str, columns: list[str], translation: Translation) -> str:
    """Return the name that PostgreSQL gives: table_columns_idx, with a number if it is taken."""
    base = "_".join([table, *columns, "idx"])
    taken = relation_names(translation)
    name = next(name for name in (f"{base}{number or ''}" for number in range(len(taken) + 1)) if name not in taken)
    if len(set(columns)) != len(columns) or len(name.encode()) > IDENTIFIER_BYTES_MAX or name != name.lower():
        raise refuse("an index without a name on such columns.", fix="Name the index.")
    return name
