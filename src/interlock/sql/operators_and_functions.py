"""Operators and functions: the choice by PostgreSQL's rules, conversion of the operands, and the entry's body.

Comparisons are SQLite's own wherever the stored values sort as PostgreSQL's do; types that do not have a collation
(`Type.collation`). A COLLATE is written at the left operand: SQLite takes that one, wherever else one may stand.
Functions that take values of any type (concat, jsonb_build_object) are built here, because what they do with a value
is its conversion to text or to a document.

Sections: operators, constants, comparisons, = ANY (array), functions, functions of sequences, values of any type.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from interlock.errors import InterlockError
from interlock.sql import postgres_catalog
from interlock.sql.casts import convert, settled
from interlock.sql.functions import decimals
from interlock.sql.functions.sets import SET_FUNCTIONS
from interlock.sql.literals import text_literal
from interlock.sql.parse import Node, names_of, quoted_name, split
from interlock.sql.postgres_catalog import Signature
from interlock.sql.registered_functions import FUNCTION_NAMES, FUNCTIONS, OPERATORS
from interlock.sql.registry import Entry, Function
from interlock.sql.schema import NumberSequence
from interlock.sql.scope import Term, Translation, call, combined
from interlock.sql.stored_values import StoredValue, array_text
from interlock.sql.types import (
    BOOL,
    INT4,
    INT8,
    INTEGER_RANGE,
    JSON,
    JSONB,
    PLAIN_TYPES,
    TEXT,
    TIMESTAMP,
    UNKNOWN,
    Type,
    invalid,
    refuse,
    wrong,
)

# --- Operators -------------------------------------------------------------------------------------------------------

_AS_TEXT: Final = {"name": "text", "jsonpath": "text"}
"""Types of arguments that a lane has as literals and parameters alone, in the form of text."""

COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_DATES: Final = frozenset({"date", "timestamp", "timestamptz"})


def operate(name: str, *terms: Term) -> Term:
    """Return an operator before one term, or between two, as PostgreSQL chooses it by their types."""
    found, converted, gives = _chosen(name, terms)
    if name in COMPARISONS and gives == BOOL:
        return compare(name, *_same_scale(*converted))
    if found.takes in {("text", "anynonarray"), ("anynonarray", "text")}:
        return _joined(converted)
    entry = OPERATORS.get((name, found.takes))
    if entry is None:
        raise _not_here(name, terms)
    return _built(entry, converted, gives)


def sides(left: Term, right: Term) -> tuple[Term, Term]:
    """Return two terms as the operator = compares them."""
    _, converted, _ = _chosen("=", (left, right))
    comparable(converted[0].type, "=")
    return _same_scale(*converted)


def _chosen(name: str, terms: Sequence[Term]) -> tuple[postgres_catalog.Signature, list[Term], Type]:
    """Return the operator, its converted operands and the type that it gives."""
    types = [term.type.name for term in terms]
    try:
        found = postgres_catalog.find_operator(name, *types)
    except postgres_catalog.Ambiguous:
        raise _no_operator(name, terms, "is not unique", "Cast a side: $1::bigint.") from None
    actual = None if found is None else postgres_catalog.resolved(found, types)
    if found is None or actual is None:
        raise _no_operator(name, terms, "does not exist", "Cast a side to the type that you mean.")
    takes, gives = actual
    takes = tuple("text" if each == "jsonpath" else each for each in takes)
    if gives not in PLAIN_TYPES or any(each not in PLAIN_TYPES for each in takes):
        raise _not_here(name, terms)
    converted = [convert(term, PLAIN_TYPES[kind], "implicit") for term, kind in zip(terms, takes, strict=True)]
    return found, converted, PLAIN_TYPES[gives]


def _no_operator(name: str, terms: Sequence[Term], what: str, fix: str) -> Exception:
    return wrong(f"the operator {_operator_call(name, terms)} {what}.", fix=fix)


def _not_here(name: str, terms: Sequence[Term]) -> Exception:
    return refuse(
        f"the operator {_operator_call(name, terms)}.", why="A lane does not have it.", fix="Compute it in Python."
    )


def _operator_call(name: str, terms: Sequence[Term]) -> str:
    return " ".join([*(str(term.type) for term in terms[:-1]), name, str(terms[-1].type)])


def _joined(terms: Sequence[Term]) -> Term:
    """Return text joined to a value of another type, which is written as a cast to text writes it."""
    left, right = (convert(term, TEXT, "explicit") for term in terms)
    return combined(f"{left.operand} || {right.operand}", TEXT, (left, right))


# --- Constants -------------------------------------------------------------------------------------------------------
# PostgreSQL computes with constants before it runs a statement, so one that cannot be computed fails although no row
# needs it. A term remembers the error; where a lane might leave it out, the statement is refused (`computable`).


def _built(entry: Entry, terms: Sequence[Term], gives: Type) -> Term:
    result = entry.build(terms, gives)
    error = _constant_error(entry, terms, gives)
    return result if error is None else replace(result, failing=error)


def _constant_error(entry: Entry, terms: Sequence[Term], gives: Type) -> InterlockError | None:
    """Return why a function or operator of constants cannot be computed; None if it can, or if it is not known."""
    values = [_stored(term.text) for term in terms]
    if not values or None in values:
        return None
    if isinstance(entry.function, Function) and entry.function.deterministic:
        try:
            entry.function.call(*values)
        except InterlockError as error:
            return error
        return None
    if entry.kind == "function" or not gives.is_integer or len(values) == 1:
        return None
    left, right = values
    assert isinstance(left, int)
    assert isinstance(right, int)
    if entry.name in {"/", "%"}:
        return decimals.division_by_zero() if right == 0 else None
    made = {"+": left + right, "-": left - right, "*": left * right}.get(entry.name, 0)
    low, high = INTEGER_RANGE[gives.name]
    return None if low <= made <= high else invalid(f"{made} is out of range for {gives}.")


def _stored(text: str) -> StoredValue:
    """Return the stored value that a text of SQLite is; None if it is anything else than a constant."""
    if text[:1] == "'":
        inner = text[1:-1]
        return inner.replace("''", "'") if text[-1] == "'" and "'" not in inner.replace("''", "") else None
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return bytes.fromhex(text[2:-1]) if _BLOB.fullmatch(text) else None


_WHOLE: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"-?[0-9]+\.[0-9]+(?:e[+-]?[0-9]+)?|-?[0-9]+e[+-]?[0-9]+")
_BLOB: Final = re.compile(r"X'(?:[0-9a-f]{2})*'")


def computable(terms: Iterable[Term], place: str) -> None:
    """Refuse constants that cannot be computed where a lane may leave them out, and PostgreSQL does not."""
    for term in terms:
        if term.failing is not None:
            raise refuse(
                f"a constant in {place} that cannot be computed: {term.failing.what}",
                why="PostgreSQL computes constants before the statement runs, whether they are needed or not.",
                fix="Leave it out.",
            )


# --- Comparisons -----------------------------------------------------------------------------------------------------


def compare(operator: str, left: Term, right: Term) -> Term:
    """Return a comparison of two terms of one type; IS and IS NOT are SQLite's IS [NOT] DISTINCT FROM."""
    comparable(left.type, operator)
    if left.volatile or right.volatile:
        # PostgreSQL evaluates it for each row; SQLite would do so once and look the result up in an index.
        return combined(f"+{keyed(left, right.text)} {operator} +{right.operand}", BOOL, (left, right))
    return combined(f"{keyed(left, right.text)} {operator} {right.operand}", BOOL, (left, right))


