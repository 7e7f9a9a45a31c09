"""Comparison of two JSON schemas: whether data written under the old one decode under the new one, unchanged.

`accepts` returns a list of incompatibilities; an empty list is a proof for the types that a JSON schema can
express. It follows how msgspec decodes: unknown fields are ignored, a missing field needs a default, an integer
is read where a float (or a decimal) is expected but never the reverse, and a union picks its member by the JSON
kind of the value, or by its tag. Values that decode to another meaning are reported as well (rounded integers, items
that fall together in a set). `compare_fields` lists the fields that are dropped or added.

Facts that a schema of msgspec omits are in its annotations (`core.codec`); a description of an earlier release lacks
them, so there a `datetime` without declared timezone looks like `str`, and the key type of a mapping is lost. Byte
lengths are rounded to base64 blocks, and flags list only their single bits.

Sections: typed access, canonical form, scalars, containers, unions and recursion, dropped and added fields.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, cast

import msgspec

from interlock.core.codec import ANNOTATED, DATETIME, KEYS, NAIVE_DATETIME, OMITS, TEXT, TIME
from interlock.core.plan.findings import Incompatibility, incompatible

# --- Typed access to JSON schemas, as `msgspec.json.schema` writes them ----------------------------------------------
# A schema document is a tree with `$ref` edges. They are followed and unions are flattened into alternatives, so that
# the comparison never touches untyped JSON.
#
# Invariant: nothing is guessed. An unknown reference or a typeless constraint keeps its keywords and has the kind
# "unreadable", and the comparison reports it as not provable.

Schema = Mapping[str, object]
Kind = Literal["null", "boolean", "integer", "number", "string", "array", "object", "anything", "unreadable"]

ANYTHING: Schema = {}
ANNOTATIONS = frozenset(
    {"title", "description", "examples", "default", "deprecated", "discriminator", "$defs", "$schema", ANNOTATED}
)
_KINDS_OF_VALUES: dict[type[object], Kind] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}
_SCALARS = frozenset(_KINDS_OF_VALUES.values())


class SchemaDocument:
    """One schema with the definitions that its references name."""

    def __init__(self, root: Schema) -> None:
        self.root: Schema = root
        self._definitions: dict[str, Schema] = _definitions(root)

    def definition(self, reference: str) -> Schema | None:
        """Return the definition that a `$ref` names, or None."""
        return self._definitions.get(reference.removeprefix("#/$defs/"))

    def alternatives(self, schema: Schema, followed: frozenset[str] = frozenset()) -> list[Schema]:
        """Return the schema as a flat union: references followed, nested unions and type lists expanded."""
        keys = keywords(schema)
        reference = reference_of(schema)
        if reference is not None and keys == {"$ref"} and reference not in followed:
            target = self.definition(reference)
            return [schema] if target is None else self.alternatives(target, followed | {reference})
        if keys == {"anyOf"}:
            return [part for choice in schemas(schema, "anyOf") for part in self.alternatives(choice, followed)]
        types = schema.get("type")
        if isinstance(types, list):
            return [{**schema, "type": name} for name in cast("list[object]", types)]
        return [schema]


def _definitions(root: Schema) -> dict[str, Schema]:
    """Return every definition in the tree. A pydantic model inside a struct brings its own `$defs` at any depth."""
    found: dict[str, Schema] = {}
    ambiguous: set[str] = set()
    waiting: list[object] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(cast("list[object]", node))
        elif isinstance(node, dict):
            schema = cast("Schema", node)
            for name, definition in members(schema, "$defs").items():
                if found.setdefault(name, definition) != definition:
                    ambiguous.add(name)
            waiting.extend(schema.values())
    return {name: definition for name, definition in found.items() if name not in ambiguous}


def keywords(schema: Schema) -> set[str]:
    """Return the keywords that constrain values, without annotations."""
    return set(schema) - ANNOTATIONS


def reference_of(schema: Schema) -> str | None:
    """Return the `$ref` of the schema, or None."""
    reference = schema.get("$ref")
    return reference if isinstance(reference, str) else None


def constants(schema: Schema) -> list[object] | None:
    """Return the enumerated values, or None when the schema does not enumerate."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return cast("list[object]", values) if isinstance(values, list) else None


