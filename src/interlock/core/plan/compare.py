"""`plan`: compare two versions of a machine and report what happens to the workflows stored under the old one.

Independent comparisons (states, alphabet, payloads, context, version) return findings; this module runs them and draws
the conclusion. It reads descriptions only, so an old machine can be compared from a saved file, without its code.

Invariant: every difference that is not cosmetic has a finding; "nothing changes" therefore needs no second opinion.
Compare with every version that still has stored workflows, not only with the last one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from interlock.core.codec import ANNOTATED, without_annotations
from interlock.core.describe import EventDescription, MachineDescription, StateDescription
from interlock.core.plan.compare_states import (
    Renames,
    accepted_events,
    compare_arrows,
    compare_attachments,
    find_removed,
    find_stranded,
)
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
from interlock.core.plan.schema_compatibility import accepts, compare_fields, identical
from interlock.core.values import Finding, finding

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
    findings: list[Finding] = []
    for problem in problems:
        code = "context-breaks" if problem.severity == "error" else "context-unproven"
        why = "a workflow whose context does not decode cannot be read or moved"
        what = f"context at {problem.path}: {problem.why}"
        findings.append(finding(code, problem.severity, problem.path, what, why, problem.fix))
    for field in removed:
        why = "an unknown field is ignored when a context is read, and no longer there when it is written again"
        what = f"context at {field.path}: {field.why}"
        findings.append(finding("context-field-gone", "warning", field.path, what, why, field.fix))
    if added:
        what, why = f"new fields of the context: {', '.join(added)}", "stored contexts lack them and get their defaults"
        fix = "nothing, if the defaults are right for workflows that are under way"
        findings.append(finding("context-fields-added", "info", "", what, why, fix))
    if not findings:
        what = "the context changed; every stored one still decodes, and no field is lost"
        findings.append(finding("context-changed", "info", "", what, "only types, bounds or defaults changed"))
    return findings


# --- Alphabets and payloads ------------------------------------------------------------------------------------------
# Most payloads matter only while they are in transit: a webhook that is being retried, a command in a client's
# queue. Two kinds are kept by the store itself: the event of a timer, and the outcome of a step that has an undo,
# which stays in the undo log until the workflow ends. They must meet the same demands as a context.


def compare_alphabets(old: MachineDescription, new: MachineDescription) -> list[Finding]:
    """Return the events that were added or removed."""
    before, after = {event.name for event in old.events}, {event.name for event in new.events}
    stored = stored_events(old)
    findings: list[Finding] = []
    for name in sorted(before - after):
        places = stored.get(name, ())
        what = ", and ".join([f"the event {name} is gone", *places])
        why = "one that is on its way or stored cannot be read any more"
        fix = f"keep {name} in the alphabet until nothing sends it"
        fix += " and no workflow of the old version is left" if places else ""
        findings.append(finding("event-removed", "error" if places else "warning", name, what, why, fix))
    for name in sorted(after - before):
        why = "machines of the old version refuse it"
        fix = "send it only after every process runs the new version"
        findings.append(finding("event-added", "info", name, f"the event {name} is new", why, fix))
    return findings


def compare_payloads(old: MachineDescription, new: MachineDescription) -> tuple[PayloadVerdict, ...]:
    """Return the events of both versions whose payloads may no longer decode."""
    verdicts: list[PayloadVerdict] = []
    for before, after in _pairs(old, new):
        # A payload that the store kept is read with unknown fields ignored; one from outside is refused for them.
        stored = accepts(after.schema, before.schema)
        outside = accepts(after.schema, before.schema, unknown_fields="refused")
        warnings = (replace(problem, severity="warning") for problem in outside if problem not in stored)
        problems = (*stored, *warnings)
        if problems:
            verdicts.append(
                PayloadVerdict(event=before.name, decoding=decoding_of(problems), incompatibilities=problems)
            )
    return tuple(verdicts)


def _pairs(old: MachineDescription, new: MachineDescription) -> list[tuple[EventDescription, EventDescription]]:
    after = {event.name: event for event in new.events}
    return [(event, after[event.name]) for event in old.events if event.name in after]


def payload_findings(
    old: MachineDescription, new: MachineDescription, verdicts: tuple[PayloadVerdict, ...]
) -> list[Finding]:
    """Return one finding per place in a payload that breaks, is lost or is unproven, and one per harmless change."""
    places_of = stored_events(old)
    problems = {verdict.event: verdict.incompatibilities for verdict in verdicts}
    findings: list[Finding] = []
    for before, after in _pairs(old, new):
        name, places = before.name, places_of.get(before.name, ())
        stored = accepts(after.schema, before.schema)
        changes = [
            _incompatible_payload(name, problem, places if problem in stored else ())
            for problem in problems.get(name, ())
        ]
        for field in compare_fields(after.schema, before.schema).removed if places else ():
            what, why = f"payload of {name} at {field.path}: {field.why}", _why_stored(name, field.path, places)
            changes.append(finding("payload-field-gone", "warning", name, what, why, field.fix))
        if not changes and not identical(before.schema, after.schema):
            what = f"the payload of {name} changed; every old one still decodes"
            changes.append(finding("payload-changed", "info", name, what, "senders of the old version keep working"))
        findings += changes
    return findings


def _incompatible_payload(event: str, problem: Incompatibility, places: tuple[str, ...]) -> Finding:
    severity: Severity = "warning"
    if problem.severity == "error":
        code, severity = "payload-breaks", "error" if places else "warning"
    else:
        code = "payload-stored-unproven" if places else "payload-unproven"
    why = (
        _why_stored(event, problem.path, places)
        if places
        else ("webhooks and commands on their way carry the old payload")
    )
    return finding(code, severity, event, f"payload of {event} at {problem.path}: {problem.why}", why, problem.fix)


def _why_stored(event: str, path: str, places: tuple[str, ...]) -> str:
    pipeline = event.endswith("_DONE") and path.startswith("$.context")
    carried = " (the *_DONE event of an undoable step of a pipeline carries the whole context)" if pipeline else ""
    return " and ".join(places) + carried


def stored_events(machine: MachineDescription) -> dict[str, tuple[str, ...]]:
    """Return the wire names of the events whose payloads the store itself keeps, and where it keeps them."""
    places: dict[str, tuple[str, ...]] = {}
    for name in sorted({timer.event for state in machine.states for timer in state.timers}):
        places[name] = ("timers already set may still send it",)
    for step in (state.step for state in machine.states if state.step is not None):
        for name in step.undoes:
            place = f"as an outcome of the step `{step.name}` it stays in the undo log until the workflow ends"
            places[name] = (*places.get(name, ()), place)
    return places


# --- The whole machine -----------------------------------------------------------------------------------------------


def plan(old: MachineDescription, new: MachineDescription, *, renamed: Mapping[str, str] | None = None) -> Plan:
    """Compare `old` with its replacement `new`; `renamed` (old -> new state) takes precedence over `new.renamed`."""
    # A description saved by an earlier release has no annotations: then both are compared without.
    if ANNOTATED not in old.context_schema or ANNOTATED not in new.context_schema:
        old, new = _plain(old), _plain(new)
    renames, fates, problems, payloads, differences = _compare(old, new, renamed)
    findings = (*_name_and_version(old, new, changed=bool(differences)), *renames.findings, *differences)
    obstacles = _obstacles(old, new, (*renames.findings, *differences))

    def locations(code: str) -> tuple[str, ...]:
        return tuple(each.location for each in differences if each.code == code)

    return Plan(
        old_name=old.name,
        old_version=old.version,
        new_name=new.name,
        new_version=new.version,
        changed=bool(differences),
        safe=proves_safe(findings),
        side_by_side=not obstacles,
        side_by_side_obstacles=obstacles,
        states_added=locations("state-added"),
        states_removed=tuple(fate.verdict.state for fate in fates if fate.verdict.becomes is None),
        states_renamed={source: target for source, target in renames.mapping.items() if source != target},
        events_added=locations("event-added"),
        events_removed=locations("event-removed"),
        events_refused=tuple(event for fate in fates for event in fate.refused),
        payloads=payloads,
        context=decoding_of(problems),
        context_incompatibilities=problems,
        states=tuple(fate.verdict for fate in fates),
        findings=findings,
    )


def _plain(machine: MachineDescription) -> MachineDescription:
    events = [replace(event, schema=without_annotations(event.schema)) for event in machine.events]
    return replace(machine, events=tuple(events), context_schema=without_annotations(machine.context_schema))


class _Comparison(NamedTuple):
    """One direction: workflows of one version under the other."""

    renames: Renames
    fates: "list[_Fate]"
    problems: tuple[Incompatibility, ...]
    payloads: tuple[PayloadVerdict, ...]
    differences: list[Finding]


def _compare(old: MachineDescription, new: MachineDescription, renamed: Mapping[str, str] | None = None) -> _Comparison:
    renames = Renames(old, new, renamed)
    fates = [_fate(old, state, new, renames) for state in old.states]
    problems = tuple(accepts(new.context_schema, old.context_schema))
    payloads = compare_payloads(old, new)
    differences = [
        *context_findings(old, new, problems),
        *(each for fate in fates for each in fate.findings),
        *_new_and_initial_states(old, new, renames),
        *compare_alphabets(old, new),
        *payload_findings(old, new, payloads),
    ]
    return _Comparison(renames, fates, problems, payloads, differences)


def _obstacles(old: MachineDescription, new: MachineDescription, forward: tuple[Finding, ...]) -> tuple[Obstacle, ...]:
    """Return why a process of either version may not decide on workflows that the other has stored."""
    backward = _compare(new, old)
    directions = (
        (new.version, old.version, forward),
        (old.version, new.version, (*backward.renames.findings, *backward.differences)),
    )
    return tuple(
        Obstacle(process=process, stored=stored, code=each.code, what=each.what)
        for process, stored, findings in directions
        for each in findings
        if not proves_safe((each,))
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
        what = f"`{state.name}` is called `{target.name}` now"
        why = "workflows parked there are read under the new name"
        changes.append(finding("state-moves", "info", state.name, what, why))
    reasons = tuple(each.what for each in changes)
    refused = [
        RefusedEvent(state=state.name, becomes=target.name, event=event)
        for event in sorted(accepted_events(old, state.name) - accepted_events(new, target.name))
    ]
    return _Fate(StateVerdict(state=state.name, becomes=target.name, verdict=kind, reasons=reasons), changes, refused)


def _lost_undos(state: StateDescription, new: MachineDescription) -> list[Finding]:
    # Undos are looked up by the name of the step that ran, wherever the workflow is by then.
    if state.step is None:
        return []
    name = state.step.name
    undone = {event for other in new.states if other.step and other.step.name == name for event in other.step.undoes}
    why = "a workflow that ran it under the old version may still be unwound"
    return [
        finding(
            "undo-lost",
            "error",
            state.name,
            f"`{name}` had an undo for {outcome}; completed runs can no longer be undone",
            why,
            f"keep the step `{name}` with its undo for {outcome} until no such workflow is left",
        )
        for outcome in state.step.undoes
        if outcome not in undone
    ]


def _new_and_initial_states(old: MachineDescription, new: MachineDescription, renames: Renames) -> list[Finding]:
    known = {renames.becomes(state.name) for state in old.states} | {state.name for state in old.states}
    findings = [
        finding("state-added", "info", name, f"the state `{name}` is new", "no stored workflow is there yet")
        for name in (state.name for state in new.states)
        if name not in known
    ]
    before = [renames.becomes(state.name) or state.name for state in old.states if state.initial]
    after = [state.name for state in new.states if state.initial]
    if before != after:
        what = f"workflows begin in {', '.join(after)} instead of {', '.join(before)}"
        why = "only workflows started from now on are concerned"
        findings.append(finding("initial-changed", "info", "", what, why))
    return findings


def _name_and_version(old: MachineDescription, new: MachineDescription, *, changed: bool) -> list[Finding]:
    findings: list[Finding] = []
    if old.name != new.name:
        what = f"the machine is called `{new.name}` and was called `{old.name}`"
        why = "stored workflows name their machine, so none of them would belong to the new one"
        fix = f"keep the name `{old.name}`, or compare with the machine that is meant"
        findings.append(finding("machine-name", "error", "", what, why, fix))
    fix = f"raise version: `version={old.version + 1}`"
    if new.version < old.version:
        what = f"the version went down from {old.version} to {new.version}: this is the plan of a rollback"
        why = "the other findings say what becomes of the workflows that the higher version has stored"
        fix = f"nothing, if a rollback is meant; otherwise {fix}"
        findings.append(finding("version-lower", "warning", "", what, why, fix))
    elif new.version == old.version and changed:
        what = f"the machine changed but its version is still {old.version}"
        why = "processes of both versions run side by side during a release and tell each other apart by it"
        findings.append(finding("version-same", "error", "", what, why, fix))
    return findings
