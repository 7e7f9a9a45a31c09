"""Pairs of msgspec types, an old and a new one that resemble each other, with values of the old one.

A pair is drawn together, so that the interesting cases are common: the same struct with one field less, the same
integer with a narrower bound. Left out is what a JSON schema cannot express (see the module docstring of
`interlock.core.plan.schema_compatibility`): bounded bytes, flags.
"""

import datetime
import decimal
import enum
import itertools
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

UTC = datetime.UTC
_NUMBERS = itertools.count()  # msgspec wants the structs inside one schema to have different names.
Draw = st.DrawFn
# Types that are put together at run time are not types to a checker.
_GENERICS: dict[str, Any] = {"Annotated": Annotated, "dict": dict, "tuple": tuple}


@dataclass(frozen=True)
class Spec:
    """A type and how to make values of it. `kinds` are the JSON kinds, to build unions that msgspec allows."""

    type: Any
    values: st.SearchStrategy[object]
    kinds: frozenset[str]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


def _spec(kind: object, values: st.SearchStrategy[Any], *kinds: str) -> Spec:
    return Spec(kind, values, frozenset(kinds))


def _annotated(kind: object, meta: dict[str, Any]) -> object:
    return _GENERICS["Annotated"][kind, msgspec.Meta(**meta)]


_TEXT = st.text(max_size=6)
_INTEGERS = st.integers(-(2**70), 2**70) | st.integers(-6, 12)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-6, 12).map(float)
FIXED = [
    _spec(int, _INTEGERS, "int"),
    _spec(float, _FLOATS, "float"),
    _spec(str, _TEXT, "str"),
    _spec(bool, st.booleans(), "bool"),
    _spec(None, st.none(), "null"),
    _spec(bytes, st.binary(max_size=4), "str"),
    _spec(datetime.date, st.dates(), "str"),
    _spec(Annotated[datetime.datetime, msgspec.Meta(tz=True)], st.datetimes(timezones=st.just(UTC)), "str"),
    _spec(datetime.datetime, st.datetimes(timezones=st.sampled_from([None, UTC])), "str"),
    _spec(Annotated[datetime.datetime, msgspec.Meta(tz=False)], st.datetimes(), "str"),
    _spec(datetime.time, st.times(), "str"),
    _spec(
        datetime.timedelta, st.timedeltas(max_value=datetime.timedelta(days=9), min_value=datetime.timedelta()), "str"
    ),
    _spec(decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False), "str", "int", "float"),
    _spec(Colour, st.sampled_from(Colour), "str"),
    _spec(Level, st.sampled_from(Level), "int"),
    _spec(Literal["red", "blue"], st.sampled_from(["red", "blue"]), "str"),
    _spec(Literal["red"], st.just("red"), "str"),
    _spec(Literal[1, 2], st.sampled_from([1, 2]), "int"),
    _spec(Literal["red", 1, None], st.sampled_from(["red", 1, None]), "str", "int", "null"),  # noqa: PYI061 - one enumeration
    _spec(Any, st.none() | _INTEGERS | _TEXT | st.lists(_INTEGERS, max_size=2), "any"),
]


@st.composite
def bounded(draw: Draw, kinds: tuple[str, ...] = ("int", "float", "str")) -> Spec:
    """An integer, float or text with bounds."""
    low = draw(st.integers(-4, 4))
    high = low + draw(st.integers(2, 8))
    match draw(st.sampled_from(kinds)), draw(st.booleans()):
        case "int", False:
            meta = draw(
                st.sampled_from(
                    [{"ge": low}, {"gt": low - 1}, {"ge": low, "le": high}, {"lt": high + 1, "gt": low - 1}]
                )
            )
            return _spec(_annotated(int, meta), st.integers(low, high), "int")
        case "float", _:
            meta = draw(st.sampled_from([{"ge": low}, {"gt": low}, {"ge": low, "le": high}, {"lt": high, "gt": low}]))
            floats = st.floats(low, high, exclude_min="gt" in meta, exclude_max="lt" in meta)
            return _spec(_annotated(float, meta), floats, "float")
        case "str", _:
            least, most = abs(low), abs(low) + draw(st.integers(0, 3))
            meta = draw(
                st.sampled_from(
                    [{"min_length": least}, {"max_length": most}, {"min_length": least, "max_length": most}]
                )
            )
            return _spec(_annotated(str, meta), st.text(min_size=least, max_size=most), "str")
        case _:
            factor = draw(st.integers(1, 6))
            return _spec(
                Annotated[int, msgspec.Meta(multiple_of=factor)], st.integers(-9, 9).map(lambda n: n * factor), "int"
            )


SCALARS = st.sampled_from(FIXED) | bounded()

