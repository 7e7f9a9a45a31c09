"""Search: the fields of a context by which workflows are found, and the conditions on them (F4).

A field is at the top of the context and holds a text, a number, a truth value, a date, a time, a UUID or a member of an
Enum, or None. Each has a *plain* form, by which it is compared: a text, a number, a Decimal, or the microseconds of a
time. The plain form is made from the stored JSON, so that a store can make the same one with SQL, and workflows are
found that no engine has loaded. None comes before all values, and only `= None` and `!=` match it.

Sections: fields, plain forms, conditions, text.
"""

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeGuard, TypeVar, cast

import msgspec
from msgspec import inspect

from interlock.core.decide import bounded_repr, suggestion
from interlock.core.table import name_of
from interlock.errors import DefinitionError, InvalidPayload

# --- Fields ----------------------------------------------------------------------------------------------------------

SearchKind = Literal["str", "int", "float", "bool", "Decimal", "date", "datetime", "UUID", "Enum"]
Basis = Literal["text", "number", "truth", "decimal", "time"]
Plain = str | int | float | bool | Decimal | None

FIELDS_MAX: Final = 16
"""G6: searchable fields of one machine. Each is kept sorted by the store."""

TEXT_MAX: Final = 500
"""G6: characters of a text that are compared; longer ones are sorted by their beginning. A text with NUL is taken for
None: SQLite reads no further than the NUL."""

UPDATED: Final = "updated_at"
CREATED: Final = "created_at"

_KINDS: dict[type[inspect.Type], SearchKind] = {
    inspect.StrType: "str",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.BoolType: "bool",
    inspect.DecimalType: "Decimal",
    inspect.DateType: "date",
    inspect.DateTimeType: "datetime",
    inspect.UUIDType: "UUID",
    inspect.EnumType: "Enum",
}
_ALLOWED = "str, int, float, bool, Decimal, date, datetime, UUID, Enum, or one of them or None"
_WHY = "A store keeps searchable fields sorted, and sorts only plain values at the top of the context."


class SearchField(msgspec.Struct, frozen=True):
    """One searchable field of a context."""

    name: str
    stored: str
    """Its name in the stored JSON."""
    kind: SearchKind
    basis: Basis
    default: str | int | float | bool | None = None
    """Its value in JSON where the stored context does not have it."""
    members: type[Enum] | None = None


class MachineSearch(NamedTuple):
    """What a machine declares searchable."""

    machine: str
    version: int
    fields: tuple[SearchField, ...] | None
    """None: nothing, also not the time of the last move."""


class _StoredField(msgspec.Struct, frozen=True):
    """A searchable field as a store's note has it."""

    name: str
    stored: str
    kind: SearchKind
    basis: Basis
    default: str | int | float | bool | None
    members: dict[str, str | int | float] | None
    """Those of an Enum, by name."""


class _StoredSearch(msgspec.Struct, frozen=True):
    """What a machine declares searchable, as a store's note has it."""

    version: int
    fields: tuple[_StoredField, ...] | None


def search_to_json(search: MachineSearch) -> str:
    """Return what a machine declares searchable as JSON, so that a program without its code can search."""
    fields: list[_StoredField] = []
    for each in search.fields or ():
        members = None if each.members is None else {member.name: member.value for member in each.members}
        fields.append(_StoredField(each.name, each.stored, each.kind, each.basis, each.default, members))
    found = _StoredSearch(search.version, None if search.fields is None else tuple(fields))
    return msgspec.json.encode(found).decode()


def search_from_json(machine: str, text: str) -> MachineSearch:
    """Return what `search_to_json` has written. Enums have the same members, in a class of their own."""
    found = msgspec.json.decode(text, type=_StoredSearch)
    fields: list[SearchField] = []
    for each in found.fields or ():
        # `Enum(name, members)` makes a class, which a type checker knows for names that it can read only.
        members = None if each.members is None else cast("type[Enum]", Enum(each.name, each.members))
        fields.append(SearchField(each.name, each.stored, each.kind, each.basis, each.default, members))
    return MachineSearch(machine, found.version, None if found.fields is None else tuple(fields))


