"""DROP and TRUNCATE.

Both refuse what other tables refer to, or take it along with CASCADE, in an order in which no reference breaks.
"""

from interlock.sql.ddl.alter import Rebuild
from interlock.sql.ddl.sequences import drop_sequences, forget
from interlock.sql.ddl.tables import NOTHING, index_name, index_names_of_constraints
from interlock.sql.ddl.views import drop_views, refuse_views_of, views_of
from interlock.sql.from_clause import table_name
from interlock.sql.literals import text_literal
from interlock.sql.parse import Body, names_of, only, quoted_name
from interlock.sql.schema import NumberSequence
from interlock.sql.scope import Translation, visible
from interlock.sql.types import refuse, wrong


def drop(body: Body, translation: Translation) -> str:
    """Translate DROP TABLE or DROP INDEX."""
    only("DropStmt", body, "objects", "removeType", "behavior", "missing_ok", "concurrent")
    kind = body["removeType"].removeprefix("OBJECT_")
    if kind not in {"TABLE", "INDEX", "SEQUENCE", "VIEW"}:
        raise refuse(f"DROP {kind.replace('_', ' ')}.", fix="A lane has tables, indexes, sequences and views.")
    names: list[str] = []
    for node in body["objects"]:
        *schema, name = names_of(node["List"]["items"])
        if schema not in ([], ["public"]):
            raise refuse(f"the {kind.lower()} {'.'.join([*schema, name])} of another schema.", fix="Name it alone.")
        visible(name, kind.lower())
        if name not in names:
            names.append(name)
    exists = bool(body.get("missing_ok"))
    if kind == "INDEX":
        for name in names:
            if index_name(name, translation) in index_names_of_constraints(translation):
                raise wrong(f"the index {name!r} belongs to a constraint.", fix="Drop the constraint.")
        return several(
            [f"DROP INDEX {'IF EXISTS ' if exists else ''}{quoted_name(name)}" for name in names], translation
        )
    if kind == "SEQUENCE":
        return several(drop_sequences(names, translation, missing_ok=exists), translation)
    if kind == "VIEW":
        if body.get("behavior") == "DROP_CASCADE":
            raise refuse("DROP VIEW … CASCADE.", fix="Drop the views that read it, too.")
        return several(drop_views(names, translation, missing_ok=exists), translation)
    return _drop_tables(names, translation, exists=exists, cascade=body.get("behavior") == "DROP_CASCADE")


def _drop_tables(names: list[str], translation: Translation, *, exists: bool, cascade: bool) -> str:
    tables = translation.schema.tables
    texts: list[str] = []
    for name in names:
        if any(known.lower() == name.lower() and known != name for known in tables):
            raise wrong(f"there is no table {name!r}.", fix="Mind the case of the name.")
        if not exists:
            translation.table(name)
    for name in names:
        if cascade:
            refuse_views_of(name, translation)
        elif users := views_of(name, translation):
            raise wrong(f"{name!r} is needed by {', '.join(users)}.", fix="Drop the views first.")
    referring = sorted(
        table.name for table in tables.values() if table.name not in names and set(names) & table.references
    )
    if referring and not cascade:
        raise wrong(f"{', '.join(names)}: referred to by {', '.join(referring)}.", fix="Drop those first, or CASCADE.")
    for name in referring:
        # CASCADE drops the references alone; the tables stay.
        change = Rebuild.of(tables[name], translation)
        change.draft.ready = [each for each in change.draft.ready if each.table not in names]
        change.same = False
        texts.append(change.write())
    ordered = _referring_first([name for name in names if name in tables], translation)
    texts += [f"DROP TABLE {quoted_name(name)}" for name in ordered]
    sequences = _sequences(ordered, translation)
    texts += [forget(sequences)] if sequences else []
    return several(texts, translation)


def several(texts: list[str], translation: Translation) -> str:
    """Join the statements of one definition."""
    translation.several = translation.several or len(texts) > 1
    return "; ".join(texts) if texts else NOTHING


def _sequences(names: list[str], translation: Translation) -> list[NumberSequence]:
    """Return the sequences of the columns of these tables."""
    tables = [translation.schema.tables[name] for name in names]
    return [column.sequence for table in tables for column in table.columns if column.sequence is not None]


def _referring_first(names: list[str], translation: Translation) -> list[str]:
    """Return the tables in an order in which no table comes before one that refers to it."""
    rest, ordered = list(dict.fromkeys(names)), list[str]()
    tables = translation.schema.tables
    while rest:
        free = [name for name in rest if not any(name in tables[other].references for other in rest if other != name)]
        if not free:
            raise refuse(f"{', '.join(rest)} refer to each other.", fix="Drop a constraint first.")
        ordered += free
        rest = [name for name in rest if name not in free]
    return ordered


def truncate(body: Body, translation: Translation) -> str:
    """Translate TRUNCATE, a DELETE of all rows; like PostgreSQL it tells no number of rows."""
    only("TruncateStmt", body, "relations", "restart_seqs", "behavior")
    tables = [translation.table(table_name(node["RangeVar"])) for node in body["relations"]]
    names = list(dict.fromkeys(table.name for table in tables))
    known = translation.schema.tables
    while True:
        referring = sorted(
            table.name for table in known.values() if table.name not in names and set(names) & table.references
        )
        if not referring:
            break
        if body.get("behavior") != "DROP_CASCADE":
            raise wrong(f"{', '.join(names)}: referred to by {', '.join(referring)}.", fix="Name those, too.")
        names += referring
    if any(set(names) & known[name].references for name in names):
        # Each row that refers to another one goes, too. Actions of references do not run, as in PostgreSQL.
        translation.several, translation.rebuilds = True, names[0]
    texts = [f"DELETE FROM {quoted_name(name)}" for name in names]  # noqa: S608
    if body.get("restart_seqs"):
        sequences = _sequences(names, translation)
        # A table that SQLite has numbered begins again, too.
        texts += [f"{forget(sequences)[:-1]}, {', '.join(map(text_literal, names))})"] if sequences else []
    return several(texts, translation)
