"""Tasks: workflows in a state that waits for a person (F2), their listing, their claims, and how one was decided.

A task has no record of its own: it is the visit of a state that declares one, and ends when the workflow leaves the
state. So a decision is an ordinary event, and the version of the workflow refuses a second one. A claim stands with
what the workflow is owed, in its row: it survives restarts and moves, ends with the visit, and is not a move.

The listing merges the workflows of each such state, which stores keep in the order of their entry. With a fixed due
time that is the order of urgency too, so no store needs another index.

Sections: tasks, pages, claims, decisions.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, cast

import msgspec

from interlock.core.declarations import TaskDeclaration
from interlock.core.events import Event, wire_name
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow, TaskClaim
from interlock.engine.internals import EngineParts
from interlock.engine.path.caller_commands import checked_actor
from interlock.engine.path.engine_commands import Report
from interlock.engine.path.staged_group import Group, Staged
from interlock.engine.views import moment
from interlock.errors import (
    BadUsage,
    DecidedMove,
    InvalidPayload,
    InvalidTransition,
    TaskClaimed,
    VersionConflict,
    WorkflowNotFound,
)
from interlock.redaction import logger_of
from interlock.store.protocol import Store
from interlock.store.records import Cursor, HistoryRecord, Row

log = logger_of("interlock.tasks")

# --- Tasks -----------------------------------------------------------------------------------------------------------

LAST_US: Final = 253_402_214_400_000_000
"""The last day that a datetime can express; a task may be due later."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task: a workflow that waits for a person."""

    id: str
    """Names the workflow and its visit of the state: a later visit of the same state is another task."""
    workflow: str
    machine: str
    state: str
    version: int
    """The workflow's version, for `expect_version`. A claim does not change it."""
    role: str
    title: str
    since: datetime
    due_at: datetime | None
    overdue: bool
    claimed_by: str | None
    claimed_at: datetime | None
    events: tuple[str, ...]
    """The wire names of the events with which it is decided."""


class TaskPage(msgspec.Struct, frozen=True):
    """A page of tasks, and the cursor of the next."""

    items: tuple[Task, ...]
    cursor: str | None


def task_id(workflow: str, visit: int) -> str:
    """Return the id of the task of a visit."""
    return f"{workflow}@{visit}"


def parse_task_id(task: object) -> tuple[str, int]:
    """Return the workflow and the visit of a task's id. Raises WorkflowNotFound for another text."""
    found = re.fullmatch(r"(.+)@([1-9][0-9]{0,17})", task, re.DOTALL) if isinstance(task, str) else None
    if found is None:
        raise no_task(task)
    return found[1], int(found[2])


def no_task(task: object) -> WorkflowNotFound:
    """Return the error for an id without a task."""
    return WorkflowNotFound(
        f"there is no task {task!r:.300}.",
        why="The id of a task is that of its workflow and the version at which it began to wait, such as 'o-1@3'.",
        fix="List the tasks again.",
    )


def task_of(live: LoadedWorkflow, now_us: int) -> Task | None:
    """Return the task of a workflow; None in a state without one."""
    row, declared = live.row, live.bound.table.nodes[live.snapshot.state.name].task
    if declared is None:
        return None
    context, claim = live.lend_context(), live.owed.claim
    due_us = _due_us(declared, row, context)
    return Task(
        id=task_id(row.id, row.visit),
        workflow=row.id,
        machine=row.machine,
        state=row.state,
        version=row.version,
        role=declared.role,
        title=declared.title_of(context),
        since=moment(row.entered_us),
        due_at=None if due_us is None else moment(max(0, min(due_us, LAST_US))),
        overdue=due_us is not None and due_us < now_us,
        claimed_by=None if claim is None else claim.by,
        claimed_at=None if claim is None else moment(claim.since_us),
        events=tuple(map(wire_name, declared.events)),
    )


