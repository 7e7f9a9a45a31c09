"""Compare what is attached to a state: step, timers, effects, dwell and role.

Every function returns findings about one pair of states, written as plain sentences, because the same sentence is
the reason in the table of states. Whether a workflow is stranded is decided in `stranded`.
"""

from msgspec import UNSET

from interlock.core.description import StateDescription, StepDescription, TimerDescription
from interlock.core.plan.findings import Severity
from interlock.core.values import Finding

_OWED = "what is owed to a workflow is stored by name when it enters the state"
_NOTHING = "nothing, if that is meant"


def compare_attachments(old: StateDescription, new: StateDescription, new_unwinds_to: str | None) -> list[Finding]:
    """Return the changes between two states; `new_unwinds_to` is the new name of the old unwinding target."""
    return [
        *_compare_role(old, new),
        *_compare_unwinding(old, new, new_unwinds_to),
        *_compare_steps(old, new),
        *_compare_timers(old, new),
        *_compare_effects(old, new),
        *_compare_dwell(old, new),
    ]


def _compare_role(old: StateDescription, new: StateDescription) -> list[Finding]:
    was, becomes = _role(old), _role(new)
    if was == becomes:
        return []
    why = {
        "active": "it is expected to go on now, and is stalled when it does not",
        "resting": "it may stay for ever now and is never stalled",
        "final": "it is finished now: no event, step or timer applies to it any more",
    }[becomes]
    fix = f"{_NOTHING}; otherwise keep `{old.name}` as it was and add a new state"
    return [_finding(old, "state-role", "warning", f"was {was}, is {becomes} now", why, fix)]


def _role(state: StateDescription) -> str:
    if state.final:
        return "final"
    return "resting" if state.resting else "active"


def _compare_unwinding(old: StateDescription, new: StateDescription, mapped: str | None) -> list[Finding]:
    if old.unwinds_to is None and new.unwinds_to is None:
        return []
    if new.unwinds_to is None:
        what = "was unwinding, is not any more: undos that are still owed here would never run"
        fix = f"keep `{old.name}` unwinding, or map it to a state that unwinds"
        return [
            _finding(old, "unwinding-lost", "error", what, "what was done outside would be left without its undo", fix)
        ]
    if old.unwinds_to is None:
        what = f"was not unwinding, unwinds to `{new.unwinds_to}` now"
        why = "unwinding begins on entering; a workflow already here did not ask for it"
        return [_finding(old, "unwinding-added", "warning", what, why, "add a new unwinding state instead")]
    if mapped == new.unwinds_to:
        return []
    what = f"unwinds to `{new.unwinds_to}` instead of `{old.unwinds_to}`"
    return [_finding(old, "unwinding-target", "info", what, "a workflow under way ends elsewhere", _NOTHING)]


def _compare_steps(old: StateDescription, new: StateDescription) -> list[Finding]:
    had, has = old.step, new.step
    if had is None and has is None:
        return []
    if had is None and has is not None:
        what = f"a step `{has.name}` was added: a workflow already here does not owe it"
        return [_finding(old, "step-added", "warning", what, _OWED, "put the step into a new state")]
    if had is not None and has is None:
        what = f"a step `{had.name}` that was owed here no longer exists"
        fix = f"keep the step until no workflow is parked in `{old.name}`"
        return [_finding(old, "step-gone", "warning", what, _OWED, fix)]
    assert had is not None
    assert has is not None
    return [*_compare_step_names(old, had, has), *_compare_step_settings(old, had, has)]


def _compare_step_names(state: StateDescription, had: StepDescription, has: StepDescription) -> list[Finding]:
    if had.name == has.name:
        return []
    alike = set(had.returns) == set(has.returns) and had.dependency == has.dependency
    code, verb = ("step-renamed", "renamed") if alike else ("step-replaced", "replaced")
    what = f"step `{had.name}` {verb}: it is `{has.name}` now"
    fix = f"keep the name `{had.name}`, or let the runs in progress finish first"
    return [_finding(state, code, "warning", what, _OWED, fix)]


def _compare_step_settings(state: StateDescription, had: StepDescription, has: StepDescription) -> list[Finding]:
    changes = [
        ("timeout", f"{had.timeout_s:g} s", f"{has.timeout_s:g} s"),
        ("heartbeat", _heartbeat(had), _heartbeat(has)),
        ("attempts", str(had.attempts), str(has.attempts)),
        ("dependency", str(had.dependency), str(has.dependency)),
        ("returned events", _listed(had.returns), _listed(has.returns)),
        ("undone outcomes", _listed(had.undoes), _listed(has.undoes)),
    ]
    why = "it applies from the next attempt on"
    return [
        _finding(state, "step-settings", "info", f"{name} of step `{has.name}`: {before} → {after}", why, _NOTHING)
        for name, before, after in changes
        if before != after
    ]


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
            fix = f"keep the timer until no workflow is parked in `{old.name}`"
            findings.append(
                _finding(old, "timer-gone", "warning", what, "a parked workflow relies on it to go on", fix)
            )
        else:
            remaining.remove(twin)
            what = f"its timer {_timer(timer)} is {_timer(twin)} now: timers already set may keep their old time"
            findings.append(_finding(old, "timer-changed", "info", what, "a timer is set on entering", _NOTHING))
    for timer in remaining:
        what = f"a timer {_timer(timer)} was added: workflows already here may not have it"
        findings.append(_finding(old, "timer-added", "info", what, "a timer is set on entering the state", _NOTHING))
    return findings


def _compare_effects(old: StateDescription, new: StateDescription) -> list[Finding]:
    findings: list[Finding] = []
    for effect in sorted(set(old.effects) - set(new.effects)):
        what = f"its effect `{effect}` is gone: one that is still owed cannot be carried out"
        fix = f"keep `{effect}` until none is owed"
        findings.append(_finding(old, "effect-gone", "warning", what, _OWED, fix))
    for effect in sorted(set(new.effects) - set(old.effects)):
        what = f"an effect `{effect}` was added: only workflows that enter from now on owe it"
        findings.append(_finding(old, "effect-added", "info", what, _OWED, _NOTHING))
    return findings


def _compare_dwell(old: StateDescription, new: StateDescription) -> list[Finding]:
    if old.dwell_max_s == new.dwell_max_s:
        return []
    what = f"allowed dwell: {_seconds(old.dwell_max_s)} → {_seconds(new.dwell_max_s)}"
    why = "workflows parked here become stalled at another time"
    return [_finding(old, "dwell-changed", "info", what, why, _NOTHING)]


def _finding(state: StateDescription, code: str, severity: Severity, what: str, why: str, fix: str) -> Finding:
    return Finding(code=code, severity=severity, what=what, why=why, fix=fix, location=state.name)


def _timer(timer: TimerDescription) -> str:
    policy = "" if timer.policy == "deadline" else f" ({timer.policy})"
    return f"{timer.after_s:g} s → {timer.event}{policy}"


def _heartbeat(step: StepDescription) -> str:
    return "none" if step.heartbeat_s is UNSET else f"{step.heartbeat_s:g} s"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(sorted(names)) or "(not declared)"


def _seconds(value: float | None) -> str:
    return "unlimited" if value is None else f"{value:g} s"
