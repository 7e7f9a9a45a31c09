"""`Plan` and the values it is made of: findings, verdicts and incompatibilities, with the plain-text report.

They are frozen and JSON-encodable, so the same plan can be printed by the CLI, returned over HTTP and kept in
a release pipeline. They hold text written for a person: what changed, why it matters, how to fix it.

Invariant: severity "error" means that stored data are known to break; "warning" means that they cannot be proved to
keep working, or that a person should look; "info" is for completeness. Only errors and the warnings of `WITHOUT_PROOF`
make a plan unsafe.
"""

from collections import Counter
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


# --- Plan ------------------------------------------------------------------------------------------------------------
# `safe` is true only when nothing stored is known to break, all stored data are proved to decode without losing a
# value, and all undos still exist. It is a field and not a property so that the JSON has it too.
#
# The report has no colours and no terminal width: the same text goes to a terminal, a pull request and a log.

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The effects on stored workflows when one version of a machine replaces another."""

    old_name: str
    old_version: int
    new_name: str
    new_version: int
    changed: bool
    """Whether anything but the version number, prose and the order of declarations changed."""
    safe: bool
    """No error among the findings and no warning of `WITHOUT_PROOF`: no workflow stranded, no stored data lost."""
    side_by_side: bool = True
    """Whether processes of both versions may take events of the same workflows: each keeps what the other stores."""
    side_by_side_obstacles: tuple[Obstacle, ...] = ()
    states_added: tuple[str, ...] = ()
    states_removed: tuple[str, ...] = ()
    states_renamed: dict[str, str] = {}
    events_added: tuple[str, ...] = ()
    events_removed: tuple[str, ...] = ()
    events_refused: tuple[RefusedEvent, ...] = ()
    payloads: tuple[PayloadVerdict, ...] = ()
    context: Decoding = "decodes"
    context_incompatibilities: tuple[Incompatibility, ...] = ()
    states: tuple[StateVerdict, ...] = ()
    findings: tuple[Finding, ...] = ()

    def text(self) -> str:
        """Return a readable report without colours: verdict first, then findings, then a table of states."""
        name = self.old_name if self.old_name == self.new_name else f"{self.old_name} → {self.new_name}"
        lines = [f"{name}, version {self.old_version} → {self.new_version}: {self._verdict()}"]
        if self.findings:
            lines += ["", "Findings"]
        for each in sorted(self.findings, key=lambda finding: _SEVERITIES.index(finding.severity)):
            where = f" [{each.location}]" if each.location else ""
            lines.append(f"  {each.severity}: {each.what}{where} ({each.code})")
            lines += [f"      why: {each.why}", f"      fix: {each.fix}"]
        if self.changed:
            lines += ["", "Side by side", *self._side_lines(), "", "States", *self._state_lines()]
        return "\n".join(lines) + "\n"

    def _verdict(self) -> str:
        if not self.changed and self.safe:
            return "nothing changes"
        amounts = Counter(each.severity for each in self.findings)
        counts = ", ".join(
            f"{amounts[severity]} {severity}{'s' if amounts[severity] > 1 and severity != 'info' else ''}"
            for severity in _SEVERITIES
            if amounts[severity]
        )
        if self.safe:
            return f"safe ({counts})"
        return f"NOT SAFE ({counts})" if amounts["error"] else f"NOT PROVED SAFE ({counts})"

    def _side_lines(self) -> list[str]:
        obstacles = self.side_by_side_obstacles
        if not obstacles:
            return ["  yes: processes of both versions may take events of the same workflows"]
        lines: list[str] = []
        for pair in dict.fromkeys((each.process, each.stored) for each in obstacles):
            process, stored = pair
            lines.append(
                f"  no: a process of version {process} may not decide on workflows that version {stored} has stored"
            )
            lines += [f"      {each.what} ({each.code})" for each in obstacles if (each.process, each.stored) == pair]
        return lines

    def _state_lines(self) -> list[str]:
        rows: list[tuple[tuple[str, ...], tuple[str, ...]]] = [(("state", "becomes", "verdict"), ("reasons",))]
        rows += [((each.state, each.becomes or "(nothing)", each.verdict), each.reasons) for each in self.states]
        widths = [max(len(row[column]) for row, _ in rows) for column in range(3)]
        lines: list[str] = []
        for row, reasons in rows:
            cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append(f"  {cells}  {reasons[0] if reasons else ''}".rstrip())
            lines += [" " * (len(cells) + 4) + reason for reason in reasons[1:]]
        return lines
