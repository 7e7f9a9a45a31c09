"""Compare schemas of arrays and objects, and list the inner schemas that must be compared next.

The functions do not recurse. They return obligations (old inner schema, new inner schema, path) and leave the
order of work and the treatment of recursive types to the caller, which keeps this module free of cycles.

Odd choice: the old side is read as a closed world. A struct is written with exactly the fields it declares, so a field
that the old schema does not list was not stored. On the new side unknown fields are ignored, as msgspec does, unless
the type forbids them. A field with a default may have been left out (`omit_defaults`). A schema does not show that, so
making the field required is reported as not provable.
"""

import math
from typing import NamedTuple

from interlock.core.plan.canonical import canonical
from interlock.core.plan.findings import Incompatibility, incompatible
from interlock.core.plan.shapes import (
    ANYTHING,
    Document,
    Schema,
    child,
    constants,
    kind_of,
    members,
    names,
    number,
    schemas,
    show,
)
from interlock.core.schemas import KEYS, OMITS

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
    longest = number(schema, "maxItems")
    closed = bool(schemas(schema, "prefixItems")) and not isinstance(schema.get("items"), dict)
    limits = [math.inf if longest is None else longest, len(schemas(schema, "prefixItems")) if closed else math.inf]
    return min(limits)


def _accepted_length_max(schema: Schema) -> float:
    """Return the longest array that is accepted: an array-like struct ignores items after its fields."""
    longest = number(schema, "maxItems")
    closed = schema.get("items") is False
    return min(math.inf if longest is None else longest, len(schemas(schema, "prefixItems")) if closed else math.inf)


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
    most = number(old, "maxProperties")
    listed = len(members(old, "properties")) if stored_rest(old) is None else math.inf
    return min(math.inf if most is None else most, listed)


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