class _Member(NamedTuple):
    """A field of a context's class."""

    stored: str
    type: inspect.Type
    default: object = msgspec.NODEFAULT


def search_fields(context: object, names: object, machine: str, location: str) -> tuple[SearchField, ...] | None:
    """Return the declared fields, or None where nothing is declared. Raises DefinitionError."""
    if names is None:
        return None
    if not _is_list(names):
        what = f"search={bounded_repr(names)} is not a sequence of field names."
        raise _refused(
            machine, what, 'Write search=("customer", "cents"); one name needs a comma: ("customer",).', location
        )
    if len(names) > FIELDS_MAX:
        what = f"search= has {len(names)} fields; at most {FIELDS_MAX} are possible."
        raise _refused(machine, what, "Declare the fields that people search by.", location)
    members = _members_of(context)
    found: list[SearchField] = []
    for name in names:
        if not isinstance(name, str) or name not in members:
            what = f"search= has {bounded_repr(name)}, which is not a field of {name_of(context)}."
            fix = f"Use some of its fields: {', '.join(members) or 'it has none'}.{suggestion(str(name), members)}"
            raise _refused(machine, what, fix, location)
        if any(each.name == name for each in found):
            raise _refused(machine, f"search= has {name!r} twice.", "Name each field once.", location)
        found.append(_field(name, members[name], machine, location))
    return tuple(found)


def _members_of(context: object) -> dict[str, _Member]:
    """Return the fields of a context's class, by their name in Python."""
    information = inspect.type_info(context)
    if isinstance(information, inspect.StructType | inspect.DataclassType | inspect.TypedDictType):
        return {each.name: _Member(each.encode_name, each.type, each.default) for each in information.fields}
    models = cast("dict[str, object]", getattr(context, "model_fields", {}))
    members: dict[str, _Member] = {}
    for name, model in models.items():
        default: object = getattr(model, "default", None)
        known = type(default).__name__ != "PydanticUndefinedType"
        stored = getattr(model, "serialization_alias", None) or getattr(model, "alias", None) or name
        kind = inspect.type_info(getattr(model, "annotation", object))
        members[name] = _Member(str(stored), kind, default if known else msgspec.NODEFAULT)
    return members


def _field(name: str, member: _Member, machine: str, location: str) -> SearchField:
    types = member.type.types if isinstance(member.type, inspect.UnionType) else (member.type,)
    kinds = [each for each in types if not isinstance(each, inspect.NoneType)]
    kind = _KINDS.get(type(kinds[0])) if len(kinds) == 1 else None
    enum = kinds[0].cls if kinds and isinstance(kinds[0], inspect.EnumType) else None
    values = [] if enum is None else [each.value for each in enum]
    reserved = name in {UPDATED, CREATED}
    if kind is None or reserved or re.search(r'["\\\x00-\x1f]', member.stored):
        type_names = " | ".join(type(each).__name__.removesuffix("Type") for each in types)
        what = f"search= has {name!r}, a field of type {type_names}, which cannot be searched."
        fix = f"Search fields of these types: {_ALLOWED}; copy what you need into such a field."
        if reserved:
            what, fix = f"search= has {name!r}, which is the workflow's own time.", "Rename the field of the context."
        raise _refused(machine, what, fix, location)
    default = cast("object", None if member.default is msgspec.NODEFAULT else msgspec.to_builtins(member.default))
    plain = default if isinstance(default, str | int | float | bool) else None
    if isinstance(plain, float) and not math.isfinite(plain):
        plain = None  # JSON has no such number, so none is stored either.
    found = SearchField(name, member.stored, kind, _basis(kind, values), plain, enum)
    # A default of another type than the field's is taken for None, as such a value is that was stored.
    return found if plain_of(found, {}) is not None else msgspec.structs.replace(found, default=None)


