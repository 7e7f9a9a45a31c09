"""Comparison of two JSON schemas: whether data written under the old one decode under the new one, unchanged.

`accepts` returns a list of incompatibilities; an empty list is a proof for the types that a JSON schema can
express. It follows how msgspec decodes: unknown fields are ignored, a missing field needs a default, an integer
is read where a float (or a decimal) is expected but never the reverse, and a union picks its member by the JSON
kind of the value, or by its tag. Values that decode to another meaning are reported as well (rounded integers, items
that fall together in a set). `compare_fields` lists the fields that are dropped or added.

Facts that a schema of msgspec omits are in its annotations (`core.schemas`); a description of an earlier release lacks
them, so there a `datetime` without declared timezone looks like `str`, and the key type of a mapping is lost. Byte
lengths are rounded to base64 blocks, and flags list only their single bits.

Sections: scalars, containers, unions and recursion, dropped and added fields.
"""

import math
from typing import Literal, NamedTuple

from interlock.core.plan.findings import Incompatibility, incompatible
from interlock.core.plan.schema_shapes import (
    ANNOTATIONS,
    ANYTHING,
    Document,
    Kind,
    Schema,
    canonical,
    child,
    constants,
    keywords,
    kind_of,
    kind_of_value,
    members,
    names,
    number,
    schemas,
    show,
    tags,
    tags_differ,
)
from interlock.core.schemas import DATETIME, KEYS, NAIVE_DATETIME, OMITS, TEXT, TIME

# --- Scalars: numbers, strings and enumerated values -----------------------------------------------------------------
# Each function compares one alternative of the old schema with the one alternative of the new schema that msgspec
# would pick for it. A literal value is compared as the narrowest range that holds it, so there is one rule for "the
# constant 3" and for "an integer from 1 to 5".
#
# Invariant: an empty result is a proof. Unknown keywords must be equal on both sides.

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
_KEEP_SCALAR_TYPE = "keep the old type, or store the new value in a new field that has a default"


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
        problems.append(incompatible(path, why, _KEEP_SCALAR_TYPE, certain=certain))
    pattern = new.get("pattern")
    if pattern is not None and pattern != old.get("pattern"):
        why = f"stored text may not match the pattern {show(pattern)}"
        problems.append(incompatible(path, why, _KEEP_SCALAR_TYPE, certain=False))
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


# --- Containers: arrays and objects ----------------------------------------------------------------------------------
# The functions do not recurse. They return obligations (old inner schema, new inner schema, path), and `_Comparison`
# decides the order of work and the treatment of recursive types.
#
# Odd choice: the old side is read as a closed world. A struct is written with exactly the fields it declares, so a
# field that the old schema does not list was not stored. On the new side unknown fields are ignored, as msgspec
# does, unless the type forbids them. A field with a default may have been left out (`omit_defaults`). A schema does
# not show that, so making the field required is reported as not provable.

_SCALARS = frozenset({"null", "boolean", "integer", "number", "string"})


class Obligation(NamedTuple):
    """One pair of inner schemas that must be compared as well."""

    old: Schema
    new: Schema
    path: str


class Outcome(NamedTuple):
    """The result of comparing one pair of containers."""

    problems: list[Incompatibility]
    obligations: list[Obligation]


class Side(NamedTuple):
    """A container together with the document that resolves its references."""

    document: Document
    schema: Schema


def compare_arrays(old: Side, new: Side, path: str) -> Outcome:
    """Compare lengths, positions (tuples, array-like structs) and items."""
    problems = [*_compare_lengths(old.schema, new.schema, path), *_compare_uniqueness(old, new, path)]
    old_prefix, new_prefix = schemas(old.schema, "prefixItems"), schemas(new.schema, "prefixItems")
    old_rest = child(old.schema, "items") or ANYTHING
    new_rest = child(new.schema, "items") or ANYTHING
    longest = _length_max(old.schema)
    fixed = max(len(old_prefix), len(new_prefix))
    obligations = [
        Obligation(_at(old_prefix, old_rest, place), _at(new_prefix, new_rest, place), f"{path}[{place}]")
        for place in range(fixed)
        if place < longest
    ]
    if longest > fixed:
        obligations.append(Obligation(old_rest, new_rest, f"{path}[*]"))
    return Outcome(problems, obligations)


