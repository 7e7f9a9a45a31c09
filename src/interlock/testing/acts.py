"""Recording wrappers of the steps, undos and effects of a machine, with injected faults.

An `Act` replaces the function. It records every call with its idempotency key and applies the faults that a test has
queued for it, in order; without queued faults it calls the function.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from interlock.core.pipeline import PipelineStep
from interlock.core.step import Step
from interlock.core.values import StepContext
from interlock.errors import BadUsage
from interlock.runtime.bound import Bound, Strategy
from interlock.testing.lives import never

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

    kind: Literal["fail", "lose", "hang", "slow", "crash", "crash after"]
    error: BaseException | None = None
    by_s: float = 0.0


class Act:
    """A step, an undo or an effect, with a record of its calls."""

    def __init__(
        self,
        kind: Kind,
        machine: str,
        name: str,
        function: Strategy,
        declared: object,
        kill: Callable[[], None],
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
            answer = await self._played(call, context, *arguments)
        except BaseException as error:
            if call.outcome == "running":
                call.outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
            raise
        call.outcome = "done"
        return answer

    async def _played(self, call: Call, *arguments: object) -> object:
        fault = self.faults.popleft() if self.faults else None
        if fault is None:
            return await self._function(*arguments)
        if fault.kind == "fail":
            assert fault.error is not None
            raise fault.error.with_traceback(None)  # One error for all times: each begins its own traceback.
        if fault.kind == "hang":
            await never()
        if fault.kind == "slow":
            await asyncio.sleep(fault.by_s)
        if fault.kind != "crash":
            answer = await self._function(*arguments)
            if fault.kind == "slow":
                return answer
        if fault.kind == "lose":
            assert fault.error is not None
            raise fault.error.with_traceback(None)  # One error for all times: each begins its own traceback.
        call.outcome = "crashed"
        self._kill()
        await never()
        return None


def acts_of(machines: Iterable[Bound], kill: Callable[[], None]) -> list[Act]:
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
