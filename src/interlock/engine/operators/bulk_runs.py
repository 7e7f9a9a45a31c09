"""Records of bulk runs: an action on all workflows of a filter, with its progress (F5).

A bulk run is itself a workflow, of the machine `interlock.bulk`, so every store keeps it and every engine of the home
can resume it. Its context is the action with its filter, the place where the next page begins, and the counts. Each
page is written before its workflows are acted on: a run that was killed knows which of them it may have moved, so that
its counts stay exact.

A home keeps the last `RUNS_MAX` runs of each state. `engine.bulk_runs` lists them. `Bulk` in `operators.bulk` executes
them.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, Literal, Protocol, cast

import msgspec

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.engine.bound_machine import AnyMachine
from interlock.engine.path.caller_commands import Beginning, check_id
from interlock.engine.views import Moved, Page, View
from interlock.errors import InvalidPayload, KeyReused, WorkflowNotFound

MACHINE: Final = "interlock.bulk"

PREFIX: Final = "bulk:"
"""A run is the workflow with this prefix before its name. With it the name is also a delivery key, and a lease."""

NAME_CHARACTERS_MAX: Final = 150

RUNS_MAX: Final = 1_000
"""G6: runs of each state that a home keeps; a new run removes older ones."""

STALE_S: Final = 15.0
"""A run without progress for this time, and for that of two workflows at its rate, is not executed by any process."""

EXAMPLES_MAX: Final = 5
"""Ids that stand for each reason of refusals."""

REASONS_MAX: Final = 50
"""Reasons that are counted apart; more of them are one."""

OTHER_REASONS: Final = "other reasons"

BulkAction = Literal["send", "retry", "pause", "resume"]
BulkRunState = Literal["running", "interrupted", "done"]


# --- What a run does, and how far it is ------------------------------------------------------------------------------


@dataclass(frozen=True)
class BulkFilter:
    """The workflows of a run, and of a run that retries also the dead letters, as texts."""

    state: str | None = None
    where: tuple[str, ...] = ()
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    kind: str | None = None
    """The kind of the dead letters: "step", "effect" or "undo"."""
    letter: str | None = None
    """The name of the step, effect or undo that gave up."""
    error: str | None = None
    """The error of the dead letters, or its group."""


@dataclass(frozen=True)
class BulkSpec:
    """What a run does. A name stands for one of these."""

    machine: str = ""
    action: BulkAction = "send"
    event: str = ""
    data: str = ""
    """The event's fields as JSON."""
    filter: BulkFilter = BulkFilter()

    def refuse_other(self, name: str, known: "BulkSpec") -> None:
        """Raise KeyReused unless the run of that name, which is `known`, does the same."""
        parts = ("machine", "action", "event", "data", "filter")
        other = [part for part in parts if getattr(self, part) != getattr(known, part)]
        if not other:
            return
        action = f"{known.action} {known.event}".strip()
        raise KeyReused(
            f"bulk run {name!r} has another {' and '.join(other)}: it is {action!r} for {_filter_text(known)}.",
            why="The name is the delivery key of each of its events: it stands for one action and one filter.",
            fix="Repeat the name with the same action and filter to resume it; give another run another name.",
        )


def _filter_text(spec: BulkSpec) -> str:
    parts = [f"machine {spec.machine!r}"]
    for name in ("state", "updated_after", "updated_before", "kind", "letter", "error"):
        value: object = getattr(spec.filter, name)
        parts += [] if value is None else [f"{name} {str(value)!r}"]
    return ", ".join([*parts, *spec.filter.where])


@dataclass(frozen=True)
class RefusedReason:
    """A reason, with the number of workflows that were refused for it, and the first of them."""

    reason: str
    count: int = 0
    examples: tuple[str, ...] = ()


class BulkCounts:
    """Counts of a run, or of a dry run."""

    def __init__(self, moved: int = 0, refused: Iterable[RefusedReason] = ()) -> None:
        self.moved = moved
        self._refused = {each.reason: each for each in refused}

    def refuse(self, reason: str, workflow: str) -> None:
        """Count a refusal."""
        self.add(RefusedReason(reason, 1, (workflow,)))

    def add(self, each: RefusedReason) -> None:
        """Count refusals for one reason."""
        if each.reason not in self._refused and len(self._refused) >= REASONS_MAX - 1:
            each = replace(each, reason=OTHER_REASONS)
        known = self._refused.get(each.reason, RefusedReason(each.reason))
        examples = (*known.examples, *each.examples)[:EXAMPLES_MAX]
        self._refused[each.reason] = RefusedReason(each.reason, known.count + each.count, examples)

    @property
    def refused(self) -> tuple[RefusedReason, ...]:
        """The refusals by reason."""
        return tuple(self._refused.values())

    @property
    def matching(self) -> int:
        """All that were counted."""
        return self.moved + sum(each.count for each in self._refused.values())


