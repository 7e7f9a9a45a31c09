"""`Harness`: machines on the real engine, in virtual time, inside a plain test.

    with Harness(order) as h:
        h.fail(charge, OSError("net"), times=2)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.drain()
        h.assert_history("o-1", "STARTED", "SUBMIT", "CHARGED")

The store is in memory, time skips by itself, ids and luck come from a seed, every call of a step is recorded and can be
made to fail, and the engine can be killed: what was durable is taken up by the next one on the same store. It needs no
plugin and no event loop, and works inside a test that has one.
Sections: comparison of histories, workflows of one machine, steps with faults, harness.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, cast

from interlock.clock import SeededIds, SystemChance
from interlock.core.events import Event, wire_name
from interlock.core.machine import Machine, Step
from interlock.core.pipeline import PipelineStep
from interlock.core.policies import Dependency, Seconds
from interlock.core.values import ContextT, StateT, StepContext
from interlock.engine.bound_machine import AnyMachine, BoundMachine, Strategy
from interlock.engine.engine import Engine, Workflows
from interlock.engine.internals import EngineParts
from interlock.engine.open_engine import add_own_machines, bind, check_dependencies, split_settings
from interlock.engine.operators.tasks import Task
from interlock.engine.schedules import Schedule, Schedules
from interlock.engine.views import DeadLetter, HistoryRow, Moved, View
from interlock.errors import BadUsage, OutcomeUnknown
from interlock.signals import Observer
from interlock.store.memory import MemoryStore
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from interlock.testing.virtual_time import Life, PendingWork, VirtualClock, VirtualLoop, never, open_on, pending

# --- Comparison of histories -----------------------------------------------------------------------------------------


def compare_history(
    workflow: str, rows: Sequence[HistoryRow[Any, Any]], expected: Sequence[str | type[Event] | Enum]
) -> str:
    """Return the history with its differences marked; empty when it is as expected.

    A text is the name of an event, a class is an event, and a member of an Enum is the state that a row led to.
    """
    lines: list[str] = []
    wrong = 0
    for at in range(max(len(rows), len(expected))):
        row = rows[at] if at < len(rows) else None
        wanted = expected[at] if at < len(expected) else None
        line = (
            "(nothing)"
            if row is None
            else f"{row.version:>3}  {row.event}: {_state_text(row.from_state)} → {_state_text(row.to_state)}"
        )
        if row is not None and wanted is not None and _matches(row, wanted):
            lines.append(f"    {line}")
            continue
        wrong += 1
        lines.append(f"  ≠ {line:<50} expected {'nothing more' if wanted is None else _wanted_text(wanted)}")
    if not wrong:
        return ""
    return "\n".join([f"the history of {workflow!r} is not as expected:", *lines])


def _matches(row: HistoryRow[Any, Any], wanted: str | type[Event] | Enum) -> bool:
    if isinstance(wanted, Enum):
        return bool(row.to_state is wanted)
    return row.event == _wanted_text(wanted)


def _wanted_text(wanted: str | type[Event] | Enum) -> str:
    if isinstance(wanted, Enum):
        return _state_text(wanted)
    return wanted if isinstance(wanted, str) else wire_name(wanted)


def _state_text(state: Enum) -> str:
    return str(state.value)


# --- Workflows of one machine ----------------------------------------------------------------------------------------
# A harness is typed by its first machine; this is for the others, as `engine.of` is for an engine.

EventT = TypeVar("EventT", bound=Event)
ResultT = TypeVar("ResultT")


class Tested(Generic[StateT, ContextT, EventT]):
    """The workflows of one machine, in a test."""

    def __init__(self, harness: "Harness[Any, Any, Any]", machine: Machine[StateT, ContextT, EventT]) -> None:
        self._harness = harness
        self._machine = machine

    def start(self, workflow: str, context: ContextT) -> View[StateT, ContextT]:
        """Start a workflow."""
        return self._harness.run(self._workflows.start(workflow, context))

    def send(
        self,
        workflow: str,
        event: EventT,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: ContextT | None = None,
    ) -> Moved[StateT]:
        """Send an event. The steps and effects that it starts run when time passes: see `Harness.drain`."""
        sent = self._workflows.send(
            workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version, start=start
        )
        return self._harness.run(sent)

    def view(self, workflow: str) -> View[StateT, ContextT]:
        """Return the durable view of the workflow."""
        return self._harness.run(self._workflows.get(workflow))

    def history(self, workflow: str) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history of the workflow."""
        return self._harness.run(self._workflows.history(workflow))

    @property
    def _workflows(self) -> Workflows[StateT, ContextT, EventT]:
        return self._harness.engine.of(self._machine)


