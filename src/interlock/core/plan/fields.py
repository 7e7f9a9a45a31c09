"""Which fields of stored data the new type no longer has, and which it has anew.

Decoding is not keeping. An unknown field is ignored when data are read, and no longer there when they are written
again: a renamed field decodes perfectly and loses its value in every stored workflow. So the same two schemas
are walked a second time, for what is dropped and what is filled with a default.

Invariant: conservative. When several members of a new union could read a value, a field counts as gone if one of them
drops it. A place that several paths lead to is reported under the first of them.

Odd choice: a gone field that could only ever hold one constant (the tag of a struct) is passed over, unless it
told the members of a union apart. Nothing is lost that the new code does not know anyway.
"""

from typing import NamedTuple

from interlock.core.plan.canonical import canonical
from interlock.core.plan.containers import Obligation, Side, compare_arrays, compare_objects, stored_rest
from interlock.core.plan.shapes import Document, Schema, kind_of, members, names, number, schemas, tags, tags_differ


class GoneField(NamedTuple):
    """A place whose stored values the new type drops."""

    path: str
    why: str
    fix: str


class FieldChanges(NamedTuple):
    """The fields that are gone, and the paths of those that are new and have a default."""

    gone: tuple[GoneField, ...]
    added: tuple[str, ...]


def compare_fields(new_schema: Schema, old_schema: Schema) -> FieldChanges:
    """What reading data of the old schema with the new one drops, and what it fills in."""
    walk = _Walk(Document(old_schema), Document(new_schema))
    walk.run(Obligation(old_schema, new_schema, "$"))
    return FieldChanges(tuple(_gone(path, twins) for path, twins in walk.gone.items()), tuple(walk.added))


class _Walk:
    """One walk over two documents, side by side."""

    def __init__(self, old: Document, new: Document) -> None:
        self._old: Document = old
        self._new: Document = new
        # Paths, each with the names of the new fields that may be its new name; keyed, because the members of a union
        # may share a field.
        self.gone: dict[str, tuple[str, ...]] = {}
        self.added: dict[str, None] = {}

    def run(self, first: Obligation) -> None:
        # As in `schemas`: pairs by identity, kept alive as values, so that recursive types end.
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
        # A mapping, or a type that keeps what it does not know, loses nothing.
        if "properties" in new and "additionalProperties" not in new:
            known = tags(old) if alone else {}
            for name, field in before.items():
                if name not in after and name not in known:
                    twins = tuple(other for other, candidate in anew.items() if self._same_type(field, candidate))
                    self.gone[f"{path}.{name}"] = twins
            if rest is not None:
                self.gone[f"{path}.*"] = ()
        return compare_objects(old, new, path, unknown_refused=False).obligations

    def _arrays(self, old: Schema, new: Schema, path: str) -> list[Obligation]:
        positions = schemas(new, "prefixItems")
        pairs = compare_arrays(Side(self._old, old), Side(self._new, new), path).obligations
        least = number(new, "minItems") or 0
        self._add([f"{path}[{place}]" for place in range(len(pairs), len(positions)) if place >= least])
        # Only a struct that is written as an array ignores what follows its own positions.
        if "prefixItems" in new and "items" not in new:
            self.gone |= {pair.path: () for pair in pairs[len(positions) :]}
        return pairs

    def _add(self, paths: list[str]) -> None:
        self.added |= dict.fromkeys(paths)

    def _same_type(self, old: Schema, new: Schema) -> bool:
        """Whether the new field reads exactly what the old one held; null may have come with the default."""
        wanted = {canonical(self._new, _bare(part)) for part in self._new.alternatives(new)}
        return all(canonical(self._old, _bare(part)) in wanted for part in self._old.alternatives(old))


def _gone(path: str, twins: tuple[str, ...]) -> GoneField:
    why = "the field is gone, and with it every value that is stored there"
    if not twins:
        fix = f"keep `{path}` until no workflow of the old version is left, or accept that its values are lost"
        return GoneField(path, why, fix)
    name, listed = path.rpartition(".")[2], " or ".join(f"`{twin}`" for twin in twins)
    fix = f"keep the name `{name}`, or keep `{name}` beside {listed} in the new type and read both"
    return GoneField(path, f"{why}; probably a rename, since {listed} is new and of the same type", fix)


def _bare(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "default"}