def _same_scale(left: Term, right: Term) -> tuple[Term, Term]:
    """Return a date compared with a moment as its beginning: it is stored in days, and the other in microseconds."""
    if left.type.name != right.type.name and {left.type.name, right.type.name} <= _DATES:
        left = convert(left, TIMESTAMP, "implicit") if left.type.name == "date" else left
        right = convert(right, TIMESTAMP, "implicit") if right.type.name == "date" else right
    return left, right


def keyed(term: Term, other: str = "") -> str:
    """Return the text by which SQLite compares the term as PostgreSQL does; `other` is the other side's text."""
    collation = term.type.collation
    if collation is not None:
        return f"{term.operand} COLLATE {collation}"
    # A COLLATE anywhere inside an operand, in the condition of a CASE for instance, would govern the comparison.
    if term.type.is_text and ("COLLATE" in term.text or "COLLATE" in other):
        return f"{term.operand} COLLATE BINARY"
    return term.operand


def sorting_key(term: Term) -> str:
    """Return the text of the term in ORDER BY or GROUP BY."""
    if term.type == BOOL and not term.atomic:
        # SQLite makes 0 or 1 of `3 IS NOT NULL` while it reads it, and then takes it for the place of a column.
        return f"CAST({term.checked.text} AS INTEGER)"
    return keyed(term)