@dataclass(frozen=True)
class BulkRecord:
    """The context of a run."""

    spec: BulkSpec = BulkSpec()
    note: str = ""
    by: str = ""
    rate_per_s: float | None = None
    since: datetime | None = None
    """The store's time when it began first. It leaves workflows alone that were created later."""
    cursor: str | None = None
    """Where the page after `pending` begins; None at the beginning, and at the end."""
    pending: tuple[str, ...] = ()
    """The page under way, which is not counted yet."""
    complete: bool = False
    """Whether `pending` is the last page."""
    moved: int = 0
    refused: tuple[RefusedReason, ...] = ()


# --- The machine -----------------------------------------------------------------------------------------------------


class BulkState(Enum):
    """The states of a run."""

    INTERRUPTED = "interrupted"
    RUNNING = "running"
    DONE = "done"


class BulkEvent(Event):
    """The events of a run."""


@dataclass(frozen=True)
class BulkBegun(BulkEvent):
    """A process executes it from now on."""

    by: str = ""
    rate_per_s: float | None = None


@dataclass(frozen=True)
class BulkPage(BulkEvent):
    """The counts of the page before, and the next page, which is acted on when this is durable."""

    moved: int = 0
    refused: tuple[RefusedReason, ...] = ()
    pending: tuple[str, ...] = ()
    cursor: str | None = None
    complete: bool = False


@dataclass(frozen=True)
class BulkStopped(BulkEvent):
    """It was cancelled, failed, or an operator stopped it."""


@dataclass(frozen=True)
class BulkDone(BulkEvent):
    """The counts of the last page."""

    moved: int = 0
    refused: tuple[RefusedReason, ...] = ()


bulk_machine = Machine(
    MACHINE,
    states=BulkState,
    context=BulkRecord,
    events=BulkEvent,
    initial=BulkState.INTERRUPTED,
    resting={BulkState.INTERRUPTED, BulkState.RUNNING},
    final={BulkState.DONE},
)


@bulk_machine.on(BulkBegun, BulkState.INTERRUPTED, BulkState.RUNNING, to=BulkState.RUNNING)
def _begun(record: BulkRecord, event: BulkBegun, at: datetime) -> BulkRecord:
    by = event.by or record.by
    return replace(record, by=by, rate_per_s=event.rate_per_s, since=record.since or at)


def _counted(record: BulkRecord, event: BulkPage | BulkDone) -> BulkRecord:
    counts = BulkCounts(record.moved + event.moved, record.refused)
    for each in event.refused:
        counts.add(each)
    return replace(record, moved=counts.moved, refused=counts.refused, pending=())


@bulk_machine.on(BulkPage, BulkState.RUNNING)
def _page(record: BulkRecord, event: BulkPage) -> BulkRecord:
    counted = _counted(record, event)
    return replace(counted, pending=event.pending, cursor=event.cursor, complete=event.complete)


@bulk_machine.on(BulkDone, BulkState.RUNNING, to=BulkState.DONE)
def _done(record: BulkRecord, event: BulkDone) -> BulkRecord:
    return _counted(record, event)


bulk_machine.on(BulkStopped, BulkState.RUNNING, to=BulkState.INTERRUPTED)


# --- Listing ---------------------------------------------------------------------------------------------------------


class BulkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk run would do now: the result of a dry run."""

    matching: int
    """Workflows that match; of a run that retries, dead letters."""
    moving: int
    refused: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """By reason: how many would be refused."""
    examples: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    """By reason: a few of their ids."""


class BulkRun(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk run, with its progress or its result."""

    name: str
    machine: str
    action: BulkAction
    event: str | None
    """The stored name of the event that it sends."""
    data: dict[str, object]
    filter: BulkFilter
    by: str
    note: str
    rate_per_s: float | None
    state: BulkRunState
    matching: int
    """What it has looked at so far: `moved`, and what was refused."""
    moved: int
    refused: dict[str, int]
    examples: dict[str, tuple[str, ...]]
    since: datetime
    updated: datetime


