"""`plan`: compare two versions of a machine and report what happens to the workflows stored under the old one.

Independent comparisons (states, alphabet, payloads, context, version) return findings; this module runs them and draws
the conclusion. It reads descriptions only, so an old machine can be compared from a saved file, without its code.

Invariant: every difference that is not cosmetic has a finding; "nothing changes" therefore needs no second opinion.
Compare with every version that still has stored workflows, not only with the last one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from interlock.core.description import MachineDescription, StateDescription
from interlock.core.plan.arrows import compare_arrows
from interlock.core.plan.attachments import compare_attachments
from interlock.core.plan.contexts import context_findings
from interlock.core.plan.events import compare_alphabets, compare_payloads, payload_findings
from interlock.core.plan.exits import accepted_events
from interlock.core.plan.findings import (
    Incompatibility,
    Obstacle,
    RefusedEvent,
    StateVerdict,
    Verdict,
    decoding_of,
    proves_safe,
)
from interlock.core.plan.outcome import Plan
from interlock.core.plan.renames import Renames
from interlock.core.plan.schemas import accepts
from interlock.core.plan.stranded import find_removed, find_stranded
from interlock.core.schemas import ANNOTATED, without_annotations
from interlock.core.values import Finding


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
