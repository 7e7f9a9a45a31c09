"""Write a machine as two Markdown tables: its transitions, and its states.

Unlike a picture, tables can be read aloud, searched and reviewed in a diff. The invariant: each row has as many cells
as its head, for any names, because all Markdown syntax in them is escaped. The odd choice is that underscores within a
word are not escaped: Markdown does not interpret them, and names of states stay readable in the source.
"""

import re
from collections.abc import Sequence

from interlock.core.description import MachineDescription, StateDescription, TransitionDescription
from interlock.core.diagrams.gather import gather, sources_in_words
from interlock.core.diagrams.wording import duration, timer_words, visible

_MARKUP = re.compile(r"[\\`*|\[\]~]|(?<![^\W_])_|_(?![^\W_])")
_TRANSITION_HEAD = ("from", "event", "guard", "to", "action")
_STATE_HEAD = ("state", "kind", "step", "timeout", "timers", "dwell", "effects")


def table(description: MachineDescription) -> str:
    """Write the machine as Markdown: a table of its transitions and a table of its states."""
    gathered = gather(description)
    transitions = [
        _transition_row(transition.source, "(stays)" if transition.internal else transition.target, transition)
        for transition in gathered.single
    ]
    for group in gathered.catch_alls:
        sources = f"any: {sources_in_words(group.sources, description)}"
        target = "(stays)" if group.target is None else group.target
        transitions += [_transition_row(sources, target, transition) for transition in group.transitions]
    states = [_state_row(state) for state in description.states]
    return _rows(_TRANSITION_HEAD, transitions) + "\n" + _rows(_STATE_HEAD, states)


def _transition_row(source: str, target: str, transition: TransitionDescription) -> tuple[str, ...]:
    guard = transition.guard or ""
    if transition.guard_reason is not None:
        guard += f" ({transition.guard_reason})"
    target += " (settles)" if transition.settle is True else ""
    return (source, transition.event, guard, target, transition.action or "")


def _state_row(state: StateDescription) -> tuple[str, ...]:
    return (
        state.name,
        ", ".join(_kinds(state)),
        "" if state.step is None else state.step.name,
        "" if state.step is None else duration(state.step.timeout_s),
        ", ".join(timer_words(state)),
        "" if state.dwell_max_s is None else duration(state.dwell_max_s),
        ", ".join(state.effects),
    )


def _kinds(state: StateDescription) -> list[str]:
    kinds = [
        ("initial", state.initial),
        ("final", state.final),
        ("resting", state.resting),
        (f"unwinds to {state.unwinds_to}", state.unwinds_to is not None),
    ]
    return [name for name, applies in kinds if applies]


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(text) for text in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    marked = _MARKUP.sub(lambda match: f"\\{match[0]}", visible(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
