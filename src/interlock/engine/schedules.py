"""Schedules: workflows that start at times of a calendar, or at an interval (E6).

A schedule is itself a workflow, of the machine `interlock.schedule`: its plan is the context, its next due time is a
timer, and pausing it is an event. So every store keeps it, any engine with a worker serves it, and its history says
what happened. The move that finds times due adds them to the plan; a step then starts one workflow per time, with an id
made from that time. A repeated start returns the existing workflow, so each due time starts exactly one, whatever dies.

Due times that are noticed more than `LATE_S` late were missed; `catch_up` says which of them still start.
Sections: declaration, due times, the machine, the step and the public calls.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final, Literal, Protocol, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from interlock.core.codec import Codec
from interlock.core.decide import suggestion
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.engine.bound_machine import AnyMachine
from interlock.engine.path.caller_commands import check_id
from interlock.engine.path.commit_pipeline import MachineNotGiven
from interlock.engine.views import Moved, Page, View
from interlock.errors import (
    BadUsage,
    DefinitionError,
    NonRetryable,
    Retryable,
    RetryAfter,
    WorkflowExists,
    WorkflowNotFound,
)

# --- Declaration -----------------------------------------------------------------------------------------------------

Overlap = Literal["skip", "queue", "allow"]
CatchUp = Literal["all", "last", "none"]

LATE_S: Final = 60.0
"""A due time that is noticed later than this was missed, and falls under the policy of catching up."""

WAITING_MAX: Final = 1_000
"""Due times of one schedule that may wait for their start; later ones are found when these have started."""

BACKFILL_MAX: Final = WAITING_MAX
"""Due times of one backfill."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Schedule:
    """A schedule: `Schedule("nightly", report, cron="0 3 * * *", timezone="Europe/Berlin", context=Report())`.

    Give `cron` (five fields, or six with seconds) or `every`. `context` is the context of the workflows, or a pure
    function of the due time, which has the zone of the schedule. Workflows are named `<schedule>.<due time in UTC>`.
    """

    name: str
    machine: AnyMachine
    cron: str | None = field(default=None, kw_only=True)
    every: timedelta | float | None = field(default=None, kw_only=True)
    """An interval; due times are its multiples since 1970, so that all processes have the same."""
    timezone: str = field(default="UTC", kw_only=True)
    """The IANA name of the zone in which `cron` is read."""
    context: object = field(default=None, kw_only=True)
    overlap: Overlap = field(default="skip", kw_only=True)
    """What happens at a due time while the workflow of the time before is active: skip it, queue it, or allow both."""
    catch_up: CatchUp = field(default="last", kw_only=True)
    """Which missed due times are started after a downtime: all, the last one, or none."""


@dataclass(frozen=True)
class Timing:
    """When a schedule is due."""

    cron: str = ""
    every_s: float = 0.0
    timezone: str = "UTC"


def timing_of(schedule: Schedule) -> Timing:
    """Check a declaration and return its timing. Raises DefinitionError."""
    if (schedule.cron is None) == (schedule.every is None):
        problem = "has neither cron= nor every=" if schedule.cron is None else "has both cron= and every="
        raise _mistake(schedule, problem, 'Give one: cron="0 3 * * *", or every=300.')
    every = schedule.every.total_seconds() if isinstance(schedule.every, timedelta) else schedule.every or 0.0
    if schedule.every is not None and not 1 <= every <= 366 * 86_400:
        raise _mistake(schedule, f"has every={schedule.every!r}", "Give an interval from one second to 366 days.")
    for name, value, known in (
        ("overlap", schedule.overlap, ("skip", "queue", "allow")),
        ("catch_up", schedule.catch_up, ("all", "last", "none")),
    ):
        if value not in known:
            raise _mistake(schedule, f"has {name}={value!r}", f"Use one of {', '.join(map(repr, known))}.")
    timing = Timing(schedule.cron or "", every, schedule.timezone)
    try:
        next(_times(timing, _EPOCH))
    except CronSimError as error:
        fix = 'Write minute, hour, day of the month, month, day of the week: "0 3 * * *" is 03:00 every day.'
        raise _mistake(schedule, f"has cron={schedule.cron!r}: {str(error).lower()}", fix) from error
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        guess = suggestion(schedule.timezone, _zones())
        fix = f'Use a name of the IANA database, as "Europe/Berlin".{guess}'
        raise _mistake(schedule, f"has timezone={schedule.timezone!r}, which does not exist", fix) from error
    except StopIteration:
        raise _mistake(
            schedule, f"has cron={schedule.cron!r}, which is never due", "Give a date that exists."
        ) from None
    return timing