def _basis(kind: SearchKind, values: Sequence[object]) -> Basis:
    if kind == "Enum":
        return "text" if isinstance(values[0], str) else "number"
    known: dict[SearchKind, Basis] = {
        "int": "number",
        "float": "number",
        "bool": "truth",
        "Decimal": "decimal",
        "datetime": "time",
    }
    return known.get(kind, "text")


def _refused(machine: str, what: str, fix: str, location: str) -> DefinitionError:
    return DefinitionError(f"machine {machine!r}: {what}", why=_WHY, fix=fix, rule="bad-search", location=location)


# --- Plain forms -----------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?(Z|[+-]\d\d:\d\d)?")
DECIMAL = r"[+-]?[0-9]+(\.[0-9]+)?([Ee][+-]?[0-9]{1,4})?"
"""The decimals that are searched, as a regular expression. Others are taken for None."""
DECIMAL_MAX: Final = 1_000
"""G6: characters of a decimal that is searched."""
_DECIMAL = re.compile(DECIMAL)


def _is_decimal(text: str) -> bool:
    return len(text) <= DECIMAL_MAX and _DECIMAL.fullmatch(text) is not None


def micros_of(at: datetime) -> int:
    """Return a time as microseconds since the epoch; one without a timezone is taken for UTC."""
    return ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def plain_of(field: SearchField, context: Mapping[str, object]) -> Plain:
    """Return the plain form of a field in a context that was read as JSON; None for a value of another type."""
    raw = context.get(field.stored, field.default)
    if isinstance(raw, bool) or field.basis == "truth":
        return raw if isinstance(raw, bool) and field.basis == "truth" else None
    if field.basis == "number":
        return raw if isinstance(raw, int | float) else None
    if field.basis == "decimal":
        text = str(raw) if isinstance(raw, str | int | float) else ""
        return Decimal(text) if _is_decimal(text) else None
    if field.basis == "text" or not isinstance(raw, str):
        return raw[:TEXT_MAX] if isinstance(raw, str) and "\x00" not in raw else None
    try:
        return micros_of(datetime.fromisoformat(raw)) if _TIME.fullmatch(raw) else None
    except ValueError:  # A day that no calendar has, which an earlier version of the machine kept as a text.
        return None


# --- Conditions ------------------------------------------------------------------------------------------------------

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "prefix"]
OPERATORS: tuple[Operator, ...] = ("=", "!=", "<", "<=", ">", ">=", "in", "prefix")
CONDITIONS_MAX: Final = 16
IN_MAX: Final = 100

Where = Sequence[tuple[str, str, object]]
"""Conditions that must all hold: field, operator, value."""

_SORTED: tuple[Operator, ...] = ("=", "!=", "<", "<=", ">", ">=", "in")
_FIT: dict[SearchKind, tuple[Operator, ...]] = {
    "str": OPERATORS,
    "int": _SORTED,
    "float": _SORTED,
    "Decimal": _SORTED,
    "date": _SORTED,
    "datetime": _SORTED,
    "bool": ("=", "!=", "in"),
    "UUID": ("=", "!=", "in"),
    "Enum": ("=", "!=", "in"),
}


class Condition(NamedTuple):
    """One condition, with values in their plain form."""

    field: SearchField
    operator: Operator
    values: tuple[Plain, ...]
    """One, or those of `in`."""

    def holds(self, plain: Plain) -> bool:
        """Return whether a plain form satisfies it."""
        if self.operator in {"=", "in"}:
            return plain in self.values
        [value] = self.values
        if self.operator == "!=" or plain is None:
            return self.operator == "!=" and plain != value
        if self.operator == "prefix":
            return str(plain).startswith(str(value))
        return bool(_COMPARED[self.operator](plain, value))


