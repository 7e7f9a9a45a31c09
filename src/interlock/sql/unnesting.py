"""unnest: arrays as a relation of FROM, one row for each element.

Several arrays stand beside each other, and the shorter ones are filled up with NULL. The arguments see nothing of FROM
(no LATERAL). Floats are left out, because SQLite may round what it reads from text.
"""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from interlock.errors import TransactionError
from interlock.sql.datatypes import UNKNOWN, Type
from interlock.sql.expressions import expression
from interlock.sql.refusal import refuse, wrong
from interlock.sql.scope import Output, Relation, Scope
from interlock.sql.syntax import Node, children, only, quoted
from interlock.sql.terms import Term

UNNEST: Final = exp.Unnest
_NAME: Final = "unnest"
_BYTES: Final = frozenset({"bytea", "uuid"})


def unnested(node: Node, scope: Scope, alias: str | None, columns: Sequence[str]) -> tuple[Relation, str]:
    """The relation and its text; the alias of one array names its one column, too."""
    only(node, "expressions", "alias")
    arrays = _arrays(node, scope)
    name = alias or _NAME
    names = list(columns) if columns or len(arrays) > 1 else [name]
    if len(names) > len(arrays):
        raise wrong(f"{len(names)} names for the {len(arrays)} columns of {_NAME}().")
    if len(names) < len(arrays) or len({known.lower() for known in names}) != len(names):
        raise refuse(f"{_NAME}() of several arrays without a name for each.", fix="Write AS name (a, b).")
    elements = [array.type.element for array in arrays]
    listed = ", ".join(
        f"{_value(element, place, len(arrays))} AS {quoted(column)}"
        for place, (element, column) in enumerate(zip(elements, names, strict=True))
    )
    rows = arrays[0].text if len(arrays) == 1 else f"interlock_array_zip({', '.join(array.text for array in arrays)})"
    text = f"(SELECT {listed} FROM json_each({rows})) AS {quoted(name)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    scope.translation.subqueries += 1
    outputs = tuple(Output(column, element) for column, element in zip(names, elements, strict=True))
    return Relation(name, outputs, quoted(name)), text


def _arrays(node: Node, scope: Scope) -> list[Term]:
    alone = Scope(scope.translation, parent=scope.parent, queries=dict(scope.queries), place=f"{_NAME}()")
    try:
        terms = [expression(part, alone) for part in children(node)]
    except TransactionError as error:
        if node.find(exp.Column) is None:
            raise
        raise refuse(f"{_NAME}() of columns beside it: {error.what}", fix="Use = ANY (array).") from error
    for term in terms:
        if term.type is UNKNOWN:
            raise refuse(f"{_NAME}() of an array of unknown type.", fix="Cast it: unnest($1::bigint[]).")
        if not term.type.is_array:
            raise wrong(f"{_NAME}() of {term.type}.")
        if term.type.element.name == "float8":
            raise refuse(f"{_NAME}() of {term.type}.", fix="Use numeric[].")
    return terms


def _value(element: Type, place: int, count: int) -> str:
    value = "value" if count == 1 else f"json_extract(value, '$[{place}]')"
    return f"unhex({value})" if element.name in _BYTES else value