# --- Steps with faults -----------------------------------------------------------------------------------------------
# An `Act` replaces the function. It records every call with its idempotency key and applies the faults that a test
# has queued for it, in order; without queued faults it calls the function.

Kind = Literal["step", "undo", "effect"]


@dataclass(slots=True)
class Call:
    """One attempt of a step, an undo or an effect."""

    name: str
    kind: Kind
    workflow: str
    key: str
    """The idempotency key."""
    attempt: int
    visit: int
    undoes: str | None
    """Of an undo: the key of the run that it undoes."""
    context: object
    at_s: float
    """When it began, in seconds of virtual time."""
    outcome: str = "running"
    """"done", "cancelled", "crashed", or the name of the error that it raised."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one attempt."""

    kind: Literal["none", "fail", "lose", "hang", "slow", "crash", "crash after"]
    error: BaseException | None = None
    by_s: float = 0.0


class Act:
    """A step, an undo or an effect, with a record of its calls."""

    def __init__(
        self, kind: Kind, machine: str, name: str, function: Strategy, declared: object, kill: Callable[[], None]
    ) -> None:
        self.kind: Kind = kind
        self.machine = machine
        self.name = name
        self.declared = declared
        self.faults: deque[Fault] = deque()
        self.calls: list[Call] = []
        self._function = function
        self._kill = kill

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.machine!r}"

    async def __call__(self, context: object, *arguments: object) -> object:
        """Apply the next queued fault, or call the function."""
        ctx = arguments[-1]
        assert isinstance(ctx, StepContext)
        at_s = asyncio.get_running_loop().time()
        call = Call(self.name, self.kind, ctx.workflow, ctx.key, ctx.attempt, ctx.visit, ctx.undoes, context, at_s)
        self.calls.append(call)
        try:
            answer = await self._apply_fault(call, context, *arguments)
        except BaseException as error:
            if call.outcome == "running":
                call.outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
            raise
        call.outcome = "done"
        return answer

    async def _apply_fault(self, call: Call, *arguments: object) -> object:
        fault = self.faults.popleft() if self.faults else Fault("none")
        if fault.kind == "hang":
            await never()
        if fault.kind == "slow":
            await asyncio.sleep(fault.by_s)
        answer = None if fault.kind in {"fail", "crash"} else await self._function(*arguments)
        if fault.error is not None:
            raise fault.error.with_traceback(None)  # One error for all times: each begins its own traceback.
        if fault.kind in {"crash", "crash after"}:
            call.outcome = "crashed"
            self._kill()
            await never()
        return answer


def acts_of(machines: Iterable[BoundMachine], kill: Callable[[], None]) -> list[Act]:
    """Replace every step, undo and effect of the machines with an act, and return the acts."""
    acts: list[Act] = []
    for bound in machines:
        for name, node in bound.table.steps.items():
            assert node.step is not None
            step = Act("step", bound.name, name, bound.steps[name], (bound.name, name), kill)
            bound.steps[name] = step
            acts.append(step)
            for undo in node.step.undos:
                # The undo of a pipeline's step takes no outcome; what the user wrote is inside.
                inner = inspect.getclosurevars(undo.function).nonlocals.get("function")
                declared, label = (
                    (inner, getattr(inner, "__name__", name)) if callable(inner) else (undo.function, undo.name)
                )
                act = Act("undo", bound.name, label, bound.undos[name, undo.name], declared, kill)
                bound.undos[name, undo.name] = act
                acts.append(act)
        for effect in bound.table.declared.effects:
            known = bound.effects[effect.name]
            act = Act("effect", bound.name, effect.name, known.function, effect.function, kill)
            bound.effects[effect.name] = type(known)(act, known.timeout_s, known.retry)
            acts.append(act)
    return acts