def compare_objects(old: Schema, new: Schema, path: str, *, unknown_refused: bool) -> Outcome:
    """Compare fields, required fields, forbidden fields and mappings."""
    obligations: list[Obligation] = []
    old_fields, new_fields = members(old, "properties"), members(new, "properties")
    old_rest = stored_rest(old)
    required = sorted(names(new, "required") - names(old, "required"))
    problems = [_missing(name, old_fields, new_fields, old_rest, path) for name in required]
    for name, field in new_fields.items():
        stored = old_fields.get(name, old_rest)
        if stored is not None:
            obligations.append(Obligation(stored, field, f"{path}.{name}"))
    refused = unknown_refused and "properties" in new and "additionalProperties" not in new
    new_rest = None if refused else child(new, "additionalProperties")
    leftover = {name: field for name, field in old_fields.items() if name not in new_fields}
    if new_rest is None:
        problems.extend(_forbidden(name, path) for name in leftover)
        if old_rest is not None:
            problems.append(_forbidden("*", path))
    else:
        obligations.extend(Obligation(field, new_rest, f"{path}.{name}") for name, field in leftover.items())
        if old_rest is not None:
            obligations.append(Obligation(old_rest, new_rest, f"{path}.*"))
    problems.extend(_compare_counts(old, new, path))
    problems.extend(_compare_keys(old, new, path))
    problems.extend(_compare_defaults(old, old_fields, new_fields, path))
    if "propertyNames" in new:
        obligations.extend(_key_obligations(old, new, old_rest, path))
    return Outcome(problems, obligations)


def stored_rest(old: Schema) -> Schema | None:
    """Return the schema of stored fields that are not listed, or None if all are listed."""
    if "properties" in old and "additionalProperties" not in old:
        return None
    return child(old, "additionalProperties")


