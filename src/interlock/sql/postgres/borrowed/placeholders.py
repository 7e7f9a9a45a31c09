"""Convert placeholders from `$1`, as PostgreSQL and asyncpg have them, to psycopg's notation.

The same parameter may stand in a statement twice, so it gets a name. The types stand in the statement itself
(`$1::text[]`), so that nothing depends on what a driver makes of a list of nothing but None.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

STATEMENTS_MAX = 1_000
"""Translations that are kept: a few dozen for each schema that this process has to do with."""

_PLACE = re.compile(r"\$(\d+)")


@lru_cache(maxsize=STATEMENTS_MAX)
def named(sql: str) -> str:
    """The statement for psycopg."""
    return _PLACE.sub(r"%(p\1)s", sql.replace("%", "%%"))


def by_name(values: Sequence[object]) -> dict[str, object]:
    """The values of such a statement."""
    return {f"p{place}": value for place, value in enumerate(values, 1)}
