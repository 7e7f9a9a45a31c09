"""Diagrams as text: Graphviz DOT, Mermaid, and Markdown tables.

The invariant, for any names: the text parses, and each name shows unchanged. So each format first makes a name visible
(`sketch.visible`) and then escapes it by its own rules.
"""

import re
from collections.abc import Mapping, Sequence

from interlock.core.describe import MachineDescription, StateDescription, TransitionDescription, TransitionKind
from interlock.core.diagrams.sketch import (
    CatchAll,
    Gathered,
    duration,
    fresh,
    gather,
    look_of,
    sources_in_words,
    step_words,
    timer_words,
    trigger,
    visible,
)
from interlock.core.diagrams.svg import LIGHT


def _internal(gathered: Gathered, state: StateDescription) -> list[TransitionDescription]:
    return [transition for transition in gathered.single if transition.internal and transition.source == state.name]


def _step_and_timers(state: StateDescription) -> list[str]:
    step = step_words(state)
    return [*([] if step is None else [f"step {step}"]), *(f"after {timer}" for timer in timer_words(state))]


# --- Graphviz DOT ----------------------------------------------------------------------------------------------------
# Every name and label is a quoted string with its quotes and backslashes escaped, so no name can end its string or be
# read as one of Graphviz's own escapes. The odd choice is that states are quoted even where DOT does not require it,
# because one rule is simpler than two.

_EDGE_STYLES: Mapping[TransitionKind, tuple[str, str]] = {
    "event": ("solid", LIGHT.arrow),
    "failed": ("dashed", LIGHT.failed),
    "unwound": ("dashed", LIGHT.unwound),
}


def dot(description: MachineDescription) -> str:
    """Write the machine as a Graphviz digraph."""
    gathered = gather(description)
    names = {state.name for state in description.states}
    start = fresh("start", names)
    lines = [
        f"digraph {_dot_string(description.name)} {{",
        '    graph [rankdir=TB, fontname="Helvetica"];',
        '    node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
        '    edge [fontname="Helvetica", fontsize=10];',
        f"    {_dot_string(start)} [shape=point, width=0.15];",
    ]
    lines += [
        f"    {_dot_string(state.name)} [{_dot_attributes(state, _internal(gathered, state))}];"
        for state in description.states
    ]
    lines += [
        f"    {_dot_string(start)} -> {_dot_string(state.name)};" for state in description.states if state.initial
    ]
    lines += [
        _dot_edge(transition.source, transition.target, transition)
        for transition in gathered.single
        if not transition.internal
    ]
    for index, group in enumerate(gathered.catch_alls):
        pill = fresh(f"any {index + 1}", names)
        label = _dot_label([f"any: {sources_in_words(group.sources, description)}"])
        colour = LIGHT.looks["any"].stroke
        lines.append(f'    {_dot_string(pill)} [label={label}, style="rounded,dashed", color="{colour}"];')
        # An internal catch-all leaves nothing, so its pill points to itself.
        target = pill if group.target is None else group.target
        lines += [_dot_edge(pill, target, transition) for transition in group.transitions]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_attributes(state: StateDescription, inside: list[TransitionDescription]) -> str:
    words = [state.name, *_step_and_timers(state), *(f"stays on {trigger(transition)}" for transition in inside)]
    paint = LIGHT.looks[look_of(state)]
    attributes = [
        f"label={_dot_label(words)}",
        f'fillcolor="{paint.fill}"',
        f'color="{paint.stroke}"',
        f'fontcolor="{paint.text}"',
    ]
    if state.final:
        attributes.append("peripheries=2")
    if state.unwinds_to is not None:
        attributes.append('style="rounded,filled,dashed"')
    return ", ".join(attributes)


def _dot_edge(source: str, target: str, transition: TransitionDescription) -> str:
    style, colour = _EDGE_STYLES[transition.kind]
    label = _dot_label([trigger(transition)])
    return (
        f"    {_dot_string(source)} -> {_dot_string(target)} "
        f'[label={label}, style={style}, color="{colour}", fontcolor="{colour}"];'
    )


def _dot_label(words: list[str]) -> str:
    """Return a label of several lines; only the breaks between them are Graphviz escapes."""
    return '"' + "\\n".join(_dot_string(word)[1:-1] for word in words) + '"'


