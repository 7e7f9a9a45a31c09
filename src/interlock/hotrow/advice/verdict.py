"""Verdicts on a workload: the action, its reason, the measurements, the command to run and its undo.

There are six actions: a workload stays, is tuned, gets a helper, is separated, is
coupled to PostgreSQL, or comes back from there.
"""

from typing import Literal

import msgspec

from interlock.hotrow.signal.windows import Engine

Action = Literal["stay", "tune", "helper", "separate", "couple", "uncouple"]

Target = Literal["", "sharded", "more_shards", "event_log", "streams", "postgres", "lane"]
"""The new form or place; empty for a workload that stays."""


Knob = bool | int | float | str
"""The value of a setting."""


class Choice(msgspec.Struct, frozen=True):
    """A verdict without its texts, for comparisons."""

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
"""The reason of a verdict; `words` has a text for each."""

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
    """The advice on one workload."""

    database: str
    engine: Engine
    """Where it lives now."""
    action: Action
    target: Target = ""
    why: str
    evidence: tuple[str, ...] = ()
    """The measurements, a sentence each."""
    command: str = ""
    """The command or settings; empty for a workload that stays."""
    undo: str = ""
    """The command or text that undoes it."""
    knobs: dict[str, Knob] = {}
    """Settings of its tool that apply it, wholly or in part."""
    code: str = ""
    """The line of code for the part that settings cannot apply."""

    @property
    def choice(self) -> Choice:
        """The verdict without its texts."""
        return Choice(self.action, self.target)
