"""Definitions of a schema of PostgreSQL, read from the catalogs: tables, sequences, views, indexes, constraints.

The texts are the server's (`pg_get_constraintdef` and similar), for a session whose search_path is the schema. So they
do not name the schema and work in another one. A schema with anything else (functions, triggers, user-defined types,
partitions) is refused, because a copy would silently lose it; pg_dump can copy it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, cast

from interlock.errors import DialectError
from interlock.sql.postgres.link import Record
from interlock.sql.syntax import quoted

Fetch = Callable[..., Awaitable[Sequence[Record]]]
"""Runs a statement and returns its rows."""

MARKS: Final = ("interlock_touched", "interlock_watched", "interlock_arrived", "workflows_arriving")
"""Tables of a mover. They belong to the place and not to the database, and are not copied."""

OTHERS: Final = """
SELECT CASE relkind WHEN 'p' THEN 'the partitioned table ' WHEN 'm' THEN 'the materialized view '
    WHEN 'f' THEN 'the foreign table ' WHEN 'c' THEN 'the type ' ELSE 'the inherited table ' END || relname
FROM pg_class c WHERE relnamespace = $1::regnamespace AND (relkind IN ('p', 'm', 'f', 'c')
    OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND relkind = 'r'))
UNION ALL SELECT 'the function ' || proname FROM pg_proc
WHERE pronamespace = $1::regnamespace AND proname NOT LIKE 'interlock\\_%'
UNION ALL SELECT 'the type ' || typname FROM pg_type
WHERE typnamespace = $1::regnamespace AND typtype IN ('e', 'd', 'r')
UNION ALL SELECT 'the trigger ' || tgname || ' of ' || relname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
WHERE relnamespace = $1::regnamespace AND NOT tgisinternal AND tgname NOT LIKE 'interlock\\_%'
UNION ALL SELECT 'the policy ' || polname || ' of ' || relname FROM pg_policy p JOIN pg_class c ON c.oid = polrelid
WHERE relnamespace = $1::regnamespace ORDER BY 1"""

TABLES: Final = """
SELECT c.oid, relname, array_to_string(reloptions, ', '), relpersistence = 'u' FROM pg_class c
WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relname <> ALL ($2::text[]) ORDER BY relname"""

COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid), attidentity::text,
    attgenerated::text, CASE WHEN attcollation <> typcollation THEN collname END
FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum
LEFT JOIN pg_collation l ON l.oid = attcollation
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""

CONSTRAINTS: Final = """
SELECT relname, conname, contype = 'f', pg_get_constraintdef(o.oid)
FROM pg_constraint o JOIN pg_class c ON c.oid = conrelid
WHERE relnamespace = $1::regnamespace AND contype IN ('p', 'u', 'c', 'x', 'f') AND relkind = 'r'
    AND relname <> ALL ($2::text[]) ORDER BY contype = 'f', relname, conname"""

INDEXES: Final = """
SELECT relname, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indrelid
WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relname <> ALL ($2::text[])
    AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
ORDER BY indexrelid::regclass::text"""

SEQUENCES: Final = """
SELECT c.relname, format_type(seqtypid, NULL), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle,
    d.deptype::text, t.relname, a.attname
FROM pg_sequence s JOIN pg_class c ON c.oid = seqrelid
LEFT JOIN pg_depend d ON d.objid = c.oid AND d.deptype IN ('a', 'i') AND d.classid = 'pg_class'::regclass
    AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
LEFT JOIN pg_class t ON t.oid = d.refobjid LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
WHERE c.relnamespace = $1::regnamespace AND coalesce(t.relname <> ALL ($2::text[]), true) ORDER BY c.relname"""

VIEWS: Final = """
SELECT relname, pg_get_viewdef(oid) FROM pg_class
WHERE relnamespace = $1::regnamespace AND relkind = 'v' ORDER BY oid"""


class Defined(NamedTuple):
    """A table, and its columns that are written."""

    table: str
    columns: tuple[str, ...]


class Numbering(NamedTuple):
    """A sequence; `table` and `column` name its identity column (GENERATED … AS IDENTITY)."""

    name: str
    table: str
    column: str


class Definitions(NamedTuple):
    """A schema without its rows."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    tables: tuple[Defined, ...]
    sequences: tuple[Numbering, ...]