def comparable(kind: Type, purpose: str) -> None:
    """Raise where PostgreSQL cannot compare values of a type, or a lane cannot."""
    if kind == JSON:
        raise wrong(f"{purpose} on json.", fix="Cast it to jsonb.")
    if kind.collation in {"interlock_array_jsonb", "interlock_array_interval"}:
        raise refuse(f"{purpose} on {kind}.", fix="Unnest the array.")


def condition(term: Term, place: str) -> Term:
    """Return a term that must be boolean."""
    if term.type is UNKNOWN:
        return convert(term, BOOL, "implicit")
    if term.type != BOOL:
        raise wrong(f"{place} must be boolean, not {term.type}.", fix="Compare it with something: … <> 0.")
    return term


# --- = ANY (array) ---------------------------------------------------------------------------------------------------
# `id = ANY($1)` is written so that SQLite can still use an index on `id`: the elements are the rows of a subquery.

_NATIVE: Final = frozenset(
    {"int2", "int4", "int8", "numeric", "text", "varchar", "bool", "date", "time", "timestamp", "timestamptz"}
)
"""Elements that SQLite reads from JSON as they are stored. Floats are read by us, because SQLite may round them."""

_BYTES: Final = frozenset({"bytea", "uuid"})


def member(left: Term, array: Term) -> Term:
    """Return left = ANY (array), both sides of one element type already."""
    element = array.type.element
    comparable(element, "= ANY")
    if element.name not in _NATIVE | _BYTES or not array.text.startswith("?"):
        if element.collation not in {None, "interlock_numeric"}:
            raise refuse(f"= ANY ({array.type}).", fix="Unnest the array, or use IN.")
        name = "interlock_numeric_member" if element.name == "numeric" else "interlock_member"
        return call(name, BOOL, left, array)
    value = "unhex(value)" if element.name in _BYTES else "value"
    # An array that is NULL has one element that is NULL: the answer is NULL for every value.
    rows = f"SELECT {value} FROM json_each(coalesce({array.text}, '[null]'))"  # noqa: S608 -- made of ?n alone
    return combined(f"{keyed(left)} IN ({rows})", BOOL, (left, array))


def with_array(left: Term, array: Term) -> tuple[Term, Term]:
    """Return both sides of = ANY (array) in the types that PostgreSQL chooses for them."""
    if array.type is UNKNOWN:
        # Both sides unknown: text, as for unknown = unknown.
        is_text = left.type is UNKNOWN or left.type.is_text
        array = convert(array, _array_type(TEXT if is_text else left.type), "implicit")
    if not array.type.is_array:
        raise wrong(f"= ANY ({array.type}).", fix="Pass an array: = ANY($1::bigint[]).")
    element = array.type.element
    found = postgres_catalog.find_operator("=", left.type.name, element.name)
    actual = None if found is None else postgres_catalog.resolved(found, (left.type.name, element.name))
    if actual is None:
        raise wrong(f"the operator {left.type} = {element} does not exist.", fix="Cast one side.")
    first, second = actual[0]
    left = convert(settled(left) if first not in PLAIN_TYPES else left, PLAIN_TYPES[first], "implicit")
    if second == element.name or {second, element.name} <= {"text", "varchar"} or second in {"int2", "int4", "int8"}:
        return left, array
    raise refuse(f"{left.type} = ANY ({array.type}).", fix=f"Cast the array: … = ANY($1::{left.type}[]).")


def _array_type(kind: Type) -> Type:
    found = PLAIN_TYPES.get(f"{kind.name}[]")
    if found is None:
        raise refuse(f"= ANY on {kind}.", fix="Use IN.")
    return found


# --- Functions -------------------------------------------------------------------------------------------------------

ARGUMENTS_MAX: Final = 100


