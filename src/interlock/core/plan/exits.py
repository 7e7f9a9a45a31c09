"""Queries on a description: how a workflow leaves a state, and whether it does so without an event from outside.

A parked workflow is moved by its step, by its timers, by unwinding, or by an event from outside. Whether a change
strands it depends only on which of these remain.
"""

from interlock.core.description import MachineDescription, StateDescription, TransitionDescription


def is_active(state: StateDescription) -> bool:
    """Return whether the state is neither final nor resting: a workflow here is expected to go on."""
    return not state.final and not state.resting


def has_mover(state: StateDescription) -> bool:
    """Return whether the state itself makes a workflow go on: by a step, a timer or unwinding."""
    return state.step is not None or bool(state.timers) or state.unwinds_to is not None


def arrows_from(machine: MachineDescription, state: str) -> list[TransitionDescription]:
    """Return the transitions declared for one state, in order."""
    return [arrow for arrow in machine.transitions if arrow.source == state]


def leaving_arrows(machine: MachineDescription, state: str) -> list[TransitionDescription]:
    """Return the transitions that lead to another state."""
    return [arrow for arrow in arrows_from(machine, state) if arrow.target != state]


def accepted_events(machine: MachineDescription, state: str) -> set[str]:
    """Return the wire names of the events that have a transition in the state."""
    return {arrow.event for arrow in arrows_from(machine, state) if arrow.kind == "event"}


def leaving_events(machine: MachineDescription, state: str) -> set[str]:
    """Return the wire names of the events that lead to another state."""
    return {arrow.event for arrow in leaving_arrows(machine, state) if arrow.kind == "event"}


def can_end(machine: MachineDescription) -> set[str]:
    """Return the states from which some path leads to a final or resting state, those states included."""
    ending = {state.name for state in machine.states if not is_active(state)}
    grown = True
    while grown:
        reaching = {arrow.source for arrow in machine.transitions if arrow.target in ending}
        grown = not reaching <= ending
        ending |= reaching
    return ending


def undoable_states(machine: MachineDescription) -> set[str]:
    """Return the states in which a workflow may owe undos: from an undoable step up to unwinding or settling."""
    unwinding = {state.name for state in machine.states if state.unwinds_to is not None}
    owing = {state.name for state in machine.states if state.step is not None and state.step.undoes} - unwinding
    carrying = [arrow for arrow in machine.transitions if not _clears(machine, arrow)]
    grown = True
    while grown:
        following = {arrow.target for arrow in carrying if arrow.source in owing} - unwinding
        grown = not following <= owing
        owing |= following
    return owing


def _clears(machine: MachineDescription, arrow: TransitionDescription) -> bool:
    """Return whether the undo log is empty after the arrow: it settles, and does not cut an undoable step off."""
    state = machine.state(arrow.source)
    step = None if state is None else state.step
    cuts_off = step is not None and bool(step.undoes) and arrow.event not in (*step.returns, *step.undoes)
    return arrow.settle is True and not cuts_off
