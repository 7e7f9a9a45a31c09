"""The end of a page of workflows: its last workflow's time of entry and number.

Pages are cut by these two and not by a count, so that workflows which come or go between two pages neither hide others
nor show them twice.
"""

import re
from typing import NamedTuple

from interlock.errors import InvalidPayload


class Cursor(NamedTuple):
    """The end of a page."""

    entered_us: int
    number: int

    def __str__(self) -> str:
        return f"{self.entered_us}.{self.number}"


def parsed(text: str | None) -> Cursor | None:
    """Parse a cursor. Raises InvalidPayload for a text that is not a cursor."""
    if text is None:
        return None
    found = re.fullmatch(r"(-?[0-9]{1,18})\.([0-9]{1,18})", text)
    if found is None:
        raise InvalidPayload(
            f"{text!r} is not a cursor.",
            why="A cursor says where the page before has ended; it is made by that page.",
            fix="Pass the cursor of the page before, as it is.",
        )
    return Cursor(int(found[1]), int(found[2]))
