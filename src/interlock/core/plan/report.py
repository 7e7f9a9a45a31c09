"""Format a plan as plain text: the verdict, then the findings, then every state.

No colours and no terminal width: the same text goes to a terminal, a pull request and a log. It takes the parts of a
plan and not the plan, so that `Plan.text()` can call it without an import cycle.
"""

from interlock.core.plan.findings import Obstacle, Severity, StateVerdict
from interlock.core.values import Finding

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


def report(
    title: str,
    *,
    changed: bool,
    safe: bool,
    findings: tuple[Finding, ...],
    states: tuple[StateVerdict, ...],
    obstacles: tuple[Obstacle, ...] = (),
) -> str:
    """Return the whole report, ending with a newline."""
    lines = [f"{title}: {_verdict(changed=changed, safe=safe, findings=findings)}"]
    if findings:
        lines += ["", "Findings"]
        for severity in _SEVERITIES:
            for finding in findings:
                if finding.severity == severity:
                    lines += _finding_lines(finding)
    if changed:
        lines += ["", "Side by side", *_side_lines(obstacles)]
        lines += ["", "States", *_state_lines(states)]
    return "\n".join(lines) + "\n"


def _verdict(*, changed: bool, safe: bool, findings: tuple[Finding, ...]) -> str:
    counts = _counts(findings)
    if not changed and safe:
        return "nothing changes"
    if safe:
        return f"safe ({counts})"
    if any(finding.severity == "error" for finding in findings):
        return f"NOT SAFE ({counts})"
    return f"NOT PROVED SAFE ({counts})"


def _counts(findings: tuple[Finding, ...]) -> str:
    parts: list[str] = []
    for severity in _SEVERITIES:
        count = sum(1 for finding in findings if finding.severity == severity)
        if count:
            plural = "s" if count > 1 and severity != "info" else ""
            parts.append(f"{count} {severity}{plural}")
    return ", ".join(parts)


def _finding_lines(finding: Finding) -> list[str]:
    where = f" [{finding.location}]" if finding.location else ""
    return [
        f"  {finding.severity}: {finding.what}{where} ({finding.code})",
        f"      why: {finding.why}",
        f"      fix: {finding.fix}",
    ]


def _side_lines(obstacles: tuple[Obstacle, ...]) -> list[str]:
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


def _state_lines(states: tuple[StateVerdict, ...]) -> list[str]:
    rows = [("state", "becomes", "verdict")]
    rows += [(verdict.state, verdict.becomes or "(nothing)", verdict.verdict) for verdict in states]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines: list[str] = []
    for row, reasons in zip(rows, [("reasons",), *(verdict.reasons for verdict in states)], strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        indent = " " * (len(cells) + 4)
        lines.append(f"  {cells}  {reasons[0] if reasons else ''}".rstrip())
        lines += [f"{indent}{reason}" for reason in reasons[1:]]
    return lines
