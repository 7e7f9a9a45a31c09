"""From one statement of PostgreSQL to one statement of SQLite, or to a refusal.

The rule that governs the whole package: no statement runs with another meaning than PostgreSQL's. So what is known is
listed, node by node and argument by argument, and everything else is refused.
"""

from interlock.sql.schema import Schema
from interlock.sql.statement import Statement


def translate(sql: str, schema: Schema) -> Statement:
    """Translate one statement; `DialectError` names what is outside the subset, and what to write instead."""
    raise NotImplementedError
