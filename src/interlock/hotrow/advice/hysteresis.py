"""What keeps noise from deciding: a verdict is shown once it was proposed in most of the latest windows.

`step` is pure: the state before, the verdict of one more window and its time give the state after. The margins of the
rule keep a shown verdict near its thresholds; the votes here keep a burst of one window from being shown at all. Going
back to a lane takes a day on top: a workload that was moved by its worst hours is not judged by a quiet night.

The state is a plain value that JSON can carry, so that a command can go on where its last run ended. It belongs to one
tool as it was declared, at one place: when either changes, what was seen before says nothing, and `fresh` forgets it.
"""

import msgspec

from interlock.hotrow.advice.verdict import Action, Choice, Verdict
from interlock.hotrow.advice.words import held_back
from interlock.hotrow.signal.windows import Engine
from interlock.hotrow.tools import Tool

WINDOWS = 6
"""The latest windows that are looked at."""
VOTES = 5
"""How many of them must propose the same."""
HELD_S: dict[Action, float] = {"uncouple": 86_400.0}
"""How long a proposal must have been made by every window, beside the votes; others need not."""


class Advisor(msgspec.Struct, frozen=True, kw_only=True):
    """What the advisor knows of one tool at one place."""

    declared: str = ""
    """The tool, as it was declared when the windows were judged."""
    engine: Engine | None = None
    shown: Verdict | None = None
    """The verdict that is shown; None before the first window."""
    since_s: float = 0.0
    """When it became that."""
    recent: tuple[Choice, ...] = ()
    """What the latest windows proposed, oldest first."""
    steady_s: float = 0.0
    """Since when every window has proposed the same as the latest."""

    @property
    def choice(self) -> Choice | None:
        """What is shown, without its words: what the rule's margins hold on to."""
        return None if self.shown is None else self.shown.choice

    @property
    def proposed(self) -> Choice | None:
        """What the latest window proposed."""
        return self.recent[-1] if self.recent else None

    @property
    def votes(self) -> int:
        """How many of the latest windows proposed the same as the last one."""
        return 0 if not self.recent else self.recent.count(self.recent[-1])


def fresh(state: Advisor, tool: Tool, engine: Engine) -> Advisor:
    """The same state, or an empty one if the tool was declared anew or lives elsewhere now."""
    declared = msgspec.json.encode(tool).decode()
    if (state.declared, state.engine) == (declared, engine):
        return state
    return Advisor(declared=declared, engine=engine)


def step(state: Advisor, verdict: Verdict, now_s: float) -> Advisor:
    """The state after one more window."""
    choice = verdict.choice
    recent = (*state.recent, choice)[-WINDOWS:]
    state = msgspec.structs.replace(
        state,
        recent=recent,
        steady_s=state.steady_s if state.proposed == choice else now_s,
    )
    if choice == state.choice:
        return msgspec.structs.replace(state, shown=verdict)  # The same, with the figures of today.
    held_s = HELD_S.get(choice.action, 0.0)
    if state.votes >= VOTES and now_s - state.steady_s >= held_s:
        return msgspec.structs.replace(state, shown=verdict, since_s=now_s)
    if state.shown is None or state.shown.action == "stay":
        # To stay needs no votes: it is what is done until something else has held. What is proposed is told.
        first = verdict if choice.action == "stay" else held_back(verdict, votes=state.votes, windows=len(recent))
        since_s = now_s if state.shown is None else state.since_s
        return msgspec.structs.replace(state, shown=first, since_s=since_s)
    return state