def kind_of(schema: Schema) -> Kind:
    """Return the JSON kind of one alternative; for an enumeration, the kind of its first value."""
    values = constants(schema)
    if values is not None:
        return kind_of_value(values[0] if values else [])
    if not keywords(schema):
        return "anything"
    kind = str(schema.get("type"))
    return cast("Kind", kind) if kind in _SCALARS or kind in {"array", "object"} else "unreadable"


def kind_of_value(value: object) -> Kind:
    """Return the JSON kind of a literal value."""
    return _KINDS_OF_VALUES.get(type(value), "unreadable")


def child(schema: Schema, keyword: str) -> Schema | None:
    """Return the schema under a keyword: absent and `true` mean anything, `false` means nothing (None)."""
    value = schema.get(keyword, True)
    if value is False:
        return None
    return cast("Schema", value) if isinstance(value, dict) else ANYTHING


def schemas(schema: Schema, keyword: str) -> list[Schema]:
    """Return the list of schemas under a keyword; empty when absent."""
    value = schema.get(keyword)
    return cast("list[Schema]", value) if isinstance(value, list) else []


def members(schema: Schema, keyword: str) -> dict[str, Schema]:
    """Return the named schemas under a keyword; empty when absent."""
    value = schema.get(keyword)
    return cast("dict[str, Schema]", value) if isinstance(value, dict) else {}


def names(schema: Schema, keyword: str) -> frozenset[str]:
    """Return the set of names under a keyword; empty when absent."""
    value = schema.get(keyword)
    return frozenset(cast("list[str]", value)) if isinstance(value, list) else frozenset()


def number(schema: Schema, keyword: str) -> float | None:
    """Return the number under a keyword, or None. Integers stay integers, so that comparisons are exact."""
    value = schema.get(keyword)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def tags(schema: Schema) -> dict[str, str]:
    """Return the constant fields of a struct and their values. A tag is such a field, or the first position."""
    places = members(schema, "properties") | {
        str(place): part for place, part in enumerate(schemas(schema, "prefixItems"))
    }
    values = {place: constants(part) or [] for place, part in places.items()}
    return {place: show(each[0]) for place, each in values.items() if len(each) == 1}


def tags_differ(stored: Schema, candidate: Schema) -> bool:
    """Return whether two structs have different tags, so that no value fits both."""
    wanted = tags(candidate)
    return any(wanted.get(place, tag) != tag for place, tag in tags(stored).items())


def show(value: object) -> str:
    """Return a literal as JSON, for messages."""
    return msgspec.json.encode(value).decode()


# --- Canonical form: equal bytes mean equal decoding -----------------------------------------------------------------
# Two releases rarely write the same schema byte for byte: a class is renamed, a docstring becomes a description,
# fields change places. None of that changes what decodes. The canonical form numbers definitions in the order in
# which they occur (which also makes recursive types finite), sorts unordered lists and drops prose.
#
# Odd choice: `default` is kept. It does not matter for decoding, but another default is another behaviour.

_PROSE = frozenset({"title", "description", "examples", "discriminator", "$defs", "$schema", ANNOTATED})
_LITERALS = frozenset({"default", "const", "enum"})


def canonical(document: SchemaDocument, schema: Schema) -> bytes:
    """Return the canonical form of a schema inside its document."""
    numbers: dict[str, int] = {}
    bodies: list[object] = []

    def schema_form(node: Schema) -> dict[str, object]:
        plain = {key: keyword_form(key, node[key]) for key in sorted(node) if key not in _PROSE and key != "$ref"}
        return plain | reference_form(node)

    def reference_form(node: Schema) -> dict[str, object]:
        reference = reference_of(node)
        if reference is None:
            return {}
        if reference not in numbers:
            numbers[reference] = len(numbers)
            # The number is reserved before the body is built, so that a recursive type ends at its own number.
            bodies.append(None)
            target = document.definition(reference)
            # An unresolved reference has an unknown meaning: then only the same document is equal.
            bodies[numbers[reference]] = [reference, document.root] if target is None else schema_form(target)
        return {"$ref": numbers[reference]}

    def keyword_form(key: str, value: object) -> object:
        if key in _LITERALS:
            return value
        if key == "required":
            return sorted(cast("list[str]", value))
        if key == "properties":
            fields = cast("Mapping[str, Schema]", value)
            return {name: schema_form(fields[name]) for name in sorted(fields)}
        if isinstance(value, list):
            return [keyword_form("", part) for part in cast("list[object]", value)]
        return schema_form(cast("Schema", value)) if isinstance(value, dict) else value

    form = schema_form(schema)
    return msgspec.json.encode([form, bodies], order="deterministic")


