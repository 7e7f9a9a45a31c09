"""The values that an engine returns, and `engine.of(machine)`, which types its calls by one machine.

Values have Enum members, typed contexts and aware times. They are frozen, and hold durable facts only: no crash can
take them back (G7).
"""

from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import Allowed, ContextT, StateT, StepFailure, StoredJson
from interlock.engine.bound_machine import NOTHING, BoundMachine, LoadedWorkflow, StepRun, UndoRun
from interlock.errors import InterlockError, WorkflowNotFound
from interlock.store.values import HistoryRecord, Letter


class View(msgspec.Struct, Generic[StateT, ContextT], frozen=True, kw_only=True):
    """A workflow as it is durable."""

    id: str
    machine: str
    state: StateT
    context: ContextT
    version: int
    created_at: datetime
    updated_at: datetime
    waiting: str | None = None
    """The reason why it does not move by itself, or None."""


Workflow = View
"""The result of `start`."""


class Moved(msgspec.Struct, Generic[StateT], frozen=True, kw_only=True):
    """The answer to an event: the workflow's state after it."""

    state: StateT
    version: int
    duplicate: bool = False
    ignored: bool = False


class Refused(msgspec.Struct, frozen=True):
    """One item of `send_many` that was refused, and why."""

    error: InterlockError


class HistoryRow(msgspec.Struct, Generic[StateT, ContextT], frozen=True, kw_only=True):
    """One row of history; `context` is the context after the move.

    What an earlier version of the machine has stored and today's classes cannot hold is a `StoredJson`.
    """

    version: int
    from_state: StateT
    to_state: StateT
    event: str
    payload: Event | StepFailure | StoredJson | None
    context: ContextT
    """At run time a `StoredJson`, as above, where the class cannot hold it; the type leaves the rare case out."""
    key: str | None
    created_at: datetime


class Page(msgspec.Struct, Generic[StateT, ContextT], frozen=True):
    """A page of workflows, and the cursor of the next."""

    items: tuple[View[StateT, ContextT], ...]
    cursor: str | None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the events sent to one workflow (B5)."""

    applied: int
    duplicate: int
    ignored: int
    refused: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A step, effect or undo that gave up and waits for a person."""

    id: str
    kind: str
    """"step", "effect" or "undo"."""
    workflow: str
    name: str
    attempts: int
    error: str
    since: datetime
    key: str
    """The idempotency key of the run or effect that gave up: the same when it is tried again."""
    version: int
    """The workflow's version then."""
    traceback: str = ""
    """Traceback of the last error: bounded, with secrets masked; empty without one."""


class Compensation(msgspec.Struct, frozen=True, kw_only=True):
    """An undo that is owed: running, waiting for its turn or its time, or given up."""

    workflow: str
    machine: str
    step: str
    """The step whose run is undone."""
    key: str
    undoes: str
    """The key of the run that is undone."""
    attempts: int
    state: str
    """"waiting", "running", "retrying" or "dead"."""


def view_of(live: LoadedWorkflow) -> View[Enum, object]:
    """Return the view of a workflow."""
    row = live.row
    return View(
        id=row.id,
        machine=row.machine,
        state=live.snapshot.state,
        context=live.lend_context(),
        version=row.version,
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
        waiting=None if live.owed is NOTHING else _waiting(live),
    )


def _waiting(live: LoadedWorkflow) -> str | None:
    owed = live.owed
    run = owed.run or (owed.undos[0] if owed.undos else None)
    if run is None:
        return None
    what = "its step" if isinstance(run, StepRun) else f"the undo of {run.step!r}"
    if owed.dead == "settled":
        return f"{what} gave up and was settled by a person; an event moves it on"
    if owed.dead is not None:
        return f"{what} gave up after {_attempts(run.attempts)}: see dead letter {owed.letter}"
    return None if run.started else f"{what} {_not_begun(live, run)}"


