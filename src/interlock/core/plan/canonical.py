"""Canonical form of a JSON schema: equal bytes mean equal decoding.

Two releases rarely write the same schema byte for byte: a class is renamed, a docstring becomes a description,
fields change places. None of that changes what decodes. The canonical form numbers definitions in the order in
which they occur (which also makes recursive types finite), sorts unordered lists and drops prose.

Odd choice: `default` is kept. It does not matter for decoding, but another default is another behaviour.
"""

from collections.abc import Mapping
from typing import cast

import msgspec

from interlock.core.plan.shapes import Document, Schema, reference_of
from interlock.core.schemas import ANNOTATED

_PROSE = frozenset({"title", "description", "examples", "discriminator", "$defs", "$schema", ANNOTATED})
_LITERALS = frozenset({"default", "const", "enum"})


def canonical(document: Document, schema: Schema) -> bytes:
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
    return canonical(Document(old), old) == canonical(Document(new), new)