def find_act(acts: Iterable[Act], wanted: object) -> Act:
    """Return the act of a step, of an undo's or effect's function, or of a name. Raises BadUsage if not found."""
    acts = list(acts)
    if isinstance(wanted, Step):
        found = [act for act in acts if act.declared == (wanted.machine, wanted.name)]
    elif isinstance(wanted, PipelineStep | str):
        name = wanted if isinstance(wanted, str) else wanted.name
        found = [act for act in acts if act.name == name and (isinstance(wanted, str) or act.kind == "step")]
    else:
        found = [act for act in acts if act.declared is wanted]
    if len(found) == 1:
        return found[0]
    known = ", ".join(map(str, acts)) or "nothing"
    raise BadUsage(
        f"{wanted!r} is {'not' if not found else 'more than'} one of what these machines do outside: {known}.",
        why="Faults and calls belong to one step, undo or effect.",
        fix="Give the step as it was declared, the function of an undo or effect, or its name.",
    )


# --- Harness ---------------------------------------------------------------------------------------------------------

OtherStateT = TypeVar("OtherStateT", bound=Enum)
OtherContextT = TypeVar("OtherContextT")
OtherEventT = TypeVar("OtherEventT", bound=Event)

DRAIN_S = 3_600.0
"""Virtual seconds after which `drain` raises AssertionError by default."""


