"""The final report of the demo: refusals, one history, visits per state, figures and the proof.

It fits into 80 columns. The summary comes last, because it stays visible on the screen.
"""

from dataclasses import fields

from rich.console import Console
from rich.table import Table
from rich.text import Text

from interlock.cli.demo.bars import bar
from interlock.cli.demo.observers import FAILS_EVERY
from interlock.cli.demo.outcome import Kill, Outage, Outcome, Stall
from interlock.cli.output import counted
from interlock.core.events import Event
from interlock.core.values import StepFailure, StoredJson
from interlock.examples.order import order

DETAIL_CHARACTERS_MAX = 44


def show_outcome(console: Console, outcome: Outcome) -> None:
    """Print everything but the verdict."""
    _show_refusals(console, outcome)
    _show_history(console, outcome)
    _show_visits(console, outcome)
    _show_figures(console, outcome)
    _show_proof(console, outcome)


def show_verdict(console: Console, outcome: Outcome) -> None:
    """Print whether the walk is verified, and every problem."""
    if not outcome.problems:
        verdict = (
            "Verified: everything acknowledged is there, before the kill and after it; histories are dense and replay "
            "to the same orders, the books and the counter agree, no order is lost."
        )
        console.print(verdict, style="bold green", soft_wrap=True)
        return
    console.print(f"NOT VERIFIED: {counted(len(outcome.problems), 'problem')}", style="bold red", soft_wrap=True)
    for problem in outcome.problems:
        console.print(f"  {problem}", soft_wrap=True)


def _show_refusals(console: Console, outcome: Outcome) -> None:
    for code, refusal in sorted(outcome.examples.items()):
        _heading(console, f"One of {outcome.rejected[code]:,} events rejected as {code}")
        table = Table(box=None, padding=(0, 2, 0, 1), show_header=False)
        table.add_column(style="dim")
        table.add_column()
        for part, text in zip(("what", "why", "fix"), refusal, strict=True):
            table.add_row(part, text)
        console.print(table)


def _show_history(console: Console, outcome: Outcome) -> None:
    workflow, records = outcome.longest
    _heading(console, f"The history of {workflow}")
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in ("version", "event", "to", "with"):
        table.add_column(column, justify="right" if column == "version" else "left", no_wrap=column != "with")
    for record in records:
        detail = _detail(record.payload)
        table.add_row(str(record.version), record.event, Text(record.to_state.value, style="bold"), detail)
    console.print(table)


def _detail(payload: Event | StepFailure | StoredJson | None) -> str:
    if payload is None or isinstance(payload, StepFailure | StoredJson):
        return ""
    values = [str(getattr(payload, each.name)) for each in fields(payload)]  # type: ignore[arg-type]  # Events are.
    text = ", ".join(value for value in values if value)
    return text if len(text) <= DETAIL_CHARACTERS_MAX else text[: DETAIL_CHARACTERS_MAX - 1] + "…"


def _show_visits(console: Console, outcome: Outcome) -> None:
    _heading(console, "Where the orders went, and where they are now")
    table = Table(box=None, padding=(0, 2, 0, 1), header_style="dim")
    table.add_column("state", style="bold")
    table.add_column("visits", justify="right")
    table.add_column("now", justify="right")
    table.add_column("")
    most = max(outcome.tally.visits.values())
    for state, visits in outcome.tally.visits.items():
        now = outcome.tally.now[state]
        table.add_row(state, f"{visits:,}", f"{now:,}" if now else "", bar(visits, most))
    console.print(table)