def identical(old: Schema, new: Schema) -> bool:
    """Return whether two whole schemas mean the same."""
    return canonical(SchemaDocument(old), old) == canonical(SchemaDocument(new), new)


# --- Scalars: numbers, strings and enumerated values -----------------------------------------------------------------
# Each function compares one alternative of the old schema with the one alternative of the new schema that msgspec
# would pick for it. A literal value is compared as the narrowest range that holds it, so there is one rule for "the
# constant 3" and for "an integer from 1 to 5".
#
# Invariant: an empty result is a proof. Unknown keywords must be equal on both sides.

# Above this size not every integer has a float of its own.
_EXACT_FLOAT_MAX = 2**53
_PLAIN_TEXT, _AWARE_DATETIME, _AWARE_TIME, _NAIVE_TIME = "text", "aware datetime", "aware time", "naive time"
_MEANINGS = {"date-time": _AWARE_DATETIME, "time": _AWARE_TIME, "partial-time": _NAIVE_TIME, "duration": "a duration"}
_NOT_AS_TEXT = frozenset({"bytes in base64", "a duration"})
"""Meanings that become another value when read as text: base64 and `P1D` are encodings of the value."""
_READ_ALIKE = frozenset(
    {(_AWARE_DATETIME, DATETIME), (NAIVE_DATETIME, DATETIME), (_AWARE_TIME, TIME), (_NAIVE_TIME, TIME)}
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


def compare_enumerated(old: Schema, new: Schema, path: str) -> Iterator[Incompatibility]:
    """Compare with an enumeration: each old literal must be listed; an open type never fits, but null does."""
    # True equals 1 in Python but not in JSON, so literals are compared by how they are written.
    allowed = [show(value) for value in constants(new) or []]
    listed = ", ".join(allowed)
    stored = constants(old)
    if stored is None:
        closed: dict[object, list[object]] = {"null": [None], "boolean": [False, True]}
        stored = closed.get(old.get("type"))
    if stored is None:
        why = f"the old machine stored any {old.get('type')} here, the new one accepts only {listed}"
        fix = "keep the open type, or list every value that is stored"
        yield incompatible(path, why, fix, certain=keywords(old) == {"type"})
        return
    for value in map(show, stored):
        if value not in allowed:
            why = f"the stored value {value} is not among {listed} any more"
            yield incompatible(path, why, f"keep {value} in the new type")


def literal_range(value: object) -> Schema:
    """Return the narrowest typed schema that contains exactly (or, for text, at least) one literal."""
    kind = kind_of_value(value)
    if isinstance(value, str):
        return {"type": kind, "minLength": len(value), "maxLength": len(value), "const": value}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"type": kind, "minimum": value, "maximum": value}
    return {"type": kind}


def compare_numbers(old: Schema, new: Schema, path: str) -> Iterator[Incompatibility]:
    """Compare bounds and `multipleOf` of integers and numbers; an integer is accepted where a number is expected."""
    widened = old.get("type") != new.get("type")
    if widened and any(limit is None or limit[0] < -_EXACT_FLOAT_MAX for limit in (_limit(old, 1), _limit(old, -1))):
        why = f"stored integers beyond {_EXACT_FLOAT_MAX:,} are rounded when they are read as floats"
        fix = "keep the integer, or use a Decimal, which reads integers exactly"
        yield incompatible(path, why, fix, certain=False)
    for sign, side in ((1, "below"), (-1, "above")):
        had, limit = _limit(old, sign), _limit(new, sign)
        if limit is not None and (had is None or had < limit):
            number_text = f"{'the exclusive limit ' if limit[1] else ''}{sign * limit[0]}"
            yield incompatible(path, f"stored numbers may be {side} {number_text}", "widen the bound to what is stored")
    factor = number(new, "multipleOf")
    if factor is not None and not _is_multiple(old, factor, widened=widened):
        why, fix = f"the new type accepts only multiples of {factor}", f"drop the restriction to multiples of {factor}"
        yield incompatible(path, why, fix, certain=keywords(old) == {"type"})


