"""The story of one seed: its numbered lines, the calls and answers for the checks, and its faults.

A line is kept as its parts and formatted only when it is printed. Each has *marks*: the names it is about (a
transaction, a slot, a life), so that the story of a failure can be reduced to the relevant lines.
"""

from collections import Counter
from typing import NamedTuple

from interlock.testing.campaigns import Luck
from interlock.testing.lane_simulation.threads import Baton

# --- Story -----------------------------------------------------------------------------------------------------------

LINES_MAX = 48
"""Lines of a failing story that are shown."""


class StoryLine(NamedTuple):
    """One thing that happened."""

    time_s: float
    who: str
    what: str
    marks: tuple[str, ...]
    milestone: bool


class Submission:
    """One submitted transaction, and its answer."""

    __slots__ = ("answer", "answered_s", "by", "epoch", "id", "key", "number", "submitted_s", "why")

    def __init__(self, name: str, by: str, epoch: int, submitted_s: float, key: str | None) -> None:
        self.id = name
        self.by = by
        self.epoch = epoch
        self.submitted_s = submitted_s
        self.key = key
        self.answer = "never told"
        """`acknowledged`, `absent`, `unknown`, or `never told`."""
        self.number = 0
        self.answered_s = 0.0
        self.why = ""


class Observed(NamedTuple):
    """A state that a read or a refusal returned to a client: the counter, and the transaction that set it."""

    how: str
    by: str
    asked_s: float
    answered_s: float
    number: int
    id: str | None


class LaneStory:
    """The record of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lines: list[StoryLine] = []
        self.attempts: list[Submission] = []
        self.observed: list[Observed] = []
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.complaints: list[tuple[str, tuple[str, ...]]] = []
        """Broken guarantees, each with its marks."""

    def tell(self, time_s: float, who: str, what: str, *marks: str, milestone: bool = False) -> None:
        """Add a line."""
        self.lines.append(StoryLine(time_s, who, what, marks, milestone))

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


# --- Faults ----------------------------------------------------------------------------------------------------------
# Every choice is drawn from the seed's own luck. The kinds of fault are those that real buckets were seen to have:
# an answer that is lost after the object was stored looks like an error, like a hang, or like "exists already"; a
# conflict is reported although nothing was stored; a request lands long after its sender gave up.

WRITE_FAULTS = (
    "failed before",
    "stored, answer lost",
    "stored, 'exists already'",
    "stored, then a hang",
    "late landing",
    "late landing",
    "409, nothing stored",
    "sent twice",
)
READ_FAULTS = ("read failed", "read hangs")
STORMS = ("429 storm", "403 for a while")
DRIFT_MAX = 0.001
"""Monotonic clocks go wrong by at most this part."""


class Weather:
    """The faults of one seed."""

    def __init__(self, luck: Luck, *, conditions_ignored: bool = False) -> None:
        self._luck = luck
        self.write_faults = luck.one((0.0, 0.03, 0.1, 0.25))
        self.read_faults = luck.one((0.0, 0.01, 0.05))
        self.stalls = luck.one((0.0, 0.005, 0.03, 0.1))
        self.kills = luck.one((0.0, 0.3, 0.6))
        self.stale_lists = luck.one((0.0, 0.5))
        self.conditions_ignored = conditions_ignored
        """A bad server. The start-up probe refuses it; here it shows that the checks can fail."""
        self._lines: dict[str, tuple[float, str]] = {}
        """Processes whose line to the bucket is bad, until when, and in which way."""
        self._storm = (0.0, 0.0, "")
        if luck.often(0.3):
            begins_s = luck.between(1.0, 60.0)
            self._storm = (begins_s, begins_s + luck.between(2.0, 45.0), luck.one(STORMS))
        self.on = True

    def calm(self) -> None:
        """From now on nothing goes wrong any more; what is on its way still lands."""
        self.on = False

    def for_write(self, now_s: float, who: str) -> str | None:
        """Return the fault of a write that is sent now, or None. A fault often repeats for a while."""
        if not self.on:
            return None
        if self._storm[0] <= now_s < self._storm[1]:
            return self._storm[2]
        until_s, fault = self._lines.get(who, (0.0, ""))
        if now_s < until_s:
            return fault
        if not self._luck.often(self.write_faults):
            return None
        fault = self._luck.one(WRITE_FAULTS)
        if self._luck.often(0.25):
            self._lines[who] = (now_s + self._luck.between(1.0, 30.0), fault)
        return fault

    def for_read(self, now_s: float, who: str) -> str | None:
        """Return the fault of a read that is sent now, or None."""
        if not self.on:
            return None
        if self._storm[0] <= now_s < self._storm[1]:
            return self._storm[2]
        share = 0.5 if now_s < self._lines.get(who, (0.0, ""))[0] else self.read_faults
        return self._luck.one(READ_FAULTS) if self._luck.often(share) else None

    def stall_s(self, lease_s: float, *, append: bool) -> float:
        """How long the process stands still now: mostly not at all, sometimes for longer than its lease.

        Oftener before an append, where it hurts most.
        """
        if self.on and self._luck.often(self.stalls * (4 if append else 1)):
            return self._luck.between(0.3, 4.0) * lease_s
        return 0.0


class DriftingClock:
    """The clocks of one process: they have their own zero, their own speed, and the wall clock jumps."""

    def __init__(self, luck: Luck, baton: Baton) -> None:
        self._baton = baton
        self.rate = 1.0 + luck.between(-DRIFT_MAX, DRIFT_MAX)
        self._zero_s = luck.between(0.0, 100_000.0)
        self._wall_s = 1_800_000_000.0 + luck.between(-300.0, 300.0)
        self._jump = (luck.between(0.0, 120.0), luck.between(-90.0, 90.0)) if luck.often(0.3) else (0.0, 0.0)

    def wall_s(self) -> float:
        """Return the wall-clock time of this machine."""
        now_s = self._baton.now_s
        jumps_at_s, by_s = self._jump
        return self._wall_s + now_s + (by_s if now_s > jumps_at_s else 0.0)

    def monotonic_s(self) -> float:
        """Return the monotonic time of this machine."""
        return self._zero_s + self._baton.now_s * self.rate
