"""Group catch-all transitions into one arrow from "any" state.

A catch-all is described once per state it applies to. Drawn like that it would clutter the diagram, so
transitions that differ only in their source are grouped here, for all diagram formats.

The invariant: every transition of the description is either in `single` or in exactly one group. The odd
choice is the threshold: a catch-all that applies to only one or two states is drawn as plain arrows,
because a pill with a legend would then say less in more room.
"""

from dataclasses import dataclass

from interlock.core.description import MachineDescription, TransitionDescription

SOURCES_MIN = 3


@dataclass(frozen=True, slots=True)
class CatchAll:
    """Catch-all transitions that leave the same states for the same target."""

    sources: tuple[str, ...]
    target: str | None
    """None when the transitions are internal: each workflow stays where it is."""
    transitions: tuple[TransitionDescription, ...]
    """One for each distinct event and guard."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """All the transitions of a machine, in declared order, each exactly once."""

    single: tuple[TransitionDescription, ...]
    catch_alls: tuple[CatchAll, ...]


def gather(description: MachineDescription) -> Gathered:
    """Separate the catch-alls worth gathering from the arrows drawn one by one."""
    alike: dict[tuple[str | bool | None, ...], list[TransitionDescription]] = {}
    for transition in description.transitions:
        if transition.catch_all:
            alike.setdefault(_likeness(transition), []).append(transition)
    gathered = {key for key, members in alike.items() if len(members) >= SOURCES_MIN}
    single = tuple(
        transition
        for transition in description.transitions
        if not (transition.catch_all and _likeness(transition) in gathered)
    )
    return Gathered(single=single, catch_alls=_joined([members for key, members in alike.items() if key in gathered]))


def _likeness(transition: TransitionDescription) -> tuple[str | bool | None, ...]:
    target = None if transition.internal else transition.target
    settles = transition.settle is True
    return (target, transition.event, transition.guard, transition.kind, transition.action, settles)


def _joined(groups: list[list[TransitionDescription]]) -> tuple[CatchAll, ...]:
    """Merge groups with the same sources and the same target into one pill."""
    pills: dict[tuple[tuple[str, ...], str | None], list[TransitionDescription]] = {}
    for members in groups:
        sources = tuple(dict.fromkeys(member.source for member in members))
        target = None if members[0].internal else members[0].target
        pills.setdefault((sources, target), []).append(members[0])
    return tuple(
        CatchAll(sources=sources, target=target, transitions=tuple(transitions))
        for (sources, target), transitions in pills.items()
    )


def sources_in_words(sources: tuple[str, ...], description: MachineDescription) -> str:
    """Return the states of "any" as text, the shorter way: by the states it has or by those it lacks."""
    open_states = [state.name for state in description.states if not state.final]
    missing = [name for name in open_states if name not in sources]
    if set(sources) <= set(open_states) and len(missing) * 2 < len(sources):
        return "every state that is not final" + (f" except {', '.join(missing)}" if missing else "")
    return ", ".join(sources)
