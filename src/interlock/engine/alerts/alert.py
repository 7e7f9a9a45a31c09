"""Alerts: a stalled workflow, a dead letter, an open breaker, late undos, a blocked loop, a hot row.

An alert is sent twice: when it begins and, with the same key, when it is over. The key names the occasion, so that a
receiver that gets it again after a restart recognises it.

Texts of users (ids, names, errors) are made printable and bounded here: every receiver has limits of its own, and
a log is read line by line.
"""

import hashlib
import shlex
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote

import msgspec

from interlock.lanes.hot_rows import HotRow
from interlock.signals import BreakerChanged, LoopBlocked
from interlock.store.records import Letter, Row

AlertKind = Literal[
    "stalled", "breaker_open", "dead_letter", "compensation_debt", "redis_gone", "loop_blocked", "hot_row"
]

TEXT_CHARACTERS_MAX = 500
"""Characters shown of a subject or an error; the whole of it is in the store."""

RUNBOOKS: dict[AlertKind, str] = {
    "stalled": "interlockstalled",
    "breaker_open": "interlockbreakeropen",
    "dead_letter": "interlockdeadletters",
    "compensation_debt": "interlockcompensationdebt",
    "redis_gone": "interlockredisgone",
    "loop_blocked": "interlockloopblocked",
    "hot_row": "interlockhotrow",
}
"""The section of the page of runbooks that says what to do, by kind."""

RUNBOOK_PAGE = "docs/how-to/runbooks.md"

KEY_CHARACTERS_MAX = 255
"""PagerDuty permits no longer deduplication key."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that needs a person, or (`resolved`) no longer does."""

    kind: AlertKind
    subject: str
    """The id of a workflow, the name of a dependency, or of the machine whose undos are late."""
    summary: str
    """The problem in one line."""
    advice: str
    """The recommended action."""
    dedup_key: str
    """Deduplication key, the same from beginning to end and after a restart."""
    at_us: int
    """The time of detection."""
    since_us: int | None = None
    """The time when the problem began."""
    machine: str | None = None
    state: str | None = None
    details: dict[str, str | int | float] = {}
    resolved: bool = False

    def runbook(self, page: str | None = None) -> str:
        """Return the runbook's section: on the page at that address, or in the sources."""
        return f"{page or RUNBOOK_PAGE}#{RUNBOOKS[self.kind]}"

    def over(self, at_us: int) -> "Alert":
        """Return the same alert as resolved."""
        return msgspec.structs.replace(self, summary=f"Resolved: {self.summary}", at_us=at_us, resolved=True)


def stalled_alert(row: Row, dwell_max_s: float, now_us: int) -> Alert:
    """Return the alert of a workflow that exceeds its state's declared dwell; one per visit."""
    workflow, stay_s = printable(row.id), (now_us - row.entered_us) / 1_000_000
    return Alert(
        kind="stalled",
        subject=workflow,
        summary=f"Workflow {workflow} of {row.machine} has been in {row.state} for {duration(stay_s)}; "
        f"its dwell is at most {duration(dwell_max_s)}.",
        advice=f"Look at its history (interlock history {shlex.quote(workflow)}), then send the event it waits for, "
        f"or fix what its step calls. If such a stay is normal, declare a longer dwell for {row.state}.",
        dedup_key=key("stalled", row.machine, row.id, str(row.visit)),
        at_us=now_us,
        since_us=row.entered_us,
        machine=row.machine,
        state=row.state,
        details={"version": row.version, "visit": row.visit, "dwell_max_s": dwell_max_s, "stay_s": round(stay_s, 3)},
    )


