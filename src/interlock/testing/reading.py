"""The comparison of a history with the expected one, as text.

A failing assertion shows the whole history, with a mark on each line that is not as expected.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from interlock.core.events import Event, wire_name
from interlock.runtime.views import HistoryRow


def compare_history(
    workflow: str, rows: Sequence[HistoryRow[Any, Any]], expected: Sequence[str | type[Event] | Enum]
) -> str:
    """Return the history with its differences marked; empty when it is as expected.

    A text is the name of an event, a class is an event, and a member of an Enum is the state that a row led to.
    """
    lines: list[str] = []
    wrong = 0
    for at in range(max(len(rows), len(expected))):
        row = rows[at] if at < len(rows) else None
        wanted = expected[at] if at < len(expected) else None
        line = (
            "(nothing)"
            if row is None
            else f"{row.version:>3}  {row.event}: {_text(row.from_state)} → {_text(row.to_state)}"
        )
        if row is not None and wanted is not None and _matches(row, wanted):
            lines.append(f"    {line}")
            continue
        wrong += 1
        lines.append(f"  ≠ {line:<50} expected {'nothing more' if wanted is None else _name(wanted)}")
    if not wrong:
        return ""
    return "\n".join([f"the history of {workflow!r} is not as expected:", *lines])


def _matches(row: HistoryRow[Any, Any], wanted: str | type[Event] | Enum) -> bool:
    if isinstance(wanted, Enum):
        return bool(row.to_state is wanted)
    return row.event == _name(wanted)


def _name(wanted: str | type[Event] | Enum) -> str:
    if isinstance(wanted, Enum):
        return _text(wanted)
    return wanted if isinstance(wanted, str) else wire_name(wanted)


def _text(state: Enum) -> str:
    return str(state.value)
