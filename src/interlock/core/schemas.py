"""JSON schemas of contexts and payloads, with annotations for `plan` that `msgspec.json.schema` leaves out.

In a plain schema a `datetime` or `time` without a declared timezone looks like any text, mapping keys look like text,
and a struct that omits defaults looks like one that writes them. Each has a keyword of its own here. The keyword
`ANNOTATED` at the root says that the schema has these keywords. A schema of an earlier release lacks it; then the
absence of the others means nothing.

The schema and the type are walked side by side. In a union msgspec allows one type for each kind of JSON value, except
for structs, which have a tag each; so every type has exactly one place in the schema.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
import msgspec.inspect as types

ANNOTATED = "x-interlock"
"""At the root: the schema has the keywords below."""

TEXT = "x-interlock-text"
"""Of a string: which of `DATETIME` … it contains."""

KEYS = "x-interlock-keys"
"""Of a mapping: the type of its keys, unless they are text."""

OMITS = "x-interlock-omits"
"""Of an object: fields that equal their default are not written."""

DATETIME, NAIVE_DATETIME, TIME = "any datetime", "naive datetime", "any time"

KEYWORDS = frozenset({ANNOTATED, TEXT, KEYS, OMITS})

Json = dict[str, object]


def schema_of(cls: type[object]) -> Json:
    """Return the annotated JSON schema of a context or a payload."""
    # Defaults are Python values (a tuple, a set). A round trip through JSON makes new and saved schemas comparable.
    made = msgspec.json.schema(cls, schema_hook=_model_schema)
    schema = cast("Json", msgspec.json.decode(msgspec.json.encode(made)))
    _Annotation(schema).annotate(types.type_info(cls), schema)
    schema[ANNOTATED] = 1
    return schema


def without_annotations(schema: Mapping[str, object]) -> Json:
    """Return the schema as `msgspec.json.schema` writes it."""
    return cast("Json", _stripped(schema))


def _stripped(node: object) -> object:
    if isinstance(node, dict):
        items = cast("Json", node).items()
        return {key: _stripped(value) for key, value in items if key not in KEYWORDS}
    return [_stripped(each) for each in cast("list[object]", node)] if isinstance(node, list) else node


class _Annotation:
    """One walk over a type and its schema."""

    def __init__(self, root: Json) -> None:
        self._definitions = cast("dict[str, Json]", root.get("$defs", {}))
        self._annotated: set[tuple[object, int]] = set()

    def annotate(self, kind: types.Type, schema: object) -> None:
        for place in self._places(schema):
            for each in kind.types if isinstance(kind, types.UnionType) else (kind,):
                self._annotate(each, place)

    def _places(self, schema: object) -> list[Json]:
        """Return the members of a union, with references followed."""
        if not isinstance(schema, dict):
            return []
        found = cast("Json", schema)
        if "$ref" in found:
            return self._places(self._definitions.get(str(found["$ref"]).removeprefix("#/$defs/")))
        if "anyOf" in found:
            return [place for each in cast("list[object]", found["anyOf"]) for place in self._places(each)]
        return [found]

    def _annotate(self, kind: types.Type, place: Json) -> None:
        if isinstance(kind, types.DateTimeType | types.TimeType):
            _note_text(kind, place)
        elif isinstance(kind, types.DictType) and "additionalProperties" in place and "properties" not in place:
            keys = _key_name(kind.key_type)
            if keys:
                place[KEYS] = keys
            self.annotate(kind.value_type, place["additionalProperties"])
        elif isinstance(kind, types.ListType | types.VarTupleType | types.SetType | types.FrozenSetType):
            self.annotate(kind.item_type, place.get("items"))
        elif isinstance(kind, types.TupleType) and place.get("items") is False:
            self._annotate_each(kind.item_types, cast("list[object]", place.get("prefixItems", [])))
        elif isinstance(kind, types.StructType | types.DataclassType | types.TypedDictType | types.NamedTupleType):
            self._annotate_object(kind, place)

    def _annotate_object(
        self, kind: types.StructType | types.DataclassType | types.TypedDictType | types.NamedTupleType, place: Json
    ) -> None:
        if place.get("title") != kind.cls.__name__ or (kind.cls, id(place)) in self._annotated:
            return
        self._annotated.add((kind.cls, id(place)))
        fields = {field.encode_name: field.type for field in kind.fields}
        if "properties" in place:
            if isinstance(kind, types.StructType) and kind.cls.__struct_config__.omit_defaults:
                place[OMITS] = True
            properties = cast("Json", place["properties"])
            for name in fields.keys() & properties.keys():
                self.annotate(fields[name], properties[name])
        else:
            positions = cast("list[object]", place.get("prefixItems", []))
            self._annotate_each(tuple(fields.values()), positions[max(0, len(positions) - len(fields)) :])

    def _annotate_each(self, kinds: Sequence[types.Type], places: Sequence[object]) -> None:
        for kind, place in zip(kinds, places, strict=False):
            self.annotate(kind, place)


def _note_text(kind: types.DateTimeType | types.TimeType, place: Json) -> None:
    # With a declared timezone it has a format; an enum or another format belongs to another member of a union.
    if place.get("type") != "string" or kind.tz is True or not place.keys() <= {"type", "default", "title"}:
        return
    if isinstance(kind, types.DateTimeType):
        place[TEXT] = DATETIME if kind.tz is None else NAIVE_DATETIME
    else:
        place[TEXT] = TIME  # A time without a timezone has a format of its own.


def _key_name(kind: types.Type) -> str:
    """Return the name of the key type; empty for text. The values of an enumeration are in `propertyNames`."""
    if isinstance(kind, types.StrType | types.AnyType):
        return ""
    name = type(kind).__name__.removesuffix("Type").lower()
    return name if name not in {"datetime", "time"} else f"{name} {getattr(kind, 'tz', None)}"


def _model_schema(cls: type[object]) -> Json:
    return cast("Json", getattr(cls, "model_json_schema")())  # noqa: B009 -- only pydantic comes here.
