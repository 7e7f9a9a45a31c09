"""Compare the alphabets: added and removed events, and payloads already written that may not decode.

Most payloads matter only while they are in transit: a webhook that is being retried, a command in a client's queue.
Two kinds are kept by the store itself: the event of a timer, and the outcome of a step that has an undo, which stays
in the undo log until the workflow ends. They must meet the same demands as a context.
"""

import msgspec

from interlock.core.description import EventDescription, MachineDescription
from interlock.core.plan.canonical import identical
from interlock.core.plan.fields import RemovedField, compare_fields
from interlock.core.plan.findings import Incompatibility, PayloadVerdict, Severity, decoding_of
from interlock.core.plan.schemas import accepts
from interlock.core.values import Finding


def compare_alphabets(old: MachineDescription, new: MachineDescription) -> list[Finding]:
    """Return the events that were added or removed."""
    before, after = {event.name for event in old.events}, {event.name for event in new.events}
    kept = kept_events(old)
    findings = [_removed(name, kept.get(name, ())) for name in sorted(before - after)]
    findings += [
        Finding(
            code="event-added",
            severity="info",
            what=f"the event {name} is new",
            why="machines of the old version refuse it",
            fix="send it only after every process runs the new version",
            location=name,
        )
        for name in sorted(after - before)
    ]
    return findings


def _removed(name: str, places: tuple[str, ...]) -> Finding:
    fix = f"keep {name} in the alphabet until nothing sends it"
    return Finding(
        code="event-removed",
        severity="error" if places else "warning",
        what=", and ".join([f"the event {name} is gone", *places]),
        why="one that is on its way or stored cannot be read any more",
        fix=f"{fix} and no workflow of the old version is left" if places else fix,
        location=name,
    )


def compare_payloads(old: MachineDescription, new: MachineDescription) -> tuple[PayloadVerdict, ...]:
    """Return the events of both versions whose payloads may no longer decode."""
    verdicts: list[PayloadVerdict] = []
    for before, after in _pairs(old, new):
        found = _payload_incompatibilities(before.schema, after.schema)
        if found:
            verdicts.append(PayloadVerdict(event=before.name, decoding=decoding_of(found), incompatibilities=found))
    return tuple(verdicts)


def _pairs(old: MachineDescription, new: MachineDescription) -> list[tuple[EventDescription, EventDescription]]:
    after = {event.name: event for event in new.events}
    return [(event, after[event.name]) for event in old.events if event.name in after]


def _payload_incompatibilities(old: dict[str, object], new: dict[str, object]) -> tuple[Incompatibility, ...]:
    # A payload that the store kept is read with unknown fields ignored; one from outside is refused for them.
    stored = accepts(new, old)
    outside = [problem for problem in accepts(new, old, unknown_fields="refused") if problem not in stored]
    return (*stored, *(msgspec.structs.replace(problem, severity="warning") for problem in outside))


def payload_findings(
    old: MachineDescription, new: MachineDescription, verdicts: tuple[PayloadVerdict, ...]
) -> list[Finding]:
    """Return one finding per place in a payload that breaks, is lost or is unproven, and one per harmless change."""
    kept = kept_events(old)
    problems = {verdict.event: verdict.incompatibilities for verdict in verdicts}
    findings: list[Finding] = []
    for before, after in _pairs(old, new):
        name, places = before.name, kept.get(before.name, ())
        stored = accepts(after.schema, before.schema)
        changes = [
            _incompatible(name, problem, places if problem in stored else ()) for problem in problems.get(name, ())
        ]
        if places:
            changes += [_lost(name, field, places) for field in compare_fields(after.schema, before.schema).removed]
        if not changes and not identical(before.schema, after.schema):
            changes.append(_changed(name))
        findings += changes
    return findings


def _incompatible(event: str, problem: Incompatibility, places: tuple[str, ...]) -> Finding:
    severity: Severity = "warning"
    if problem.severity == "error":
        code, severity = "payload-breaks", "error" if places else "warning"
    else:
        code = "payload-stored-unproven" if places else "payload-unproven"
    return Finding(
        code=code,
        severity=severity,
        what=f"payload of {event} at {problem.path}: {problem.why}",
        why=_why(event, problem.path, places),
        fix=problem.fix,
        location=event,
    )


def _lost(event: str, field: RemovedField, places: tuple[str, ...]) -> Finding:
    return Finding(
        code="payload-field-gone",
        severity="warning",
        what=f"payload of {event} at {field.path}: {field.why}",
        why=_why(event, field.path, places),
        fix=field.fix,
        location=event,
    )


def _changed(event: str) -> Finding:
    return Finding(
        code="payload-changed",
        severity="info",
        what=f"the payload of {event} changed; every old one still decodes",
        why="senders of the old version keep working",
        fix="nothing",
        location=event,
    )


def _why(event: str, path: str, places: tuple[str, ...]) -> str:
    if not places:
        return "webhooks and commands on their way carry the old payload"
    pipeline = event.endswith("_DONE") and path.startswith("$.context")
    carried = " (the *_DONE event of an undoable step of a pipeline carries the whole context)" if pipeline else ""
    return " and ".join(places) + carried


def kept_events(machine: MachineDescription) -> dict[str, tuple[str, ...]]:
    """Return the wire names of the events whose payloads the store itself keeps, and where it keeps them."""
    kept: dict[str, tuple[str, ...]] = {}
    for name in sorted({timer.event for state in machine.states for timer in state.timers}):
        kept[name] = ("timers already set may still send it",)
    for step in (state.step for state in machine.states if state.step is not None):
        for name in step.undoes:
            place = f"as an outcome of the step `{step.name}` it stays in the undo log until the workflow ends"
            kept[name] = (*kept.get(name, ()), place)
    return kept
