"""The story of one seed: numbered lines, and the calls and answers for the checks.

A line is kept as its parts and formatted only when it is printed. Each has *marks*: the names it is about (a
transaction, a slot, a life), so that the story of a failure can be reduced to the relevant lines.
"""

from collections import Counter
from typing import NamedTuple

LINES_MAX = 48
"""Lines of a failing story that are shown."""


class Line(NamedTuple):
    """One thing that happened."""

    time_s: float
    who: str
    what: str
    marks: tuple[str, ...]
    milestone: bool


class Attempt:
    """One submitted transaction, and its answer."""

    __slots__ = ("answer", "by", "epoch", "id", "key", "number", "submitted_s", "told_s", "why")

    def __init__(self, name: str, by: str, epoch: int, submitted_s: float, key: str | None) -> None:
        self.id = name
        self.by = by
        self.epoch = epoch
        self.submitted_s = submitted_s
        self.key = key
        self.answer = "never told"
        """`acknowledged`, `absent`, `unknown`, or `never told`."""
        self.number = 0
        self.told_s = 0.0
        self.why = ""


class Shown(NamedTuple):
    """A state that a read or a refusal returned to a client: the counter, and the transaction that set it."""

    how: str
    by: str
    asked_s: float
    told_s: float
    number: int
    id: str | None


class Story:
    """The record of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lines: list[Line] = []
        self.attempts: list[Attempt] = []
        self.observed: list[Shown] = []
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.complaints: list[tuple[str, tuple[str, ...]]] = []
        """Broken guarantees, each with its marks."""

    def tell(self, time_s: float, who: str, what: str, *marks: str, milestone: bool = False) -> None:
        """Add a line."""
        self.lines.append(Line(time_s, who, what, marks, milestone))

    def complain(self, what: str, *marks: str) -> None:
        """Record that a guarantee was broken."""
        self.complaints.append((what, marks))

    def text_lines(self, marks: tuple[str, ...] | None = None) -> list[str]:
        """Return the numbered lines; with marks only those about them, and the milestones."""
        chosen = [
            (number, line)
            for number, line in enumerate(self.lines, start=1)
            if marks is None or line.milestone or line.who in marks or any(mark in marks for mark in line.marks)
        ]
        if marks is not None and len(chosen) > LINES_MAX:
            # What names the broken thing itself comes first; milestones and neighbours fill what is left.
            about = [item for item in chosen if any(mark in marks for mark in item[1].marks)][-LINES_MAX:]
            rest = [item for item in chosen if item not in about]
            room = LINES_MAX - len(about)
            chosen = sorted(about + [item for item in rest if item[1].milestone][-room:] if room else about)
        return [f"{number:5d}  {line.time_s:9.3f} s  {line.who:<6} {line.what}" for number, line in chosen]