def _zones() -> list[str]:
    from zoneinfo import available_timezones  # noqa: PLC0415 -- reads all files of the database.

    return sorted(available_timezones())


def _mistake(schedule: Schedule, what: str, fix: str) -> DefinitionError:
    return DefinitionError(
        f"schedule {schedule.name!r} {what}.",
        why="A schedule is stored and served by other processes too, so it is checked where it is declared.",
        fix=fix,
        rule="bad-schedule",
    )


def codec_of(machine: AnyMachine) -> Codec[Any, Any]:
    """Return the codec of a machine."""
    return cast("Codec[Any, Any]", machine.codec)


# --- Due times -------------------------------------------------------------------------------------------------------
# At a change of clocks cron does what Debian's cron does: a time of day that the clock skips is due right after the
# gap, and one that comes twice is due once. Schedules with a finer grain than an hour run by elapsed time.


def _times(timing: Timing, after: datetime) -> Iterator[datetime]:
    """Return the due times after a time, in UTC."""
    if timing.cron:
        for local in CronSim(timing.cron, after.astimezone(ZoneInfo(timing.timezone))):
            due = local.astimezone(UTC)
            if due > after:  # In an hour that comes twice, a local time may be ahead and its instant not.
                yield due
        return
    step = timedelta(seconds=timing.every_s)
    due = _EPOCH + (after - _EPOCH) // step * step
    while True:
        due += step
        yield due


def _last(timing: Timing, at: datetime) -> datetime | None:
    """Return the last due time that is not after a time."""
    if timing.cron:
        local = (at + timedelta(seconds=1)).astimezone(ZoneInfo(timing.timezone))
        found = next(CronSim(timing.cron, local, reverse=True), None)
        if found is None:
            return None
        last = found.astimezone(UTC)
        for due in _times(timing, last):  # Backwards, one in an hour that comes twice may be passed over.
            if due > at:
                break
            last = due
        return last
    step = timedelta(seconds=timing.every_s)
    return _EPOCH + (at - _EPOCH) // step * step


@dataclass(frozen=True)
class Occasion:
    """One workflow that has to be started."""

    due: datetime
    by_hand: bool = False
    """Triggered or backfilled: it starts although another one is active."""


@dataclass(frozen=True)
class Planned:
    """The context of a schedule."""

    machine: str = ""
    timing: Timing = Timing()
    input: str | None = None
    """The stored context as JSON; None: the program that declares the schedule makes it."""
    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    paused: bool = False
    next_due: datetime | None = None
    waiting: tuple[Occasion, ...] = ()
    last: str = ""
    """The id of the last workflow that was started."""
    started: int = 0
    skipped: int = 0


def find_due(plan: Planned, at: datetime) -> tuple[tuple[Occasion, ...], datetime | None]:
    """Return the due times that start now by the policy of catching up, and the next due time after them."""
    if plan.paused or plan.next_due is None:
        return (), None
    room = WAITING_MAX - len(plan.waiting)
    since = plan.next_due - timedelta(microseconds=1)
    if plan.catch_up != "all":
        in_time = at - timedelta(seconds=LATE_S)
        last = _last(plan.timing, at)
        if plan.catch_up == "last" and last is not None:
            in_time = min(in_time, last)
        since = max(since, in_time - timedelta(microseconds=1))
    found: list[Occasion] = []
    for due in _times(plan.timing, since):
        if due > at or len(found) >= room:
            return tuple(found), due
        found.append(Occasion(due))
    return tuple(found), None


# --- The machine -----------------------------------------------------------------------------------------------------


class ScheduleState(Enum):
    """The states of a schedule."""

    DELETED = "deleted"
    READY = "ready"
    STARTING = "starting"


class ScheduleEvent(Event):
    """The events of a schedule."""


@dataclass(frozen=True)
class Put(ScheduleEvent):
    """The schedule was declared or changed."""

    machine: str
    timing: Timing
    input: str | None
    overlap: Overlap
    catch_up: CatchUp


@dataclass(frozen=True)
class Due(ScheduleEvent):
    """The next due time has come."""


