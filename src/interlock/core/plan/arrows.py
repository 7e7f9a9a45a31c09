"""Compare the transitions out of one state: refused events, new targets, new events.

Targets of the old machine are compared under their new names, so a pure renaming changes no arrow. Several guarded
transitions for one event are one ordered list: the first guard that returns True wins, so their order matters.
Transitions of unwinding are compared with the state's role, not here.

Odd choice: when an event used to unwind, any change of its arrows counts as bypassing the unwinding as soon as one of
the new arrows does not unwind. Guards are only names here, so which arrow a workflow would take cannot be known.
"""

from typing import NamedTuple

from interlock.core.description import MachineDescription
from interlock.core.plan.exits import arrows_from, undoable_states
from interlock.core.plan.findings import Severity
from interlock.core.plan.renames import Renames
from interlock.core.values import Finding

_NOTHING = "nothing, if that is meant"


class _Way(NamedTuple):
    """One arrow as far as it matters to a parked workflow."""

    target: str
    unwinds: bool
    internal: bool
    guard: str | None
    action: str | None
    settles: bool


def compare_arrows(
    old: MachineDescription, old_name: str, new: MachineDescription, new_name: str, renames: Renames
) -> list[Finding]:
    """Return the changes for the events (and the failure of the step) of one state."""
    before = _ways(old, old_name, renames)
    after = _ways(new, new_name)
    owes_undos = old_name in undoable_states(old)
    findings: list[Finding] = []
    for event in [*before, *(event for event in after if event not in before)]:
        if event not in after:
            findings.append(_refused(old_name, event))
        elif event not in before:
            what = f"{event} is handled here now"
            findings.append(_finding(old_name, "event-accepted", "info", what, "it was refused here before", _NOTHING))
        elif owes_undos and _bypasses(before[event], after[event]):
            findings.append(_bypassed(old_name, event, before[event], after[event]))
        elif _visible(before[event]) != _visible(after[event]):
            findings.append(_differs(old_name, event, before[event], after[event]))
    return findings


def _ways(machine: MachineDescription, state: str, renames: Renames | None = None) -> dict[str, list[_Way]]:
    unwinding = {each.name for each in machine.states if each.unwinds_to is not None}
    ways: dict[str, list[_Way]] = {}
    for arrow in arrows_from(machine, state):
        if arrow.kind != "unwound":
            target = arrow.target if renames is None else renames.becomes(arrow.target) or arrow.target
            way = _Way(
                target, arrow.target in unwinding, arrow.internal, arrow.guard, arrow.action, arrow.settle is True
            )
            ways.setdefault(arrow.event, []).append(way)
    return ways


def _visible(ways: list[_Way]) -> list[_Way]:
    # A target that began or ceased to unwind is reported once, with that state, not with every arrow to it.
    return [way._replace(unwinds=False) for way in ways]


def _bypasses(before: list[_Way], after: list[_Way]) -> bool:
    chosen, new_chosen = ([(way.target, way.unwinds, way.guard) for way in ways] for ways in (before, after))
    return chosen != new_chosen and any(way.unwinds for way in before) and not all(way.unwinds for way in after)


def _bypassed(state: str, event: str, before: list[_Way], after: list[_Way]) -> Finding:
    past = _listed([way.target for way in after if not way.unwinds])
    meant = _listed([way.target for way in before if way.unwinds])
    what = f"{event} led to the unwinding {meant} and may lead to {past} now: what was done may stay done"
    why = "a workflow parked here may owe undos, and they are carried out only by a state that unwinds"
    fix = f"let {event} lead to an unwinding state as before, until no workflow of the old version is left"
    return _finding(state, "unwinding-bypassed", "warning", what, why, fix)


def _refused(state: str, event: str) -> Finding:
    what = f"{event} is not handled here any more"
    why = "one that is on its way (a webhook, a timer, the result of a step) would be refused"
    return _finding(state, "event-refused", "warning", what, why, "keep the transition until nothing is on its way")


def _differs(state: str, event: str, before: list[_Way], after: list[_Way]) -> Finding:
    targets, new_targets = [way.target for way in before], [way.target for way in after]
    if targets != new_targets:
        what = f"{event} leads to {_listed(new_targets)} instead of {_listed(targets)}"
        return _finding(state, "event-target", "warning", what, "a parked workflow takes the new way", _NOTHING)
    settles, new_settles = [way.settles for way in before], [way.settles for way in after]
    if settles != new_settles:
        return _settles(state, event, added=any(new_settles))
    guards, new_guards = [way.guard for way in before], [way.guard for way in after]
    if guards != new_guards:
        what = f"guard of {event}: {_listed(guards)} → {_listed(new_guards)}"
        return _finding(state, "event-guard", "info", what, "it may be refused where it was accepted", _NOTHING)
    actions, new_actions = [way.action for way in before], [way.action for way in after]
    if actions != new_actions:
        what = f"action of {event}: {_listed(actions)} → {_listed(new_actions)}"
        return _finding(state, "event-action", "info", what, "the context is changed in another way", _NOTHING)
    what = f"{event} changed between staying (step and timers go on) and entering again"
    return _finding(state, "event-internal", "warning", what, "entering again restarts step and timers", _NOTHING)


def _settles(state: str, event: str, *, added: bool) -> Finding:
    if added:
        what, why = f"{event} settles now", "what a parked workflow did before is final with it, and never undone"
    else:
        what, why = f"{event} does not settle any more", "an unwinding undoes what was done before it too"
    return _finding(state, "event-settles", "warning", what, why, _NOTHING)


def _listed(names: list[str] | list[str | None]) -> str:
    return ", ".join("none" if name is None else f"`{name}`" for name in names)


def _finding(state: str, code: str, severity: Severity, what: str, why: str, fix: str) -> Finding:
    return Finding(code=code, severity=severity, what=what, why=why, fix=fix, location=state)
