"""Write a machine as Graphviz DOT, for the layouts and formats of Graphviz.

The invariant: every name and label is a quoted string with its quotes and backslashes escaped, so no name can
end its string or be read as one of Graphviz's own escapes. The odd choice is that states are quoted even where
DOT does not require it, because one rule is simpler than two.
"""

from collections.abc import Mapping

from interlock.core.description import MachineDescription, StateDescription, TransitionDescription, TransitionKind
from interlock.core.diagrams.gather import gather, sources_in_words
from interlock.core.diagrams.heat import busiest, level
from interlock.core.diagrams.theme import LIGHT, Paint
from interlock.core.diagrams.wording import fresh, step_words, timer_words, trigger, visible

_KINDS: Mapping[TransitionKind, tuple[str, str]] = {
    "event": ("solid", LIGHT.arrow),
    "failed": ("dashed", LIGHT.failed),
    "unwound": ("dashed", LIGHT.unwound),
}


def dot(description: MachineDescription, *, visits: Mapping[str, int] | None = None) -> str:
    """Write the machine as a Graphviz digraph, coloured by `visits` if they are given."""
    gathered = gather(description)
    names = {state.name for state in description.states}
    start = fresh("start", names)
    lines = [
        f"digraph {_quoted(description.name)} {{",
        '    graph [rankdir=TB, fontname="Helvetica"];',
        '    node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
        '    edge [fontname="Helvetica", fontsize=10];',
        f"    {_quoted(start)} [shape=point, width=0.15];",
    ]
    for state in description.states:
        inside = [
            transition for transition in gathered.single if transition.internal and transition.source == state.name
        ]
        lines.append(f"    {_quoted(state.name)} [{_state_attributes(description, state, inside, visits)}];")
    lines += [f"    {_quoted(start)} -> {_quoted(state.name)};" for state in description.states if state.initial]
    lines += [
        _edge(transition.source, transition.target, transition)
        for transition in gathered.single
        if not transition.internal
    ]
    for index, group in enumerate(gathered.catch_alls):
        pill = fresh(f"any {index + 1}", names)
        label = _lines([f"any: {sources_in_words(group.sources, description)}"])
        lines.append(f'    {_quoted(pill)} [label={label}, style="rounded,dashed", color="{LIGHT.pill.stroke}"];')
        # An internal catch-all leaves nothing, so its pill points to itself.
        target = pill if group.target is None else group.target
        lines += [_edge(pill, target, transition) for transition in group.transitions]
    return "\n".join([*lines, "}"]) + "\n"


def _state_attributes(
    description: MachineDescription,
    state: StateDescription,
    inside: list[TransitionDescription],
    visits: Mapping[str, int] | None,
) -> str:
    words = [state.name]
    step = step_words(state)
    if step is not None:
        words.append(f"step {step}")
    words += [f"after {timer}" for timer in timer_words(state)]
    words += [f"stays on {trigger(transition)}" for transition in inside]
    paint = _paint(state)
    if visits is not None:
        count = visits.get(state.name, 0)
        paint = LIGHT.heat[level(count, busiest(description, visits))]
        words.append(f"{count:,} visits")
    attributes = [
        f"label={_lines(words)}",
        f'fillcolor="{paint.fill}"',
        f'color="{paint.stroke}"',
        f'fontcolor="{paint.text}"',
    ]
    if state.final:
        attributes.append("peripheries=2")
    if state.unwinds_to is not None:
        attributes.append('style="rounded,filled,dashed"')
    return ", ".join(attributes)


def _paint(state: StateDescription) -> Paint:
    if state.final:
        return LIGHT.final
    if state.unwinds_to is not None:
        return LIGHT.unwinding
    if state.resting:
        return LIGHT.resting
    return LIGHT.plain if state.step is None else LIGHT.step


def _edge(source: str, target: str, transition: TransitionDescription) -> str:
    style, colour = _KINDS[transition.kind]
    label = _lines([trigger(transition)])
    return (
        f"    {_quoted(source)} -> {_quoted(target)} "
        f'[label={label}, style={style}, color="{colour}", fontcolor="{colour}"];'
    )


def _lines(words: list[str]) -> str:
    """Return a label of several lines; only the breaks between them are Graphviz escapes."""
    return '"' + "\\n".join(_quoted(word)[1:-1] for word in words) + '"'


def _quoted(text: str) -> str:
    # Graphviz reads HTML entities even inside quotes, so a bare ampersand is one too.
    safe = visible(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{safe}"'
