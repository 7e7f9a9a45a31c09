"""Find plain tables, on which a statement has no effects beyond its own text (D1).

A view, a rule, a trigger or a condition that calls a user's function may read other rows without being visible in the
statement, so every statement on such a table is SERIALIZABLE. The catalog is queried once per table and again after a
while, because another session may add a trigger.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from interlock.seams import Clock
from interlock.sql.postgres.client import Answer
from interlock.sql.postgres.plans import SIMPLE_NAMES

KNOWN_S: Final = 5.0
TABLES_MAX: Final = 1_000

PLAIN: Final = """
SELECT c.relkind = 'r' AND NOT c.relhasrules AND NOT c.relrowsecurity AND NOT c.relhassubclass
   AND NOT EXISTS (SELECT 1 FROM pg_trigger t
                   WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgname NOT LIKE 'interlock\\_touch%')
   AND NOT EXISTS (
     SELECT 1 FROM pg_constraint f
     WHERE f.confrelid = c.oid AND (f.confdeltype NOT IN ('a', 'r') OR f.confupdtype NOT IN ('a', 'r')))
   AND NOT EXISTS (
     SELECT 1 FROM pg_depend d JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
     WHERE p.pronamespace <> 'pg_catalog'::regnamespace
       AND (d.classid = 'pg_constraint'::regclass AND d.objid IN (SELECT oid FROM pg_constraint WHERE conrelid = c.oid)
         OR d.classid = 'pg_attrdef'::regclass AND d.objid IN (SELECT oid FROM pg_attrdef WHERE adrelid = c.oid)
         OR d.classid = 'pg_class'::regclass AND d.objid IN (SELECT indexrelid FROM pg_index WHERE indrelid = c.oid)))
   AND NOT EXISTS (
     SELECT 1 FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
     WHERE p.oid >= 16384 AND l.lanname NOT IN ('internal', 'c')
       AND (EXISTS (SELECT 1 FROM pg_operator o WHERE o.oprcode = p.oid)
         OR EXISTS (SELECT 1 FROM pg_cast k WHERE k.castfunc = p.oid)
         OR EXISTS (SELECT 1 FROM pg_aggregate g JOIN pg_proc n ON n.oid = g.aggfnoid
                    WHERE p.oid IN (g.aggtransfn, g.aggfinalfn) AND n.proname = ANY ($2::text[]))
         OR EXISTS (SELECT 1 FROM pg_depend d JOIN pg_constraint k ON k.oid = d.objid
                    WHERE d.classid = 'pg_constraint'::regclass AND k.contypid <> 0
                      AND d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid)
         OR (SELECT n.nspname FROM pg_namespace n WHERE n.oid = p.pronamespace) = ANY (current_schemas(true))
            AND (p.proname = ANY ($2::text[])
              OR EXISTS (SELECT 1 FROM pg_type a WHERE a.oid = p.proargtypes[0] AND a.typtype IN ('c', 'p')))))
FROM pg_class c WHERE c.oid = to_regclass($1)"""
"""A cascade and a child table have triggers of their own. The last part finds calls that do not look like one:
operators, casts, domains, functions that are written like a column, and those with the name of a built-in one. What is
written in C looks at no table."""


class Tables:
    """Cached facts about the tables of one schema."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[bool, float]] = {}
        self._changes = 0

    def forget(self) -> None:
        """The schema was changed."""
        self._known.clear()
        self._changes += 1

    def known(self, table: str) -> bool | None:
        """Return whether the table is plain, from the cache; None if unknown."""
        found = self._known.get(table)
        return None if found is None or found[1] < self._clock.monotonic_s() else found[0]

    async def ask(self, table: str, run: Callable[[str, Sequence[object]], Awaitable[Answer]]) -> bool:
        """Return whether the table is plain, from the catalog. A missing table is not plain."""
        before = self._changes
        rows = (await run(PLAIN, (table, SIMPLE_NAMES))).rows
        plain = bool(rows) and rows[0][0] is True
        if len(self._known) >= TABLES_MAX:
            self._known.clear()
        if rows and before == self._changes:  # Otherwise the answer may be older than the change.
            self._known[table] = (plain, self._clock.monotonic_s() + KNOWN_S)
        return plain