def letter_alert(letter: Letter, now_us: int) -> Alert:
    """Return the alert of a step, an effect or an undo that gave up."""
    workflow, name = printable(letter.workflow), printable(letter.name)
    return Alert(
        kind="dead_letter",
        subject=workflow,
        summary=f"The {letter.kind} {name} of workflow {workflow} gave up at attempt {letter.attempts}: "
        f"{printable(letter.message)}",
        advice=f"Fix the cause, then interlock dead-letters retry {letter.id} --server URL; or, when it was settled by "
        f"hand, interlock dead-letters resolve {letter.id} --note TEXT --server URL. "
        "With --home, write MODULE:ATTR before the id.",
        dedup_key=key("dead_letter", letter.id),
        at_us=now_us,
        since_us=letter.since_us,
        details={
            "letter": letter.id,
            "letter_kind": letter.kind,
            "name": name,
            "attempts": letter.attempts,
            "error": printable(letter.message),
            "version": letter.version,
            "idempotency_key": letter.key,
        },
    )


def breaker_alert(changed: BreakerChanged, now_us: int) -> Alert | None:
    """Return the alert of a breaker that opened, resolved if it closed; None for half-open."""
    if changed.after == "half_open":
        return None
    dependency = printable(changed.dependency)
    alert = Alert(
        kind="breaker_open",
        subject=dependency,
        summary=f"The breaker of {dependency} is {changed.after}: {printable(changed.reason)}",
        advice=f"Look whether {dependency} answers. Steps that need it wait, and go on by themselves when it is back.",
        dedup_key=key("breaker_open", changed.dependency),
        at_us=now_us,
        since_us=now_us,
    )
    return alert if changed.after == "open" else alert.over(now_us)


def redis_alert(address: str, reason: str, now_us: int, *, resolved: bool) -> Alert:
    """Return the alert of a Redis that does not answer, or its end."""
    alert = Alert(
        kind="redis_gone",
        subject=address,
        summary=f"Redis at {address} does not answer" + (f": {printable(reason)}" if reason else "."),
        advice="Look whether it runs and can be reached. Until then leases come from the store, and limits and "
        "breakers are those of each process; everything comes back by itself.",
        dedup_key=key("redis_gone", address),
        at_us=now_us,
        since_us=now_us,
    )
    return alert.over(now_us) if resolved else alert


def loop_alert(blocked: LoopBlocked, now_us: int) -> Alert:
    """Return the alert of an event loop that was blocked; one per step."""
    subject = printable(f"{blocked.machine} {blocked.step}".strip()) or "event loop"
    code = f"step {printable(blocked.step)} of {blocked.machine}" if blocked.step else "code that is not a step"
    return Alert(
        kind="loop_blocked",
        subject=subject,
        summary=f"The event loop was blocked for {duration(blocked.duration_s)} by {code}: nothing else moved.",
        advice="Await what it waits for, or declare it with blocking=True: then it runs in a thread. "
        "The log interlock.steps has the stack.",
        dedup_key=key("loop_blocked", blocked.machine, blocked.step),
        at_us=now_us,
        since_us=now_us,
        machine=blocked.machine or None,
        details={
            "step": printable(blocked.step),
            "workflow": printable(blocked.workflow),
            "duration_s": blocked.duration_s,
        },
    )


def hot_row_alert(database: str, row: HotRow, now_us: int) -> Alert:
    """Return the alert of a row, or workflow, that writers wait for (D19)."""
    table, row_key = printable(row.table), printable("" if row.key is None else str(row.key))
    subject = printable(f"{database} {table} {row_key}".strip())
    return Alert(
        kind="hot_row",
        subject=subject,
        summary=f"Row {row_key or 'without a key'} of {table} in {printable(database)} is hot: "
        f"{row.handoffs_per_s:.0f} hand-offs a second, each waited {duration(row.wait_s)} in the mean.",
        advice="Look which writers share it (interlock hot), then ask interlock advise what would help: a helper such "
        "as a counter, a database of its own, or PostgreSQL.",
        dedup_key=key("hot_row", database, row.table, row_key),
        at_us=now_us,
        since_us=now_us,
        details={
            "database": printable(database),
            "table": table,
            "key": row_key,
            "source": row.source,
            "handoffs_per_s": round(row.handoffs_per_s, 1),
            "conflicts_per_s": round(row.conflicts_per_s, 1),
            "wait_s": round(row.wait_s, 6),
        },
    )