def called(name: str, terms: Sequence[Term]) -> Term:
    """Return a call of a scalar function."""
    if len(terms) > ARGUMENTS_MAX:
        raise wrong(f"{name}() with {len(terms)} arguments.", fix=f"Pass {ARGUMENTS_MAX} at most.")
    if name in SET_FUNCTIONS:
        raise refuse(
            f"{name}() outside of FROM.", why="It gives rows.", fix=f"Write it in FROM: … FROM t, {name}(t.c) AS s."
        )
    variadic = _VARIADIC.get(name)
    if variadic is not None:
        return variadic(terms)
    found = chosen(name, terms)
    if found is None:
        return _as_cast(name, terms)
    takes, gives = types_of(found, terms)
    entry = FUNCTIONS.get((name, found.takes))
    result = PLAIN_TYPES.get(gives)
    if entry is None or entry.kind != "function" or result is None:
        raise refuse(f"the function {_call(name, terms)}.", why="A lane does not have it.", fix="Compute it in Python.")
    return _built(entry, [convert(term, kind, "implicit") for term, kind in zip(terms, takes, strict=True)], result)


def chosen(name: str, terms: Sequence[Term]) -> Signature | None:
    """Return the overload that PostgreSQL chooses; None if it knows no such function for these types."""
    if name not in FUNCTION_NAMES and not postgres_catalog.functions_named(name):
        if name in PLAIN_TYPES and len(terms) == 1:
            return None
        raise refuse(f"the function {name}().", why="A lane does not have it.", fix="Compute it in Python.")
    try:
        return postgres_catalog.find_function(name, *[term.type.name for term in terms])
    except postgres_catalog.Ambiguous:
        raise wrong(f"the function {_call(name, terms)} is not unique.", fix="Cast the arguments.") from None


def types_of(found: Signature, terms: Sequence[Term]) -> tuple[list[Type], str]:
    """Return the types to which the arguments of a call are converted, and the name of the type that it gives."""
    actual = postgres_catalog.resolved(found, [term.type.name for term in terms])
    if actual is None:
        raise wrong(f"the function {_call(found.name, terms)} does not exist.", fix="Cast the arguments.")
    takes, gives = actual
    kinds: list[Type] = []
    for wanted, term in zip(takes, terms, strict=True):
        kind = PLAIN_TYPES.get(_AS_TEXT.get(wanted, wanted))
        if kind is None:
            raise refuse(f"the function {_call(found.name, terms)}.", why="A lane does not have it.")
        kinds.append(TEXT if kind is UNKNOWN and term.type is UNKNOWN else kind)
    return kinds, gives


def _as_cast(name: str, terms: Sequence[Term]) -> Term:
    """PostgreSQL takes a call of one argument by the name of a type for a cast."""
    if len(terms) == 1 and name in PLAIN_TYPES:
        return convert(terms[0], PLAIN_TYPES[name], "explicit")
    raise wrong(f"the function {_call(name, terms)} does not exist.", fix="Cast the arguments, or look up its name.")


def _call(name: str, terms: Sequence[Term]) -> str:
    return f"{name}({', '.join(str(term.type) for term in terms)})"


# --- Functions of sequences ------------------------------------------------------------------------------------------
# The name of the sequence is a constant, so that it is known with the statement. They move positions that the writer
# has, so a query with one of them runs there.

SEQUENCE_FUNCTIONS: Final = frozenset({"nextval", "currval", "setval", "lastval", "pg_get_serial_sequence"})
_PART: Final = r'(?:"((?:[^"]|"")+)"|([A-Za-z_][\w$]*))'
_REGCLASS: Final = re.compile(rf"(?:{_PART}\.)?{_PART}", re.ASCII)


