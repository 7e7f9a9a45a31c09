"""Compare schemas of numbers, strings and enumerated values: every old value must be inside the new bounds.

Each function compares one alternative of the old schema with the one alternative of the new schema that msgspec
would pick for it. A literal value is compared as the narrowest range that holds it, so there is one rule for
"the constant 3" and for "an integer from 1 to 5".

Invariant: an empty result is a proof. Unknown keywords must be equal on both sides.
"""

import math
from typing import NamedTuple

from interlock.core.plan.findings import Incompatibility, incompatible
from interlock.core.plan.shapes import ANNOTATIONS, Kind, Schema, constants, keywords, kind_of_value, number, show
from interlock.core.schemas import DATETIME, NAIVE_DATETIME, TEXT, TIME

# Above this size not every integer has a float of its own.
_EXACT_FLOAT_MAX = 2**53
_PLAIN_TEXT, _AWARE_DATETIME, _AWARE_TIME, _NAIVE_TIME = "text", "aware datetime", "aware time", "naive time"
_MEANINGS = {
    "date-time": _AWARE_DATETIME,
    "time": _AWARE_TIME,
    "partial-time": _NAIVE_TIME,
    "duration": "a duration",
}
_NOT_AS_TEXT = frozenset({"bytes in base64", "a duration"})
"""Meanings that become another value when read as text: base64 and `P1D` are encodings of the value."""
_READ_ALIKE = frozenset(
    {
        (_AWARE_DATETIME, DATETIME),
        (NAIVE_DATETIME, DATETIME),
        (_AWARE_TIME, TIME),
        (_NAIVE_TIME, TIME),
    }
)
"""Pairs of stored and expected meanings, text aside, for which every stored string is read as the same value."""
_READ_PERHAPS = frozenset(
    {
        (DATETIME, _AWARE_DATETIME),
        (DATETIME, NAIVE_DATETIME),
        (TIME, _AWARE_TIME),
        (TIME, _NAIVE_TIME),
        # Without annotations a datetime of any timezone is plain text in a schema.
        (_PLAIN_TEXT, _AWARE_DATETIME),
        (_PLAIN_TEXT, _AWARE_TIME),
    }
)
"""Pairs where only some stored strings can be read, or where that is not known."""
_KEEP_TYPE = "keep the old type, or store the new value in a new field that has a default"


class _Bound(NamedTuple):
    value: float
    exclusive: bool


def compare_enumerated(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    """Compare with an enumeration: each old literal must be listed; an open type never fits, but null does."""
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
            path,
            f"the stored value {show(value)} is not among {listed} any more",
            f"keep {show(value)} in the new type",
        )
        for value in stored
        if show(value) not in written
    ]


def literal_range(value: object) -> Schema:
    """Return the narrowest typed schema that contains exactly (or, for text, at least) one literal."""
    kind = kind_of_value(value)
    if isinstance(value, str):
        return {"type": kind, "minLength": len(value), "maxLength": len(value), "const": value}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"type": kind, "minimum": value, "maximum": value}
    return {"type": kind}


def compare_numbers(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    """Compare bounds and `multipleOf` of integers and numbers; an integer is accepted where a number is expected."""
    widened = old.get("type") != new.get("type")
    problems = [
        *(_compare_precision(old, path) if widened else ()),
        *_compare_bound(_lower(old), _lower(new), sign=1, path=path),
        *_compare_bound(_upper(old), _upper(new), sign=-1, path=path),
    ]
    factor = number(new, "multipleOf")
    if factor is not None and not _is_multiple(old, factor, widened=widened):
        certain = keywords(old) == {"type"}
        why = f"the new type accepts only multiples of {factor}"
        problems.append(incompatible(path, why, f"drop the restriction to multiples of {factor}", certain=certain))
    return problems


def _compare_precision(old: Schema, path: str) -> list[Incompatibility]:
    """Report integers that are read as floats, which keep their value only up to 2**53."""
    least, most = _lower(old), _upper(old)
    if least is None or most is None or least.value < -_EXACT_FLOAT_MAX or most.value > _EXACT_FLOAT_MAX:
        why = f"stored integers beyond {_EXACT_FLOAT_MAX:,} are rounded when they are read as floats"
        return [
            incompatible(path, why, "keep the integer, or use a Decimal, which reads integers exactly", certain=False)
        ]
    return []


def compare_strings(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    """Compare length, pattern, format and encoding of strings."""
    problems: list[Incompatibility] = []
    shortest, longest = number(new, "minLength"), number(new, "maxLength")
    # A format or a pattern may bound the length implicitly: then nothing is certain.
    plain = keywords(old) <= {"type", "minLength", "maxLength", "const"}
    if shortest is not None and (number(old, "minLength") or 0) < shortest:
        why = f"stored text may be shorter than {shortest} characters"
        problems.append(incompatible(path, why, "lower the minimum length", certain=plain))
    if longest is not None and _or_infinite(number(old, "maxLength")) > longest:
        why = f"stored text may be longer than {longest} characters"
        problems.append(incompatible(path, why, "raise the maximum length", certain=plain))
    had, wanted = _meaning(old), _meaning(new)
    if not _reads_alike(had, wanted):
        certain = (had, wanted) not in _READ_PERHAPS and "const" not in old
        why = f"the old machine stored {had} here, the new one reads {wanted}"
        problems.append(incompatible(path, why, _KEEP_TYPE, certain=certain))
    pattern = new.get("pattern")
    if pattern is not None and pattern != old.get("pattern"):
        why = f"stored text may not match the pattern {show(pattern)}"
        problems.append(incompatible(path, why, _KEEP_TYPE, certain=False))
    return problems


def _meaning(schema: Schema) -> str:
    """Return the meaning of a string: plain text, or the format or encoding of another value."""
    if "contentEncoding" in schema:
        return f"bytes in {schema['contentEncoding']}"
    text = schema.get(TEXT) or schema.get("format")
    return _MEANINGS.get(str(text), str(text)) if text else _PLAIN_TEXT


def _reads_alike(had: str, wanted: str) -> bool:
    if wanted == _PLAIN_TEXT:
        return had not in _NOT_AS_TEXT
    return wanted == had or (had, wanted) in _READ_ALIKE


def compare_unknown_keywords(old: Schema, new: Schema, known: frozenset[str], path: str) -> list[Incompatibility]:
    """Report keywords of the new schema that this module does not know and that differ from the old schema."""
    foreign = sorted(set(new) - ANNOTATIONS - known - {"type"})
    return [
        incompatible(
            path, f"the keyword {show(word)} is not understood", f"leave {show(word)} as it was", certain=False
        )
        for word in foreign
        if isinstance(new[word], dict | list) or word not in old or show(old[word]) != show(new[word])
    ]


def describe(kind: Kind, schema: Schema) -> str:
    """Return a schema alternative in a few words, for messages."""
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
        # The next integer is the same limit, expressed inclusively.
        bounds.append(
            _Bound(math.floor(opened) + 1 if inclusive == "minimum" else math.ceil(opened) - 1, exclusive=False)
        )
    elif opened is not None:
        bounds.append(_Bound(opened, exclusive=True))
    return bounds


def _compare_bound(old: _Bound | None, new: _Bound | None, *, sign: int, path: str) -> list[Incompatibility]:
    if new is None:
        return []
    end = "below" if sign > 0 else "above"
    limit = f"the exclusive limit {new.value}" if new.exclusive else str(new.value)
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
