"""Hysteresis of advice: a verdict is shown once most of the latest windows proposed it.

`step` is pure: the state before, the verdict of one more window and its time give the state after. The margins of the
rule keep a shown verdict near its thresholds; the votes here keep a burst of one window from being shown at all. Going
back to a lane takes a day on top: a workload that was moved by its worst hours is not judged by a quiet night.

The state is a plain JSON value, so that a command can continue where its last run ended. It belongs to one declared
tool at one place: when either changes, `fresh` resets it.
"""

import msgspec

from interlock.hotrow.advice.verdict import Action, Choice, Verdict
from interlock.hotrow.advice.words import held_back
from interlock.hotrow.signal.windows import Engine
from interlock.hotrow.tools import Tool

WINDOWS = 6
"""The number of latest windows that vote."""
VOTES = 5
"""Windows that must propose the same."""
HELD_S: dict[Action, float] = {"uncouple": 86_400.0}
"""Seconds during which every window must have made this proposal, beside the votes; 0 for other actions."""


class Advisor(msgspec.Struct, frozen=True, kw_only=True):
    """The advisor's state for one tool at one place."""

    declared: str = ""
    """The tool, as it was declared when the windows were judged."""
    engine: Engine | None = None
    shown: Verdict | None = None
    """The verdict that is shown; None before the first window."""
    since_s: float = 0.0
    """When it was first shown, in seconds since the epoch."""
    recent: tuple[Choice, ...] = ()
    """Proposals of the latest windows, oldest first."""
    steady_s: float = 0.0
    """Since when every window has proposed the same as the latest."""

    @property
    def choice(self) -> Choice | None:
        """The shown verdict without its texts, for the rule's margins."""
        return None if self.shown is None else self.shown.choice

    @property
    def proposed(self) -> Choice | None:
        """The proposal of the latest window."""
        return self.recent[-1] if self.recent else None

    @property
    def votes(self) -> int:
        """The number of latest windows that proposed the same as the last one."""
        return 0 if not self.recent else self.recent.count(self.recent[-1])


def fresh(state: Advisor, tool: Tool, engine: Engine) -> Advisor:
    """Return the same state, or an empty one if the tool's declaration or place has changed."""
    declared = msgspec.json.encode(tool).decode()
    if (state.declared, state.engine) == (declared, engine):
        return state
    return Advisor(declared=declared, engine=engine)


def step(state: Advisor, verdict: Verdict, now_s: float) -> Advisor:
    """Return the state after one more window."""
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
        # Staying is the default and needs no votes. The text names the proposal.
        first = verdict if choice.action == "stay" else held_back(verdict, votes=state.votes, windows=len(recent))
        since_s = now_s if state.shown is None else state.since_s
        return msgspec.structs.replace(state, shown=first, since_s=since_s)
    return state