def _dot_string(text: str) -> str:
    # Graphviz reads HTML entities even inside quotes, so a bare ampersand is one too.
    safe = visible(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{safe}"'


# --- Mermaid `stateDiagram-v2` ---------------------------------------------------------------------------------------
# Mermaid's grammar has many words and signs that end a label or start something else, so every character that is not
# plainly harmless is written as an entity (`#35;`), and a state keeps its own name as id only if it is a plain word;
# otherwise it gets a number.
#
# The odd choice is that internal transitions stand in a state's note, because Mermaid can only draw an arrow, and an
# arrow would mean that the state is left.

_PLAIN_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# Reserved words of Mermaid, in any case: an id must not be one of them.
_RESERVED = frozenset((
    "acctitle", "accdescr", "as", "choice", "class", "classdef", "click", "default", "direction", "end", "fork", "hide",
    "href", "join", "note", "root", "scale", "state", "style",
))  # fmt: skip
_HARMLESS = frozenset(" _-.,/[]()=+!?'→·")


def mermaid(description: MachineDescription) -> str:
    """Write the machine as a Mermaid state diagram."""
    ids = _mermaid_ids(description)
    gathered = gather(description)
    lines = ["stateDiagram-v2", "    direction TB"]
    lines += [f'    state "{_mermaid_text(visible(name))}" as {state_id}' for name, state_id in ids.items()]
    for group, pill in _mermaid_pills(gathered.catch_alls, ids):
        words = f"any: {sources_in_words(group.sources, description)}"
        lines.append(f'    state "{_mermaid_text(visible(words))}" as {pill}')
    lines += [f"    [*] --> {ids[state.name]}" for state in description.states if state.initial]
    lines += [
        f"    {ids[transition.source]} --> {ids[transition.target]}: {_mermaid_text(trigger(transition))}"
        for transition in gathered.single
        if not transition.internal
    ]
    for group, pill in _mermaid_pills(gathered.catch_alls, ids):
        # Mermaid has no arrow that stays: an internal catch-all points from its pill to itself.
        target = pill if group.target is None else ids[group.target]
        lines += [f"    {pill} --> {target}: {_mermaid_text(trigger(transition))}" for transition in group.transitions]
    lines += [f"    {ids[state.name]} --> [*]" for state in description.states if state.final]
    for state in description.states:
        lines += _mermaid_note(ids[state.name], state, _internal(gathered, state))
    return "\n".join([*lines, *_mermaid_classes(description, ids)]) + "\n"


def _mermaid_ids(description: MachineDescription) -> dict[str, str]:
    """Return an id for each state: its own name if it is a valid Mermaid id, otherwise a unique number."""
    names = [state.name for state in description.states]
    plain = {name for name in names if _PLAIN_ID.fullmatch(name) and name.lower() not in _RESERVED}
    return {name: name if name in plain else fresh(f"s{index}", plain) for index, name in enumerate(names)}


def _mermaid_pills(groups: tuple[CatchAll, ...], ids: Mapping[str, str]) -> list[tuple[CatchAll, str]]:
    taken = set(ids.values())
    return [(group, fresh(f"any{index}", taken)) for index, group in enumerate(groups)]


def _mermaid_text(text: str) -> str:
    written = "".join(
        character if character.isalnum() or character in _HARMLESS else f"#{ord(character)};" for character in text
    )
    if not written.strip():
        return "#160;"  # A label must not be empty.
    # Underscores at the edge of a word are Markdown, which Mermaid reads in labels.
    written = re.sub(r"(?<![^\W_])_|_(?![^\W_])", "#95;", written)
    # The only two words that end a note.
    return re.sub(r"(?i)\bend note", lambda match: match[0].replace(" ", "#32;"), written)


def _mermaid_note(state_id: str, state: StateDescription, inside: list[TransitionDescription]) -> list[str]:
    words = _step_and_timers(state)
    if state.dwell_max_s is not None:
        words.append(f"dwell at most {duration(state.dwell_max_s)}")
    if state.unwinds_to is not None:
        words.append(f"unwinds to {visible(state.unwinds_to)}")
    words += [f"stays on {trigger(transition)}" for transition in inside]
    if not words:
        return []
    return [f"    note right of {state_id}", *(f"        {_mermaid_text(word)}" for word in words), "    end note"]


def _mermaid_classes(description: MachineDescription, ids: dict[str, str]) -> list[str]:
    members: dict[str, list[str]] = {}
    for state in description.states:
        kinds = {"final": state.final, "resting": state.resting, "unwinding": state.unwinds_to is not None}
        for kind in (kind for kind, applies in kinds.items() if applies):
            members.setdefault(kind, []).append(ids[state.name])
    paints = {kind: LIGHT.looks[kind] for kind in members}
    lines = [
        f"    classDef {kind}State fill:{paint.fill},stroke:{paint.stroke},color:{paint.text}"
        for kind, paint in paints.items()
    ]
    return lines + [f"    class {','.join(states)} {kind}State" for kind, states in members.items()]


# --- Markdown tables -------------------------------------------------------------------------------------------------
# The invariant: each row has as many cells as its head, because all Markdown syntax in names is escaped. The odd
# choice is that underscores within a word are not escaped: Markdown does not interpret them, and names of states stay
# readable in the source.

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
    return _markdown_table(_TRANSITION_HEAD, transitions) + "\n" + _markdown_table(_STATE_HEAD, states)


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


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_escape_markdown(text) for text in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escape_markdown(text: str) -> str:
    marked = _MARKUP.sub(lambda match: f"\\{match[0]}", visible(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