_COMPARED: dict[Operator, Callable[[Any, Any], object]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclasses.dataclass(frozen=True)
class Search:
    """One search among the workflows of a machine."""

    machine: str
    fields: tuple[SearchField, ...]
    conditions: tuple[Condition, ...] = ()
    states: tuple[str, ...] = ()
    """The state as it is stored, under all of its names; empty: any."""
    after_us: int | None = None
    """Only workflows whose last move was after this time."""
    before_us: int | None = None
    order: SearchField | Literal["updated_at", "created_at"] = "created_at"
    descending: bool = False
    limit: int = 100
    cursor: str | None = None

    @property
    def order_text(self) -> str:
        """The order as it was given."""
        name = self.order if isinstance(self.order, str) else self.order.name
        return f"-{name}" if self.descending else name


def search_of(
    declared: MachineSearch,
    *,
    where: object,
    updated_after: datetime | None,
    updated_before: datetime | None,
    order: str | None,
    states: tuple[str, ...],
    limit: int,
    cursor: str | None,
) -> Search:
    """Return the search that a caller asks for. Raises InvalidPayload for one that does not fit the machine."""
    machine, fields = declared.machine, declared.fields
    if fields is None:
        raise InvalidPayload(
            f"machine {machine!r} is not searchable.",
            why="A search reads what the store keeps sorted, and it sorts what the machine declares.",
            fix=f'Declare it: Machine({machine!r}, …, search=("customer",)), or search=() for the times alone.',
        )
    conditions = _conditions(machine, fields, where)
    descending, sort = _order(machine, fields, order)
    after_us = None if updated_after is None else _moment("updated_after", updated_after)
    before_us = None if updated_before is None else _moment("updated_before", updated_before)
    return Search(machine, fields, conditions, states, after_us, before_us, sort, descending, limit, cursor)


def _order(
    machine: str, fields: Sequence[SearchField], order: str | None
) -> tuple[bool, SearchField | Literal["updated_at", "created_at"]]:
    term: object = CREATED if order is None else order  # Not every caller has a type checker.
    name = term.removeprefix("-") if isinstance(term, str) else ""
    if name == UPDATED:
        return str(term).startswith("-"), UPDATED
    if name == CREATED:
        return str(term).startswith("-"), CREATED
    known = {each.name: each for each in fields}
    if name not in known:
        names = [UPDATED, CREATED, *known]
        raise InvalidPayload(
            f"order={bounded_repr(order)} is not an order of machine {machine!r}.{suggestion(name, names)}",
            why="A page is read from what the store keeps sorted.",
            fix=f"Use one of {', '.join(names)}; a minus in front reverses it: -{UPDATED}.",
        )
    return str(term).startswith("-"), known[name]


def _moment(name: str, value: object) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidPayload(
            f"{name}={bounded_repr(value)} is not an aware datetime.",
            why="A time without a timezone is another instant on another machine.",
            fix="Write datetime(2026, 1, 31, tzinfo=UTC).",
        )
    return micros_of(value)


def _conditions(machine: str, fields: Sequence[SearchField], where: object) -> tuple[Condition, ...]:
    if not _is_list(where):
        _refuse_where(where)
    if len(where) > CONDITIONS_MAX:
        raise InvalidPayload(f"where= has {len(where)} conditions; at most {CONDITIONS_MAX} are possible.")
    return tuple(_condition(machine, fields, each) for each in where)


def _refuse_where(where: object) -> NoReturn:
    raise InvalidPayload(
        f"where={bounded_repr(where)} is not a list of conditions.",
        why="Each condition is a tuple of a field, an operator and a value.",
        fix='Write where=[("customer", "=", "ada"), ("cents", ">", 100)].',
    )


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _condition(machine: str, fields: Sequence[SearchField], term: object) -> Condition:
    if not _is_list(term) or len(term) != 3:  # noqa: PLR2004 -- field, operator, value.
        _refuse_where([term])
    name, sign, value = term
    field = field_of(machine, fields, str(name))
    fit = _FIT[field.kind]
    if sign not in fit:
        raise InvalidPayload(
            f"{field.name}: the operator {bounded_repr(sign)} does not fit a field of type {field.kind}."
            f"{suggestion(str(sign), fit)}",
            why="Ranges need an order, and a prefix needs a text.",
            fix=f"Use one of: {' '.join(fit)}.",
        )
    chosen = sign
    if chosen != "in":
        ranged = chosen not in {"=", "!="}
        return Condition(field, chosen, (_value(field, value, none=not ranged),))
    members: object = value
    if isinstance(value, set | frozenset):
        members = list(cast("set[object]", value))
    if not _is_list(members) or not members:
        raise _wrong_value(field, members, "a list of values, with at least one")
    several = [_value(field, each, none=True) for each in members]
    if len(several) > IN_MAX:
        raise InvalidPayload(f"{field.name}: `in` has {len(several)} values; at most {IN_MAX} are possible.")
    return Condition(field, chosen, tuple(dict.fromkeys(several)))


def field_of(machine: str, fields: Sequence[SearchField], name: str) -> SearchField:
    """Return the searchable field of that name. Raises InvalidPayload."""
    found = next((each for each in fields if each.name == name), None)
    if found is None:
        known = [each.name for each in fields]
        raise InvalidPayload(
            f"{bounded_repr(name)} is not a searchable field of machine {machine!r}.{suggestion(name, known)}",
            why="A store keeps only declared fields sorted, and searches nothing else.",
            fix=f"Use one of: {', '.join(known) or 'none is declared'}; or add it to search= of the machine.",
        )
    return found


INT_MAX: Final = 2**63 - 1

ValueT = TypeVar("ValueT")


def _value(field: SearchField, value: object, *, none: bool) -> Plain:
    """Return the plain form of a value of a condition. Raises InvalidPayload for one of another type."""
    if value is None:
        if none:
            return None
        raise _wrong_value(field, value, f"a {field.kind}; None has no order")
    if field.members is not None:
        plain = cast("object", value.value) if isinstance(value, field.members) else value
        if isinstance(plain, bool | float) or plain not in [each.value for each in field.members]:
            raise _wrong_value(field, value, _one_of(field))
        return cast("str | int", plain)
    wanted, convert = _VALUES[field.kind]
    if isinstance(value, bool) != (field.kind == "bool") or isinstance(value, Enum):
        raise _wrong_value(field, value, wanted)
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        raise _wrong_value(field, value, wanted) from None


# Each raises TypeError, ValueError or OverflowError for a value that is not what the field's type wants.


def _a(kind: type[ValueT], value: object) -> ValueT:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _demand(condition: bool) -> None:  # noqa: FBT001 -- what is demanded.
    if not condition:
        raise ValueError


def _text(value: object) -> str:
    text = _a(str, value)
    _demand(len(text) < TEXT_MAX and "\x00" not in text and not any("\ud800" <= each <= "\udfff" for each in text))
    return text


def _int(value: object) -> int:
    number = _a(int, value)
    _demand(abs(number) <= INT_MAX)
    return number


def _float(value: object) -> float:
    number = float(value if isinstance(value, int) else _a(float, value))
    _demand(math.isfinite(number))
    return number


def _decimal(value: object) -> Decimal:
    number = value if isinstance(value, Decimal) else Decimal(_a(int, value))
    _demand(_is_decimal(str(number)))
    return number


def _date(value: object) -> str:
    _demand(not isinstance(value, datetime))
    return _a(date, value).isoformat()


def _datetime(value: object) -> int:
    at = _a(datetime, value)
    _demand(at.tzinfo is not None)
    return micros_of(at)


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _uuid(value: object) -> str:
    # By its text: the core has no source of random numbers, and so not the module.
    text = str(value).lower()
    _demand(type(value).__name__ == "UUID" or (isinstance(value, str) and _UUID.fullmatch(text) is not None))
    return text


_VALUES: dict[SearchKind, tuple[str, Callable[[object], Plain]]] = {
    "str": (f"a str of less than {TEXT_MAX} characters, without NUL and lone surrogates", _text),
    "bool": ("True or False", lambda value: _a(bool, value)),
    "int": ("an int of at most 64 bits", _int),
    "float": ("a finite float", _float),
    "Decimal": ("an int or a finite Decimal with an exponent of at most four digits", _decimal),
    "date": ("a date", _date),
    "datetime": ("an aware datetime", _datetime),
    "UUID": ("a UUID", _uuid),
}


def _one_of(field: SearchField) -> str:
    assert field.members is not None
    return f"a member of {field.members.__name__}: {', '.join(repr(each.value) for each in field.members)}"


def _wrong_value(field: SearchField, value: object, wanted: str) -> InvalidPayload:
    return InvalidPayload(
        f"{field.name}: {bounded_repr(value)} is not {wanted}.",
        why=f"The field has the type {field.kind}, and a value of another type would silently match nothing.",
        fix=f"Pass {wanted}.",
    )


# --- Text ------------------------------------------------------------------------------------------------------------
# A condition as a command line and an address have it: `customer=ada`, `cents>100`, `state in open,late`,
# `customer prefix ad`. A value in JSON is taken as JSON: "null" in quotes is a text, and null is None.

_CONDITION = re.compile(r"\s*([^\s=!<>]+)\s*(!=|<=|>=|=|<|>|\sin\s|\sprefix\s)\s*(.*?)\s*", re.DOTALL)


def condition_text(term: object) -> str:
    """Return a condition as text, with its value in JSON. Raises InvalidPayload for what would be read differently."""
    if not _is_list(term) or len(term) != 3:  # noqa: PLR2004 -- field, operator, value.
        _refuse_where([term])
    name, sign, value = term
    try:
        written = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidPayload(f"{name}: {bounded_repr(value)} cannot be sent: {error}.") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidPayload(f"{name}: {value!r} cannot be sent: JSON has no such number.")
    text = f"{name} {sign} {written}"
    if split_condition(text) != (name, sign, written):
        _refuse_where([term])  # Part of the name, or of the operator, would be taken for another one.
    return text


def split_condition(text: str) -> tuple[str, str, str]:
    """Return field, operator and value of a condition that was written as text. Raises InvalidPayload."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise InvalidPayload(
            f"{bounded_repr(text)} is not a condition.",
            why="A condition is a field, an operator and a value.",
            fix=f"Write customer=ada, cents>100 or 'customer prefix ad'; the operators are {' '.join(OPERATORS)}.",
        )
    return found[1], found[2].strip(), found[3]


def where_of(machine: str, fields: Sequence[SearchField] | None, texts: Sequence[str]) -> list[tuple[str, str, object]]:
    """Return conditions that were written as texts, with values of the fields' types. Raises InvalidPayload."""
    found: list[tuple[str, str, object]] = []
    for text in texts:
        name, sign, written = split_condition(text)
        if fields is None:
            found.append((name, sign, written))
            continue
        field = field_of(machine, fields, name)
        found.append((name, sign, _typed(field, sign, written)))
    return found


def _typed(field: SearchField, sign: str, written: str) -> object:
    is_json = written == "null" or written.startswith(("[", '"') if sign == "in" else '"')
    read = _json(written) if is_json else written
    if sign != "in":
        return _one_typed(field, read, is_json=is_json)
    items = cast("list[object]", read) if isinstance(read, list) else written.split(",")
    whole = is_json and isinstance(read, list)
    return [_one_typed(field, each if whole else str(each).strip(), is_json=whole) for each in items]


def _json(written: str) -> object:
    try:
        return cast("object", msgspec.json.decode(written))
    except msgspec.DecodeError:
        return written


def _one_typed(field: SearchField, value: object, *, is_json: bool) -> object:
    """Return a value of the field's type; the text itself where it does not fit, which is refused later."""
    if is_json and isinstance(value, str) and field.kind in {"int", "float", "bool"}:
        return value  # JSON has numbers and truth values of its own: in quotes it is a text.
    if not isinstance(value, str):
        return Decimal(str(value)) if field.kind == "Decimal" and isinstance(value, float) else value
    if field.members is not None:
        return cast("object", {str(each.value): each.value for each in field.members}.get(value, value))
    read = _READ.get(field.kind)
    try:
        return value if read is None else read(value)
    except (ValueError, InvalidOperation):
        return value


_READ: dict[SearchKind, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "Decimal": Decimal,
    "bool": lambda text: {"true": True, "false": False}.get(text, text),
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}