@dataclass(frozen=True)
class Trigger(ScheduleEvent):
    """These times start by hand."""

    times: tuple[datetime, ...]


@dataclass(frozen=True)
class Begun(ScheduleEvent):
    """The first times that waited were started or skipped."""

    times: tuple[datetime, ...]
    last: str
    started: int
    skipped: int


@dataclass(frozen=True)
class Pause(ScheduleEvent):
    """Start nothing at due times."""


@dataclass(frozen=True)
class Resume(ScheduleEvent):
    """Start at due times again. Times that passed meanwhile are not caught up with."""


@dataclass(frozen=True)
class Delete(ScheduleEvent):
    """The schedule is deleted. Its workflows go on."""


MACHINE: Final = "interlock.schedule"

_READY, _STARTING = ScheduleState.READY, ScheduleState.STARTING

schedule_machine = Machine(
    MACHINE,
    states=ScheduleState,
    context=Planned,
    events=ScheduleEvent,
    initial=ScheduleState.DELETED,
    resting={ScheduleState.DELETED, _READY},
)


def _changed(plan: Planned, event: Put, at: datetime) -> Planned:
    kept = plan.timing == event.timing and plan.next_due is not None
    return replace(
        plan,
        machine=event.machine,
        timing=event.timing,
        input=event.input,
        overlap=event.overlap,
        catch_up=event.catch_up,
        next_due=plan.next_due if kept or plan.paused else next(_times(event.timing, at), None),
    )


def _collected(plan: Planned, event: Due, at: datetime) -> Planned:
    del event
    found, next_due = find_due(plan, at)
    return replace(plan, waiting=(*plan.waiting, *found), next_due=next_due)


def _starts(plan: Planned, event: Due, at: datetime) -> bool:
    """A due time starts a workflow."""
    del event
    return bool(find_due(plan, at)[0])


def _triggered(plan: Planned, event: Trigger) -> Planned:
    return replace(plan, waiting=(*plan.waiting, *(Occasion(due, by_hand=True) for due in event.times)))


def _has_room(plan: Planned, event: Trigger) -> bool:
    """Fewer than 1,000 starts of this schedule are waiting."""
    return len(plan.waiting) + len(event.times) <= WAITING_MAX


def _counted(plan: Planned, event: Begun) -> Planned:
    return replace(
        plan,
        waiting=plan.waiting[len(event.times) :],  # Others are only appended, and a new visit makes this event late.
        last=event.last or plan.last,
        started=plan.started + event.started,
        skipped=plan.skipped + event.skipped,
    )


def _goes_on(plan: Planned, event: Begun) -> bool:
    """More starts are waiting."""
    return bool(_counted(plan, event).waiting)


def _paused(plan: Planned, event: Pause) -> Planned:
    del event
    return replace(plan, paused=True, next_due=None)


def _resumed(plan: Planned, event: Resume, at: datetime) -> Planned:
    del event
    return replace(plan, paused=False, next_due=plan.next_due or next(_times(plan.timing, at), None))


def _deleted(plan: Planned, event: Delete) -> Planned:
    del event
    return replace(plan, paused=False, next_due=None, waiting=())


schedule_machine.on(Put, ScheduleState.DELETED, to=_READY)(_changed)
schedule_machine.on(Put, _READY, to=_READY)(_changed)
schedule_machine.on(Put, _STARTING, to=_STARTING)(_changed)
schedule_machine.on(Due, _READY, to=_STARTING, when=_starts)(_collected)
schedule_machine.on(Due, _READY, to=_READY)(_collected)
schedule_machine.on(Due, _STARTING, to=_STARTING)(_collected)
schedule_machine.on(Trigger, _READY, to=_STARTING, when=_has_room)(_triggered)
schedule_machine.on(Trigger, _STARTING, when=_has_room)(_triggered)
schedule_machine.on(Begun, _STARTING, to=_STARTING, when=_goes_on)(_counted)
schedule_machine.on(Begun, _STARTING, to=_READY)(_counted)
schedule_machine.on(Pause, _READY, to=_READY)(_paused)
schedule_machine.on(Pause, _STARTING)(_paused)
schedule_machine.on(Resume, _READY, to=_READY)(_resumed)
schedule_machine.on(Resume, _STARTING, to=_STARTING)(_resumed)
schedule_machine.on(Delete, _READY, _STARTING, to=ScheduleState.DELETED)(_deleted)
schedule_machine.dwell(_STARTING, max_s=86_400)
schedule_machine.until(_READY, lambda plan: plan.next_due, send=Due())
schedule_machine.until(_STARTING, lambda plan: plan.next_due if len(plan.waiting) < WAITING_MAX else None, send=Due())


