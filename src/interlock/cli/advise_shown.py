"""The output of `interlock advise`: a table of verdicts, and the details of each below it.

Every verdict comes with its reason, the measurements, the command to run, and the command that reverts it.
"""

from collections.abc import Sequence
from textwrap import indent

import msgspec
from rich.text import Text

from interlock.cli.output import escaped, parts, stderr, stdout
from interlock.cli.shown import show_table
from interlock.hotrow.advice.hysteresis import VOTES, WINDOWS
from interlock.hotrow.advice.verdict import Choice, Verdict

_UNDECLARED = (
    "Nothing is declared of {names}, so nothing can be over its budget. Add write_latency_budget and "
    "aggregate_write_rate below [tools.NAME] of interlock.toml."
)


_NOTHING = (
    "No advice: nothing was measured. Who writes to a database tells about it every few seconds while it is in use."
)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was applied or undone."""

    number: int
    """In the journal."""
    what: str
    undo: str
    """The command that takes it back."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The advice on one workload."""

    name: str
    declared: bool
    verdict: Verdict
    proposed: Choice
    """The verdict of the latest window, which may differ."""
    votes: int
    windows: int
    """`votes` of the `windows` latest windows propose the verdict."""
    applied: Done | None = None
    """The applied change, with `--apply`."""


def show_advice(found: Sequence[Advice]) -> None:
    """Print all advice."""
    if not found:
        stdout().print(_NOTHING, soft_wrap=True)
        return
    rows = [
        (
            each.name,
            each.verdict.engine,
            each.verdict.action,
            each.verdict.target,
            "" if each.proposed == each.verdict.choice else _proposal(each),
        )
        for each in found
    ]
    show_table(("name", "lives", "verdict", "target", "proposed"), rows)
    console = stdout()
    for each in found:
        verdict = each.verdict
        lines = [labelled("why", verdict.why), labelled("measured", "\n".join(verdict.evidence))]
        if verdict.command:
            lines += [labelled("run", verdict.command), labelled("undo", verdict.undo)]
        text = Text.assemble((f"\n{escaped(each.name)}: {verdict.action}", "bold"), "\n")
        text.append(parts(escaped("\n".join(lines))))
        console.print(text, soft_wrap=True)
    silent = [each.name for each in found if not each.declared]
    if silent:
        stderr().print(escaped(_UNDECLARED.format(names=", ".join(silent))), soft_wrap=True)


def labelled(label: str, text: str) -> str:
    """Return a labelled part of a verdict with aligned lines; an empty line has no blanks, so that it can be copied."""
    return "  " + f"{label}:".ljust(10) + indent(text, " " * 12).lstrip()


def _proposal(advice: Advice) -> str:
    what = " ".join(part for part in (advice.proposed.action, advice.proposed.target) if part)
    return f"{what} ({advice.votes} of {advice.windows} windows, {VOTES} of {WINDOWS} needed)"
