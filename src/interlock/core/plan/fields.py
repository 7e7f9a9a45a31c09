"""Find the fields of stored data that the new type drops, and those that it adds.

An unknown field is ignored when data are read, and missing when they are written again: a renamed field decodes without
an error and loses its value in every stored workflow. So the two schemas are walked a second time, for fields that are
dropped and fields that are filled with a default.

Invariant: conservative. When several members of a new union could read a value, a field counts as removed if one of
them drops it. A place that several paths lead to is reported under the first of them.

Odd choice: a removed field that could only contain one constant (the tag of a struct) is skipped, unless it
distinguished the members of a union. The constant carries no information.
"""

from typing import NamedTuple

from interlock.core.plan.canonical import canonical
from interlock.core.plan.containers import Obligation, Side, compare_arrays, compare_objects, stored_rest
from interlock.core.plan.shapes import Document, Schema, kind_of, members, names, number, schemas, tags, tags_differ


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
    walk = _Walk(Document(old_schema), Document(new_schema))
    walk.run(Obligation(old_schema, new_schema, "$"))
    return FieldChanges(tuple(_removed_field(path, twins) for path, twins in walk.removed.items()), tuple(walk.added))


class _Walk:
    """One walk over two documents, side by side."""

    def __init__(self, old: Document, new: Document) -> None:
        self._old: Document = old
        self._new: Document = new
        # By path: the fields that may be its new name. A dict, because members of a union may share a field.
        self.removed: dict[str, tuple[str, ...]] = {}
        self.added: dict[str, None] = {}

    def run(self, first: Obligation) -> None:
        # As in `schemas`: pairs by identity, kept alive as values, so that the walk of a recursive type ends.
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
        wanted = {canonical(self._new, _bare(part)) for part in self._new.alternatives(new)}
        return all(canonical(self._old, _bare(part)) in wanted for part in self._old.alternatives(old))


def _removed_field(path: str, twins: tuple[str, ...]) -> RemovedField:
    why = "the field is gone, and with it every value that is stored there"
    if not twins:
        fix = f"keep `{path}` until no workflow of the old version is left, or accept that its values are lost"
        return RemovedField(path, why, fix)
    name, listed = path.rpartition(".")[2], " or ".join(f"`{twin}`" for twin in twins)
    fix = f"keep the name `{name}`, or keep `{name}` beside {listed} in the new type and read both"
    return RemovedField(path, f"{why}; probably a rename, since {listed} is new and of the same type", fix)


def _bare(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "default"}
