"""A verdict: what to do about a workload, why, what was measured, the command to run, and how to take it back.

There are six of them, and no other place is ever named: a workload stays, is tuned, gets a helper, is separated, is
coupled to PostgreSQL, or comes back from there.
"""

from typing import Literal

import msgspec

from interlock.hotrow.signal.windows import Engine

Action = Literal["stay", "tune", "helper", "separate", "couple", "uncouple"]

Target = Literal["", "sharded", "more_shards", "event_log", "streams", "postgres", "lane"]
"""What it should become; nothing for those that stay."""


Knob = bool | int | float | str
"""The value of a setting."""


class Choice(msgspec.Struct, frozen=True):
    """A verdict without its words: what it is compared by."""

    action: Action = "stay"
    target: Target = ""


Case = Literal[
    "calm",
    "affordable",
    "apart",
    "coupled",
    "priced",
    "unhelped",
    "countable",
    "crowded",
    "skewed",
    "unrelated",
    "mixed",
    "irreducible",
    "distant",
    "cold",
]
"""Why a verdict is what it is; `words` has a text for each."""

CHOICES: dict[Case, Choice] = {
    "calm": Choice("stay"),
    "affordable": Choice("stay"),
    "apart": Choice("stay"),
    "coupled": Choice("stay"),
    "priced": Choice("tune"),
    "unhelped": Choice("tune"),
    "countable": Choice("helper", "sharded"),
    "crowded": Choice("helper", "more_shards"),
    "skewed": Choice("helper", "event_log"),
    "unrelated": Choice("separate", "streams"),
    "mixed": Choice("separate", "streams"),
    "irreducible": Choice("couple", "postgres"),
    "distant": Choice("couple", "postgres"),
    "cold": Choice("uncouple", "lane"),
}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one workload."""

    database: str
    engine: Engine
    """Where it lives now."""
    action: Action
    target: Target = ""
    why: str
    evidence: tuple[str, ...] = ()
    """What it rests on, a sentence each."""
    command: str = ""
    """What to run or paste; nothing where nothing is to be done."""
    undo: str = ""
    """What takes it back."""
    knobs: dict[str, Knob] = {}
    """Settings of its tool that bring it about, or the part of it that settings can."""
    code: str = ""
    """The line that brings about what only code can."""

    @property
    def choice(self) -> Choice:
        """The verdict without its words."""
        return Choice(self.action, self.target)