def _compare_lengths(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    problems: list[Incompatibility] = []
    shortest, longest = number(new, "minItems") or 0, _accepted_length_max(new)
    if (number(old, "minItems") or 0) < shortest:
        # A field with a default at the end of an array-like struct may be missing in stored data.
        certain = _length_max(old) < shortest or not schemas(old, "prefixItems")
        why = f"stored arrays may have fewer than {shortest} items"
        fix = "give the new positions defaults, or lower the minimum length"
        problems.append(incompatible(path, why, fix, certain=certain))
    if _length_max(old) > longest:
        why = f"stored arrays may have more than {longest} items"
        problems.append(incompatible(path, why, "raise the maximum length"))
    return problems


def _compare_uniqueness(old: Side, new: Side, path: str) -> list[Incompatibility]:
    if new.schema.get("uniqueItems") is not True or canonical(*old) == canonical(*new):
        return []
    problems: list[Incompatibility] = []
    if old.schema.get("uniqueItems") is not True and _length_max(old.schema) > 1:
        why = "a set has no order and no equal items: both are lost"
        problems.append(incompatible(path, why, "keep the list or the tuple", certain=False))
    if (number(new.schema, "minItems") or 0) > 1:
        why = "equal items fall together in a set, which may then be too small"
        problems.append(incompatible(path, why, "drop the minimum size of the set", certain=False))
    items = child(old.schema, "items") or ANYTHING
    if schemas(old.schema, "prefixItems") or not all(_is_scalar(part) for part in old.document.alternatives(items)):
        why = "items that are not plain values may not be hashable, so they may not fit a set"
        problems.append(incompatible(path, why, "keep the list", certain=False))
    return problems


def _is_scalar(schema: Schema) -> bool:
    return constants(schema) is not None or kind_of(schema) in _SCALARS


def _length_max(schema: Schema) -> float:
    """Return the longest array that was stored: without `items`, the number of positions."""
    closed = bool(schemas(schema, "prefixItems")) and not isinstance(schema.get("items"), dict)
    return _items_max(schema, closed=closed)


def _accepted_length_max(schema: Schema) -> float:
    """Return the longest array that is accepted: an array-like struct ignores items after its fields."""
    return _items_max(schema, closed=schema.get("items") is False)


def _items_max(schema: Schema, *, closed: bool) -> float:
    positions = len(schemas(schema, "prefixItems")) if closed else math.inf
    return min(_or_infinite(number(schema, "maxItems")), positions)


def _at(prefix: list[Schema], rest: Schema, place: int) -> Schema:
    return prefix[place] if place < len(prefix) else rest


def _missing(
    name: str, old_fields: dict[str, Schema], new_fields: dict[str, Schema], old_rest: Schema | None, path: str
) -> Incompatibility:
    where, fix = f"{path}.{name}", f"give `{name}` a default in the new type"
    if name in old_fields:
        why = f"`{name}` had a default, so stored data may lack it, and it is required now"
        return incompatible(where, why, fix, certain=False)
    if old_rest is not None:
        return incompatible(where, f"stored mappings may lack the key `{name}`, which is required now", fix)
    tag = constants(new_fields.get(name, ANYTHING)) or []
    if len(tag) == 1:
        why = (
            f"`{name}` must be {show(tag[0])} and is not stored; that decodes only if it is the tag of a single struct"
        )
        return incompatible(where, why, fix, certain=False)
    return incompatible(where, f"the new field `{name}` has no default and stored data lack it", fix)


def _forbidden(name: str, path: str) -> Incompatibility:
    why = "old data have this field and unknown fields are refused here"
    return incompatible(f"{path}.{name}", why, "keep the field, or accept unknown fields")


def _compare_counts(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    problems: list[Incompatibility] = []
    fewest, most = number(new, "minProperties"), number(new, "maxProperties")
    if fewest is not None and max(number(old, "minProperties") or 0, len(names(old, "required"))) < fewest:
        why = f"stored mappings may have fewer than {fewest} keys"
        problems.append(incompatible(path, why, "lower the minimum number of keys"))
    if most is not None and _count_max(old) > most:
        problems.append(
            incompatible(path, f"stored mappings may have more than {most} keys", "raise the maximum number of keys")
        )
    return problems


def _compare_keys(old: Schema, new: Schema, path: str) -> list[Incompatibility]:
    """Compare the types of keys, which are all text in JSON; the keys of a struct are its field names."""
    had, wanted = old.get(KEYS, "text"), new.get(KEYS, "text")
    if had == wanted or "properties" in new:
        return []
    why = f"the keys that are stored are {had}, and would be read as {wanted}"
    return [incompatible(path, why, "keep the type of the keys", certain=had == "text" and "propertyNames" not in old)]


def _compare_defaults(
    old: Schema, before: dict[str, Schema], after: dict[str, Schema], path: str
) -> list[Incompatibility]:
    """Report changed defaults of a type that does not store them: the new default would replace the old one."""
    if OMITS not in old:
        return []
    problems: list[Incompatibility] = []
    for name, field in before.items():
        if "default" in field and name in after:
            had, has = show(field["default"]), show(after[name].get("default"))
            why = f"the default {had} was not stored (omit_defaults), and would be read as {has}"
            problems += [incompatible(f"{path}.{name}", why, f"keep the default {had}")] if had != has else []
    return problems


def _count_max(old: Schema) -> float:
    listed = len(members(old, "properties")) if stored_rest(old) is None else math.inf
    return min(_or_infinite(number(old, "maxProperties")), listed)


def _key_obligations(old: Schema, new: Schema, old_rest: Schema | None, path: str) -> list[Obligation]:
    wanted = _key_schema(new)
    keys: list[Schema] = [{"const": name} for name in members(old, "properties")]
    if old_rest is not None:
        keys.append(_key_schema(old))
    return [Obligation(key, wanted, f"{path} (keys)") for key in keys]


def _key_schema(schema: Schema) -> Schema:
    # msgspec leaves out the type of keys, since in JSON they are always text.
    constraint = child(schema, "propertyNames")
    return {"type": "string", "not": ANYTHING} if constraint is None else {"type": "string", **constraint}


# --- Unions and recursion --------------------------------------------------------------------------------------------
# A pair that is already being compared is not entered again, so the comparison of a recursive type ends.

_KEEP_TYPE = "keep the old type, or put the new type under a new name with a default"
_KNOWN: dict[Kind, frozenset[str]] = {
    "integer": frozenset({"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"}),
    "number": frozenset({"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "contentEncoding", TEXT}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "object": frozenset(
        {
            "properties",
            "required",
            "additionalProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
            KEYS,
            OMITS,
        }
    ),
}

# The pairs already entered, by the ids of their nodes. The pair is also the value, which keeps the nodes alive: an id
# is only unique among living objects.
_Entered = dict[tuple[int, int], Obligation]


def accepts(
    new_schema: Schema, old_schema: Schema, *, unknown_fields: Literal["ignored", "refused"] = "ignored"
) -> list[Incompatibility]:
    """Return every reason why a value written under `old_schema` might not decode under `new_schema`.

    Stored data are read with unknown fields ignored; data from outside are read with unknown fields refused.
    """
    refused = unknown_fields == "refused"
    comparison = _Comparison(Document(old_schema), Document(new_schema), unknown_refused=refused)
    problems, _entered = comparison.run(Obligation(old_schema, new_schema, "$"), {})
    return problems


class _Comparison:
    """One comparison of two documents: a worklist of obligations, with trials for unions."""

    def __init__(self, old: Document, new: Document, *, unknown_refused: bool) -> None:
        self._old: Document = old
        self._new: Document = new
        self._unknown_refused: bool = unknown_refused

    def run(self, first: Obligation, entered: _Entered) -> tuple[list[Incompatibility], _Entered]:
        """Return the incompatibilities that follow from one obligation, and the pairs entered on the way."""
        problems: list[Incompatibility] = []
        entered = dict(entered)
        waiting = [first]
        while waiting:
            pair = waiting.pop()
            if (id(pair.old), id(pair.new)) in entered:
                continue
            entered[id(pair.old), id(pair.new)] = pair
            # The same schema decodes the same values, even with keywords that this comparison does not know.
            if canonical(self._old, pair.old) == canonical(self._new, pair.new):
                continue
            choices = self._new.alternatives(pair.new)
            for stored in self._old.alternatives(pair.old):
                for part in _literals(stored):
                    found, inner, entered = self._choose(part, choices, pair.path, entered)
                    problems.extend(found)
                    waiting.extend(reversed(inner))
        return problems, entered

    def _choose(
        self, stored: Schema, choices: list[Schema], path: str, entered: _Entered
    ) -> tuple[list[Incompatibility], list[Obligation], _Entered]:
        """Find the member of the new union that msgspec would pick; try several only for tagged unions."""
        if any(_kind(choice) == "anything" for choice in choices):
            return [], [], entered
        kind = _kind(stored)
        candidates = _candidates(kind, choices)
        obstacle = _find_obstacle(kind, stored, choices, candidates, path)
        if obstacle is not None:
            return [obstacle], [], entered
        if len(candidates) == 1:
            return *self._compare(kind, stored, candidates[0], path), entered
        alike = [candidate for candidate in candidates if not tags_differ(stored, candidate)]
        trials = [self._try(kind, stored, candidate, path, entered) for candidate in alike]
        best, best_entered = min(trials, key=lambda trial: len(trial[0]))
        # Pairs entered by a failed trial prove nothing: only those of the chosen member are kept.
        return best, [], best_entered

    def _try(
        self, kind: Kind, stored: Schema, candidate: Schema, path: str, entered: _Entered
    ) -> tuple[list[Incompatibility], _Entered]:
        problems, inner = self._compare(kind, stored, candidate, path)
        for obligation in inner:
            found, entered = self.run(obligation, entered)
            problems.extend(found)
        return problems, entered

    def _compare(
        self, kind: Kind, stored: Schema, new: Schema, path: str
    ) -> tuple[list[Incompatibility], list[Obligation]]:
        if constants(new) is not None:
            unknown = compare_unknown_keywords(stored, new, frozenset({"const" if "const" in new else "enum"}), path)
            return [*unknown, *compare_enumerated(stored, new, path)], []
        literals = constants(stored)
        old = stored if literals is None else literal_range(literals[0])
        if kind in ("integer", "number") and _kind(new) == "string":
            # A decimal is written as text but also read from a number; bounds of text say nothing about it.
            return compare_unknown_keywords(old, new, frozenset({"format"}), path), []
        problems = compare_unknown_keywords(old, new, _KNOWN.get(kind, frozenset()), path)
        obligations: list[Obligation] = []
        if kind in ("integer", "number"):
            problems += compare_numbers(old, new, path)
        elif kind == "string":
            problems += compare_strings(old, new, path)
        elif kind == "array":
            found, obligations = compare_arrays(Side(self._old, old), Side(self._new, new), path)
            problems += found
        elif kind == "object":
            found, obligations = compare_objects(old, new, path, unknown_refused=self._unknown_refused)
            problems += found
        return problems, obligations


def _literals(stored: Schema) -> list[Schema]:
    values = constants(stored)
    return [stored] if values is None else [{"const": value} for value in values]


def _kind(schema: Schema) -> Kind:
    """Return the kind of one alternative; for an enumeration, the kind of its first value."""
    values = constants(schema)
    return kind_of(schema) if values is None else kind_of_value(values[0] if values else [])


def _find_obstacle(
    kind: Kind, stored: Schema, choices: list[Schema], candidates: list[Schema], path: str
) -> Incompatibility | None:
    """Return why there is nothing to compare with, or None."""
    if kind in ("anything", "unreadable"):
        return incompatible(path, "the old schema does not say what was stored here", _KEEP_TYPE, certain=False)
    if any(_kind(choice) == "unreadable" for choice in choices):
        why = "the new schema uses something this comparison does not understand"
        return incompatible(path, why, _KEEP_TYPE, certain=False)
    if not candidates:
        expected = " or ".join(describe(_kind(choice), choice) for choice in choices)
        why = f"the old machine stored {describe(kind, stored)} here, the new one expects {expected}"
        return incompatible(path, why, _KEEP_TYPE)
    if len(candidates) > 1 and all(tags_differ(stored, candidate) for candidate in candidates):
        why = f"no variant of the new union has the tag {', '.join(tags(stored).values())}"
        return incompatible(path, why, "keep that variant in the union")
    return None


def _candidates(kind: Kind, choices: list[Schema]) -> list[Schema]:
    """The members of the new union that msgspec may use for a value of this kind, by its own order of preference."""
    exact = [choice for choice in choices if kind in _kinds(choice)]
    if exact or kind not in ("integer", "number"):
        return exact
    floats = [choice for choice in choices if "number" in _kinds(choice)]
    return floats or [choice for choice in choices if choice.get("format") == "decimal"]


def _kinds(schema: Schema) -> set[Kind]:
    values = constants(schema)
    if values is None:
        return {kind_of(schema)}
    return {kind for kind in map(kind_of_value, values) if schema.get("type", kind) == kind}


# --- Dropped and added fields ----------------------------------------------------------------------------------------
# An unknown field is ignored when data are read, and missing when they are written again: a renamed field decodes
# without an error and loses its value in every stored workflow. So the two schemas are walked a second time, for
# fields that are dropped and fields that are filled with a default.
#
# Invariant: conservative. When several members of a new union could read a value, a field counts as removed if one
# of them drops it. A place that several paths lead to is reported under the first of them.
#
# Odd choice: a removed field that could only contain one constant (the tag of a struct) is skipped, unless it
# distinguished the members of a union. The constant carries no information.


class RemovedField(NamedTuple):
    """A place whose stored values the new type drops."""

    path: str
    why: str
    fix: str


class FieldChanges(NamedTuple):
    """The removed fields, and the paths of new fields that have a default."""

    removed: tuple[RemovedField, ...]
    added: tuple[str, ...]


def compare_fields(new_schema: Schema, old_schema: Schema) -> FieldChanges:
    """Return the fields that are dropped and those that are filled in when the new type reads old data."""
    walk = _FieldWalk(Document(old_schema), Document(new_schema))
    walk.run(Obligation(old_schema, new_schema, "$"))
    return FieldChanges(tuple(_removed_field(path, twins) for path, twins in walk.removed.items()), tuple(walk.added))


class _FieldWalk:
    """One walk over two documents, side by side."""

    def __init__(self, old: Document, new: Document) -> None:
        self._old: Document = old
        self._new: Document = new
        # By path: the fields that may be its new name. A dict, because members of a union may share a field.
        self.removed: dict[str, tuple[str, ...]] = {}
        self.added: dict[str, None] = {}

    def run(self, first: Obligation) -> None:
        # As in `_Comparison.run`: pairs by identity, kept alive as values, so that the walk of a recursive type ends.
        entered: dict[tuple[int, int], Obligation] = {}
        waiting = [first]
        while waiting:
            pair = waiting.pop()
            if (id(pair.old), id(pair.new)) in entered:
                continue
            entered[id(pair.old), id(pair.new)] = pair
            if canonical(self._old, pair.old) != canonical(self._new, pair.new):
                waiting.extend(reversed(self._enter(pair)))

    def _enter(self, pair: Obligation) -> list[Obligation]:
        inner: list[Obligation] = []
        stored = self._old.alternatives(pair.old)
        for old in stored:
            kind = kind_of(old)
            alike = [new for new in self._new.alternatives(pair.new) if kind_of(new) == kind]
            alike = [new for new in alike if len(alike) == 1 or not tags_differ(old, new)]
            for new in alike:
                if kind == "object":
                    inner += self._objects(old, new, pair.path, alone=len(stored) == 1)
                elif kind == "array":
                    inner += self._arrays(old, new, pair.path)
        return inner

    def _objects(self, old: Schema, new: Schema, path: str, *, alone: bool) -> list[Obligation]:
        before, after = members(old, "properties"), members(new, "properties")
        rest = stored_rest(old)
        anew = {} if rest is not None else {name: field for name, field in after.items() if name not in before}
        self._add([f"{path}.{name}" for name in anew if name not in names(new, "required")])
        # A mapping, or a type that keeps unknown fields, loses nothing.
        if "properties" in new and "additionalProperties" not in new:
            known = tags(old) if alone else {}
            for name, field in before.items():
                if name not in after and name not in known:
                    twins = tuple(other for other, candidate in anew.items() if self._same_type(field, candidate))
                    self.removed[f"{path}.{name}"] = twins
            if rest is not None:
                self.removed[f"{path}.*"] = ()
        return compare_objects(old, new, path, unknown_refused=False).obligations

    def _arrays(self, old: Schema, new: Schema, path: str) -> list[Obligation]:
        positions = schemas(new, "prefixItems")
        pairs = compare_arrays(Side(self._old, old), Side(self._new, new), path).obligations
        least = number(new, "minItems") or 0
        self._add([f"{path}[{place}]" for place in range(len(pairs), len(positions)) if place >= least])
        # Only an array-like struct ignores items after its own positions.
        if "prefixItems" in new and "items" not in new:
            self.removed |= {pair.path: () for pair in pairs[len(positions) :]}
        return pairs

    def _add(self, paths: list[str]) -> None:
        self.added |= dict.fromkeys(paths)

    def _same_type(self, old: Schema, new: Schema) -> bool:
        """Return whether the new field reads the same values as the old one; null may have come with the default."""
        wanted = {canonical(self._new, _without_default(part)) for part in self._new.alternatives(new)}
        return all(canonical(self._old, _without_default(part)) in wanted for part in self._old.alternatives(old))


def _removed_field(path: str, twins: tuple[str, ...]) -> RemovedField:
    why = "the field is gone, and with it every value that is stored there"
    if not twins:
        fix = f"keep `{path}` until no workflow of the old version is left, or accept that its values are lost"
        return RemovedField(path, why, fix)
    name, listed = path.rpartition(".")[2], " or ".join(f"`{twin}`" for twin in twins)
    fix = f"keep the name `{name}`, or keep `{name}` beside {listed} in the new type and read both"
    return RemovedField(path, f"{why}; probably a rename, since {listed} is new and of the same type", fix)


def _without_default(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "default"}