def _not_begun(live: LoadedWorkflow, run: StepRun | UndoRun) -> str:
    why = _dependency_reason(live, run)
    if why is not None:
        return f"waits: {why}"
    if run.parked:
        return f"waits for what it calls; it is looked at again at {moment(run.retry_us or 0):%H:%M:%S} UTC"
    if run.retry_us is not None:
        return f"has failed in {_attempts(run.attempts)} and is tried again at {moment(run.retry_us):%H:%M:%S} UTC"
    return "waits for a free slot, or for an engine that runs steps"


def _dependency_reason(live: LoadedWorkflow, run: StepRun | UndoRun) -> str | None:
    """Return why its dependency delays the next attempt; None if it does not."""
    bound = live.bound
    node = bound.stored.get(live.row.state) if isinstance(run, StepRun) else bound.table.steps.get(run.step)
    if node is None or node.step is None or node.step.dependency is None:
        return None
    return bound.why(node.step.dependency, _kind(run))


def _kind(run: StepRun | UndoRun) -> Literal["first", "retry", "undo"]:
    if not isinstance(run, StepRun):
        return "undo"
    return "retry" if run.is_retry else "first"


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def letter_of(letter: Letter) -> DeadLetter:
    """Return the view of a dead letter."""
    return DeadLetter(
        id=letter.id,
        kind=letter.kind,
        workflow=letter.workflow,
        name=letter.name,
        attempts=letter.attempts,
        error=letter.message,
        since=moment(letter.since_us),
        key=letter.key,
        version=letter.version,
        traceback=letter.traceback,
    )


def compensations_of(live: LoadedWorkflow) -> list[Compensation]:
    """Return the undos that a workflow is owed, the one that runs first."""
    found: list[Compensation] = []
    for at, undo in enumerate(live.owed.undos):
        state = "waiting"
        if at == 0:
            state = "dead" if live.owed.dead else "running" if undo.started else "retrying" if undo.attempts else state
        found.append(
            Compensation(
                workflow=live.row.id,
                machine=live.row.machine,
                step=undo.step,
                key=undo.key,
                undoes=undo.undoes,
                attempts=undo.attempts,
                state=state,
            )
        )
    return found


def history_row(bound: BoundMachine, happened: HistoryRecord) -> HistoryRow[Enum, object]:
    """Return the view of a row of history."""
    return HistoryRow(
        version=happened.version,
        from_state=_past_state(bound, happened.from_state),
        to_state=_past_state(bound, happened.to_state),
        event=happened.event,
        payload=bound.read_payload(happened.event, happened.payload),
        context=bound.codec.read_context(happened.context),
        key=happened.key,
        created_at=moment(happened.created_us),
    )


class PlainState(StrEnum):
    """A state by its stored name, where no machine has it: `view.state == "done"`, `view.state.value == "done"`."""

    def __reduce_ex__(self, proto: object) -> tuple[object, ...]:
        # By name an Enum would look for a declared member, which does not exist.
        del proto
        return plain_state, (str(self),)


def plain_state(name: str) -> PlainState:
    """Return a state of that name. Members are created on demand, and equal members have equal texts."""
    state = str.__new__(PlainState, name)
    state._name_ = name  # As Enum itself does it for a member.
    state._value_ = name
    return state


def _past_state(bound: BoundMachine, name: str) -> Enum:
    """Return a state in history, which the machine may have lost since."""
    node = bound.stored.get(name)
    return plain_state(name) if node is None else node.state


