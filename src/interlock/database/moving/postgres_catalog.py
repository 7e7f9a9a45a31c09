"""Queries of PostgreSQL's catalog for a schema: one each for tables, columns, constraints and indexes.

Every query takes the name of the schema as $1. Expressions are in the server's text.
"""

from typing import Any, Final, NamedTuple

from interlock.sql.postgres.client import said
from interlock.sql.postgres.link import Link

# Tables and other relations: kind, persistence, inheritance, row level security, and rules.
RELATIONS: Final = """
SELECT c.relname::text, c.relkind::text, c.relpersistence::text,
       c.relispartition OR EXISTS (SELECT 1 FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent)),
       c.relrowsecurity OR EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid),
       EXISTS (SELECT 1 FROM pg_rewrite r WHERE r.ev_class = c.oid AND c.relkind = 'r')
FROM pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
ORDER BY c.relname"""

COLUMNS: Final = """
SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
       a.attgenerated::text, pg_get_expr(d.adbin, d.adrelid),
       CASE WHEN a.attcollation NOT IN (0, 100)
            THEN (SELECT collname::text FROM pg_collation WHERE oid = a.attcollation) END,
       pg_get_serial_sequence(format('%I.%I', $1::text, c.relname), a.attname)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r'
ORDER BY c.relname, a.attnum"""

# References of a database that has arrived may be unvalidated, and are validated before it moves on.
CONSTRAINTS: Final = """
SELECT c.relname::text, k.conname::text, k.contype::text, pg_get_constraintdef(k.oid),
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (n, place)
             JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.place),
       CASE WHEN k.confrelid <> 0 THEN (SELECT f.relname::text FROM pg_class f WHERE f.oid = k.confrelid) END,
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (n, place)
             JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.place),
       k.confdeltype::text, k.confupdtype::text,
       k.convalidated OR (k.contype = 'f' AND to_regclass(format('%I.interlock_arrived', $1::text)) IS NOT NULL),
       k.condeferrable,
       k.confrelid <> 0 AND (SELECT f.relnamespace FROM pg_class f WHERE f.oid = k.confrelid) <> c.relnamespace,
       CASE WHEN k.contype = 'c' THEN pg_get_expr(k.conbin, k.conrelid) END
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r'
  AND k.contype IN ('c', 'f', 'p', 'u', 'x')
ORDER BY c.relname, k.conname"""

# Indexes that do not belong to a constraint.
INDEXES: Final = """
SELECT c.relname::text, i.relname::text, x.indisunique, m.amname::text, x.indnatts > x.indnkeyatts,
       x.indexprs IS NOT NULL, pg_get_expr(x.indpred, x.indrelid), x.indisvalid, pg_get_indexdef(x.indexrelid),
       ARRAY(SELECT a.attname::text FROM unnest(x.indkey::smallint[]) WITH ORDINALITY AS u (n, place)
             JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = u.n ORDER BY u.place),
       ARRAY(SELECT (o & 1) = 1 FROM unnest(x.indoption::smallint[]) WITH ORDINALITY AS u (o, place) ORDER BY u.place),
       EXISTS (SELECT 1 FROM unnest(x.indclass::oid[]) AS u (o) JOIN pg_opclass p ON p.oid = u.o WHERE NOT p.opcdefault)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class c ON c.oid = x.indrelid
JOIN pg_am m ON m.oid = i.relam
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r'
  AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = x.indexrelid AND k.contype IN ('p', 'u', 'x'))
ORDER BY c.relname, i.relname"""

# Objects that a lane does not support: triggers, functions, types, and sequences without a column.
OTHERS: Final = """
SELECT 'the trigger ' || t.tgname || ' of ' || c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
  AND NOT t.tgisinternal AND t.tgname NOT LIKE 'interlock\\_%'
UNION ALL
SELECT 'the function ' || p.proname FROM pg_proc p
WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND p.proname NOT LIKE 'interlock\\_%'
  AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT 'the type ' || t.typname FROM pg_type t
WHERE t.typnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND t.typtype IN ('e', 'd', 'r')
UNION ALL
SELECT 'the sequence ' || c.relname FROM pg_class c
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'S' AND NOT EXISTS (
  SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i'))
ORDER BY 1"""

# Sequences that do not count upwards by one to the limit of their type. Their start is part of the position.
SEQUENCES: Final = """
SELECT s.sequencename::text FROM pg_sequences s
WHERE s.schemaname = $1::text
  AND (s.increment_by <> 1 OR s.cycle OR s.min_value < 1 OR s.max_value NOT IN (32767, 2147483647, 9223372036854775807))
"""

# Whether text is sorted by its bytes, as a lane sorts it.
COLLATION: Final = "SELECT 'a'::text > 'B'::text AND 'ä'::text > 'z'::text, $1::text"


class RelationRow(NamedTuple):
    """A row of RELATIONS."""

    name: str
    kind: str
    persistence: str
    inherits: bool
    secured: bool
    ruled: bool


class ColumnRow(NamedTuple):
    """A row of COLUMNS."""

    table: str
    name: str
    type: str
    not_null: bool
    identity: str
    generated: str
    default: str | None
    collation: str | None
    sequence: str | None


class ConstraintRow(NamedTuple):
    """A row of CONSTRAINTS."""

    table: str
    name: str
    kind: str
    text: str
    columns: list[str]
    target: str | None
    key: list[str]
    on_delete: str
    on_update: str
    validated: bool
    deferrable: bool
    elsewhere: bool
    condition: str | None


class IndexRow(NamedTuple):
    """A row of INDEXES."""

    table: str
    name: str
    unique: bool
    method: str
    includes: bool
    computed: bool
    where: str | None
    valid: bool
    text: str
    columns: list[str]
    descending: list[bool]
    special: bool


async def asked(link: Link, question: str, schema: str) -> list[list[Any]]:
    """Return the rows of one of these queries."""
    with said(writing=False):
        return [list(row) for row in await link.driver.fetch(question, schema)]