class Harness(Generic[StateT, ContextT, EventT]):
    """An engine to test machines with. Its calls are typed by the first machine; `of` has those of the others."""

    def __init__(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *others: AnyMachine,
        steps: Mapping[object, Strategy] | None = None,
        provide: Sequence[object] = (),
        seed: int = 0,
        url: str = "memory:",
        observers: Iterable[Observer] = (),
        dependencies: Iterable[Dependency] = (),
        schedules: Sequence[Schedule] = (),
        **settings: Seconds,
    ) -> None:
        listed: object = machine  # Not every caller has a type checker.
        if not isinstance(listed, Machine):
            raise BadUsage(
                f"{listed!r:.100} is not a machine.",
                why="A harness takes its machines one after the other, and without a list.",
                fix="Write Harness(order), or Harness(order, parcel).",
            )
        self.machine = machine
        self.clock = VirtualClock()
        self._url = url
        self._machines: dict[str, BoundMachine] = bind([machine, *others], steps or {}, provide)
        self._schedules = Schedules([machine, *others], schedules)
        self._settings, self._lane_settings = split_settings(settings)
        self._ids, self._chance = SeededIds(seed), SystemChance(seed)
        self._observers = tuple(observers)
        self._dependencies = check_dependencies(tuple(dependencies), self._machines)
        self._acts: list[Act] = acts_of(self._machines.values(), self._kill)
        add_own_machines(self._machines, self._schedules)
        self._memory: Store | None = MemoryStore(self.clock) if url == "memory:" else None
        self._loop: VirtualLoop | None = None
        self._life: Life | None = None
        self._open: tuple[Engine, EngineParts] | None = None

    # --- opening and closing -----------------------------------------------------------------------------------------

    def __enter__(self) -> "Harness[StateT, ContextT, EventT]":
        """Open the engine."""
        if self._loop is not None:
            raise BadUsage("this harness was entered before.", fix="Make a new Harness for each test.")
        self._loop = VirtualLoop(self.clock)
        try:
            self._begin()
        except BaseException:
            self._loop.leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the engine as a program would; after a failure just drop it, so that the failure is reported."""
        del error, trace
        loop = self._virtual()
        try:
            if kind is None:
                self._close()
            elif self._memory is None and self._life is not None:
                loop.abandon()
                loop.run(_close_store(loop, self._life.store))
        finally:
            self._open = None
            loop.leave()

    async def __aenter__(self) -> "Harness[StateT, ContextT, EventT]":
        """Open the engine, for `async with`."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the engine, for `async with`."""
        self.__exit__(kind, error, trace)

    @property
    def engine(self) -> Engine:
        """The engine itself. Its calls are awaited in virtual time: `h.run(h.engine.stalled(order))`."""
        return self._parts()[0]

    @property
    def now(self) -> datetime:
        """The current virtual time."""
        return self.clock.now()

    # --- what a program does -----------------------------------------------------------------------------------------

    def start(self, workflow: str, context: ContextT) -> View[StateT, ContextT]:
        """Start a workflow of the first machine."""
        return self.run(self.engine.start(self.machine, workflow, context))

    def send(
        self,
        workflow: str,
        event: EventT,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: ContextT | None = None,
    ) -> Moved[StateT]:
        """Send an event. The steps and effects that it starts run when time passes: see `drain`."""
        begin = None if start is None else (self.machine, start)
        sent = self.engine.send(
            workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version, start=begin
        )
        return cast("Moved[StateT]", self.run(sent))

    def view(self, workflow: str) -> View[StateT, ContextT]:
        """Return the durable view of the workflow."""
        return cast("View[StateT, ContextT]", self.run(self.engine.get(workflow)))

    def history(self, workflow: str) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history of the workflow."""
        return cast("list[HistoryRow[StateT, ContextT]]", self.run(self.engine.history(workflow)))

    def of(
        self, machine: "Machine[OtherStateT, OtherContextT, OtherEventT]"
    ) -> "Tested[OtherStateT, OtherContextT, OtherEventT]":
        """Return the same calls for another machine of this harness."""
        self.engine.of(machine)  # Raises for a machine that was not given.
        return Tested(self, machine)

    def tasks(self, *, role: str | None = None, by: str | None = None) -> list[Task]:
        """Return the tasks that wait for a person, the most urgent first: the first thousand."""
        return list(self.run(self.engine.tasks(role=role, by=by, limit=1_000)).items)

    def dead_letters(self) -> list[DeadLetter]:
        """Return all dead letters."""
        return self.run(self.engine.dead_letters())

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Await anything in virtual time; time jumps whenever it would have to wait.

        Raises OutcomeUnknown when the engine was killed meanwhile; the next one is open then.
        """
        task = self._awaited(coroutine)
        done = task.done()
        self._take_over()
        if not done:
            raise OutcomeUnknown(
                "the engine was killed while this was under way.",
                why="A fault was ordered that kills it. What was durable then is there, and nothing else.",
                fix="Look at the workflow, or send the event again with the same key.",
            )
        return task.result()

    # --- time --------------------------------------------------------------------------------------------------------

    def drain(self, *, for_s: float = 0.0, within_s: float = DRAIN_S) -> None:
        """Run until nothing is left to do: steps, retries, undos and effects, skipping the time between them.

        Timers of the machines that are not due by then stay set; `for_s` lets that much time pass first. Raises
        AssertionError with the pending work when there is more to do after `within_s` of virtual time.
        """
        __tracebackhide__ = True
        if for_s:
            self.advance(seconds=for_s)
        limit_s = self.clock.now_s + within_s
        while (left := self._pending()) is not None:
            if not self._virtual().jump(limit_s):
                raise AssertionError(f"after {within_s:g} s of virtual time there is still something to do:\n{left}")
            self._take_over()

    def advance(self, *, seconds: float = 0.0, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0) -> None:
        """Let exactly this much time pass, and run everything that is due in it."""
        end_s = self.clock.now_s + seconds + 60 * (minutes + 60 * (hours + 24 * days))
        while self.clock.now_s < end_s:
            self._virtual().pass_until(end_s)
            self._take_over()

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    def fail(self, step: object, error: BaseException, *, times: int = 1) -> None:
        """Let the next attempts raise the error without doing anything."""
        self._order(step, Fault("fail", error), times)

    def lose(self, step: object, error: BaseException | None = None, *, times: int = 1) -> None:
        """Let the next attempts do their work and then raise, as if the answer was lost."""
        self._order(step, Fault("lose", error or ConnectionError("the answer was lost")), times)

    def hang(self, step: object, *, times: int = 1) -> None:
        """Let the next attempts hang until their timeout."""
        self._order(step, Fault("hang"), times)

    def slow(self, step: object, *, by_s: float, times: int = 1) -> None:
        """Delay the next attempts by `by_s`."""
        self._order(step, Fault("slow", by_s=by_s), times)

    def crash_in(self, step: object, *, after: bool = False, times: int = 1) -> None:
        """Let the next attempts kill the engine, before they do their work or right after it."""
        self._order(step, Fault("crash after" if after else "crash"), times)

    def crash(self, *, down_s: float = 0.0) -> None:
        """Kill the engine now, and open the next one on the same store after `down_s`."""
        self._kill()
        self._take_over(down_s)

    def restart(self, *, down_s: float = 0.0) -> None:
        """Stop the engine as a program does at its end, and open the next one on the same store."""
        loop = self._virtual()
        self._close()
        loop.abandon()
        loop.pass_until(self.clock.now_s + down_s)
        self._begin()

    # --- what was seen -----------------------------------------------------------------------------------------------

    def attempts(self, step: object) -> list[Call]:
        """Every call of a step, an undo or an effect so far, in the order they began."""
        return list(find_act(self._acts, step).calls)

    def calls(self, step: object) -> int:
        """Return the number of calls."""
        return len(find_act(self._acts, step).calls)

    def keys(self, step: object) -> list[str]:
        """Return the distinct idempotency keys of the calls: one per run, for any number of attempts."""
        return list({call.key: None for call in find_act(self._acts, step).calls})

    def assert_history(self, workflow: str, *expected: str | type[Event] | Enum) -> None:
        """Assert the history of a workflow: by its events (names or classes), or by the states that it went through."""
        __tracebackhide__ = True
        problem = compare_history(workflow, self.history(workflow), expected)
        if problem:
            raise AssertionError(problem)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Open the next engine; repeat when it is killed during its recovery."""
        loop = self._virtual()
        while True:
            store = self._memory or loop.run(self._opened())
            self._life = life = Life(store, loop, keep=self._memory is not None)
            opening = self._awaited(
                open_on(
                    life.as_store,
                    self._machines,
                    clock=self.clock,
                    chance=self._chance,
                    ids=self._ids,
                    settings=self._settings,
                    observers=self._observers,
                    dependencies=self._dependencies,
                    schedules=self._schedules,
                )
            )
            if opening.done():
                self._open = opening.result()
            if not life.dead:
                return
            self._bury(life)

    def _awaited(self, coroutine: Coroutine[Any, Any, ResultT]) -> "asyncio.Task[ResultT]":
        """Run until it is done or the engine is killed."""
        loop, life = self._virtual(), self._life
        assert life is not None
        task = loop.create_task(coroutine)
        task.add_done_callback(lambda _: loop.stop())
        try:
            loop.run_forever()
            if not task.done():
                loop.settle()  # Deliver the results that were ready before the kill.
        except BaseException:
            task.cancel()
            loop.settle()
            raise
        return task

    async def _opened(self) -> Store:
        with self._virtual().holding():
            return await open_store(self._url, clock=self.clock, settings=self._lane_settings)

    def _kill(self) -> None:
        assert self._life is not None
        self._life.end()

    def _close(self) -> None:
        """Close the engine; a kill during the close counts as closed."""
        closing = self._awaited(self.engine.close())
        if closing.done():
            closing.result()

    def _take_over(self, down_s: float = 0.0) -> None:
        """If the engine was killed, open the next one."""
        if self._life is not None and self._life.dead:
            self._bury(self._life)
            self._virtual().pass_until(self.clock.now_s + down_s)
            self._begin()

    def _bury(self, life: Life) -> None:
        loop = self._virtual()
        loop.abandon()
        if self._memory is None:
            loop.run(_close_store(loop, life.store))

    def _pending(self) -> PendingWork | None:
        """Return the pending work. If the engine is killed meanwhile, ask the next one."""
        while True:
            self._virtual().settle()
            self._take_over()
            _, inside = self._parts()
            assert self._life is not None
            looking = self._awaited(pending(self._life.as_store, inside, self._machines))
            if looking.done():
                return looking.result()

    def _order(self, step: object, fault: Fault, times: int) -> None:
        find_act(self._acts, step).faults.extend([fault] * times)

    def _virtual(self) -> VirtualLoop:
        if self._loop is None:
            raise _not_open()
        return self._loop

    def _parts(self) -> tuple[Engine, EngineParts]:
        if self._open is None:
            raise _not_open()
        return self._open


async def _close_store(loop: VirtualLoop, store: Store) -> None:
    with loop.holding():
        await store.close()


def _not_open() -> BadUsage:
    return BadUsage(
        "the harness is not open.",
        why="The engine lives as long as the block of the harness.",
        fix="Use it inside: with Harness(order) as h: …",
    )