async def definitions_of(fetch: Fetch, schema: str) -> Definitions:
    """Return the definitions of a schema. Raises DialectError for objects that cannot be copied."""
    name = quoted(schema)
    others = [str(row[0]) for row in await fetch(OTHERS, name)]
    if others:
        raise DialectError(
            f"the schema {schema!r} has more than tables, sequences and views: {'; '.join(others[:10])}.",
            why="A copy must not silently leave out a part of a database.",
            fix="Copy it with pg_dump, which knows everything that PostgreSQL has.",
        )
    before, owned, identities = await _sequences(fetch, name)
    tables: list[Defined] = []
    for oid, table, options, unlogged in await fetch(TABLES, name, MARKS):
        create, columns = await _table(fetch, int(oid), str(table), identities)
        tables.append(Defined(str(table), columns))
        kind = "UNLOGGED TABLE" if unlogged else "TABLE"
        before.append(f"CREATE {kind} {quoted(str(table))} ({create})" + (f" WITH ({options})" if options else ""))
    before += owned
    after = [_index(str(text), schema) for _, text in await fetch(INDEXES, name, MARKS)]
    keys: list[str] = []
    references: list[str] = []
    for table, constraint, refers, text in await fetch(CONSTRAINTS, name, MARKS):
        statement = f"ALTER TABLE {quoted(str(table))} ADD CONSTRAINT {quoted(str(constraint))} {text}"
        (references if refers else keys).append(statement)
    views = [f"CREATE VIEW {quoted(str(view))} AS {text}" for view, text in await fetch(VIEWS, name)]
    sequences = tuple(
        Numbering(str(row[0]), *((str(row[9]), str(row[10])) if row[8] == "i" else ("", "")))
        for row in await fetch(SEQUENCES, name, MARKS)
    )
    return Definitions(tuple(before), (*keys, *after, *references, *views), tuple(tables), sequences)


async def _sequences(fetch: Fetch, name: str) -> tuple[list[str], list[str], dict[tuple[str, str], str]]:
    """Return statements before the tables, statements after them, and the options of identity columns."""
    made: list[str] = []
    owned: list[str] = []
    identities: dict[tuple[str, str], str] = {}
    for row in await fetch(SEQUENCES, name, MARKS):
        sequence, kind, start, step, least, most, cache, cycle, how, table, column = cast(
            "tuple[object, ...]", tuple(row)
        )
        options = (
            f"START WITH {start} INCREMENT BY {step} MINVALUE {least} MAXVALUE {most} CACHE {cache}"
            f"{' CYCLE' if cycle else ''}"
        )
        if how == "i":
            identities[str(table), str(column)] = f"SEQUENCE NAME {quoted(str(sequence))} {options}"
            continue
        made.append(f"CREATE SEQUENCE {quoted(str(sequence))} AS {kind} {options}")
        if how == "a":
            owner = f"{quoted(str(table))}.{quoted(str(column))}"
            owned.append(f"ALTER SEQUENCE {quoted(str(sequence))} OWNED BY {owner}")
    return made, owned, identities


async def _table(
    fetch: Fetch, oid: int, table: str, identities: dict[tuple[str, str], str]
) -> tuple[str, tuple[str, ...]]:
    parts: list[str] = []
    written: list[str] = []
    for row in await fetch(COLUMNS, oid):
        name, kind, filled, default, identity, generated, collation = tuple(row)
        part = f"{quoted(str(name))} {kind}"
        part += f" COLLATE {quoted(str(collation))}" if collation else ""
        if identity:
            how = "ALWAYS" if identity == "a" else "BY DEFAULT"
            part += f" GENERATED {how} AS IDENTITY ({identities[table, str(name)]})"
        elif generated:
            part += f" GENERATED ALWAYS AS ({default}) {'STORED' if generated == 's' else 'VIRTUAL'}"
        elif default is not None:
            part += f" DEFAULT {default}"
        parts.append(part + (" NOT NULL" if filled else ""))
        if not generated:
            written.append(str(name))
    return ", ".join(parts), tuple(written)


def _index(text: str, schema: str) -> str:
    """Return the statement that makes an index, without the schema of its table."""
    for name in (quoted(schema), schema):
        text = text.replace(f" ON {name}.", " ON ", 1)
    return text
