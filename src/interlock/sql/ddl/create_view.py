"""CREATE VIEW and DROP VIEW.

A view is kept as the statement that made it, in a view of SQLite that is never read: it takes the name and ends with
DROP. A query that names it is translated with the view's own query in its place, so types and checks are those of the
tables. Changes of a table that would change its views are refused.
"""

import json
from dataclasses import replace
from typing import Final

from interlock.errors import DialectError, TransactionError
from interlock.sql.from_clause import table_name, view_query
from interlock.sql.literals import text_literal
from interlock.sql.parse import Body, only, quoted_name
from interlock.sql.schema import Schema, Table, ViewDefinition
from interlock.sql.scope import Query, Scope, Translation, visible
from interlock.sql.select import derived
from interlock.sql.types import refuse, wrong

COLUMNS_MAX: Final = 500


def create_view(body: Body, translation: Translation) -> str:
    """Translate CREATE [OR REPLACE] VIEW."""
    only("ViewStmt", body, "view", "aliases", "query", "replace", "withCheckOption")
    if body.get("withCheckOption", "NO_CHECK_OPTION") != "NO_CHECK_OPTION" or (
        body["view"].get("relpersistence", "p") != "p"
    ):
        raise refuse("a view with a check option, or a temporary one.", fix="Create an ordinary view.")
    name = table_name(body["view"])
    visible(name, "view")
    if name != name.lower():
        raise refuse(f"the view name {name!r}.", why="SQLite does not tell its case apart.", fix="Use small letters.")
    before = translation.schema.views.get(name)
    if translation.is_taken(name) and not (before is not None and body.get("replace")):
        raise wrong(f"there is a table, an index, a sequence or a view {name!r} already.")
    query = view_query(body, Scope(translation, place="a view"), derived)
    if len(query.columns) > COLUMNS_MAX:
        raise refuse(f"a view of {len(query.columns)} columns.", fix=f"Use 1 to {COLUMNS_MAX}.")
    if name in translation.tables:
        if before is None:
            raise wrong(f"the view {name!r} reads itself.")
        raise refuse(f"the view {name!r}, which would read itself.", fix="Drop the views that read it first.")
    read = sorted(translation.tables)
    columns = [output.name for output in query.columns]
    if before is not None:
        _check_same(before, [(output.name, output.type) for output in query.columns], translation)
        if len(columns) > len(before.columns):
            refuse_views_of(name, translation)
    kept = text_literal(json.dumps({"columns": columns, "tables": read}, ensure_ascii=False))
    text = text_literal(translation.sql)
    made = f"CREATE VIEW {quoted_name(name)} AS SELECT 'view' AS kind, {kept} AS shape, {text} AS text"
    if before is None:
        return made
    translation.several = True
    return f"DROP VIEW {quoted_name(name)}; {made}"


def _check_same(before: ViewDefinition, columns: list[tuple[str, object]], translation: Translation) -> None:
    """Raise unless a view that is replaced keeps its columns, to which it may add others."""
    known = view_query(before.body, Scope(translation, place="a view"), derived)
    if columns[: len(known.columns)] != [(output.name, output.type) for output in known.columns]:
        raise wrong(f"the view {before.name!r} would lose or change a column.", fix="Drop it first.")


def drop_views(names: list[str], translation: Translation, *, missing_ok: bool) -> list[str]:
    """Return the statements of DROP VIEW."""
    texts: list[str] = []
    for name in names:
        if name not in translation.schema.views:
            if missing_ok:
                continue
            raise wrong(f"there is no view {name!r}.")
        users = [view for view in views_of(name, translation) if view not in names]
        if users:
            raise wrong(f"the view {name!r} is needed by {', '.join(users)}.", fix="Drop those first.")
        texts.append(f"DROP VIEW {quoted_name(name)}")
    return texts


def views_of(name: str, translation: Translation) -> list[str]:
    """Return the views that read this table or view."""
    return sorted(view.name for view in translation.schema.views.values() if name in view.tables)


def check_views_of(after: Table, translation: Translation) -> None:
    """Refuse a change of a table by which the text of a view would mean something else, or nothing.

    PostgreSQL keeps a view as it was understood when it was made; here its text is read again by each query.
    """
    schema = translation.schema
    changed = replace(schema, tables={**schema.tables, after.name: after})
    for name in views_of(after.name, translation):
        try:
            same = _read(schema.views[name], changed, translation) == _read(schema.views[name], schema, translation)
        except (DialectError, TransactionError):
            same = False
        if not same:
            raise refuse(
                f"such a change of {after.name!r}: the view {name!r} would be another query.",
                fix="Drop the view, change the table, and create the view again.",
            )


def _read(view: ViewDefinition, schema: Schema, translation: Translation) -> Query:
    alone = Translation(schema, translation.subquery, translation.window)
    return view_query(view.body, Scope(alone, place="a view"), derived)


def refuse_views_of(name: str, translation: Translation) -> None:
    """Refuse a change that PostgreSQL would carry into the views of a table, or refuse because of them."""
    users = views_of(name, translation)
    if users:
        raise refuse(
            f"such a change of {name!r}, which {', '.join(users)} reads.",
            fix="Drop the view, change the table, and create the view again.",
        )