def _limit(schema: Schema, sign: int) -> tuple[float, bool] | None:
    """Return the tighter bound as (value, exclusive): the lower one, or for `sign` -1 the upper one, negated.

    So of two limits the larger one is always the tighter one.
    """
    keys = ("minimum", "exclusiveMinimum") if sign > 0 else ("maximum", "exclusiveMaximum")
    closed, opened = (number(schema, key) for key in keys)
    limits: list[tuple[float, bool]] = [] if closed is None else [(sign * closed, False)]
    if opened is not None and schema.get("type") == "integer":
        # The next integer is the same limit, expressed inclusively.
        limits.append((math.floor(sign * opened) + 1, False))
    elif opened is not None:
        limits.append((sign * opened, True))
    return max(limits, default=None)


def _is_multiple(old: Schema, factor: float, *, widened: bool) -> bool:
    had = number(old, "multipleOf")
    if number(old, "minimum") is not None and number(old, "minimum") == number(old, "maximum"):
        had = number(old, "minimum")
    if had is None or widened:
        return False
    # Remainders of floats are not exact; only the very same factor is a proof.
    return had == factor or (isinstance(had, int) and isinstance(factor, int) and had % factor == 0)


def compare_strings(old: Schema, new: Schema, path: str) -> Iterator[Incompatibility]:
    """Compare length, pattern, format and encoding of strings."""
    shortest, longest = number(new, "minLength"), number(new, "maxLength")
    # A format or a pattern may bound the length implicitly: then nothing is certain.
    plain = keywords(old) <= {"type", "minLength", "maxLength", "const"}
    if shortest is not None and (number(old, "minLength") or 0) < shortest:
        why = f"stored text may be shorter than {shortest} characters"
        yield incompatible(path, why, "lower the minimum length", certain=plain)
    if longest is not None and _or_infinite(number(old, "maxLength")) > longest:
        why = f"stored text may be longer than {longest} characters"
        yield incompatible(path, why, "raise the maximum length", certain=plain)
    had, wanted = _meaning(old), _meaning(new)
    alike = had not in _NOT_AS_TEXT if wanted == _PLAIN_TEXT else wanted == had or (had, wanted) in _READ_ALIKE
    if not alike:
        certain = (had, wanted) not in _READ_PERHAPS and "const" not in old
        why = f"the old machine stored {had} here, the new one reads {wanted}"
        yield incompatible(path, why, _KEEP_SCALAR_TYPE, certain=certain)
    pattern = new.get("pattern")
    if pattern is not None and pattern != old.get("pattern"):
        why = f"stored text may not match the pattern {show(pattern)}"
        yield incompatible(path, why, _KEEP_SCALAR_TYPE, certain=False)


def _meaning(schema: Schema) -> str:
    """Return the meaning of a string: plain text, or the format or encoding of another value."""
    if "contentEncoding" in schema:
        return f"bytes in {schema['contentEncoding']}"
    text = schema.get(TEXT) or schema.get("format")
    return _MEANINGS.get(str(text), str(text)) if text else _PLAIN_TEXT


def compare_unknown_keywords(old: Schema, new: Schema, known: frozenset[str], path: str) -> list[Incompatibility]:
    """Report keywords of the new schema that this module does not know and that differ from the old schema."""
    return [
        incompatible(
            path, f"the keyword {show(word)} is not understood", f"leave {show(word)} as it was", certain=False
        )
        for word in sorted(set(new) - ANNOTATIONS - known - {"type"})
        if isinstance(new[word], dict | list) or word not in old or show(old[word]) != show(new[word])
    ]


def describe(schema: Schema) -> str:
    """Return a schema alternative in a few words, for messages."""
    values = constants(schema)
    if values is not None:
        return "one of " + ", ".join(show(value) for value in values)
    detail = schema.get("format") or schema.get("contentEncoding")
    return f"{kind_of(schema)} ({detail})" if isinstance(detail, str) else kind_of(schema)


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


class Obligation(NamedTuple):
    """One pair of inner schemas that must be compared as well."""

    old: Schema
    new: Schema
    path: str


def compare_arrays(old: Schema, new: Schema, path: str) -> tuple[list[Incompatibility], list[Obligation]]:
    """Compare lengths, positions (tuples, array-like structs) and items."""
    old_prefix, new_prefix = schemas(old, "prefixItems"), schemas(new, "prefixItems")
    old_rest, new_rest = child(old, "items") or ANYTHING, child(new, "items") or ANYTHING
    longest = _length_max(old)
    fixed = max(len(old_prefix), len(new_prefix))
    obligations = [
        Obligation(_at(old_prefix, old_rest, place), _at(new_prefix, new_rest, place), f"{path}[{place}]")
        for place in range(fixed)
        if place < longest
    ]
    if longest > fixed:
        obligations.append(Obligation(old_rest, new_rest, f"{path}[*]"))
    return list(_compare_lengths(old, new, path)), obligations


