"""Numbers, strings and enumerated values: whether every old value is inside the new bounds.

Each function compares one alternative of the old schema with the one alternative of the new schema that msgspec
would pick for it. A literal value is compared as the narrowest range that holds it, so there is one rule for
"the constant 3" and for "an integer from 1 to 5".

Invariant: an empty answer is a proof. Keywords that are not understood must be equal on both sides.
"""

import math
from typing import NamedTuple

from interlock.core.plan.findings import Incompatibility, incompatible
from interlock.core.plan.shapes import ANNOTATIONS, Kind, Schema, constants, keywords, kind_of_value, number, show

# Above this size not every integer has a float of its own, so "x < bound" may become "x == bound".
_EXACT_FLOAT_MAX = 2**53
# `datetime` and `time` without a declared timezone are plain strings in a schema: they may or may not fit these.
_FORMATS_OF_PLAIN_TEXT = frozenset({"date-time", "time"})
_KEEP_TYPE = "keep the old type, or store the new value in a new field that has a default"


class _Bound(NamedTuple):
    value: float
    exclusive: bool


def compare_enumerated(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    """Against an enumeration: each old literal must be listed; an open type never fits, but null does."""
    allowed = constants(new) or []
    stored = constants(old)
    if stored is None and old.get("type") == "null":
        stored = [None]
    if stored is None and old.get("type") == "boolean":
        stored = [False, True]
    listed = ", ".join(show(value) for value in allowed)
    if stored is None:
        why = f"the old machine stored any {old.get('type')} here, the new one accepts only {listed}"
        fix = "keep the open type, or list every value that is stored"
        return [incompatible(path, why, fix, certain=keywords(old) == {"type"})]
    # True equals 1 in Python but not in JSON, so literals are compared by how they are written.
    written = {show(value) for value in allowed}
    return [
        incompatible(
            path, f"the stored value {show(value)} is no longer among {listed}", f"keep {show(value)} in the new type"
        )
        for value in stored
        if show(value) not in written
    ]


def literal_range(value: object) -> Schema:
    """The narrowest typed schema that holds exactly (or, for text, at least) one literal."""
    kind = kind_of_value(value)
    if isinstance(value, str):
        return {"type": kind, "minLength": len(value), "maxLength": len(value), "const": value}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"type": kind, "minimum": value, "maximum": value}
    return {"type": kind}


def compare_numbers(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    """Bounds and `multipleOf` of integers and numbers; an integer is welcome where a number is expected."""
    widened = old.get("type") != new.get("type")
    problems = [
        *_compare_bound(_lower(old), _lower(new), sign=1, widened=widened, path=path),
        *_compare_bound(_upper(old), _upper(new), sign=-1, widened=widened, path=path),
    ]
    factor = number(new, "multipleOf")
    if factor is not None and not _is_multiple(old, factor, widened=widened):
        certain = keywords(old) == {"type"}
        why = f"the new type accepts only multiples of {factor}"
        problems.append(incompatible(path, why, f"drop the restriction to multiples of {factor}", certain=certain))
    return problems


def compare_strings(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    """Length, pattern, format and encoding of strings."""
    problems: list[Incompatibility] = []
    shortest, longest = number(new, "minLength"), number(new, "maxLength")
    # A format or a pattern may keep lengths within bounds without saying so: then nothing is certain.
    plain = keywords(old) <= {"type", "minLength", "maxLength", "const"}
    if shortest is not None and (number(old, "minLength") or 0) < shortest:
        why = f"stored text may be shorter than {shortest} characters"
        problems.append(incompatible(path, why, "lower the minimum length", certain=plain))
    if longest is not None and _or_infinite(number(old, "maxLength")) > longest:
        why = f"stored text may be longer than {longest} characters"
        problems.append(incompatible(path, why, "raise the maximum length", certain=plain))
    for keyword in ("format", "contentEncoding", "pattern"):
        wanted, had = new.get(keyword), old.get(keyword)
        if wanted is not None and wanted != had:
            certain = keyword != "pattern" and "const" not in old
            certain = certain and not (had is None and wanted in _FORMATS_OF_PLAIN_TEXT)
            why = f"stored text has {keyword} {show(had) if had else '(any)'}, the new type expects {show(wanted)}"
            problems.append(incompatible(path, why, _KEEP_TYPE, certain=certain))
    return problems


def compare_unknown_keywords(old: Schema, new: Schema, known: frozenset[str], path: str) -> list[Incompatibility]:
    """Keywords of the new schema that this module does not understand must be literally the same as before."""
    foreign = sorted(set(new) - ANNOTATIONS - known - {"type"})
    return [
        incompatible(
            path, f"the keyword {show(word)} is not understood", f"leave {show(word)} as it was", certain=False
        )
        for word in foreign
        if isinstance(new[word], dict | list) or word not in old or show(old[word]) != show(new[word])
    ]


def describe(kind: Kind, schema: Schema) -> str:
    """A schema alternative in a few words, for messages."""
    values = constants(schema)
    if values is not None:
        return "one of " + ", ".join(show(value) for value in values)
    detail = schema.get("format") or schema.get("contentEncoding")
    return f"{kind} ({detail})" if isinstance(detail, str) else kind


def _lower(schema: Schema) -> _Bound | None:
    bounds = _bounds(schema, "minimum", "exclusiveMinimum")
    return max(bounds, key=lambda bound: (bound.value, bound.exclusive), default=None)


def _upper(schema: Schema) -> _Bound | None:
    bounds = _bounds(schema, "maximum", "exclusiveMaximum")
    return min(bounds, key=lambda bound: (bound.value, not bound.exclusive), default=None)


def _bounds(schema: Schema, inclusive: str, exclusive: str) -> list[_Bound]:
    bounds: list[_Bound] = []
    closed, opened = number(schema, inclusive), number(schema, exclusive)
    if closed is not None:
        bounds.append(_Bound(closed, exclusive=False))
    if opened is not None and schema.get("type") == "integer":
        # The next integer is the same limit, said inclusively.
        bounds.append(
            _Bound(math.floor(opened) + 1 if inclusive == "minimum" else math.ceil(opened) - 1, exclusive=False)
        )
    elif opened is not None:
        bounds.append(_Bound(opened, exclusive=True))
    return bounds


def _compare_bound(
    old: _Bound | None, new: _Bound | None, *, sign: int, widened: bool, path: str
) -> list[Incompatibility]:
    if new is None:
        return []
    end = "below" if sign > 0 else "above"
    limit = f"the exclusive limit {new.value}" if new.exclusive else str(new.value)
    if widened and new.exclusive and abs(new.value) >= _EXACT_FLOAT_MAX:
        why = f"integers near {new.value} are rounded when they are read as floats"
        return [incompatible(path, why, "use an inclusive bound", certain=False)]
    if old is None or not _inside(old, new, sign):
        return [incompatible(path, f"stored numbers may be {end} {limit}", "widen the bound to what is stored")]
    return []


def _inside(old: _Bound, new: _Bound, sign: int) -> bool:
    if old.value == new.value:
        return old.exclusive or not new.exclusive
    return old.value > new.value if sign > 0 else old.value < new.value


def _is_multiple(old: Schema, factor: float, *, widened: bool) -> bool:
    had = number(old, "multipleOf")
    if number(old, "minimum") is not None and number(old, "minimum") == number(old, "maximum"):
        had = number(old, "minimum")
    if had is None or widened:
        return False
    # Remainders of floats are not exact; only the very same factor is a proof.
    return had == factor or (isinstance(had, int) and isinstance(factor, int) and had % factor == 0)


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value
