"""Check that all data written under the old schema decode under the new one, with the same meaning.

`accepts` returns a list of incompatibilities; an empty list is a proof for the types that a JSON schema can
express. It follows how msgspec decodes: unknown fields are ignored, a missing field needs a default, an integer
is read where a float (or a decimal) is expected but never the reverse, and a union picks its member by the JSON
kind of the value, or by its tag.

Decoded values must also mean the same: an integer that a float rounds, items that fall together in a set, bytes that
are read as the text of their base64 are reported as well. Facts that a schema of msgspec omits are in its annotations
(`interlock.core.schemas`); without them, in a description of an earlier release, a `datetime` without declared timezone
looks like `str` and the key type of a mapping is lost. Byte lengths are rounded to base64 blocks, and flags list only
their single bits. Recursive types: a pair that is already being compared is not entered again.
"""

from typing import Literal

from interlock.core.plan.canonical import canonical
from interlock.core.plan.containers import Obligation, Side, compare_arrays, compare_objects
from interlock.core.plan.findings import Incompatibility, incompatible
from interlock.core.plan.scalars import (
    compare_enumerated,
    compare_numbers,
    compare_strings,
    compare_unknown_keywords,
    describe,
    literal_range,
)
from interlock.core.plan.shapes import (
    Document,
    Kind,
    Schema,
    constants,
    kind_of,
    kind_of_value,
    tags,
    tags_differ,
)
from interlock.core.schemas import KEYS, OMITS, TEXT

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