def compare_objects(
    old: Schema, new: Schema, path: str, *, unknown_refused: bool
) -> tuple[list[Incompatibility], list[Obligation]]:
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
    leftover = [(name, field) for name, field in old_fields.items() if name not in new_fields]
    leftover += [] if old_rest is None else [("*", old_rest)]
    if new_rest is None:
        why, fix = (
            "old data have this field and unknown fields are refused here",
            "keep the field, or accept unknown fields",
        )
        problems += [incompatible(f"{path}.{name}", why, fix) for name, _ in leftover]
    else:
        obligations += [Obligation(field, new_rest, f"{path}.{name}") for name, field in leftover]
    problems += [*_compare_counts_and_keys(old, new, path), *_compare_defaults(old, old_fields, new_fields, path)]
    if "propertyNames" in new:
        # msgspec leaves out the type of keys, since in JSON they are always text.
        keys: list[Schema] = [{"const": name} for name in old_fields]
        keys += [] if old_rest is None else [_key_schema(old)]
        obligations += [Obligation(key, _key_schema(new), f"{path} (keys)") for key in keys]
    return problems, obligations


def stored_rest(old: Schema) -> Schema | None:
    """Return the schema of stored fields that are not listed, or None if all are listed."""
    if "properties" in old and "additionalProperties" not in old:
        return None
    return child(old, "additionalProperties")


def _compare_lengths(old: Schema, new: Schema, path: str) -> Iterator[Incompatibility]:
    # An array-like struct ignores items after its fields.
    shortest, longest = number(new, "minItems") or 0, _items_max(new, closed=new.get("items") is False)
    if (number(old, "minItems") or 0) < shortest:
        # A field with a default at the end of an array-like struct may be missing in stored data.
        certain = _length_max(old) < shortest or not schemas(old, "prefixItems")
        why = f"stored arrays may have fewer than {shortest} items"
        fix = "give the new positions defaults, or lower the minimum length"
        yield incompatible(path, why, fix, certain=certain)
    if _length_max(old) > longest:
        yield incompatible(path, f"stored arrays may have more than {longest} items", "raise the maximum length")


def _compare_uniqueness(old: Schema, new: Schema, path: str, old_document: SchemaDocument) -> Iterator[Incompatibility]:
    if old.get("uniqueItems") is not True and _length_max(old) > 1:
        why = "a set has no order and no equal items: both are lost"
        yield incompatible(path, why, "keep the list or the tuple", certain=False)
    if (number(new, "minItems") or 0) > 1:
        why = "equal items fall together in a set, which may then be too small"
        yield incompatible(path, why, "drop the minimum size of the set", certain=False)
    items = old_document.alternatives(child(old, "items") or ANYTHING)
    if schemas(old, "prefixItems") or not all(map(_is_scalar, items)):
        why = "items that are not plain values may not be hashable, so they may not fit a set"
        yield incompatible(path, why, "keep the list", certain=False)


def _is_scalar(schema: Schema) -> bool:
    return constants(schema) is not None or kind_of(schema) in _SCALARS


def _length_max(schema: Schema) -> float:
    """Return the longest array that was stored: without `items`, the number of positions."""
    closed = bool(schemas(schema, "prefixItems")) and not isinstance(schema.get("items"), dict)
    return _items_max(schema, closed=closed)


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


def _compare_counts_and_keys(old: Schema, new: Schema, path: str) -> Iterator[Incompatibility]:
    fewest, most = number(new, "minProperties"), number(new, "maxProperties")
    if fewest is not None and max(number(old, "minProperties") or 0, len(names(old, "required"))) < fewest:
        yield incompatible(
            path, f"stored mappings may have fewer than {fewest} keys", "lower the minimum number of keys"
        )
    listed = len(members(old, "properties")) if stored_rest(old) is None else math.inf
    if most is not None and min(_or_infinite(number(old, "maxProperties")), listed) > most:
        yield incompatible(path, f"stored mappings may have more than {most} keys", "raise the maximum number of keys")
    # The types of keys, which are all text in JSON; the keys of a struct are its field names.
    had, wanted = old.get(KEYS, "text"), new.get(KEYS, "text")
    if had != wanted and "properties" not in new:
        why = f"the keys that are stored are {had}, and would be read as {wanted}"
        certain = had == "text" and "propertyNames" not in old
        yield incompatible(path, why, "keep the type of the keys", certain=certain)


