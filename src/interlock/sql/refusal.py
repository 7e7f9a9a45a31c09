"""Constructors of the dialect's two refusals, which name the construct and the remedy.

What PostgreSQL understands and a lane does not is a `DialectError`. What PostgreSQL refuses, too (no such table, a
comparison of text with a number), is the `TransactionError` that it would be there.
"""

from interlock.errors import DialectError, TransactionError


def refuse(what: str, *, why: str = "", fix: str = "") -> DialectError:
    """A refusal to raise: what is outside the subset, why, and what to write instead."""
    return DialectError(what, why=why, fix=fix)


def wrong(what: str, *, fix: str = "") -> TransactionError:
    """A refusal to raise of what PostgreSQL refuses, too, before it runs anything."""
    return TransactionError(what, why="PostgreSQL refuses it, too.", fix=fix)
