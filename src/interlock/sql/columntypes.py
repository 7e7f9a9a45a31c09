"""Types as a statement writes them: from PostgreSQL's spelling to the types of the dialect.

Only listed types are read, with the sizes that PostgreSQL allows for them. A type that SQLite cannot keep exactly is
refused with the one to use instead: `real` would silently become double precision, `char(n)` would not pad.
"""

from typing import Final

from sqlglot import exp

from interlock.sql.datatypes import (
    BOOL,
    BYTEA,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMPTZ,
    UUID_TYPE,
    VARCHAR,
    Type,
    array_of,
)
from interlock.sql.refusal import refuse, wrong
from interlock.sql.syntax import Node, argument, child, children, only, string
from interlock.sql.values import NUMERIC_DIGITS_MAX

_PLAIN: Final[dict[exp.DType, Type]] = {
    exp.DType.SMALLINT: INT2,
    exp.DType.INT: INT4,
    exp.DType.BIGINT: INT8,
    exp.DType.DOUBLE: FLOAT8,
    exp.DType.TEXT: TEXT,
    exp.DType.BOOLEAN: BOOL,
    exp.DType.VARBINARY: BYTEA,
    exp.DType.TIMESTAMPTZ: TIMESTAMPTZ,
    exp.DType.UUID: UUID_TYPE,
    exp.DType.JSONB: JSONB,
}
_SERIAL: Final[dict[exp.DType, tuple[Type, str]]] = {
    exp.DType.SMALLSERIAL: (INT2, "smallserial"),
    exp.DType.SERIAL: (INT4, "serial"),
    exp.DType.BIGSERIAL: (INT8, "bigserial"),
}
_INSTEAD: Final[dict[exp.DType, str]] = {
    exp.DType.FLOAT: "double precision",
    exp.DType.TIMESTAMP: "timestamptz",
    exp.DType.DATE: "timestamptz, or text in the form 2030-12-31",
    exp.DType.CHAR: "text or varchar(n)",
    exp.DType.BPCHAR: "text or varchar(n)",
    exp.DType.JSON: "jsonb",
    exp.DType.INTERVAL: "a number of seconds",
}
VARCHAR_LENGTH_MAX: Final = 10_485_760


def column_type(node: Node) -> tuple[Type, str | None]:
    """The type, and its serial name if it is one."""
    if type(node) is not exp.DataType:
        raise refuse("a type that is not a plain name.")
    only(node, "this", "expressions", "nested")
    kind = argument(node, "this")
    written = node.sql(dialect="postgres").lower()
    if kind is exp.DType.ARRAY:
        return _array(node, written), None
    if not isinstance(kind, exp.DType) or argument(node, "nested"):
        raise refuse(f"the type {written}.", fix="Use one of the documented types.")
    sizes = [_size(part) for part in children(node)]
    if kind in _SERIAL and not sizes:
        return _SERIAL[kind]
    if kind in _PLAIN and not sizes:
        return _PLAIN[kind], None
    if kind is exp.DType.VARCHAR:
        return _varchar(sizes), None
    if kind is exp.DType.DECIMAL:
        return _numeric(sizes), None
    raise refuse(f"the type {written}.", fix=f"Use {_INSTEAD.get(kind, 'one of the documented types')}.")


def cast_type(node: Node) -> tuple[Type, str | None]:
    """The type that a value is cast to, which may be one that no column has."""
    if type(node) is exp.DataType and argument(node, "this") is exp.DType.INTERVAL:
        only(node, "this")
        return INTERVAL, None
    return column_type(node)


def _array(node: Node, written: str) -> Type:
    listed = children(node)
    if len(listed) != 1:
        raise refuse("ARRAY without the type of its elements.", fix="Write bigint[], for example.")
    element, serial = column_type(listed[0])
    kind = array_of(element)
    if kind is None or serial or element != element.plain:
        raise refuse(f"the type {written}.", fix="Use an array of a plain type, such as bigint[] or text[], or jsonb.")
    return kind


def _size(node: Node) -> int:
    only(node, "this")
    number = child(node) if type(node) is exp.DataTypeParam else node
    if type(number) is not exp.Literal or not string(number).isdecimal():
        raise refuse("the size of a type that is not a number.")
    return int(string(number))


def _varchar(sizes: list[int]) -> Type:
    match sizes:
        case []:
            return VARCHAR
        case [length] if 1 <= length <= VARCHAR_LENGTH_MAX:
            return Type("varchar", length=length)
        case _:
            raise wrong("the length of a varchar.", fix=f"Use 1 to {VARCHAR_LENGTH_MAX}.")


def _numeric(sizes: list[int]) -> Type:
    match sizes:
        case []:
            return NUMERIC
        case [precision, *scale] if 1 <= precision <= NUMERIC_DIGITS_MAX and len(scale) <= 1:
            digits = scale[0] if scale else 0
            if digits <= precision:
                return Type("numeric", precision=precision, scale=digits)
            raise refuse("a numeric with more digits after the point than in all.")
        case _:
            raise wrong("the precision of a numeric.", fix=f"Use 1 to {NUMERIC_DIGITS_MAX}.")