def _compare_defaults(
    old: Schema, before: dict[str, Schema], after: dict[str, Schema], path: str
) -> Iterator[Incompatibility]:
    """Report changed defaults of a type that does not store them: the new default would replace the old one."""
    for name, field in before.items() if OMITS in old else ():
        if "default" in field and name in after:
            had, has = show(field["default"]), show(after[name].get("default"))
            if had != has:
                why = f"the default {had} was not stored (omit_defaults), and would be read as {has}"
                yield incompatible(f"{path}.{name}", why, f"keep the default {had}")


def _key_schema(schema: Schema) -> Schema:
    constraint = child(schema, "propertyNames")
    return {"type": "string", "not": ANYTHING} if constraint is None else {"type": "string", **constraint}


# --- Unions and recursion --------------------------------------------------------------------------------------------
# A pair that is already being compared is not entered again, so the comparison of a recursive type ends.

_KEEP_TYPE = "keep the old type, or put the new type under a new name with a default"
_KNOWN_OF_NUMBERS = frozenset({"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"})
_KNOWN: dict[Kind, frozenset[str]] = {
    "integer": _KNOWN_OF_NUMBERS,
    "number": _KNOWN_OF_NUMBERS,
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "contentEncoding", TEXT}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "propertyNames", KEYS, OMITS})
    | {"minProperties", "maxProperties"},
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
    comparison = _Comparison(SchemaDocument(old_schema), SchemaDocument(new_schema), unknown_refused=refused)
    return comparison.run([Obligation(old_schema, new_schema, "$")], {})


def _changed_pairs(
    old: SchemaDocument, new: SchemaDocument, waiting: list[Obligation], entered: _Entered
) -> Iterator[Obligation]:
    """Take the pairs off the list, to which the caller may add, and yield each that differs, once."""
    while waiting:
        pair = waiting.pop()
        if (id(pair.old), id(pair.new)) not in entered:
            entered[id(pair.old), id(pair.new)] = pair
            # The same schema decodes the same values, even with keywords that this comparison does not know.
            if canonical(old, pair.old) != canonical(new, pair.new):
                yield pair


class _Comparison:
    """One comparison of two documents: a worklist of obligations, with trials for unions."""

    def __init__(self, old: SchemaDocument, new: SchemaDocument, *, unknown_refused: bool) -> None:
        self._old: SchemaDocument = old
        self._new: SchemaDocument = new
        self._unknown_refused: bool = unknown_refused

    def run(self, obligations: list[Obligation], entered: _Entered) -> list[Incompatibility]:
        """Return the incompatibilities that follow from the obligations. Adds the pairs that were entered."""
        problems: list[Incompatibility] = []
        waiting = obligations[::-1]
        for pair in _changed_pairs(self._old, self._new, waiting, entered):
            choices = self._new.alternatives(pair.new)
            for stored in self._old.alternatives(pair.old):
                literals = constants(stored)
                for part in [stored] if literals is None else [{"const": value} for value in literals]:
                    obstacles, inner = self._choose(part, choices, pair.path, entered)
                    problems += obstacles
                    waiting += reversed(inner)
        return problems

    def _choose(
        self, stored: Schema, choices: list[Schema], path: str, entered: _Entered
    ) -> tuple[list[Incompatibility], list[Obligation]]:
        """Find the member of the new union that msgspec would pick; try several only for tagged unions."""
        if any(kind_of(choice) == "anything" for choice in choices):
            return [], []
        kind = kind_of(stored)
        candidates = _candidates(kind, choices)
        obstacle = _find_obstacle(kind, stored, choices, candidates, path)
        if obstacle is not None:
            return [obstacle], []
        if len(candidates) == 1:
            return self._compare(kind, stored, candidates[0], path)
        trials: list[tuple[list[Incompatibility], _Entered]] = []
        for candidate in candidates:
            if not tags_differ(stored, candidate):
                problems, inner = self._compare(kind, stored, candidate, path)
                tried = dict(entered)
                trials.append((problems + self.run(inner, tried), tried))
        problems, tried = min(trials, key=lambda trial: len(trial[0]))
        # Pairs entered by a failed trial prove nothing: only those of the chosen member are kept.
        entered |= tried
        return problems, []

    def _compare(
        self, kind: Kind, stored: Schema, new: Schema, path: str
    ) -> tuple[list[Incompatibility], list[Obligation]]:
        if constants(new) is not None:
            problems = compare_unknown_keywords(stored, new, frozenset({"const" if "const" in new else "enum"}), path)
            return [*problems, *compare_enumerated(stored, new, path)], []
        literals = constants(stored)
        old = stored if literals is None else literal_range(literals[0])
        if kind in ("integer", "number") and kind_of(new) == "string":
            # A decimal is written as text but also read from a number; bounds of text say nothing about it.
            return compare_unknown_keywords(old, new, frozenset({"format"}), path), []
        problems = compare_unknown_keywords(old, new, _KNOWN.get(kind, frozenset()), path)
        obligations: list[Obligation] = []
        if kind in ("integer", "number"):
            problems += compare_numbers(old, new, path)
        elif kind == "string":
            problems += compare_strings(old, new, path)
        elif kind == "array":
            inner, obligations = compare_arrays(old, new, path)
            problems += inner
            if new.get("uniqueItems") is True and canonical(self._old, old) != canonical(self._new, new):
                problems += _compare_uniqueness(old, new, path, self._old)
        elif kind == "object":
            inner, obligations = compare_objects(old, new, path, unknown_refused=self._unknown_refused)
            problems += inner
        return problems, obligations


