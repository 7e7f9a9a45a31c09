"""PostgreSQL's words: those that are reserved, and the names that may be called.

A reserved word that is not quoted is never a name: `SELECT user` asks PostgreSQL for the session's user, whatever
columns there are. The list is that of PostgreSQL 18, appendix C: reserved, and reserved except as function or type.
"""

# ruff: noqa: SIM905 - words are easier to read, and to compare with the appendix, without quotes around each.

from typing import Final

RESERVED: Final = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
    column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
    from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
    localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
    returning right select session_user similar some symmetric system_user table tablesample then to trailing true union
    unique user using variadic verbose when where window with
    """.split()
)

# Scalar functions and aggregates of the subset.
FUNCTIONS: Final = frozenset(
    """
    abs avg ceil coalesce count floor gen_random_uuid length lower max min now nullif random round sum upper
    """.split()
)
# Words that may stand before a parenthesis: functions, types with a length, and the grammar's own.
CALLS: Final = FUNCTIONS | frozenset(
    """
    all and any as between by case cast check decimal distinct do else except exists filter from having in intersect
    into is join key left like limit not numeric offset on or order over references returning select set table then
    union unique using values varchar varying when where with
    """.split()
)
# Columns that every table of PostgreSQL has already, and SQLite's own names for a row's number.
SYSTEM_COLUMNS: Final = frozenset("ctid cmax cmin oid rowid _rowid_ tableoid xmax xmin".split())
INTERNAL_PREFIXES: Final = ("interlock_", "sqlite_", "pg_")