class Debt(msgspec.Struct, frozen=True):
    """Workflows of one machine that have been unwinding for longer than they should (C9)."""

    machine: str
    late: int
    """The number of late workflows."""
    oldest: Row
    dead: int
    """The number of them that wait for a person: one of their undos gave up."""
    whole: bool
    """Whether everything was counted; otherwise there may be more of both."""


def debt_alert(debt: Debt, debt_s: float, now_us: int) -> Alert:
    """Return the alert of a machine's late undos: money not paid back, goods that stay reserved."""
    oldest, many = printable(debt.oldest.id), "" if debt.whole else "at least "
    stay_s = (now_us - debt.oldest.entered_us) / 1_000_000
    workflows = "1 workflow" if debt.late == 1 else f"{many}{debt.late:,} workflows"
    return Alert(
        kind="compensation_debt",
        subject=debt.machine,
        summary=f"{workflows.capitalize()} of {debt.machine} {'has' if debt.late == 1 else 'have'} been undoing for "
        f"more than {duration(debt_s)}, {many}{debt.dead:,} with a dead letter; the oldest is {oldest}, since "
        f"{iso(debt.oldest.entered_us)} ({duration(stay_s)}).",
        advice="Look whether what the undos call answers: they are tried again by themselves. Those that gave up wait "
        "for you (interlock dead-letters list --kind undo).",
        dedup_key=key("compensation_debt", debt.machine),
        at_us=now_us,
        since_us=debt.oldest.entered_us,
        machine=debt.machine,
        details={
            "late": debt.late,
            "dead_letters": debt.dead,
            "counted": "all" if debt.whole else "at least",
            "oldest": oldest,
            "oldest_since": iso(debt.oldest.entered_us),
            "debt_s": debt_s,
        },
    )


def more_alert(kind: Literal["stalled", "dead_letter"], more: int, *, counted_all: bool, now_us: int) -> Alert:
    """Return the alert that stands for all others beyond the bound of single alerts (G6)."""
    many = f"{more:,}" if counted_all else f"at least {more:,}"
    things, command = (
        ("stalled workflows", "interlock stalled MACHINE")
        if kind == "stalled"
        else ("dead letters", "interlock dead-letters list")
    )
    return Alert(
        kind=kind,
        subject="more",
        summary=f"There are {many} more {things} without an alert of their own.",
        advice=f"List them all with {command}. A large number usually has one cause: look at the oldest first.",
        dedup_key=key(kind, "more"),
        at_us=now_us,
        details={"more": more},
    )


def key(*parts: str) -> str:
    """Return a deduplication key within every receiver's limit; a digest replaces one that is too long."""
    whole = "/".join(("interlock", *(quote(part, safe=":@", errors="surrogatepass") for part in parts)))
    if len(whole) <= KEY_CHARACTERS_MAX:
        return whole
    return f"interlock/{parts[0]}/{hashlib.sha256(whole.encode()).hexdigest()}"


def printable(text: str) -> str:
    """Return a user's text on one line of bounded length, without control characters."""
    plain = "".join(each if each.isprintable() else " " for each in text[: TEXT_CHARACTERS_MAX + 1])
    return plain if len(plain) <= TEXT_CHARACTERS_MAX else plain[: TEXT_CHARACTERS_MAX - 1] + "…"


def iso(time_us: int) -> str:
    """Format a time of the store: ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat(timespec="milliseconds")


def duration(seconds: float) -> str:
    """Format a duration for people: in its two largest units."""
    if seconds < 60:  # noqa: PLR2004 -- a minute has 60 seconds.
        return f"{seconds:.3g} s"
    whole = round(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    index = next(place for place, (_, size) in enumerate(units) if whole >= size)
    parts: list[str] = []
    for name, size in units[index : index + 2]:
        count, whole = divmod(whole, size)
        parts += [f"{count} {name}"] if count else []
    return " ".join(parts)