@schedule_machine.step(
    _STARTING,
    timeout_s=120,
    retry=Retry(attempts=1_000_000_000, first_s=0.1, max_s=2),  # Another engine may have the machine.
    read_only=True,  # A repeated start returns the workflow that exists, and what was started is never undone.
)
async def start_due(plan: Planned, ctx: StepContext) -> Begun:
    """Start the workflows of the due times that wait. Every engine binds its `Schedules` as the strategy."""
    raise NonRetryable(f"no engine starts {plan.machine!r} for {ctx.workflow!r}.")


# --- The step and the public calls -----------------------------------------------------------------------------------

PREFIX: Final = "schedule:"
"""A schedule is the workflow with this prefix before its name."""

STARTS_PER_RUN: Final = 100
STARTING_S: Final = 0.5
"""How long one run starts workflows. A due time ends the run, and what it has done must be counted before."""

QUEUE_POLL_S: Final = 10.0
"""How often a queued start looks whether the workflow before has ended. It holds no slot meanwhile."""

LISTED: Final = 1_000


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored."""

    name: str
    machine: str
    cron: str | None
    every_s: float | None
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    paused: bool
    next_due: datetime | None
    last: str | None
    """The id of the last workflow that it started."""
    waiting: int
    """Due times whose workflow is not started yet."""
    started: int
    skipped: int


class Calls(Protocol):
    """What schedules need of an engine."""

    async def start(
        self, machine: AnyMachine, workflow: str, context: object, /, *, by: str | None = None
    ) -> View[Any, Any]:
        """Start a workflow."""
        ...

    async def send(self, workflow: str, event: Event, /, *, by: str | None = None) -> Moved[Enum]:
        """Send an event."""
        ...

    async def get(self, workflow: str, /) -> View[Enum, object]:
        """Return the durable state of a workflow."""
        ...

    async def find(self, machine: AnyMachine, /, *, limit: int = 100, cursor: str | None = None) -> Page[Any, Any]:
        """Return a page of the workflows of a machine."""
        ...


class Schedules:
    """The schedules of a home. Each engine has them as `engine.schedules`.

    A change has an actor, `by`; the history of the workflow that keeps the schedule has the name (F1).
    """

    def __init__(self, machines: Sequence[AnyMachine] = (), declared: Sequence[Schedule] = ()) -> None:
        self._machines = {machine.name: machine for machine in machines}
        self._declared = {schedule.name: schedule for schedule in declared}
        if len(self._declared) < len(declared):
            names = [schedule.name for schedule in declared]
            raise _mistake(
                next(each for each in declared if names.count(each.name) > 1), "is declared twice", "Rename one."
            )
        for schedule in declared:
            self._put_of(schedule)
        self._engine: Calls
        self._now: Callable[[], datetime]
        self._entered = False

    def enter(self, engine: Calls, now: Callable[[], datetime]) -> None:
        """Use this engine from now on, whose store has this time."""
        self._engine, self._now, self._entered = engine, now, True

    async def put_declared(self) -> None:
        """Store the declared schedules. One that is stored like this stays as it is, also paused."""
        for schedule in self._declared.values():
            await self.put(schedule)

    async def put(self, schedule: Schedule, *, by: str | None = None) -> ScheduleView:
        """Store a schedule, or change it. It is served by all engines of this home that have its machine.

        A context that is a function needs a running program that declares the schedule when it opens its engine.
        """
        put = self._put_of(schedule)
        name = _workflow_of(schedule.name)
        await self._engine.start(schedule_machine, name, Planned(), by=by)
        view, plan = await self._stored(schedule.name, also_deleted=True)
        is_same = view.state is not ScheduleState.DELETED and all(
            getattr(plan, part) == getattr(put, part) for part in ("machine", "timing", "input", "overlap", "catch_up")
        )
        if not is_same or (plan.next_due is not None and view.state is _READY and not view.timers):
            await self._engine.send(name, put, by=by)
        if callable(schedule.context):
            self._declared[schedule.name] = schedule
        return await self.get(schedule.name)

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule. Raises WorkflowNotFound."""
        return _view(name, (await self._stored(name))[1])

    async def list(self) -> list[ScheduleView]:
        """Return the schedules of this home, oldest first, at most 1,000."""
        found: list[ScheduleView] = []
        cursor: str | None = None
        while len(found) < LISTED:
            page = await self._engine.find(schedule_machine, limit=LISTED, cursor=cursor)
            found += [
                _view(each.id.removeprefix(PREFIX), each.context)
                for each in page.items
                if each.state is not ScheduleState.DELETED
            ]
            cursor = page.cursor
            if cursor is None:
                break
        return found[:LISTED]

    async def pause(self, name: str, *, by: str | None = None) -> ScheduleView:
        """Start nothing at due times until it is resumed, nor what is queued. Workflows that were started go on."""
        return await self._sent(name, Pause(), by)

    async def resume(self, name: str, *, by: str | None = None) -> ScheduleView:
        """Start at due times again. Those that passed meanwhile are not caught up with; `backfill` starts them."""
        return await self._sent(name, Resume(), by)

    async def delete(self, name: str, *, by: str | None = None) -> None:
        """Delete a schedule. Workflows that it started go on, and a program that declares it stores it again."""
        await self._stored(name)
        await self._engine.send(_workflow_of(name), Delete(), by=by)

    async def trigger(self, name: str, *, by: str | None = None) -> str:
        """Start one workflow now; return its id. It starts although another one is active, unless they are queued.

        It has started when this returns, if this engine has its machine and its context, and it is not queued.
        """
        at = self._now()
        if at.microsecond == 0:
            at += timedelta(microseconds=1)  # A due time has the id of this instant.
        await self._sent(name, Trigger((at,)), by)
        workflow = start_id(name, at)
        _, plan = await self._stored(name)
        if plan.overlap != "queue":
            # The schedule's step finds it. What fails here is reported there.
            with contextlib.suppress(Exception):
                await self._start(plan, name, at, workflow)
        return workflow

    async def backfill(self, name: str, since: datetime, until: datetime, *, by: str | None = None) -> int:
        """Start the workflows of the due times from `since` up to and without `until`; return how many they are.

        Due times in the future are skipped: their workflows would begin now, and the schedule would start none then.
        """
        if since.tzinfo is None or until.tzinfo is None:
            raise BadUsage(
                "since or until has no time zone.",
                why="A time without a zone is another instant on each machine.",
                fix="Pass aware times, as datetime(2026, 11, 1, tzinfo=UTC).",
            )
        _, plan = await self._stored(name)
        until = min(until, self._now())
        times: list[datetime] = []
        try:
            for due in _times(plan.timing, since - timedelta(microseconds=1)):
                if due >= until or len(times) > BACKFILL_MAX:
                    break
                times.append(due)
        except OverflowError:
            times = [since] * (BACKFILL_MAX + 1)  # At the end of the calendar.
        if len(times) > BACKFILL_MAX:
            raise BadUsage(
                f"schedule {name!r} is due more than {BACKFILL_MAX:,} times from {since} to {until}.",
                why="The times that wait for their start are part of the schedule's row, which is bounded.",
                fix="Backfill in parts.",
            )
        if times:
            await self._sent(name, Trigger(tuple(times)), by)
        return len(times)

    async def __call__(self, plan: Planned, ctx: StepContext) -> Begun:
        """Start the workflows of the due times that wait: the strategy of the step `start_due`."""
        if not self._entered:
            raise Retryable("the engine is still opening.")
        name = ctx.workflow.removeprefix(PREFIX)
        done: list[datetime] = []
        last, started = plan.last, 0
        loop = asyncio.get_running_loop()
        end_s = loop.time() + STARTING_S
        for occasion in plan.waiting[:STARTS_PER_RUN]:
            if plan.paused and not occasion.by_hand:
                if done:
                    break
                raise RetryAfter(QUEUE_POLL_S, f"schedule {name!r} is paused.")
            workflow = start_id(name, occasion.due)
            if await self._is_blocked(plan, occasion, workflow, last):
                if plan.overlap == "queue":
                    if done:
                        break
                    raise RetryAfter(QUEUE_POLL_S, f"{last!r} is active, and the next one is queued.")
                done.append(occasion.due)
                continue
            await self._start(plan, name, occasion.due, workflow)
            done.append(occasion.due)
            started += 1
            if not occasion.by_hand or not last or not await self._is_active(last):
                last = workflow
            if loop.time() > end_s:
                break
        return Begun(tuple(done), last, started, len(done) - started)

    async def _is_blocked(self, plan: Planned, occasion: Occasion, workflow: str, last: str) -> bool:
        """Return whether the workflow must not start because the one before it is active."""
        if plan.overlap == "allow" or not last or (occasion.by_hand and plan.overlap == "skip"):
            return False
        if not await self._is_active(last):
            return False
        with contextlib.suppress(WorkflowNotFound):
            await self._engine.get(workflow)
            return False  # An attempt that was lost has started it.
        return True

    async def _is_active(self, workflow: str) -> bool:
        try:
            view = await self._engine.get(workflow)
        except (WorkflowNotFound, MachineNotGiven):  # Pruned, or of a machine that this schedule had before.
            return False
        machine = self._machines.get(view.machine)
        node = None if machine is None else machine.compiled.node(view.state)
        return node is not None and node.active

    async def _start(self, plan: Planned, name: str, due: datetime, workflow: str) -> None:
        machine = self._machine_of(plan.machine)
        if plan.input is not None:
            context: object = codec_of(machine).decode_context(plan.input.encode())
        else:
            schedule = self._declared.get(name)
            if schedule is None or not callable(schedule.context):
                raise Retryable(f"schedule {name!r} gets its contexts from a program that does not run here.")
            local = due.astimezone(ZoneInfo(plan.timing.timezone))
            context = cast("Callable[[datetime], object]", schedule.context)(local)
        try:
            await self._engine.start(machine, workflow, context)
        except WorkflowExists:
            # Started before, when the schedule had another context. A workflow of another machine is a mistake.
            if (await self._engine.get(workflow)).machine != plan.machine:
                raise

    def _machine_of(self, name: str) -> AnyMachine:
        machine = self._machines.get(name)
        if machine is None:
            raise Retryable(f"machine {name!r} was not given to this engine.")
        return machine

    def _put_of(self, schedule: Schedule) -> Put:
        check_id(schedule.name, "the name of a schedule")
        check_id(start_id(schedule.name, _EPOCH.replace(microsecond=1)), "the id of a workflow of this schedule")
        timing = timing_of(schedule)
        if self._machines.get(schedule.machine.name) is not schedule.machine:
            known = ", ".join(sorted(self._machines)) or "none"
            raise _mistake(
                schedule,
                f"starts workflows of {schedule.machine.name!r}, which this engine does not have",
                f"Open the engine with it: machines=[…]. It has {known}.",
            )
        stored = None
        if not callable(schedule.context):
            stored = codec_of(schedule.machine).checked_context(schedule.context).decode()
        return Put(schedule.machine.name, timing, stored, schedule.overlap, schedule.catch_up)

    async def _stored(self, name: str, *, also_deleted: bool = False) -> tuple[View[Enum, object], Planned]:
        with contextlib.suppress(WorkflowNotFound):
            view = await self._engine.get(_workflow_of(name))
            if view.machine == MACHINE and (also_deleted or view.state is not ScheduleState.DELETED):
                return view, cast("Planned", view.context)
        known = [each.name for each in await self.list()]
        raise WorkflowNotFound(
            f"there is no schedule {name!r}.{suggestion(repr(name), map(repr, known))}",
            why=f"This home has {', '.join(map(repr, known)) or 'no schedules'}.",
            fix="List them with engine.schedules.list() or `interlock schedules list`.",
        )

    async def _sent(self, name: str, event: ScheduleEvent, by: str | None) -> ScheduleView:
        await self._stored(name)
        await self._engine.send(_workflow_of(name), event, by=by)
        return await self.get(name)


def start_id(name: str, due: datetime) -> str:
    """Return the id of the workflow that a schedule starts for a due time."""
    return f"{name}.{due.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"


def _workflow_of(name: str) -> str:
    return f"{PREFIX}{name}"


def _view(name: str, plan: Planned) -> ScheduleView:
    return ScheduleView(
        name=name,
        machine=plan.machine,
        cron=plan.timing.cron or None,
        every_s=plan.timing.every_s or None,
        timezone=plan.timing.timezone,
        overlap=plan.overlap,
        catch_up=plan.catch_up,
        paused=plan.paused,
        next_due=plan.next_due,
        last=plan.last or None,
        waiting=len(plan.waiting),
        started=plan.started,
        skipped=plan.skipped,
    )