def of_sequence(name: str, nodes: Sequence[Node], terms: Sequence[Term], translation: Translation) -> Term:
    """Return a call of nextval() and its kin; `terms` are the arguments after the first."""
    if name == "pg_get_serial_sequence":
        found = _serial(nodes, translation)
        return Term("NULL" if found is None else text_literal(f"public.{_spelled(found.name)}"), TEXT)
    translation.locking = True
    if name == "lastval":
        text = "interlock_lastval()"
        return _checked_count(name, nodes, (0,), Term(text, INT8, volatile=True, nullable=False))
    if not nodes:
        raise wrong(f"the function {name}() does not exist.", fix="Name a sequence.")
    sequence = _sequence(nodes[0], translation)
    if sequence is None:
        return _checked_count(name, nodes, (1, 2, 3), Term("NULL", INT8))
    if name == "setval":
        number = convert(terms[0], INT8, "implicit") if terms else Term("NULL", INT8)
        is_called = convert(terms[1], BOOL, "implicit") if len(terms) > 1 else Term("1", BOOL)
        limits = f"{sequence.increment}, {sequence.minimum}, {sequence.maximum}"
        arguments = f"{number.checked.text}, {is_called.checked.text}, {text_literal(sequence.table)}"
        text = f"interlock_setval({text_literal(sequence.name)}, {limits}, {arguments})"
        moved = combined(text, INT8, [number, is_called], atomic=True)
        return _checked_count(name, nodes, (2, 3), replace(moved, volatile=True))
    text = sequence.nextval if name == "nextval" else f"interlock_currval({text_literal(sequence.name)})"
    return _checked_count(name, nodes, (1,), Term(text, INT8, volatile=True, nullable=False))


def _checked_count(name: str, nodes: Sequence[Node], counts: tuple[int, ...], term: Term) -> Term:
    if len(nodes) not in counts:
        raise wrong(f"the function {name}() with {len(nodes)} arguments does not exist.")
    return term


def _sequence(node: Node, translation: Translation) -> NumberSequence | None:
    """Return the sequence that an argument names; None for that of a column without one."""
    kind, body = split(node)
    if kind == "TypeCast" and names_of(body["typeName"]["names"])[-1] in {"regclass", "text"}:
        return _sequence(body["arg"], translation)
    if kind == "FuncCall" and names_of(body["funcname"])[-1] == "pg_get_serial_sequence":
        return _serial(body.get("args", ()), translation)
    return translation.sequence(_relation_name(node))


def _serial(nodes: Sequence[Node], translation: Translation) -> NumberSequence | None:
    """Return the sequence of a column: the table is written as in SQL, the column as it is."""
    if len(nodes) != 2:  # noqa: PLR2004 -- table and column
        raise wrong("pg_get_serial_sequence() takes a table and a column.")
    table = translation.table(_relation_name(nodes[0]))
    name = _constant(nodes[1])
    column = table.column(name)
    if column is None:
        raise wrong(f"the table {table.name!r} has no column {name!r}.")
    return column.sequence


def _constant(node: Node) -> str:
    value = node.get("A_Const", {}).get("sval")
    if value is None:
        raise refuse("a name of a sequence or column that is not written out.", fix="Write nextval('name').")
    text: str = value.get("sval", "")
    return text


def _relation_name(node: Node) -> str:
    text = _constant(node)
    found = _REGCLASS.fullmatch(text)
    if found is None:
        raise refuse(f"the name {text!r}.", fix="Write a plain name, in double quotes if it needs them.")
    schema, name = (
        (quoted or "").replace('""', '"') or (plain or "").lower()
        for quoted, plain in (found.group(1, 2), found.group(3, 4))
    )
    if schema not in {"", "public"}:
        raise refuse(f"the name {text!r} of another schema.", fix="Write the name alone.")
    return name


