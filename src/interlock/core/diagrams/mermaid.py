"""Write a machine as a Mermaid `stateDiagram-v2`, for pages that render Mermaid.

Mermaid's grammar has many words and signs that end a label or start something else, so every character that is
not plainly harmless is written as an entity (`#35;`), and a state keeps its own name as id only if it is a plain
word; otherwise it gets a number.

The invariant: for any names the text parses, and each name shows unchanged. The odd choice is that internal
transitions stand in a state's note, because Mermaid can only draw an arrow, and an arrow would mean that the
state is left.
"""

import re
from collections.abc import Mapping

from interlock.core.description import MachineDescription, StateDescription, TransitionDescription
from interlock.core.diagrams.gather import CatchAll, gather, sources_in_words
from interlock.core.diagrams.heat import busiest, level
from interlock.core.diagrams.theme import LIGHT, Paint
from interlock.core.diagrams.wording import duration, fresh, step_words, timer_words, trigger, visible

_PLAIN_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# Reserved words of Mermaid, in any case: an id must not be one of them.
_RESERVED = frozenset(
    (
        "acctitle",
        "accdescr",
        "as",
        "choice",
        "class",
        "classdef",
        "click",
        "default",
        "direction",
        "end",
        "fork",
        "hide",
        "href",
        "join",
        "note",
        "root",
        "scale",
        "state",
        "style",
    )
)
_HARMLESS = frozenset(" _-.,/[]()=+!?'→·")


def mermaid(description: MachineDescription, *, visits: Mapping[str, int] | None = None) -> str:
    """Write the machine as a Mermaid state diagram, coloured by `visits` if they are given."""
    ids = _ids(description)
    gathered = gather(description)
    lines = ["stateDiagram-v2", "    direction TB"]
    for state in description.states:
        label = visible(state.name) + ("" if visits is None else f" ({visits.get(state.name, 0):,})")
        lines.append(f'    state "{_text(label)}" as {ids[state.name]}')
    for group, pill in _pills(gathered.catch_alls, ids):
        words = f"any: {sources_in_words(group.sources, description)}"
        lines.append(f'    state "{_text(visible(words))}" as {pill}')
    lines += [f"    [*] --> {ids[state.name]}" for state in description.states if state.initial]
    lines += [
        f"    {ids[transition.source]} --> {ids[transition.target]}: {_text(trigger(transition))}"
        for transition in gathered.single
        if not transition.internal
    ]
    for group, pill in _pills(gathered.catch_alls, ids):
        # Mermaid has no arrow that stays: an internal catch-all points from its pill to itself.
        target = pill if group.target is None else ids[group.target]
        lines += [f"    {pill} --> {target}: {_text(trigger(transition))}" for transition in group.transitions]
    lines += [f"    {ids[state.name]} --> [*]" for state in description.states if state.final]
    for state in description.states:
        inside = [
            transition for transition in gathered.single if transition.internal and transition.source == state.name
        ]
        lines += _note(ids[state.name], state, inside)
    return "\n".join([*lines, *_classes(description, ids, visits)]) + "\n"


def _ids(description: MachineDescription) -> dict[str, str]:
    """Return an id for each state: its own name if it is a valid Mermaid id, otherwise a unique number."""
    names = [state.name for state in description.states]
    plain = {name for name in names if _PLAIN_ID.fullmatch(name) and name.lower() not in _RESERVED}
    return {name: name if name in plain else fresh(f"s{index}", plain) for index, name in enumerate(names)}


def _pills(groups: tuple[CatchAll, ...], ids: Mapping[str, str]) -> list[tuple[CatchAll, str]]:
    taken = set(ids.values())
    return [(group, fresh(f"any{index}", taken)) for index, group in enumerate(groups)]


def _text(text: str) -> str:
    written = "".join(
        character if character.isalnum() or character in _HARMLESS else f"#{ord(character)};" for character in text
    )
    if not written.strip():
        return "#160;"  # A label must not be empty.
    # Underscores at the edge of a word are Markdown, which Mermaid reads in labels.
    written = re.sub(r"(?<![^\W_])_|_(?![^\W_])", "#95;", written)
    # The only two words that end a note.
    return re.sub(r"(?i)\bend note", lambda match: match[0].replace(" ", "#32;"), written)


def _note(state_id: str, state: StateDescription, inside: list[TransitionDescription]) -> list[str]:
    words: list[str] = []
    step = step_words(state)
    if step is not None:
        words.append(f"step {step}")
    words += [f"after {timer}" for timer in timer_words(state)]
    if state.dwell_max_s is not None:
        words.append(f"dwell at most {duration(state.dwell_max_s)}")
    if state.unwinds_to is not None:
        words.append(f"unwinds to {visible(state.unwinds_to)}")
    words += [f"stays on {trigger(transition)}" for transition in inside]
    if not words:
        return []
    return [f"    note right of {state_id}", *(f"        {_text(word)}" for word in words), "    end note"]


def _classes(description: MachineDescription, ids: dict[str, str], visits: Mapping[str, int] | None) -> list[str]:
    members: dict[str, list[str]] = {}
    paints: dict[str, Paint] = {}
    for state in description.states:
        for look, paint, worn in (
            ("finalState", LIGHT.final, state.final),
            ("restingState", LIGHT.resting, state.resting),
            ("unwindingState", LIGHT.unwinding, state.unwinds_to is not None),
        ):
            if worn and visits is None:
                paints[look] = paint
                members.setdefault(look, []).append(ids[state.name])
        if visits is not None:
            heat = level(visits.get(state.name, 0), busiest(description, visits))
            paints[f"heat{heat}"] = LIGHT.heat[heat]
            members.setdefault(f"heat{heat}", []).append(ids[state.name])
    lines = [
        f"    classDef {name} fill:{paint.fill},stroke:{paint.stroke},color:{paint.text}"
        for name, paint in paints.items()
    ]
    return lines + [f"    class {','.join(states)} {name}" for name, states in members.items()]
