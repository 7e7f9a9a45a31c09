"""The alphabet of events and the context: which data already written still decode.

Payloads matter as long as they are on their way: a timer that was set, a webhook that is being retried, a command
in somebody's queue. A context matters for ever: it is read whenever its workflow is.
"""

import msgspec

from interlock.core.description import MachineDescription
from interlock.core.plan.canonical import identical
from interlock.core.plan.findings import Incompatibility, PayloadVerdict, decoding_of
from interlock.core.plan.schemas import accepts
from interlock.core.values import Finding


def compare_alphabets(old: MachineDescription, new: MachineDescription) -> list[Finding]:
    """Events that were added or removed."""
    before, after = {event.name for event in old.events}, {event.name for event in new.events}
    findings = [
        Finding(
            code="event-removed",
            severity="error" if name in timed_events(old) else "warning",
            what=f"the event {name} is gone"
            + (", and timers already set may still send it" if name in timed_events(old) else ""),
            why="one that is on its way cannot be read any more",
            fix=f"keep {name} in the alphabet until nothing sends it",
            location=name,
        )
        for name in sorted(before - after)
    ]
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


def compare_payloads(old: MachineDescription, new: MachineDescription) -> tuple[PayloadVerdict, ...]:
    """Events of both versions whose payloads may no longer decode."""
    schemas = {event.name: event.schema for event in new.events}
    verdicts: list[PayloadVerdict] = []
    for event in old.events:
        if event.name in schemas:
            found = _payload_incompatibilities(event.schema, schemas[event.name])
            if found:
                verdicts.append(PayloadVerdict(event=event.name, decoding=decoding_of(found), incompatibilities=found))
    return tuple(verdicts)


def _payload_incompatibilities(old: dict[str, object], new: dict[str, object]) -> tuple[Incompatibility, ...]:
    # A payload that the store kept is read leniently; one from outside is refused for a field nobody knows.
    stored = accepts(new, old)
    outside = [problem for problem in accepts(new, old, unknown_fields="refused") if problem not in stored]
    return (*stored, *(msgspec.structs.replace(problem, severity="warning") for problem in outside))


def payload_findings(
    old: MachineDescription, new: MachineDescription, verdicts: tuple[PayloadVerdict, ...]
) -> list[Finding]:
    """One finding per incompatible place in a payload, and one per payload that changed harmlessly."""
    findings = [
        Finding(
            code="payload-breaks" if problem.severity == "error" else "payload-unproven",
            severity="error" if problem.severity == "error" and verdict.event in timed_events(old) else "warning",
            what=f"payload of {verdict.event} at {problem.path}: {problem.why}",
            why="timers already set and webhooks on their way carry the old payload",
            fix=problem.fix,
            location=verdict.event,
        )
        for verdict in verdicts
        for problem in verdict.incompatibilities
    ]
    reported = {verdict.event for verdict in verdicts}
    schemas = {event.name: event.schema for event in new.events}
    findings += [
        Finding(
            code="payload-changed",
            severity="info",
            what=f"the payload of {event.name} changed; every old one still decodes",
            why="senders of the old version keep working",
            fix="nothing",
            location=event.name,
        )
        for event in old.events
        if event.name in schemas and event.name not in reported and not identical(event.schema, schemas[event.name])
    ]
    return findings


def context_findings(
    old: MachineDescription, new: MachineDescription, problems: tuple[Incompatibility, ...]
) -> list[Finding]:
    """One finding per incompatible place in the context, or one that says it changed harmlessly."""
    if not problems and identical(old.context_schema, new.context_schema):
        return []
    if not problems:
        return [
            Finding(
                code="context-changed",
                severity="info",
                what="the context changed; every stored one still decodes",
                why="new fields get their defaults, fields that are gone are ignored",
                fix="nothing",
            )
        ]
    return [
        Finding(
            code="context-breaks" if problem.severity == "error" else "context-unproven",
            severity=problem.severity,
            what=f"context at {problem.path}: {problem.why}",
            why="a workflow whose context does not decode cannot be read or moved",
            fix=problem.fix,
            location=problem.path,
        )
        for problem in problems
    ]


def timed_events(machine: MachineDescription) -> set[str]:
    """Wire names of the events that a timer may have scheduled."""
    return {timer.event for state in machine.states for timer in state.timers}
