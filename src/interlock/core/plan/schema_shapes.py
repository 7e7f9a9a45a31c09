"""Typed access to JSON schemas as `msgspec.json.schema` writes them.

A schema document is a tree with `$ref` edges; this module follows them, flattens unions into alternatives and
gives typed access to keywords, so that the comparison never touches untyped JSON.

Invariant: nothing is guessed. An unknown reference or a typeless constraint keeps its keywords and has the kind
"unreadable", and the comparison reports it as not provable.
"""

from collections.abc import Mapping
from typing import Literal, cast

import msgspec

from interlock.core.schemas import ANNOTATED

Schema = Mapping[str, object]
Kind = Literal["null", "boolean", "integer", "number", "string", "array", "object", "anything", "unreadable"]

ANYTHING: Schema = {}
ANNOTATIONS = frozenset(
    {"title", "description", "examples", "default", "deprecated", "discriminator", "$defs", "$schema", ANNOTATED}
)
_DEFINITIONS_PREFIX = "#/$defs/"
_KINDS: dict[str, Kind] = {
    "null": "null",
    "boolean": "boolean",
    "integer": "integer",
    "number": "number",
    "string": "string",
    "array": "array",
    "object": "object",
}


class Document:
    """One schema with the definitions that its references name."""

    def __init__(self, root: Schema) -> None:
        self.root: Schema = root
        self._definitions: dict[str, Schema] = _definitions(root)

    def alternatives(self, schema: Schema) -> list[Schema]:
        """Return the schema as a flat union: references followed, nested unions and type lists expanded."""
        return self._flatten(schema, frozenset())

    def definition(self, reference: str) -> Schema | None:
        """Return the definition that a `$ref` names, or None."""
        return self._definitions.get(reference.removeprefix(_DEFINITIONS_PREFIX))

    def _flatten(self, schema: Schema, followed: frozenset[str]) -> list[Schema]:
        keys = keywords(schema)
        reference = reference_of(schema)
        if reference is not None and keys == {"$ref"} and reference not in followed:
            target = self.definition(reference)
            return [schema] if target is None else self._flatten(target, followed | {reference})
        if keys == {"anyOf"}:
            return [part for choice in schemas(schema, "anyOf") for part in self._flatten(choice, followed)]
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
    """Return the JSON kind of one alternative that does not enumerate its values."""
    if not keywords(schema):
        return "anything"
    return _KINDS.get(str(schema.get("type")), "unreadable")


def kind_of_value(value: object) -> Kind:
    """Return the JSON kind of a literal value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "unreadable"


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
    found = {place: constants(part) or [] for place, part in places.items()}
    return {place: show(values[0]) for place, values in found.items() if len(values) == 1}


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