def _due_us(declared: TaskDeclaration, row: Row, context: object) -> int | None:
    try:
        length_s = declared.length_s(context)
    except Exception:
        # User code. One workflow must not hide the tasks of all others.
        log.exception("the due time of the task of workflow %r cannot be computed", row.id)
        return None
    return None if length_s is None else row.entered_us + int(length_s * 1_000_000)


# --- Pages -----------------------------------------------------------------------------------------------------------
# Each state with a task is a stream in the order of entry. Where all due times are fixed, a stream is in the order of
# its due times as well, and streams without a due time come last. Where one is computed, no stream knows its most
# urgent task, and all are merged by entry. The cursor is the place of the last task in that order.

LOOKED_MAX = 10_000
"""Workflows that are read for one page of a person's tasks, of which few may be theirs."""

CHUNK_MIN, CHUNK_MAX = 10, 1_000
"""Workflows of one state that one query reads."""

_CLAIMED = b'"claim":'
_NUMBER_MAX: Final = 10**18 - 1


class TaskFilter(NamedTuple):
    """The selection of a listing of tasks."""

    role: str | None = None
    by: str | None = None
    """Only tasks that this person has claimed."""
    machine: str | None = None
    sees: Callable[[str, str], bool] | None = None
    """Whether the reader may see a workflow of a machine."""

    def takes(self, row: Row) -> bool:
        """Whether a row may be selected, as far as that is known before it is decoded."""
        return (self.by is None or _CLAIMED in row.owed) and (self.sees is None or self.sees(row.machine, row.id))


class _Place(NamedTuple):
    """The place of a task in the order of a listing."""

    rank: int
    """0 for tasks with a due time; 1 for those without, which come last."""
    key_us: int
    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.rank}.{self.key_us}.{self.number}.{self.stream}"


def _parse_place(text: str | None) -> _Place | None:
    if text is None:
        return None
    found = re.fullmatch(r"([01])\.(-?[0-9]{1,18})\.([0-9]{1,18})\.(.+)", text, re.DOTALL)
    if found is None:
        raise InvalidPayload(
            f"{text!r:.300} is not a cursor.",
            why="A cursor says where the page before has ended; it is made by that page.",
            fix="Pass the cursor of the page before, as it is.",
        )
    return _Place(int(found[1]), int(found[2]), found[4], int(found[3]))


@dataclass(slots=True)
class _Stream:
    """The tasks of one state, in the order in which they began. Read in chunks."""

    bound: BoundMachine
    state: str
    rank: int
    shift_us: int
    """From the time of entry to the key by which the streams are merged."""
    waiting: deque[tuple[_Place, Row]] = field(default_factory=deque[tuple[_Place, Row]])
    cursor: str | None = None
    ended: bool = False

    @property
    def name(self) -> str:
        return f"{self.bound.name}.{self.state}"

    def begin(self, after: _Place) -> None:
        """Go on after a place of the listing."""
        self.ended = self.rank < after.rank
        if self.rank == after.rank:
            entered_us, name = after.key_us - self.shift_us, self.name
            if name == after.stream:
                self.cursor = str(Cursor(entered_us, after.number))
            else:
                self.cursor = str(Cursor(entered_us if name < after.stream else entered_us - 1, _NUMBER_MAX))

    async def read(self, store: Store, chunk: int) -> None:
        """Read the next rows."""
        page = await store.find(self.bound.name, self.state, after=self.cursor, limit=chunk)
        for row, number in zip(page.rows, page.numbers, strict=True):
            self.waiting.append((_Place(self.rank, row.entered_us + self.shift_us, self.name, number), row))
        self.cursor, self.ended = page.cursor, page.cursor is None


def _streams(machines: Iterable[BoundMachine], chosen: TaskFilter) -> list[_Stream]:
    nodes = [
        (bound, node.name, node.task)
        for bound in machines
        if chosen.machine in {None, bound.name}
        for node in bound.table.nodes.values()
        if node.task is not None and chosen.role in {None, node.task.role}
    ]
    computed = any(task.due is not None for _, _, task in nodes)
    return [
        _Stream(bound, state, 0, 0)
        if computed
        else _Stream(bound, state, int(task.due_s is None), int((task.due_s or 0) * 1_000_000))
        for bound, state, task in nodes
    ]