LOSSY = [
    (_spec(int, st.integers(2**53 + 1, 2**70), "int"), _spec(float, _FLOATS, "float")),
    (_spec(str, _TEXT, "str"), _spec(datetime.datetime, st.datetimes(), "str")),
    (_spec(str, _TEXT, "str"), _spec(bytes, st.binary(max_size=4), "str")),
]
"""Pairs that share a kind of JSON and still lose values. Drawn by themselves: two draws seldom meet in one of them."""


@st.composite
def _scalar_pairs(draw: Draw) -> tuple[Spec, Spec]:
    """Mostly the same type twice, often two that share a JSON kind, seldom strangers: few changes in a big type."""
    nearness = draw(st.sampled_from(["same"] * 6 + ["kin"] * 3 + ["stranger", "lossy"]))
    if nearness == "lossy":
        return draw(st.sampled_from(LOSSY))
    old = draw(SCALARS)
    if nearness == "same":
        return old, old
    if nearness == "stranger":
        return old, draw(SCALARS)
    kin = [spec for spec in FIXED if spec.kinds & (old.kinds | {"any"})]
    boundable = tuple(sorted(old.kinds & {"int", "float", "str"}))
    return old, draw(st.sampled_from(kin) | bounded(boundable) if boundable else st.sampled_from(kin))