def _show_figures(console: Console, outcome: Outcome) -> None:
    tally = outcome.tally
    rejected = ", ".join(f"{count:,} {code}" for code, count in sorted(outcome.rejected.items())) or "none"
    resting = [state.name for state in order.describe().states if state.final or state.resting]
    ends = ", ".join(f"{tally.now[name]:,} {name}" for name in resting)
    _heading(console, "Summary")
    table = Table(box=None, padding=(0, 2, 0, 1), show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    walking_s = outcome.walking_s
    rate = tally.transitions / walking_s if walking_s > 0 else 0.0
    table.add_row("orders", f"{outcome.orders:,}: {ends}")
    table.add_row("transitions", f"{tally.transitions:,}, all durable, in {walking_s:.2f} s, {rate:,.0f} per second")
    if outcome.outage is not None:
        _add_outage(table, outcome.outage)
    if outcome.kill is not None:
        _add_kill(table, outcome, outcome.kill)
    done = outcome.books
    table.add_row(
        "the bank",
        f"{done['charged']:,} charged, {done['refunded']:,} refunded, {done['declined']:,} declined; "
        f"asked under {outcome.keys:,} keys",
    )
    table.add_row(
        "its faults",
        f"{done['failed']:,} calls failed, {done['lost']:,} answers were lost, {done['slow']:,} came late; "
        "all were repeated or waited for",
    )
    table.add_row(
        "hot counter",
        f"{outcome.paid:,} paid orders in one row; {outcome.counted_again:,} were sent to it again after the kill, "
        "and counted once",
    )
    if outcome.stall is not None:
        _add_stall(table, outcome.stall)
    table.add_row(
        "verified", f"{outcome.done:,} orders, each replayed from its history, in {outcome.verifying_s:.2f} s"
    )
    table.add_row("coverage", f"{tally.covered} of {len(tally.arrows)} transitions of the machine were taken")
    table.add_row("rejected", rejected)
    times = counted(outcome.observer_failures, "time")
    table.add_row(
        "observers",
        f"one failed on every {FAILS_EVERY}th signal ({times}) and harmed nothing",
    )
    table.add_row("result", f"{outcome.fingerprint} (the same whenever --orders and --seed are)")
    console.print(table)


def _add_outage(table: Table, outage: Outage) -> None:
    ended_s = outage.ended_s or outage.began_s
    text = f"the bank was down for {ended_s - outage.began_s:.1f} s and refused {counted(outage.refused, 'call')}"
    if outage.opened_s is not None and outage.closed_s is not None:
        text += (
            f"; the breaker opened after {outage.opened_s - outage.began_s:.2f} s, probed "
            f"{counted(outage.probes, 'time')}, and closed {outage.closed_s - ended_s:.2f} s after the bank was back"
        )
    table.add_row("outage", text)


def _add_kill(table: Table, outcome: Outcome, kill: Kill) -> None:
    before, after = kill.acknowledged, outcome.acknowledged - kill.acknowledged
    table.add_row(
        "killed",
        f"the worker, once, by SIGKILL, with {counted(kill.on_their_way, 'order')} on their way; the next one had "
        f"taken up all that was owed in {kill.recovery_s:.2f} s, {kill.gap_s:.2f} s after the kill",
    )
    table.add_row("acknowledged", f"{outcome.acknowledged:,} calls, {before:,} before the kill and {after:,} after it")


def _add_stall(table: Table, stall: Stall) -> None:
    lasted_s = (stall.ended_s or stall.began_s) - stall.began_s
    table.add_row(
        "stall",
        f"{counted(len(stall.stuck), 'order')} on the packing table; engine.stalled listed {len(stall.listed):,} of "
        f"them, and they continued after {lasted_s:.1f} s",
    )


def _show_proof(console: Console, outcome: Outcome) -> None:
    _heading(console, "The proof")
    table = Table(box=None, padding=(0, 2, 0, 1), header_style="dim")
    table.add_column("")
    table.add_column("", overflow="fold")
    table.add_column("found", justify="right")
    table.add_column("expected", justify="right")
    for check in outcome.checks:
        mark = Text("ok", style="bold green") if check.holds else Text("NO", style="bold red")
        table.add_row(mark, check.what, f"{check.found:,}", f"{check.expected:,}")
    console.print(table)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold cyan", soft_wrap=True)