async def read_tasks(
    store: Store,
    machines: Iterable[BoundMachine],
    readable: Callable[[BoundMachine, Sequence[Row]], list[LoadedWorkflow]],
    chosen: TaskFilter,
    *,
    limit: int,
    cursor: str | None,
) -> TaskPage:
    """Return a page of tasks, the most urgent first; by their beginning where a due time is computed.

    A page of one person's tasks may be short or empty although its cursor is set. Raises InvalidPayload for a cursor
    that no page has given.
    """
    after, now_us = _parse_place(cursor), store.now_us()
    streams = _streams(machines, chosen)
    if after is not None:
        for stream in streams:
            stream.begin(after)
    # Nearly all of one person's tasks are among those of others.
    chunk = CHUNK_MAX if chosen.by is not None else min(limit + 1, CHUNK_MIN + 2 * limit // max(1, len(streams)))
    found: list[Task] = []
    looked = 0
    while True:
        for stream in streams:
            if not stream.waiting and not stream.ended:
                await stream.read(store, chunk)
        streams = [stream for stream in streams if stream.waiting]
        if not streams:
            return TaskPage(tuple(found), None)
        if len(found) >= limit or looked >= LOOKED_MAX:
            return TaskPage(tuple(found), str(after))
        stream = min(streams, key=lambda each: each.waiting[0][0])
        after, row = stream.waiting.popleft()
        looked += 1
        if chosen.takes(row):
            for live in readable(stream.bound, [row]):
                task = task_of(live, now_us)
                if task is not None and chosen.by in {None, task.claimed_by}:
                    found.append(task)


async def list_tasks(parts: EngineParts, chosen: TaskFilter, *, limit: int, cursor: str | None) -> TaskPage:
    """Return a page of the tasks of an engine."""
    parts.refuse_if_closed()
    machines = parts.declared.values()
    return await read_tasks(parts.store, machines, parts.readable, chosen, limit=limit, cursor=cursor)


# --- Claims ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class _TaskCommand(Report):
    """A command of a person about one task."""

    workflow: str = field(init=False)
    task: str
    by: str
    visit: int = field(init=False)

    def __post_init__(self) -> None:
        self.workflow, self.visit = parse_task_id(self.task)

    def decide(self, group: Group) -> object:
        """Change the claim. Raises WorkflowNotFound, VersionConflict for a task that has ended, and TaskClaimed."""
        staged = group.stage(self.workflow)
        if staged is None:
            raise no_task(self.task)
        _check_task(staged.live, self.task, self.visit)
        self.apply(staged, group)
        return staged.live


@dataclass(slots=True, eq=False, repr=False)
class ClaimTask(_TaskCommand):
    """Claims a task for a person."""

    done = "claimed"

    def apply(self, staged: Staged, group: Group) -> None:
        """Keep the claim with the workflow. The holder may claim it again, which changes nothing."""
        claim = staged.live.owed.claim
        if claim is None:
            staged.claim(TaskClaim(self.by, group.now_us))
        elif claim.by != self.by:
            raise _claimed(self.task, claim, "claimed")


@dataclass(slots=True, eq=False, repr=False)
class ReleaseTask(_TaskCommand):
    """Releases a task, also one that another person has claimed with `force`."""

    force: bool = False
    done = "released"

    def apply(self, staged: Staged, group: Group) -> None:
        """Remove the claim, if there is one."""
        del group
        claim = staged.live.owed.claim
        if claim is None:
            return
        if claim.by != self.by and not self.force:
            raise _claimed(self.task, claim, "released")
        staged.claim(None)


def _check_task(live: LoadedWorkflow, task: str, visit: int) -> None:
    """Raise unless the workflow waits for this task: VersionConflict if it has ended, WorkflowNotFound for no task."""
    if live.row.visit != visit and visit <= live.row.version:
        raise VersionConflict(f"task {task!r} has ended: workflow {live.row.id!r} is in state {live.row.state!r}.")
    if live.row.visit != visit or live.bound.table.nodes[live.snapshot.state.name].task is None:
        raise no_task(task)


def person_of(by: object) -> str:
    """Return the name of a person who claims or releases. Raises BadUsage without one."""
    who = checked_actor(by) if by is None or isinstance(by, str) else None
    if who is None:
        raise BadUsage(
            f"by={by!r:.100} does not name a person.",
            why="A claim says who works on the task.",
            fix='Pass a name: claim_task(id, by="ada").',
        )
    return who


async def read_task(parts: EngineParts, task: str) -> Task:
    """Return one task. Raises WorkflowNotFound, and VersionConflict with the decision for a task that has ended."""
    workflow, visit = parse_task_id(task)
    row = await parts.policy.row(workflow)
    if row is None:
        raise no_task(task)
    live = parts.read(row)
    try:
        return _existing_task(live, task, visit, parts.store.now_us())
    except VersionConflict as error:
        await name_decision(parts, workflow, error, after=visit)
        raise


async def command_task(parts: EngineParts, command: "ClaimTask | ReleaseTask") -> Task:
    """Claim or release a task, and return it."""
    parts.refuse_if_closed()
    try:
        live = cast("LoadedWorkflow", await parts.pipeline.admit(command))
    except VersionConflict as error:
        await name_decision(parts, command.workflow, error, after=command.visit)
        raise
    parts.operated(f"task {command.task!r} is {command.done}", command.by)
    return _existing_task(live, command.task, command.visit, parts.store.now_us())


def _existing_task(live: LoadedWorkflow, task: str, visit: int, now_us: int) -> Task:
    _check_task(live, task, visit)
    found = task_of(live, now_us)
    assert found is not None, "it was checked"
    return found


def _claimed(task: str, claim: TaskClaim, what: str) -> TaskClaimed:
    since = moment(claim.since_us)
    return TaskClaimed(
        f"task {task!r} cannot be {what}: {claim.by} has claimed it at {since:%Y-%m-%d %H:%M:%S} UTC.",
        by=claim.by,
        since=since,
    )


# --- Decisions -------------------------------------------------------------------------------------------------------
# The version of the workflow refuses a second decision. Its history has who was faster, and how.

ROWS_LOOKED_MAX = 100
"""Rows of history that are read to find a decision."""


async def name_decision(
    parts: EngineParts,
    workflow: str,
    error: VersionConflict | InvalidTransition,
    *,
    event: type[Event] | None = None,
    after: int | None = None,
) -> None:
    """Add to a refusal who has decided before, and how. Does nothing where no task was decided.

    `after` is the version that the caller knew. Without it the last decision is meant for which this event was too
    late.
    """
    if not any(bound.table.has_tasks for bound in parts.declared.values()):
        return
    row = (await parts.store.load([workflow])).get(workflow)
    bound = None if row is None else parts.declared.get(row.machine)
    if row is None or bound is None:
        return
    begin = max(0, row.version - ROWS_LOOKED_MAX) if after is None else after
    records = await parts.store.history(workflow, after=begin, limit=ROWS_LOOKED_MAX)
    decisions = [each for each in records if _is_decision(bound, each, event if after is None else None)]
    if not decisions:
        return
    found = decisions[-1] if after is None else decisions[0]
    decided = DecidedMove(
        found.event, found.by, moment(found.created_us), found.from_state, found.to_state, found.version
    )
    error.decided = decided
    error.what = f"{error.what} Before that, {decided}."
    error.args = (error.what,)


def _is_decision(bound: BoundMachine, record: HistoryRecord, event: type[Event] | None) -> bool:
    """Whether a move has left a state with a task, of which this event would have been a decision too."""
    node = bound.stored.get(record.from_state)
    if node is None or node.task is None or record.version == 1:
        return False
    if event is not None and event not in node.task.events:
        return False
    return record.from_state != record.to_state or record.event in map(wire_name, node.task.events)
