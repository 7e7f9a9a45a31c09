"""Compare the context types: which stored contexts still decode, and which fields they lose or gain.

A context is read whenever its workflow is, and written again with every event. A field that the new type does not have
is therefore lost after the next event.
"""

from interlock.core.description import MachineDescription
from interlock.core.plan.canonical import identical
from interlock.core.plan.fields import RemovedField, compare_fields
from interlock.core.plan.findings import Incompatibility
from interlock.core.values import Finding


def context_findings(
    old: MachineDescription, new: MachineDescription, problems: tuple[Incompatibility, ...]
) -> list[Finding]:
    """Return one finding per incompatible place and per removed field, one for all new fields, or one for the rest."""
    if identical(old.context_schema, new.context_schema):
        return []
    removed, added = compare_fields(new.context_schema, old.context_schema)
    findings = [
        *(_incompatible(problem) for problem in problems),
        *(_removed(field) for field in removed),
        *([_added(added)] if added else []),
    ]
    return findings or [_changed()]


def _incompatible(problem: Incompatibility) -> Finding:
    return Finding(
        code="context-breaks" if problem.severity == "error" else "context-unproven",
        severity=problem.severity,
        what=f"context at {problem.path}: {problem.why}",
        why="a workflow whose context does not decode cannot be read or moved",
        fix=problem.fix,
        location=problem.path,
    )


def _removed(field: RemovedField) -> Finding:
    return Finding(
        code="context-field-gone",
        severity="warning",
        what=f"context at {field.path}: {field.why}",
        why="an unknown field is ignored when a context is read, and no longer there when it is written again",
        fix=field.fix,
        location=field.path,
    )


def _added(paths: tuple[str, ...]) -> Finding:
    return Finding(
        code="context-fields-added",
        severity="info",
        what=f"new fields of the context: {', '.join(paths)}",
        why="stored contexts lack them and get their defaults",
        fix="nothing, if the defaults are right for workflows that are under way",
    )


def _changed() -> Finding:
    return Finding(
        code="context-changed",
        severity="info",
        what="the context changed; every stored one still decodes, and no field is lost",
        why="only types, bounds or defaults changed",
        fix="nothing",
    )