@st.composite
def pairs(draw: Draw, depth: int = 2) -> tuple[Spec, Spec]:  # noqa: PLR0911 - one shape, one line
    """An old and a new type."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(_scalar_pairs())
    inner = pairs(depth - 1)
    shape = draw(
        st.sampled_from(["struct", "struct", "arraylike", "sequence", "tuple", "mapping", "union", "tagged", "mixed"])
    )
    match shape:
        case "struct" | "arraylike":
            return draw(_structs(inner, arraylike=shape == "arraylike", names=("Old", "New")))
        case "sequence":
            old, new = draw(inner)
            return draw(_sequences(old)), draw(_sequences(new))
        case "tuple":
            return draw(_tuples(inner))
        case "mapping":
            old, new = draw(inner)
            return draw(_mappings(old)), draw(_mappings(new))
        case "union":
            return draw(_unions(inner))
        case "tagged":
            return draw(_tagged_unions(inner))
        case _:
            return draw(inner)[0], draw(inner)[1]


@st.composite
def _structs(
    draw: Draw,
    inner: st.SearchStrategy[tuple[Spec, Spec]],
    *,
    arraylike: bool,
    names: tuple[str, str],
    tags: tuple[str | None, str | None] = (None, None),
) -> tuple[Spec, Spec]:
    fields: tuple[list[tuple[str, Spec]], list[tuple[str, Spec]]] = ([], [])
    for name in ("alpha", "beta", "gamma"):
        sides = draw(st.sampled_from(["both"] * 6 + ["old", "new"]))
        for side, spec in enumerate(draw(inner)):
            if sides in ("both", ("old", "new")[side]):
                fields[side].append((name, spec))
    defaults = draw(st.integers(0, 3))
    old, new = (
        _struct(
            names[side],
            fields[side],
            defaults=draw(st.just(defaults) | st.integers(0, 3)),
            default=draw,
            arraylike=arraylike,
            forbid=draw(st.integers(0, 7)) == 0,
            omit=draw(st.booleans()),
            tag=tags[side],
        )
        for side in (0, 1)
    )
    return old, new


def _struct(
    name: str,
    fields: list[tuple[str, Spec]],
    *,
    defaults: int,
    default: Draw,
    arraylike: bool,
    forbid: bool,
    omit: bool,
    tag: str | None,
) -> Spec:
    """A struct whose last `defaults` fields have one, a value of their own type."""
    declared: list[Any] = []
    for place, (field, spec) in enumerate(fields):
        if place < len(fields) - defaults:
            declared.append((field, spec.type))
        else:
            value = default(spec.values)
            declared.append((field, spec.type, msgspec.field(default_factory=partial(_same, value))))
    struct: Any = msgspec.defstruct(
        f"{name}{next(_NUMBERS)}",
        declared,
        array_like=arraylike,
        forbid_unknown_fields=forbid,
        omit_defaults=omit,
        tag=tag,
        frozen=True,
    )
    values = st.builds(struct, **{field: spec.values for field, spec in fields})
    # A union may hold several structs only if all are tagged, array-like ones included: hence a kind of their own.
    return _spec(struct, values, "array" if arraylike else "object", "struct")


def _same(value: object) -> object:
    return value


@st.composite
def _sequences(draw: Draw, item: Spec) -> Spec:
    least, most = draw(st.sampled_from([(0, None)] * 4 + [(1, None), (0, 3), (2, 3)]))
    lengths: dict[str, Any] = {} if (least, most) == (0, None) else {"min_length": least, "max_length": most}
    hashable = not item.kinds & {"array", "object", "any"}
    shape: Any = draw(st.sampled_from([list, set] if hashable else [list]))
    if shape is set:
        # A type with fewer values than the least size has no such set.
        values: st.SearchStrategy[Any] = st.lists(item.values, max_size=3).map(set)
        values = values.filter(lambda built: len(built) >= least)
    else:
        values = st.lists(item.values, min_size=least, max_size=most or 3)
    kind: Any = shape[item.type]
    return _spec(_annotated(kind, lengths) if lengths else kind, values, "array")


@st.composite
def _tuples(draw: Draw, inner: st.SearchStrategy[tuple[Spec, Spec]]) -> tuple[Spec, Spec]:
    items = draw(st.lists(inner, min_size=1, max_size=3))
    sides: list[Spec] = []
    for side in (0, 1):
        specs = [item[side] for item in items]
        if draw(st.integers(0, 7)) == 0:
            specs = specs[:-1]
        if specs and draw(st.integers(0, 7)) == 0:
            open_ended = _GENERICS["tuple"][specs[0].type, ...]
            sides.append(_spec(open_ended, st.lists(specs[0].values, max_size=3).map(tuple), "array"))
        else:
            fixed = _GENERICS["tuple"][tuple(spec.type for spec in specs)]
            sides.append(_spec(fixed, st.tuples(*(spec.values for spec in specs)), "array"))
    return sides[0], sides[1]


@st.composite
def _mappings(draw: Draw, item: Spec) -> Spec:
    least, most = draw(st.sampled_from([(0, None)] * 4 + [(1, None), (0, 2)]))
    short = draw(st.integers(0, 3)) == 0
    key: Any = Annotated[str, msgspec.Meta(min_length=1, max_length=5)] if short else str
    keys: st.SearchStrategy[Any] = st.text(min_size=1, max_size=5) if short else _TEXT
    keys = keys | st.sampled_from(["alpha", "beta"])
    if draw(st.integers(0, 4)) == 0:
        key, keys = draw(st.sampled_from([(int, _INTEGERS), (datetime.date, st.dates())]))
    kind = _GENERICS["dict"][key, item.type]
    meta = {"min_length": least} if most is None else {"min_length": least, "max_length": most}
    values = st.dictionaries(keys, item.values, min_size=least, max_size=most or 3)
    return _spec(_annotated(kind, meta), values, "object")


@st.composite
def _unions(draw: Draw, inner: st.SearchStrategy[tuple[Spec, Spec]]) -> tuple[Spec, Spec]:
    chosen = draw(st.lists(inner, min_size=1, max_size=3))
    sides: list[Spec] = []
    for side in (0, 1):
        members: list[Spec] = []
        for pair in chosen:
            taken = {kind for member in members for kind in member.kinds}
            spec = pair[side]
            fits = not spec.kinds & taken and "any" not in taken | spec.kinds
            if fits and not _crashes([*members, spec]) and draw(st.integers(0, 7)) > 0:
                members.append(spec)
        sides.append(_union(members) if members else chosen[0][side])
    return sides[0], sides[1]


@st.composite
def _tagged_unions(draw: Draw, inner: st.SearchStrategy[tuple[Spec, Spec]]) -> tuple[Spec, Spec]:
    arraylike = draw(st.booleans())
    members: tuple[list[Spec], list[Spec]] = ([], [])
    for tag in ("first", "second", "third"):
        old, new = draw(_structs(inner, arraylike=arraylike, names=(f"Old_{tag}", f"New_{tag}"), tags=(tag, tag)))
        members[0].append(old)
        members[1].append(new)
    old_count, new_count = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return _union(members[0][:old_count]), _union(members[1][:new_count])


def _crashes(members: list[Spec]) -> bool:
    """Building a union of a fixed-length tuple and a constrained type ends the process in msgspec 0.22."""
    parts = [
        part for member in members for part in (get_args(member.type) if _is_union(member.type) else (member.type,))
    ]
    fixed = any(get_origin(part) is tuple and ... not in get_args(part) for part in parts)
    return fixed and any(hasattr(part, "__metadata__") for part in parts)


def _is_union(kind: object) -> bool:
    return get_origin(kind) is Union


def _union(members: list[Spec]) -> Spec:
    kinds = frozenset(kind for member in members for kind in member.kinds)
    joined: Any = Union[tuple(member.type for member in members)]  # noqa: UP007
    return Spec(joined, st.one_of([member.values for member in members]), kinds)