def _find_obstacle(
    kind: Kind, stored: Schema, choices: list[Schema], candidates: list[Schema], path: str
) -> Incompatibility | None:
    """Return why there is nothing to compare with, or None."""
    if kind in ("anything", "unreadable"):
        return incompatible(path, "the old schema does not say what was stored here", _KEEP_TYPE, certain=False)
    if any(kind_of(choice) == "unreadable" for choice in choices):
        why = "the new schema uses something this comparison does not understand"
        return incompatible(path, why, _KEEP_TYPE, certain=False)
    if not candidates:
        expected = " or ".join(map(describe, choices))
        why = f"the old machine stored {describe(stored)} here, the new one expects {expected}"
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
    walk = _FieldWalk(SchemaDocument(old_schema), SchemaDocument(new_schema))
    walk.run(Obligation(old_schema, new_schema, "$"))
    return FieldChanges(tuple(_removed_field(path, twins) for path, twins in walk.removed.items()), tuple(walk.added))


class _FieldWalk:
    """One walk over two documents, side by side."""

    def __init__(self, old: SchemaDocument, new: SchemaDocument) -> None:
        self._old: SchemaDocument = old
        self._new: SchemaDocument = new
        # By path: the fields that may be its new name. A dict, because members of a union may share a field.
        self.removed: dict[str, tuple[str, ...]] = {}
        self.added: dict[str, None] = {}

    def run(self, first: Obligation) -> None:
        waiting = [first]
        for pair in _changed_pairs(self._old, self._new, waiting, {}):
            waiting += reversed(self._enter(pair))

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
        self.added |= dict.fromkeys(f"{path}.{name}" for name in anew if name not in names(new, "required"))
        # A mapping, or a type that keeps unknown fields, loses nothing.
        if "properties" in new and "additionalProperties" not in new:
            known = tags(old) if alone else {}
            for name, field in before.items():
                if name not in after and name not in known:
                    twins = tuple(other for other, candidate in anew.items() if self._same_type(field, candidate))
                    self.removed[f"{path}.{name}"] = twins
            if rest is not None:
                self.removed[f"{path}.*"] = ()
        return compare_objects(old, new, path, unknown_refused=False)[1]

    def _arrays(self, old: Schema, new: Schema, path: str) -> list[Obligation]:
        positions = schemas(new, "prefixItems")
        pairs = compare_arrays(old, new, path)[1]
        least = number(new, "minItems") or 0
        added = (f"{path}[{place}]" for place in range(len(pairs), len(positions)) if place >= least)
        self.added |= dict.fromkeys(added)
        # Only an array-like struct ignores items after its own positions.
        if "prefixItems" in new and "items" not in new:
            self.removed |= {pair.path: () for pair in pairs[len(positions) :]}
        return pairs

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
