"""Comparison of one state of the old machine with its replacement: exits, attachments, stranded workflows.

Targets of the old machine are compared under their new names (`Renames`), so a pure renaming changes no arrow. A parked
workflow is moved by its step, by its timers, by unwinding, or by an event from outside; whether a change strands it
depends only on which of these remain. Every finding is a plain sentence, because it is also the reason in the table of
states.

Odd choice: when an event used to unwind, any change of its arrows counts as bypassing the unwinding as soon as one of
the new arrows does not unwind. Guards are only names here, so which arrow a workflow would take cannot be known.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET

from interlock.core.describe import (
    MachineDescription,
    StateDescription,
    StepDescription,
    TimerDescription,
    TransitionDescription,
)
from interlock.core.plan.findings import Severity
from interlock.core.values import Finding, finding

_IF_MEANT = "nothing, if that is meant"

# --- Exits of a state ------------------------------------------------------------------------------------------------


def is_active(state: StateDescription) -> bool:
    """Return whether the state is neither final nor resting: a workflow here is expected to go on."""
    return not state.final and not state.resting


def arrows_from(machine: MachineDescription, state: str) -> list[TransitionDescription]:
    """Return the transitions declared for one state, in order."""
    return [arrow for arrow in machine.transitions if arrow.source == state]


def leaving_arrows(machine: MachineDescription, state: str) -> list[TransitionDescription]:
    """Return the transitions that lead to another state."""
    return [arrow for arrow in arrows_from(machine, state) if arrow.target != state]


def accepted_events(machine: MachineDescription, state: str) -> set[str]:
    """Return the wire names of the events that have a transition in the state."""
    return {arrow.event for arrow in arrows_from(machine, state) if arrow.kind == "event"}


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


# --- Renamed states --------------------------------------------------------------------------------------------------
# The newer machine declares `renamed`; a caller of `plan` may add to it or override it. Names that do not exist are
# findings, not exceptions: a plan should show all mistakes together.
#
# Odd choice: a declaration that the old machine had too is skipped. One left from an earlier release (the old
# machine lacks its old name and has its target) is only an info, because machines keep such declarations for as long
# as old workflows may come back.


class Renames:
    """The checked mapping from old to new states, and the findings about it."""

    def __init__(self, old: MachineDescription, new: MachineDescription, overrides: Mapping[str, str] | None) -> None:
        self.mapping: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._old_names: set[str] = {state.name for state in old.states}
        self._new_names: set[str] = {state.name for state in new.states}
        explicit = dict(overrides or {})
        for source, target in {**new.renamed, **explicit}.items():
            declared_before = source not in self._old_names and old.renamed.get(source) == target
            if source in explicit or not declared_before:
                self._enter(source, target, explicit=source in explicit)
        for target in sorted(set(self.mapping.values())):
            sources = sorted(name for name in self._old_names if self.becomes(name) == target)
            if len(sources) > 1:
                what = f"the states {_list_names(sources)} all become `{target}`"
                why = "afterwards the state does not show which of them a workflow came from"
                self._add(
                    "rename-merged",
                    "info",
                    target,
                    what,
                    why,
                    f"{_IF_MEANT}; otherwise map them to states of their own",
                )

    def becomes(self, state: str) -> str | None:
        """Return the new name of an old state, or None when the new machine does not have it."""
        target = self.mapping.get(state, state)
        return target if target in self._new_names else None

    def _enter(self, source: str, target: str, *, explicit: bool) -> None:
        pair = f"renamed={{{source!r}: {target!r}}}"
        if target not in self._new_names:
            what = f"{pair}: the new machine has no state `{target}`"
            why = "workflows parked there would be sent to a state that does not exist"
            self._add("rename-unknown-new", "error", source, what, why, f"use one of {_list_names(self._new_names)}")
        if source not in self._old_names:
            what = f"{pair}: the old machine has no state `{source}`"
            if not explicit and target in self._old_names:
                why = f"`{target}` exists already, so this is left from an earlier change"
                fix = "keep it while workflows of that earlier version may come back"
                self._add("rename-leftover", "info", source, what, why, fix)
            else:
                why = "the mapping has no effect: it is a misspelling, or it is meant for another version"
                fix = f"use one of {_list_names(self._old_names)}"
                self._add("rename-unknown-old", "error", source, what, why, fix)
        elif target in self._new_names:
            self.mapping[source] = target
            if source != target and source in self._new_names:
                what = f"{pair}: the new machine still has a state `{source}`"
                why = (
                    f"a stored workflow or a row of history that names `{source}` could mean either of them, and "
                    "would be read under its own name"
                )
                fix = f"drop the mapping, or give the new machine another name for `{source}`"
                self._add("rename-ambiguous", "error", source, what, why, fix)

    def _add(self, code: str, severity: Severity, location: str, what: str, why: str, fix: str) -> None:
        self.findings.append(finding(code, severity, location, what, why, fix))


def _list_names(names: set[str] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


# --- Arrows ----------------------------------------------------------------------------------------------------------
# Several guarded transitions for one event are one ordered list: the first guard that returns True wins, so their
# order matters. Transitions of unwinding are compared with the state's role.


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
            what = f"{event} is not handled here any more"
            why = "one that is on its way (a webhook, a timer, the result of a step) would be refused"
            fix = "keep the transition until nothing is on its way"
            findings.append(finding("event-refused", "warning", old_name, what, why, fix))
        elif event not in before:
            what, why = f"{event} is handled here now", "it was refused here before"
            findings.append(finding("event-accepted", "info", old_name, what, why, _IF_MEANT))
        elif owes_undos and _bypasses(before[event], after[event]):
            findings.append(_bypassed(old_name, event, before[event], after[event]))
        # A target that began or ceased to unwind is reported once, with that state, not with every arrow to it.
        elif _without_unwinding(before[event]) != _without_unwinding(after[event]):
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


def _without_unwinding(ways: list[_Way]) -> list[_Way]:
    return [way._replace(unwinds=False) for way in ways]


def _bypasses(before: list[_Way], after: list[_Way]) -> bool:
    chosen, new_chosen = ([(way.target, way.unwinds, way.guard) for way in ways] for ways in (before, after))
    return chosen != new_chosen and any(way.unwinds for way in before) and not all(way.unwinds for way in after)


def _bypassed(state: str, event: str, before: list[_Way], after: list[_Way]) -> Finding:
    past = _quote_names([way.target for way in after if not way.unwinds])
    meant = _quote_names([way.target for way in before if way.unwinds])
    what = f"{event} led to the unwinding {meant} and may lead to {past} now: what was done may stay done"
    why = "a workflow parked here may owe undos, and they are carried out only by a state that unwinds"
    fix = f"let {event} lead to an unwinding state as before, until no workflow of the old version is left"
    return finding("unwinding-bypassed", "warning", state, what, why, fix)


def _differs(state: str, event: str, before: list[_Way], after: list[_Way]) -> Finding:
    targets, new_targets = [way.target for way in before], [way.target for way in after]
    guards, new_guards = [way.guard for way in before], [way.guard for way in after]
    actions, new_actions = [way.action for way in before], [way.action for way in after]
    severity: Severity = "warning"
    if targets != new_targets:
        code, why = "event-target", "a parked workflow takes the new way"
        what = f"{event} leads to {_quote_names(new_targets)} instead of {_quote_names(targets)}"
    elif [way.settles for way in before] != [way.settles for way in after]:
        code, what = "event-settles", f"{event} does not settle any more"
        why = "an unwinding undoes what was done before it too"
        if any(way.settles for way in after):
            what, why = f"{event} settles now", "what a parked workflow did before is final with it, and never undone"
    elif guards != new_guards:
        code, severity, why = "event-guard", "info", "it may be refused where it was accepted"
        what = f"guard of {event}: {_quote_names(guards)} → {_quote_names(new_guards)}"
    elif actions != new_actions:
        code, severity, why = "event-action", "info", "the context is changed in another way"
        what = f"action of {event}: {_quote_names(actions)} → {_quote_names(new_actions)}"
    else:
        code, why = "event-internal", "entering again restarts step and timers"
        what = f"{event} changed between staying (step and timers go on) and entering again"
    return finding(code, severity, state, what, why, _IF_MEANT)


def _quote_names(names: list[str] | list[str | None]) -> str:
    return ", ".join("none" if name is None else f"`{name}`" for name in names)


# --- Attachments: step, timers, effects, dwell and role --------------------------------------------------------------

_OWED = "what is owed to a workflow is stored by name when it enters the state"


def compare_attachments(old: StateDescription, new: StateDescription, new_unwinds_to: str | None) -> list[Finding]:
    """Return the changes between two states; `new_unwinds_to` is the new name of the old unwinding target."""
    findings = [
        *_compare_role(old, new),
        *_compare_unwinding(old, new, new_unwinds_to),
        *_compare_steps(old, new),
        *_compare_timers(old, new),
        *_compare_effects(old, new),
    ]
    if old.dwell_max_s != new.dwell_max_s:
        before, after = (
            "unlimited" if value is None else f"{value:g} s" for value in (old.dwell_max_s, new.dwell_max_s)
        )
        why = "workflows parked here become stalled at another time"
        findings.append(
            finding("dwell-changed", "info", old.name, f"allowed dwell: {before} → {after}", why, _IF_MEANT)
        )
    return findings


def _compare_role(old: StateDescription, new: StateDescription) -> list[Finding]:
    was, becomes = ("final" if each.final else "resting" if each.resting else "active" for each in (old, new))
    if was == becomes:
        return []
    why = {
        "active": "it is expected to go on now, and is stalled when it does not",
        "resting": "it may stay for ever now and is never stalled",
        "final": "it is finished now: no event, step or timer applies to it any more",
    }[becomes]
    fix = f"{_IF_MEANT}; otherwise keep `{old.name}` as it was and add a new state"
    return [finding("state-role", "warning", old.name, f"was {was}, is {becomes} now", why, fix)]


def _compare_unwinding(old: StateDescription, new: StateDescription, mapped: str | None) -> list[Finding]:
    if old.unwinds_to is None and new.unwinds_to is None:
        return []
    if new.unwinds_to is None:
        what = "was unwinding, is not any more: undos that are still owed here would never run"
        why = "what was done outside would be left without its undo"
        fix = f"keep `{old.name}` unwinding, or map it to a state that unwinds"
        return [finding("unwinding-lost", "error", old.name, what, why, fix)]
    if old.unwinds_to is None:
        what = f"was not unwinding, unwinds to `{new.unwinds_to}` now"
        why = "unwinding begins on entering; a workflow already here did not ask for it"
        return [finding("unwinding-added", "warning", old.name, what, why, "add a new unwinding state instead")]
    if mapped == new.unwinds_to:
        return []
    what = f"unwinds to `{new.unwinds_to}` instead of `{old.unwinds_to}`"
    return [finding("unwinding-target", "info", old.name, what, "a workflow under way ends elsewhere", _IF_MEANT)]


def _compare_steps(old: StateDescription, new: StateDescription) -> list[Finding]:
    had, has = old.step, new.step
    if had is None:
        if has is None:
            return []
        what = f"a step `{has.name}` was added: a workflow already here does not owe it"
        return [finding("step-added", "warning", old.name, what, _OWED, "put the step into a new state")]
    if has is None:
        what = f"a step `{had.name}` that was owed here no longer exists"
        fix = f"keep the step until no workflow is parked in `{old.name}`"
        return [finding("step-gone", "warning", old.name, what, _OWED, fix)]
    findings: list[Finding] = []
    if had.name != has.name:
        alike = set(had.returns) == set(has.returns) and had.dependency == has.dependency
        code, verb = ("step-renamed", "renamed") if alike else ("step-replaced", "replaced")
        what = f"step `{had.name}` {verb}: it is `{has.name}` now"
        fix = f"keep the name `{had.name}`, or let the runs in progress finish first"
        findings.append(finding(code, "warning", old.name, what, _OWED, fix))
    before = _step_settings(had)
    why = "it applies from the next attempt on"
    return findings + [
        finding(
            "step-settings", "info", old.name, f"{name} of step `{has.name}`: {before[name]} → {value}", why, _IF_MEANT
        )
        for name, value in _step_settings(has).items()
        if before[name] != value
    ]


def _step_settings(step: StepDescription) -> dict[str, str]:
    return {
        "timeout": f"{step.timeout_s:g} s",
        "heartbeat": "none" if step.heartbeat_s is UNSET else f"{step.heartbeat_s:g} s",
        "attempts": str(step.attempts),
        "dependency": str(step.dependency),
        "returned events": ", ".join(sorted(step.returns)) or "(not declared)",
        "undone outcomes": ", ".join(sorted(step.undoes)) or "(not declared)",
    }


def _compare_timers(old: StateDescription, new: StateDescription) -> list[Finding]:
    findings: list[Finding] = []
    remaining = list(new.timers)
    for timer in old.timers:
        if timer in remaining:
            remaining.remove(timer)
            continue
        twin = next((other for other in remaining if other.event == timer.event and other not in old.timers), None)
        if twin is None:
            what = f"its timer {_timer(timer)} is gone: timers already set would send an undeclared event"
            why = "a parked workflow relies on it to go on"
            fix = f"keep the timer until no workflow is parked in `{old.name}`"
            findings.append(finding("timer-gone", "warning", old.name, what, why, fix))
        else:
            remaining.remove(twin)
            what = f"its timer {_timer(timer)} is {_timer(twin)} now: timers already set may keep their old time"
            findings.append(finding("timer-changed", "info", old.name, what, "a timer is set on entering", _IF_MEANT))
    for timer in remaining:
        what = f"a timer {_timer(timer)} was added: workflows already here may not have it"
        why = "a timer is set on entering the state"
        findings.append(finding("timer-added", "info", old.name, what, why, _IF_MEANT))
    return findings


def _timer(timer: TimerDescription) -> str:
    policy = "" if timer.policy == "deadline" else f" ({timer.policy})"
    time = f"computed ({timer.computed})" if timer.computed else f"{timer.after_s:g} s"
    return f"{time} → {timer.event}{policy}"


def _compare_effects(old: StateDescription, new: StateDescription) -> list[Finding]:
    findings: list[Finding] = []
    for effect in sorted(set(old.effects) - set(new.effects)):
        what = f"its effect `{effect}` is gone: one that is still owed cannot be carried out"
        findings.append(finding("effect-gone", "warning", old.name, what, _OWED, f"keep `{effect}` until none is owed"))
    for effect in sorted(set(new.effects) - set(old.effects)):
        what = f"an effect `{effect}` was added: only workflows that enter from now on owe it"
        findings.append(finding("effect-added", "info", old.name, what, _OWED, _IF_MEANT))
    return findings


# --- Stranded workflows, which would wait for ever under the new machine ---------------------------------------------
# The reasons are checked in this order: the state is removed, nothing leads out of it, no path ends, or only a step
# or timer that a parked workflow does not have leads out (they are owed on entering).
#
# Invariant: conservative. Without a return annotation of a step, every event of its state may come from it.


def find_removed(old_state: StateDescription) -> Finding:
    """Return the finding for a state that the new machine does not have."""
    name = old_state.name
    if old_state.final:
        what = f"the final state `{name}` is gone without a mapping: workflows that finished there cannot be read"
    else:
        what = f"the state `{name}` is gone without a mapping: a workflow parked there has no place to go"
    why = "a stored workflow names its state; the new machine does not know that name"
    fix = (
        f'declare `renamed={{"{name}": State.…}}` in the new machine, or keep the state and a way into it until it is '
        "empty (for example an event that only operators send)"
    )
    return finding("state-stranded", "error", name, what, why, fix)


def find_stranded(
    old: MachineDescription, old_state: StateDescription, new: MachineDescription, new_state: StateDescription
) -> Finding | None:
    """Return the strongest reason why a workflow parked here would never go on, or None."""
    stuck_before = is_active(old_state) and not leaving_arrows(old, old_state.name)
    if old_state.final or stuck_before or not is_active(new_state):
        return None
    if not leaving_arrows(new, new_state.name):
        what = f"`{new_state.name}` is a dead end now: nothing leads out of it and it is neither final nor resting"
        why = "a workflow parked there would stay for ever and count as stalled"
        fix = f"keep a transition out of `{new_state.name}`, or declare it final or resting"
    elif old_state.name in can_end(old) and new_state.name not in can_end(new):
        what = f"no path leads from `{new_state.name}` to a final or resting state any more"
        why = "a workflow parked there could move, but never end"
        fix = f"keep a path from `{new_state.name}` to an end, or map `{old_state.name}` to a state that has one"
    else:
        return _find_unmoved(old, old_state, new, new_state)
    return finding("state-stranded", "error", old_state.name, what, why, fix)


def _find_unmoved(
    old: MachineDescription, old_state: StateDescription, new: MachineDescription, new_state: StateDescription
) -> Finding | None:
    had, has = (
        {"step": state.step is not None, "timers": bool(state.timers), "unwinding": state.unwinds_to is not None}
        for state in (old_state, new_state)
    )
    if any(had[mover] and has[mover] for mover in had):
        return None
    outside = {arrow.event for arrow in leaving_arrows(new, new_state.name) if arrow.kind == "event"}
    if any(had.values()):
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
    what += ": the workflow would stay for ever"
    return finding("state-stranded", "error", old_state.name, what, why, fix)


def _sent_from_inside(old: MachineDescription, old_state: StateDescription) -> set[str]:
    events = {timer.event for timer in old_state.timers}
    if old_state.step is not None:
        events |= set(old_state.step.returns) or accepted_events(old, old_state.name)
    return events


def _lost_mover(old_state: StateDescription) -> str:
    if old_state.step is not None:
        return f"a step `{old_state.step.name}` that was owed here no longer exists"
    if old_state.timers:
        return "the timers that led out of here are gone"
    return "unwinding that was under way here is gone"
