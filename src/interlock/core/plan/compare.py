"""`plan`: compare two versions of a machine and report what happens to the workflows stored under the old one.

Independent comparisons (states, alphabet, payloads, context, version) return findings; this module runs them and draws
the conclusion. It reads descriptions only, so an old machine can be compared from a saved file, without its code.

Invariant: every difference that is not cosmetic has a finding; "nothing changes" therefore needs no second opinion.
Compare with every version that still has stored workflows, not only with the last one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from interlock.core.describe import EventDescription, MachineDescription, StateDescription
from interlock.core.plan.findings import (
    Incompatibility,
    Obstacle,
    PayloadVerdict,
    Plan,
    RefusedEvent,
    Severity,
    StateVerdict,
    Verdict,
    decoding_of,
    proves_safe,
)
from interlock.core.plan.schema_changes import RemovedField, accepts, compare_fields
from interlock.core.plan.schema_shapes import identical
from interlock.core.plan.states import (
    Renames,
    accepted_events,
    compare_arrows,
    compare_attachments,
    find_removed,
    find_stranded,
)
from interlock.core.schemas import ANNOTATED, without_annotations
from interlock.core.values import Finding

# --- Contexts --------------------------------------------------------------------------------------------------------
# A context is read whenever its workflow is, and written again with every event. A field that the new type does not
# have is therefore lost after the next event.


def context_findings(
    old: MachineDescription, new: MachineDescription, problems: tuple[Incompatibility, ...]
) -> list[Finding]:
    """Return one finding per incompatible place and per removed field, one for all new fields, or one for the rest."""
    if identical(old.context_schema, new.context_schema):
        return []
    removed, added = compare_fields(new.context_schema, old.context_schema)
    findings = [
        *(_incompatible_context(problem) for problem in problems),
        *(_removed_field(field) for field in removed),
        *([_added_fields(added)] if added else []),
    ]
    return findings or [_changed_context()]


def _incompatible_context(problem: Incompatibility) -> Finding:
    return Finding(
        code="context-breaks" if problem.severity == "error" else "context-unproven",
        severity=problem.severity,
        what=f"context at {problem.path}: {problem.why}",
        why="a workflow whose context does not decode cannot be read or moved",
        fix=problem.fix,
        location=problem.path,
    )


def _removed_field(field: RemovedField) -> Finding:
    return Finding(
        code="context-field-gone",
        severity="warning",
        what=f"context at {field.path}: {field.why}",
        why="an unknown field is ignored when a context is read, and no longer there when it is written again",
        fix=field.fix,
        location=field.path,
    )


def _added_fields(paths: tuple[str, ...]) -> Finding:
    return Finding(
        code="context-fields-added",
        severity="info",
        what=f"new fields of the context: {', '.join(paths)}",
        why="stored contexts lack them and get their defaults",
        fix="nothing, if the defaults are right for workflows that are under way",
    )


def _changed_context() -> Finding:
    return Finding(
        code="context-changed",
        severity="info",
        what="the context changed; every stored one still decodes, and no field is lost",
        why="only types, bounds or defaults changed",
        fix="nothing",
    )


# --- Alphabets and payloads ------------------------------------------------------------------------------------------
# Most payloads matter only while they are in transit: a webhook that is being retried, a command in a client's
# queue. Two kinds are kept by the store itself: the event of a timer, and the outcome of a step that has an undo,
# which stays in the undo log until the workflow ends. They must meet the same demands as a context.


def compare_alphabets(old: MachineDescription, new: MachineDescription) -> list[Finding]:
    """Return the events that were added or removed."""
    before, after = {event.name for event in old.events}, {event.name for event in new.events}
    kept = kept_events(old)
    findings = [_removed_event(name, kept.get(name, ())) for name in sorted(before - after)]
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


def _removed_event(name: str, places: tuple[str, ...]) -> Finding:
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
    return (*stored, *(replace(problem, severity="warning") for problem in outside))


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
            _incompatible_payload(name, problem, places if problem in stored else ())
            for problem in problems.get(name, ())
        ]
        if places:
            changes += [
                _lost_field(name, field, places) for field in compare_fields(after.schema, before.schema).removed
            ]
        if not changes and not identical(before.schema, after.schema):
            changes.append(_changed_payload(name))
        findings += changes
    return findings


def _incompatible_payload(event: str, problem: Incompatibility, places: tuple[str, ...]) -> Finding:
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


def _lost_field(event: str, field: RemovedField, places: tuple[str, ...]) -> Finding:
    return Finding(
        code="payload-field-gone",
        severity="warning",
        what=f"payload of {event} at {field.path}: {field.why}",
        why=_why(event, field.path, places),
        fix=field.fix,
        location=event,
    )


def _changed_payload(event: str) -> Finding:
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


# --- The whole machine -----------------------------------------------------------------------------------------------


def plan(old: MachineDescription, new: MachineDescription, *, renamed: Mapping[str, str] | None = None) -> Plan:
    """Compare `old` with its replacement `new`; `renamed` (old -> new state) takes precedence over `new.renamed`."""
    old, new = _aligned(old, new)
    renames, fates, problems, differences = _compare(old, new, renamed)
    findings = (*_name(old, new), *_version(old, new, changed=bool(differences)), *renames.findings, *differences)
    obstacles = _obstacles(old, new, (*renames.findings, *differences))
    return Plan(
        old_name=old.name,
        old_version=old.version,
        new_name=new.name,
        new_version=new.version,
        changed=bool(differences),
        safe=proves_safe(findings),
        side_by_side=not obstacles,
        side_by_side_obstacles=obstacles,
        states_added=tuple(finding.location for finding in _added_states(old, new, renames)),
        states_removed=tuple(fate.verdict.state for fate in fates if fate.verdict.becomes is None),
        states_renamed={source: target for source, target in renames.mapping.items() if source != target},
        events_added=tuple(finding.location for finding in differences if finding.code == "event-added"),
        events_removed=tuple(finding.location for finding in differences if finding.code == "event-removed"),
        events_refused=tuple(event for fate in fates for event in fate.refused),
        payloads=compare_payloads(old, new),
        context=decoding_of(problems),
        context_incompatibilities=problems,
        states=tuple(fate.verdict for fate in fates),
        findings=findings,
    )


def _aligned(old: MachineDescription, new: MachineDescription) -> tuple[MachineDescription, MachineDescription]:
    """Return both descriptions with annotations, or both without: one saved by an earlier release has none."""
    if ANNOTATED in old.context_schema and ANNOTATED in new.context_schema:
        return old, new
    return _plain(old), _plain(new)


def _plain(machine: MachineDescription) -> MachineDescription:
    events = [replace(event, schema=without_annotations(event.schema)) for event in machine.events]
    return replace(machine, events=tuple(events), context_schema=without_annotations(machine.context_schema))


class _Comparison(NamedTuple):
    """One direction: workflows of one version under the other."""

    renames: Renames
    fates: "list[_Fate]"
    problems: tuple[Incompatibility, ...]
    differences: list[Finding]


def _compare(old: MachineDescription, new: MachineDescription, renamed: Mapping[str, str] | None = None) -> _Comparison:
    renames = Renames(old, new, renamed)
    fates = [_fate(old, state, new, renames) for state in old.states]
    problems = tuple(accepts(new.context_schema, old.context_schema))
    differences = [
        *context_findings(old, new, problems),
        *(finding for fate in fates for finding in fate.findings),
        *_added_states(old, new, renames),
        *_initial(old, new, renames),
        *compare_alphabets(old, new),
        *payload_findings(old, new, compare_payloads(old, new)),
    ]
    return _Comparison(renames, fates, problems, differences)


def _obstacles(old: MachineDescription, new: MachineDescription, forward: tuple[Finding, ...]) -> tuple[Obstacle, ...]:
    """Return why a process of either version may not decide on workflows that the other has stored."""
    backward = _compare(new, old)
    directions = (
        (new.version, old.version, forward),
        (old.version, new.version, (*backward.renames.findings, *backward.differences)),
    )
    return tuple(
        Obstacle(process=process, stored=stored, code=finding.code, what=finding.what)
        for process, stored, findings in directions
        for finding in findings
        if not proves_safe((finding,))
    )


class _Fate(NamedTuple):
    """The findings about one old state."""

    verdict: StateVerdict
    findings: list[Finding]
    refused: list[RefusedEvent]


def _fate(old: MachineDescription, state: StateDescription, new: MachineDescription, renames: Renames) -> _Fate:
    becomes = renames.becomes(state.name)
    target = None if becomes is None else new.state(becomes)
    if target is None:
        removed = find_removed(state)
        verdict = StateVerdict(state=state.name, becomes=None, verdict="stranded", reasons=(removed.what,))
        return _Fate(verdict, [removed, *_lost_undos(state, new)], [])
    stranded = find_stranded(old, state, new, target)
    unwinds_to = None if state.unwinds_to is None else renames.becomes(state.unwinds_to)
    changes = [
        *([] if stranded is None else [stranded]),
        *_lost_undos(state, new),
        *compare_attachments(state, target, unwinds_to),
        *compare_arrows(old, state.name, new, target.name, renames),
    ]
    moves = target.name != state.name
    kind: Verdict = "stranded" if stranded else "changed" if changes else "moves" if moves else "unchanged"
    if moves:
        changes.append(_moved(state.name, target.name))
    reasons = tuple(finding.what for finding in changes)
    refused = [
        RefusedEvent(state=state.name, becomes=target.name, event=event)
        for event in sorted(accepted_events(old, state.name) - accepted_events(new, target.name))
    ]
    return _Fate(StateVerdict(state=state.name, becomes=target.name, verdict=kind, reasons=reasons), changes, refused)


def _moved(source: str, target: str) -> Finding:
    return Finding(
        code="state-moves",
        severity="info",
        what=f"`{source}` is called `{target}` now",
        why="workflows parked there are read under the new name",
        fix="nothing",
        location=source,
    )


def _lost_undos(state: StateDescription, new: MachineDescription) -> list[Finding]:
    # Undos are looked up by the name of the step that ran, wherever the workflow is by then.
    if state.step is None:
        return []
    name = state.step.name
    kept = {outcome for other in new.states if other.step and other.step.name == name for outcome in other.step.undoes}
    return [
        Finding(
            code="undo-lost",
            severity="error",
            what=f"`{name}` had an undo for {outcome}; completed runs can no longer be undone",
            why="a workflow that ran it under the old version may still be unwound",
            fix=f"keep the step `{name}` with its undo for {outcome} until no such workflow is left",
            location=state.name,
        )
        for outcome in state.step.undoes
        if outcome not in kept
    ]


def _added_states(old: MachineDescription, new: MachineDescription, renames: Renames) -> list[Finding]:
    known = {renames.becomes(state.name) for state in old.states} | {state.name for state in old.states}
    return [
        Finding(
            code="state-added",
            severity="info",
            what=f"the state `{state.name}` is new",
            why="no stored workflow is there yet",
            fix="nothing",
            location=state.name,
        )
        for state in new.states
        if state.name not in known
    ]


def _initial(old: MachineDescription, new: MachineDescription, renames: Renames) -> list[Finding]:
    before = [renames.becomes(state.name) or state.name for state in old.states if state.initial]
    after = [state.name for state in new.states if state.initial]
    if before == after:
        return []
    return [
        Finding(
            code="initial-changed",
            severity="info",
            what=f"workflows begin in {', '.join(after)} instead of {', '.join(before)}",
            why="only workflows started from now on are concerned",
            fix="nothing",
        )
    ]


def _name(old: MachineDescription, new: MachineDescription) -> list[Finding]:
    if old.name == new.name:
        return []
    return [
        Finding(
            code="machine-name",
            severity="error",
            what=f"the machine is called `{new.name}` and was called `{old.name}`",
            why="stored workflows name their machine, so none of them would belong to the new one",
            fix=f"keep the name `{old.name}`, or compare with the machine that is meant",
        )
    ]


def _version(old: MachineDescription, new: MachineDescription, *, changed: bool) -> list[Finding]:
    raised = f"version={old.version + 1}"
    if new.version < old.version:
        return [
            Finding(
                code="version-lower",
                severity="warning",
                what=f"the version went down from {old.version} to {new.version}: this is the plan of a rollback",
                why="the other findings say what becomes of the workflows that the higher version has stored",
                fix=f"nothing, if a rollback is meant; otherwise raise version: `{raised}`",
            )
        ]
    if new.version > old.version or not changed:
        return []
    return [
        Finding(
            code="version-same",
            severity="error",
            what=f"the machine changed but its version is still {old.version}",
            why="processes of both versions run side by side during a release and tell each other apart by it",
            fix=f"raise version: `{raised}`",
        )
    ]