def plan_of(counts: BulkCounts) -> BulkPlan:
    """Return the result of a dry run."""
    return BulkPlan(
        matching=counts.matching,
        moving=counts.moved,
        refused={each.reason: each.count for each in counts.refused},
        examples={each.reason: each.examples for each in counts.refused},
    )


def run_of(view: View[Any, Any], now: datetime) -> BulkRun:
    """Return a run as it is stored. One whose process died is interrupted, though nothing has written that."""
    record = cast("BulkRecord", view.context)
    spec, counts = record.spec, BulkCounts(record.moved, record.refused)
    state: BulkRunState = view.state.value
    patience_s = STALE_S + (2 / record.rate_per_s if record.rate_per_s else 0.0)
    if state == "running" and now - view.updated_at > timedelta(seconds=patience_s):
        state = "interrupted"
    plan = plan_of(counts)
    return BulkRun(
        name=view.id.removeprefix(PREFIX),
        machine=spec.machine,
        action=spec.action,
        event=spec.event or None,
        data=msgspec.json.decode(spec.data, type=dict[str, object]) if spec.data else {},
        filter=spec.filter,
        by=record.by,
        note=record.note,
        rate_per_s=record.rate_per_s,
        state=state,
        matching=counts.matching,
        moved=counts.moved,
        refused=plan.refused,
        examples=plan.examples,
        since=record.since or view.created_at,
        updated=view.updated_at,
    )


def run_id(name: str) -> str:
    """Return the id of the workflow that keeps a run. Raises InvalidPayload for a name that cannot be one."""
    check_id(name, "the name of a bulk run")
    if len(name) > NAME_CHARACTERS_MAX:
        raise InvalidPayload(
            f"{name!r:.60}… is not the name of a bulk run: it has {len(name)} characters.",
            why="The delivery key of its events is made from it.",
            fix=f"Use 1 to {NAME_CHARACTERS_MAX} printable characters without a slash.",
        )
    return PREFIX + name


class RunCalls(Protocol):
    """What the records of runs need of an engine."""

    async def send(
        self,
        workflow: str,
        event: Event,
        /,
        *,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: Beginning | None = None,
        by: str | None = None,
    ) -> Moved[Enum]:
        """Send an event."""
        ...

    async def get(self, workflow: str, /) -> View[Enum, object]:
        """Return the durable state of a workflow."""
        ...

    async def find(self, machine: AnyMachine, /, *, limit: int = 100, cursor: str | None = None) -> Page[Any, Any]:
        """Return a page of the workflows of a machine."""
        ...


@dataclass(frozen=True)
class BulkRuns:
    """The bulk runs of a home. Each engine has them as `engine.bulk_runs`."""

    _calls: RunCalls
    _now: Callable[[], datetime]
    _operated: Callable[[str, str | None], None] = field(repr=False)

    async def list(self, *, limit: int = 100) -> list[BulkRun]:
        """Return the last runs, the newest first."""
        found: list[View[Any, Any]] = []
        cursor: str | None = None
        while True:
            page = await self._calls.find(bulk_machine, limit=RUNS_MAX, cursor=cursor)
            found += page.items
            cursor = page.cursor
            if cursor is None:
                break
        return [run_of(view, self._now()) for view in reversed(found[-max(1, limit) :])]

    async def get(self, name: str) -> BulkRun:
        """Return a run. Raises WorkflowNotFound."""
        return run_of(await self.stored(name), self._now())

    async def stop(self, name: str, *, by: str | None = None) -> BulkRun:
        """Stop a run, in whichever process it is executed: it ends before its next page. Repeating it resumes it."""
        await self.stored(name)
        if not (await self._calls.send(run_id(name), BulkStopped(), if_allowed=True, by=by)).ignored:
            self._operated(f"bulk run {name!r} is stopped", by)
        return await self.get(name)

    async def stored(self, name: str) -> View[Enum, object]:
        """Return the workflow that keeps a run. Raises WorkflowNotFound."""
        with suppress(WorkflowNotFound):
            view = await self._calls.get(run_id(name))
            if view.machine == bulk_machine.name:  # Another machine may have a workflow of that id.
                return view
        raise WorkflowNotFound(
            f"there is no bulk run {name!r}.",
            why=f"No run of this name was begun here, or {RUNS_MAX:,} newer ones have replaced it.",
            fix="List them with engine.bulk_runs.list() or `interlock bulk list`.",
        )
