"""CREATE TYPE … AS ENUM, ALTER TYPE and DROP TYPE.

An enumeration is kept in a view of SQLite that is never read: it takes the name and has the labels. A value is stored
as its place among them, so values sort as PostgreSQL sorts them, a new name of a label changes no row, and a new label
comes after all others.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

from interlock.sql.ddl.create_table import NOTHING, relation_names
from interlock.sql.literals import text_literal
from interlock.sql.parse import IDENTIFIER_BYTES_MAX, Body, names_of, only, quoted_name
from interlock.sql.scope import Translation, visible
from interlock.sql.types import PLAIN_TYPES, SERIALS, Type, refuse, wrong

LABELS_MAX: Final = 1_000
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


def create_enumeration(body: Body, translation: Translation) -> str:
    """Translate CREATE TYPE … AS ENUM."""
    only("CreateEnumStmt", body, "typeName", "vals")
    labels = [_checked(label) for label in names_of(body.get("vals", ()))]
    return made_enumeration(_name(body["typeName"]), labels, translation)


def made_enumeration(name: str, labels: Sequence[str], translation: Translation) -> str:
    """Return the statement that makes an enumeration."""
    if len(set(labels)) != len(labels):
        raise wrong(f"the type {name!r} with a label twice.")
    if not 1 <= len(labels) <= LABELS_MAX:
        raise refuse(f"an enumeration of {len(labels)} labels.", fix=f"Use 1 to {LABELS_MAX}.")
    if name in PLAIN_TYPES or name in SERIALS or not _NAME.fullmatch(name):
        raise refuse(f"the name {name!r} of a type.", fix="Use small letters, digits and _, and no name of a type.")
    if name in relation_names(translation):
        raise wrong(f"there is a type, a table or an index {name!r} already.")
    return _written(name, labels)


def alter_enumeration(body: Body, translation: Translation) -> str:
    """Translate ALTER TYPE … ADD VALUE and RENAME VALUE."""
    only("AlterEnumStmt", body, "typeName", "newVal", "oldVal", "newValNeighbor", "newValIsAfter", "skipIfNewValExists")
    kind = _known(_name(body["typeName"]), translation)
    labels, new = list(kind.labels), _checked(body["newVal"])
    if new in labels:
        if body.get("skipIfNewValExists"):
            return NOTHING
        raise wrong(f"the type {kind} has a label {new!r} already.")
    place: str = body["oldVal"] if "oldVal" in body else body.get("newValNeighbor", labels[-1])
    if place not in labels:
        raise wrong(f"{place!r} is not a label of the type {kind}.")
    if "oldVal" in body:
        if view := next(iter(translation.schema.views), None):
            # A view is kept as its text, in which the label may stand.
            raise refuse(f"a new name for a label beside the view {view!r}.", fix="Drop the view, and create it again.")
        labels[labels.index(place)] = new
    elif place == labels[-1] and (body.get("newValIsAfter") or "newValNeighbor" not in body):
        labels.append(new)
    else:
        raise refuse("a label before others.", why="Values are stored as places.", fix="Add it at the end.")
    translation.several = True
    return f"DROP VIEW {quoted_name(kind.title)}; {_written(kind.title, labels)}"


def drop_enumerations(body: Body, translation: Translation) -> list[str]:
    """Return the statements of DROP TYPE."""
    texts: list[str] = []
    for name in dict.fromkeys(_name(node["TypeName"]["names"]) for node in body["objects"]):
        kind = translation.schema.enumerations.get(name)
        if kind is None and body.get("missing_ok"):
            continue
        kind = kind or _known(name, translation)
        users = [
            f"{table.name}.{column.name}"
            for table in translation.schema.tables.values()
            for column in table.columns
            if kind in {column.type, column.type.element if column.type.is_array else None}
        ]
        users += [view.name for view in translation.schema.views.values() if name in view.tables]
        if users and body.get("behavior") == "DROP_CASCADE":
            raise refuse(f"DROP TYPE … CASCADE of {name!r}, the type of {', '.join(users)}.", fix="Drop these first.")
        if users:
            raise wrong(f"the type {name!r} is needed by {', '.join(users)}.", fix="Drop these first.")
        texts.append(f"DROP VIEW {quoted_name(name)}")
    return texts


def known_enumeration(nodes: Sequence[dict[str, Body]], translation: Translation) -> Type:
    """Return the enumeration that a statement names."""
    return _known(_name(nodes), translation)


def _name(nodes: Sequence[dict[str, Body]]) -> str:
    *schema, name = names_of(nodes)
    if schema not in ([], ["public"]):
        raise refuse(f"the type {'.'.join([*schema, name])} of another schema.", fix="Name it alone.")
    visible(name, "type")
    return name


def _checked(label: str) -> str:
    if len(label.encode()) > IDENTIFIER_BYTES_MAX:
        raise wrong(f"the label {label!r}, which has more than {IDENTIFIER_BYTES_MAX} bytes.")
    return label


def _known(name: str, translation: Translation) -> Type:
    found = translation.schema.enumerations.get(name)
    if found is None:
        raise wrong(f"there is no enumeration {name!r}.", fix="Create it first.")
    return found


def _written(name: str, labels: Sequence[str]) -> str:
    kept = text_literal(json.dumps(labels, ensure_ascii=False))
    return f"CREATE VIEW {quoted_name(name)} AS SELECT 'enum' AS kind, {kept} AS labels"
