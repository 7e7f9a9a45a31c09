"""Legend under a drawing: the meaning of its signs, and remarks that do not fit into it.

A legend names only signs that occur in the picture. Signs stand side by side and wrap; remarks, which may list
many states, are broken between words.

The invariant: no line is wider than `width_max`, unless a single word already is. The odd choice is that the
legend has its own width, since such a word must widen the canvas instead of running out of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from interlock.core.diagrams.measure import text_width

Sign = Literal["step", "resting", "unwinding", "final", "failed", "unwound"]

LEGEND_SIZE = 11.0
SIGN_WIDTH = 22.0
SIGN_GAP = 7.0
_ENTRY_GAP = 15.0
LEGEND_LINE_HEIGHT = 19.0


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A sign and its meaning."""

    sign: Sign
    text: str


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """An entry and where it starts, from the upper left corner of the legend."""

    entry: LegendEntry
    left: float
    line: int


@dataclass(frozen=True, slots=True)
class Legend:
    """All lines of the legend."""

    entries: tuple[PlacedEntry, ...]
    remarks: tuple[str, ...]
    """Lines of text below the entries, already broken."""
    width: float
    lines: int

    @property
    def height(self) -> float:
        """The height of all its lines."""
        return self.lines * LEGEND_LINE_HEIGHT


def lay_out_legend(entries: Sequence[LegendEntry], remarks: Sequence[str], width_max: float) -> Legend:
    """Break the entries and the remarks into lines of at most that width."""
    placed: list[PlacedEntry] = []
    left, line, widest = 0.0, 0, 0.0
    for entry in entries:
        width = SIGN_WIDTH + SIGN_GAP + text_width(entry.text, LEGEND_SIZE)
        if left > 0 and left + width > width_max:
            left, line = 0.0, line + 1
        placed.append(PlacedEntry(entry, left, line))
        widest = max(widest, left + width)
        left += width + _ENTRY_GAP
    texts = [text for remark in remarks for text in _broken(remark, width_max)]
    widest = max([widest, *(text_width(text, LEGEND_SIZE) for text in texts)])
    lines = (line + 1 if entries else 0) + len(texts)
    return Legend(tuple(placed), tuple(texts), widest, lines)


def _broken(remark: str, width_max: float) -> list[str]:
    lines: list[str] = []
    for word in remark.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, LEGEND_SIZE) <= width_max:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