def _spelled(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else quoted_name(name)


# --- Values of any type ----------------------------------------------------------------------------------------------


def determined(term: Term) -> Term:
    """Return a value whose type is known: nothing here says which one a parameter has."""
    if term.parameter is not None:
        number = term.parameter.number
        raise wrong(f"the type of ${number} is not known here.", fix=f"Write its type: ${number}::text.")
    return settled(term)


def output(term: Term) -> Term:
    """Return the value as PostgreSQL's output writes it: a boolean is t or f."""
    term = determined(term)
    if term.type == BOOL:
        return combined(f"CASE {term.operand} WHEN 1 THEN 't' WHEN 0 THEN 'f' END", TEXT, [term])
    if term.type.name == "bpchar":
        return combined(f"{term.operand} || ''", TEXT, [term])  # A cast would leave out the blanks.
    return convert(term, TEXT, "explicit")


def document_of(term: Term) -> Term:
    """Return any value as a document: to_jsonb(), and each argument of jsonb_build_array()."""
    term = determined(term)
    kind = term.type
    if kind == JSONB:
        return term
    if kind == JSON:
        return convert(term, JSONB, "explicit")
    if kind.is_integer or kind.name in {"numeric", "bool"}:
        return convert(term, TEXT, "explicit")
    if kind.name in {"float8", "timestamptz", "timestamp"}:
        return call(f"interlock_jsonb_from_{kind.name}", JSONB, term)
    if kind.is_array:
        if kind.element.is_integer or kind.element.is_text:
            return call("interlock_jsonb_from_array", JSONB, term)
        raise refuse(f"{kind} as jsonb.", fix="Make the document in Python and pass it as a parameter.")
    return call("interlock_jsonb_from_text", JSONB, output(term))


def json_of(term: Term) -> Term:
    """Return any value as json: to_json(), and each argument of json_build_array()."""
    term = determined(term)
    kind = term.type
    if kind in {JSON, JSONB}:
        return term
    if kind.name == "float8":
        return convert(term, TEXT, "explicit")
    if kind.is_array and (kind.element.is_integer or kind.element.is_text):
        return call("interlock_json_items", JSON, term)
    return document_of(term)


def json_key(term: Term) -> Term:
    """Return a value as the key of a json object."""
    if term.type.name in {"timestamp", "timestamptz"}:
        raise refuse(f"a key of type {term.type} in json.", fix="Cast it to text.")
    return object_key(term)


def object_key(term: Term) -> Term:
    """Return a value as the key of an object."""
    term = determined(term)
    if term.type in {JSONB, JSON} or term.type.is_array:
        raise wrong("a key of an object must be a scalar.", fix="Use text.")
    if term.type.name in {"timestamptz", "timestamp"}:
        # As in a document, with T between date and time.
        document = call(f"interlock_jsonb_from_{term.type.name}", JSONB, term)
        return combined(f"json_extract({document.text}, '$')", TEXT, [document], atomic=True)
    return output(term) if term.type.name == "bpchar" else convert(term, TEXT, "explicit")


def _concat(terms: Sequence[Term]) -> Term:
    if not terms:
        raise wrong("concat() does not exist without arguments.")
    return call("interlock_concat", TEXT, *map(output, terms))


def _concat_ws(terms: Sequence[Term]) -> Term:
    if len(terms) < 2:  # noqa: PLR2004 -- the separator and a value
        raise wrong("concat_ws() does not exist without a separator and a value.")
    separator, *rest = terms
    return call("interlock_concat_ws", TEXT, convert(separator, TEXT, "implicit"), *map(output, rest))


def _build_array(terms: Sequence[Term]) -> Term:
    return call("interlock_jsonb_build_array", JSONB, *map(document_of, terms))


def _build_object(terms: Sequence[Term]) -> Term:
    if len(terms) % 2:
        raise wrong("jsonb_build_object() with a key that has no value.", fix="Pass keys and values by turns.")
    documents = [document_of(term) if place % 2 else object_key(term) for place, term in enumerate(terms)]
    return call("interlock_jsonb_build_object", JSONB, *documents)


def _to_jsonb(terms: Sequence[Term]) -> Term:
    if len(terms) != 1:
        raise wrong(f"to_jsonb() with {len(terms)} arguments does not exist.")
    [value] = terms
    if value.type is UNKNOWN:
        raise wrong("to_jsonb() of a value whose type is unknown.", fix="Cast it: to_jsonb('a'::text).")
    return combined(document_of(value).checked.text, JSONB, [value])


def _json_array(terms: Sequence[Term]) -> Term:
    return call("interlock_json_build_array", JSON, *map(json_of, terms))


def _json_object(terms: Sequence[Term]) -> Term:
    if len(terms) % 2:
        raise wrong("json_build_object() with a key that has no value.", fix="Pass keys and values by turns.")
    parts = [json_of(term) if place % 2 else json_key(term) for place, term in enumerate(terms)]
    return call("interlock_json_build_object", JSON, *parts)


def _to_json(terms: Sequence[Term]) -> Term:
    if len(terms) != 1:
        raise wrong(f"to_json() with {len(terms)} arguments does not exist.")
    [value] = terms
    if value.type is UNKNOWN:
        raise wrong("to_json() of a value whose type is unknown.", fix="Cast it: to_json('a'::text).")
    return combined(json_of(value).checked.text, JSON, [value])


def _json_row(terms: Sequence[Term]) -> Term:
    if len(terms) == 1 and terms[0].type is UNKNOWN:
        raise refuse("row_to_json() of a constant.", fix="Pass the name of a relation.")
    raise wrong(f"the function {_call('row_to_json', terms)} does not exist.", fix="Pass the name of a relation.")


def row_document(name: str, columns: Sequence[tuple[str, Term]]) -> Term:
    """Return to_jsonb(), to_json() or row_to_json() of a whole row: an object with its columns."""
    if 2 * len(columns) > ARGUMENTS_MAX:
        raise refuse(f"{name}() of a row with {len(columns)} columns.", fix=f"Name {ARGUMENTS_MAX // 2} at most.")
    sqlite, kind, value = (
        ("interlock_jsonb_build_object", JSONB, document_of)
        if name == "to_jsonb"
        else ("interlock_json_row", JSON, json_of)
    )
    parts = [part for title, term in columns for part in (Term(text_literal(title), TEXT), value(term))]
    return replace(call(sqlite, kind, *parts), nullable=False)


def _format(terms: Sequence[Term]) -> Term:
    if not terms:
        raise wrong("format() does not exist without arguments.")
    template, *rest = terms
    return call("interlock_format", TEXT, convert(template, TEXT, "implicit"), *map(output, rest))


def _extract_path(sqlite: str, kind: Type) -> Callable[[Sequence[Term]], Term]:
    def build(terms: Sequence[Term]) -> Term:
        if len(terms) < 2:  # noqa: PLR2004 -- the document and a step
            raise wrong("jsonb_extract_path() does not exist without a document and a step.")
        document, *path = terms
        steps = [convert(step, TEXT, "implicit") for step in path]
        return call(sqlite, kind, convert(document, JSONB, "implicit"), *steps)

    return build


def _count_nulls(test: str) -> Callable[[Sequence[Term]], Term]:
    def build(terms: Sequence[Term]) -> Term:
        if not terms:
            raise wrong("num_nulls() and num_nonnulls() do not exist without arguments.")
        known = [determined(term) for term in terms]
        return combined(" + ".join(f"({term.operand} {test})" for term in known), INT4, known)

    return build


def _labels_of(name: str) -> Callable[[Sequence[Term]], Term]:
    """Return enum_range(), enum_first() or enum_last(): what the type of the argument has, whatever its value."""

    def build(terms: Sequence[Term]) -> Term:
        kind = terms[0].type if terms else UNKNOWN
        if not kind.labels or any(term.type not in {kind, UNKNOWN} for term in terms):
            raise wrong(f"the function {_call(name, terms)} does not exist.", fix="Pass NULL::mood, for example.")
        if len(terms) > 1:
            raise refuse(f"{name}() of a part of an enumeration.", fix="Compare its values instead.")
        count = len(kind.labels)
        if name != "enum_range":
            return Term(str(0 if name == "enum_first" else count - 1), kind, nullable=False)
        return Term(text_literal(array_text(list(range(count)))), PLAIN_TYPES[f"{kind.name}[]"], nullable=False)

    return build


NAMED_ARGUMENTS: Final = {"make_interval": ("years", "months", "weeks", "days", "hours", "mins", "secs")}
"""The arguments of functions that are called with names; those left out are 0."""

_VARIADIC: Final[dict[str, Callable[[Sequence[Term]], Term]]] = {
    "concat": _concat,
    "concat_ws": _concat_ws,
    "jsonb_build_array": _build_array,
    "jsonb_build_object": _build_object,
    "to_jsonb": _to_jsonb,
    "json_build_array": _json_array,
    "json_build_object": _json_object,
    "to_json": _to_json,
    "row_to_json": _json_row,
    "format": _format,
    "jsonb_extract_path": _extract_path("interlock_jsonb_extract_path", JSONB),
    "jsonb_extract_path_text": _extract_path("interlock_jsonb_extract_path_text", TEXT),
    **{name: _labels_of(name) for name in ("enum_range", "enum_first", "enum_last")},
    "num_nulls": _count_nulls("IS NULL"),
    "num_nonnulls": _count_nulls("IS NOT NULL"),
}
CALLABLE_NAMES: Final = FUNCTION_NAMES | frozenset(_VARIADIC)
