"""Collection of everything that prevents a move, raised as one error before anything is copied."""

from typing import Final

from interlock.errors import DialectError, TransactionError

SHOWN_MAX: Final = 20


class Findings:
    """Collects what the other engine does not support."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, where: str, what: str) -> None:
        """`where` is a table, a column, a constraint; `what` is the reason."""
        self.found.append(f"{where}: {what.rstrip('.')}")

    def refused(self, where: str, error: DialectError | TransactionError) -> None:
        """Add an error of the dialect."""
        self.add(where, f"{error.what.rstrip('.')} ({error.fix.rstrip('.')})")

    def settle(self, whole: str) -> None:
        """Raise DialectError when something was found."""
        count = len(self.found)
        if count == 0:
            return
        shown = [f"\n  - {each}" for each in self.found[:SHOWN_MAX]]
        if count > SHOWN_MAX:
            shown.append(f"\n  - and {count - SHOWN_MAX} more")
        raise DialectError(
            f"{whole} cannot move; {count} thing{'s' if count > 1 else ''} of it would be another one at the other "
            f"place:{''.join(shown)}",
            why="A move keeps every row and every rule, or does not begin. Nothing was copied or changed.",
            fix="Change or drop what is named, then move; docs/reference/sql.md has what both engines take.",
        )
