"""Find parked workflows that would wait for ever under the new machine.

The reasons are checked in this order: the state is removed, nothing leads out of it, no path ends, or only a step or
timer that a parked workflow does not have leads out (they are owed on entering).

Invariant: conservative. Without a return annotation of a step, every event of its state may come from it.
"""

from interlock.core.description import MachineDescription, StateDescription
from interlock.core.plan.exits import (
    accepted_events,
    can_end,
    has_mover,
    is_active,
    leaving_arrows,
    leaving_events,
)
from interlock.core.values import Finding

_MAP_STATE = (
    'declare `renamed={"%s": State.…}` in the new machine, or keep the state and a way into it until it is empty '
    "(for example an event that only operators send)"
)


def find_removed(old_state: StateDescription) -> Finding:
    """Return the finding for a state that the new machine does not have."""
    name = old_state.name
    if old_state.final:
        what = f"the final state `{name}` is gone without a mapping: workflows that finished there cannot be read"
    else:
        what = f"the state `{name}` is gone without a mapping: a workflow parked there has no place to go"
    why = "a stored workflow names its state; the new machine does not know that name"
    return _stranded(name, what, why, _MAP_STATE % name)


def find_stranded(
    old: MachineDescription, old_state: StateDescription, new: MachineDescription, new_state: StateDescription
) -> Finding | None:
    """Return the strongest reason why a workflow parked here would never go on, or None."""
    stuck_before = is_active(old_state) and not leaving_arrows(old, old_state.name)
    if old_state.final or stuck_before or not is_active(new_state):
        return None
    return (
        _find_dead_end(old_state, new, new_state)
        or _find_endless(old, old_state, new, new_state)
        or _find_unmoved(old, old_state, new, new_state)
    )


def _find_dead_end(old_state: StateDescription, new: MachineDescription, new_state: StateDescription) -> Finding | None:
    if leaving_arrows(new, new_state.name):
        return None
    what = f"`{new_state.name}` is a dead end now: nothing leads out of it and it is neither final nor resting"
    why = "a workflow parked there would stay for ever and count as stalled"
    fix = f"keep a transition out of `{new_state.name}`, or declare it final or resting"
    return _stranded(old_state.name, what, why, fix)


def _find_endless(
    old: MachineDescription, old_state: StateDescription, new: MachineDescription, new_state: StateDescription
) -> Finding | None:
    if old_state.name not in can_end(old) or new_state.name in can_end(new):
        return None
    what = f"no path leads from `{new_state.name}` to a final or resting state any more"
    why = "a workflow parked there could move, but never end"
    fix = f"keep a path from `{new_state.name}` to an end, or map `{old_state.name}` to a state that has one"
    return _stranded(old_state.name, what, why, fix)


def _find_unmoved(
    old: MachineDescription, old_state: StateDescription, new: MachineDescription, new_state: StateDescription
) -> Finding | None:
    if _keeps_mover(old_state, new_state):
        return None
    outside = leaving_events(new, new_state.name)
    if has_mover(old_state):
        outside -= _sent_from_inside(old, old_state)
        what = _lost_mover(old_state)
        fix = f"keep it, or map `{old_state.name}` to a state that goes on by itself, until no workflow is parked there"
    else:
        if new_state.step is not None and new_state.step.returns:
            outside -= set(new_state.step.returns)
        elif new_state.step is not None:
            outside &= accepted_events(old, old_state.name)
        what = (
            f"only what is owed on entering `{new_state.name}` leads out of it, and a workflow already there lacks it"
        )
        fix = f"put the step into a new state after `{new_state.name}`, or keep an event that leads out"
    if outside:
        return None
    why = "steps and timers are owed on entering a state; nothing else would move a workflow that is already there"
    return _stranded(old_state.name, f"{what}: the workflow would stay for ever", why, fix)


def _keeps_mover(old_state: StateDescription, new_state: StateDescription) -> bool:
    by_step = old_state.step is not None and new_state.step is not None
    by_timer = bool(old_state.timers) and bool(new_state.timers)
    by_unwinding = old_state.unwinds_to is not None and new_state.unwinds_to is not None
    return by_step or by_timer or by_unwinding


def _sent_from_inside(old: MachineDescription, old_state: StateDescription) -> set[str]:
    sent = {timer.event for timer in old_state.timers}
    if old_state.step is not None:
        sent |= set(old_state.step.returns) or accepted_events(old, old_state.name)
    return sent


def _lost_mover(old_state: StateDescription) -> str:
    if old_state.step is not None:
        return f"a step `{old_state.step.name}` that was owed here no longer exists"
    if old_state.timers:
        return "the timers that led out of here are gone"
    return "unwinding that was under way here is gone"


def _stranded(state: str, what: str, why: str, fix: str) -> Finding:
    return Finding(code="state-stranded", severity="error", what=what, why=why, fix=fix, location=state)