def moment(time_us: int) -> datetime:
    """Convert microseconds since the epoch to an aware time."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


# --- Calls typed by a machine ----------------------------------------------------------------------------------------
# An id alone does not say which machine its workflow has, so `engine.get(id)` cannot know the type of the context.
# Here the caller names the machine, and the engine checks it: a workflow of another machine is not found.

EventT = TypeVar("EventT", bound=Event)


class Calls(Protocol):
    """The calls of the engine that are the same for all machines."""

    def get(self, workflow: str) -> Awaitable[View[Enum, object]]:
        """As `Engine.get`."""
        ...

    def send(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Awaitable[Moved[Enum]]:
        """As `Engine.send`."""
        ...

    def wait(self, workflow: str, *states: Enum, timeout_s: float | None = None) -> Awaitable[View[Enum, object]]:
        """As `Engine.wait`."""
        ...

    def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> Awaitable[list[HistoryRow[Enum, object]]]:
        """As `Engine.history`."""
        ...

    def allowed(self, workflow: str, event: Event | None = None) -> Awaitable[list[Allowed[Enum]]]:
        """As `Engine.allowed`."""
        ...

    def start(self, machine: Any, workflow: str, context: Any) -> Awaitable[View[Enum, object]]:  # noqa: ANN401 -- as above.
        """As `Engine.start`."""
        ...

    def find(
        self,
        machine: Any,  # noqa: ANN401 -- as above.
        *,
        state: Any = None,  # noqa: ANN401 -- as above.
        limit: int = 100,
        cursor: str | None = None,
    ) -> Awaitable[Page[Any, Any]]:
        """As `Engine.find`."""
        ...

    def stalled(
        self,
        machine: Any,  # noqa: ANN401 -- as above.
        *,
        older_than_s: float | None = None,
        states: Iterable[Any] | None = None,
        limit: int = 1_000,
    ) -> Awaitable[list[View[Any, Any]]]:
        """As `Engine.stalled`."""
        ...


class Workflows(Generic[StateT, ContextT, EventT]):
    """The workflows of one machine. Made by `engine.of(machine)`."""

    def __init__(self, engine: Calls, machine: Machine[StateT, ContextT, EventT]) -> None:
        self._engine = engine
        self._machine = machine

    async def start(self, workflow: str, context: ContextT) -> View[StateT, ContextT]:
        """Start a workflow (B4)."""
        return self._checked(await self._engine.start(self._machine, workflow, context))

    async def send(
        self,
        workflow: str,
        event: EventT,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Moved[StateT]:
        """Send an event of this machine."""
        await self.get(workflow)
        moved = await self._engine.send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return cast("Moved[StateT]", moved)

    async def get(self, workflow: str) -> View[StateT, ContextT]:
        """Return the workflow as it is durable."""
        return self._checked(await self._engine.get(workflow))

    async def wait(self, workflow: str, *states: StateT, timeout_s: float | None = None) -> View[StateT, ContextT]:
        """Wait until the workflow is in one of the states; without any, until it is final or resting."""
        await self.get(workflow)
        return self._checked(await self._engine.wait(workflow, *states, timeout_s=timeout_s))

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history after a version, in the order of versions; all of it unless limited."""
        await self.get(workflow)
        rows = await self._engine.history(workflow, after=after, limit=limit)
        return cast("list[HistoryRow[StateT, ContextT]]", rows)

    async def find(
        self, *, state: StateT | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[StateT, ContextT]:
        """Return the workflows, page by page."""
        return await self._engine.find(self._machine, state=state, limit=limit, cursor=cursor)

    async def stalled(
        self, *, older_than_s: float | None = None, states: Iterable[StateT] | None = None, limit: int = 1_000
    ) -> list[View[StateT, ContextT]]:
        """Return the active workflows that have been in their state for too long."""
        return await self._engine.stalled(self._machine, older_than_s=older_than_s, states=states, limit=limit)

    async def allowed(self, workflow: str, event: EventT | None = None) -> list[Allowed[StateT]]:
        """Return the events that have a transition from the workflow's state."""
        await self.get(workflow)
        return cast("list[Allowed[StateT]]", await self._engine.allowed(workflow, event))

    def _checked(self, view: View[Enum, object]) -> View[StateT, ContextT]:
        if view.machine != self._machine.name:
            raise WorkflowNotFound(
                f"there is no workflow {view.id!r} of machine {self._machine.name!r}: it is one of {view.machine!r}."
            )
        return cast("View[StateT, ContextT]", view)
