"""The values a plan is made of: findings, verdicts and incompatibilities.

They are frozen and JSON-encodable, so the same plan can be printed by the CLI, returned over HTTP and kept in
a release pipeline. They hold text written for a person: what changed, why it matters, how to fix it.

Invariant: severity "error" means that stored data are known to break; "warning" means that they cannot be proved to
keep working, or that a person should look; "info" is for completeness. Only errors and the warnings of `WITHOUT_PROOF`
make a plan unsafe.
"""

from typing import Literal

import msgspec

from interlock.core.values import Finding

Severity = Literal["error", "warning", "info"]
Verdict = Literal["unchanged", "moves", "changed", "stranded"]
Decoding = Literal["decodes", "unproven", "breaks"]

WITHOUT_PROOF = frozenset(
    {"context-unproven", "context-field-gone", "payload-stored-unproven", "payload-field-gone", "unwinding-bypassed"}
)
"""Codes of the warnings that make a plan unsafe: nothing is known to break, but something may be lost."""


class Incompatibility(msgspec.Struct, frozen=True, kw_only=True):
    """One place where data written under the old schema may not decode under the new one."""

    path: str
    why: str
    fix: str
    severity: Literal["error", "warning"] = "error"
    """ "error": some stored value is refused. "warning": cannot prove that all are accepted."""


class StateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on workflows that are parked in one state of the old machine."""

    state: str
    becomes: str | None
    verdict: Verdict
    reasons: tuple[str, ...] = ()


class RefusedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that the old machine accepted in `state` and the new one does not accept in `becomes`."""

    state: str
    becomes: str
    event: str


class PayloadVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """An event whose payloads, already sent or scheduled, may not decode under the new schema."""

    event: str
    decoding: Decoding
    incompatibilities: tuple[Incompatibility, ...]


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why a process of one version may not decide on a workflow that another version has stored."""

    process: int
    """The version of the process."""
    stored: int
    """The version that stored the workflow."""
    code: str
    what: str


def decoding_of(incompatibilities: tuple[Incompatibility, ...]) -> Decoding:
    """Return the verdict on a whole schema: one error breaks it, one warning leaves it unproven."""
    if not incompatibilities:
        return "decodes"
    if any(problem.severity == "error" for problem in incompatibilities):
        return "breaks"
    return "unproven"


def incompatible(path: str, why: str, fix: str, *, certain: bool = True) -> Incompatibility:
    """Return an incompatibility that is certain, or (`certain=False`) one that cannot be excluded."""
    if certain:
        return Incompatibility(path=path, why=why, fix=fix)
    return Incompatibility(path=path, why=f"cannot prove that it decodes: {why}", fix=fix, severity="warning")


def proves_safe(findings: tuple[Finding, ...]) -> bool:
    """Return whether no finding breaks or may lose stored data."""
    return all(finding.severity != "error" and finding.code not in WITHOUT_PROOF for finding in findings)
