"""`Step`: the handle of a declared step, on which its undo and its failure action are declared.

`@machine.step(...)` turns the function into a `Step`. It stays callable, so a test can await it directly. It is the
key under which an Engine takes another function: `Engine.open(..., steps={charge: fake})` (C1).
"""

from collections.abc import Awaitable, Callable
from typing import Generic, Literal, TypeVar, cast, overload

from interlock.core import mistakes
from interlock.core.declarations import Declarations, FailedAction, StepDeclaration, UndoDeclaration, UndoFunction
from interlock.core.events import Event, EventOf
from interlock.core.locations import declaring_frame, line_of
from interlock.core.policies import Retry
from interlock.core.signatures import check_async, check_pure, check_undo
from interlock.core.values import ContextT, StepContext, StepFailure

ResultT = TypeVar("ResultT")
DoneT = TypeVar("DoneT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


class Step(Generic[ContextT, ResultT]):
    """A declared step. Call it to run the function itself, without engine, timeout or retries."""

    def __init__(self, machine: Declarations, declared: StepDeclaration) -> None:
        self._machine = machine
        self._declared = declared

    def __repr__(self) -> str:
        return f"<Step {self.name!r} of {self._machine.name!r} in state {self._declared.state.value!r}>"

    @property
    def name(self) -> str:
        """The step's name: the prefix of its idempotency keys."""
        return self._declared.name

    @property
    def machine(self) -> str:
        """The name of the machine it belongs to."""
        return self._machine.name

    async def __call__(self, context: ContextT, ctx: StepContext) -> ResultT:
        """Call the function directly; a blocking function runs in the caller's thread."""
        called = self._declared.function(context, ctx)
        return cast("ResultT", called if self._declared.blocking else await called)

    @overload
    def undo(
        self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: Literal[False] = False
    ) -> Callable[
        [Callable[[ContextT, DoneT | None, StepContext], Awaitable[None]]],
        Callable[[ContextT, DoneT | None, StepContext], Awaitable[None]],
    ]: ...
    @overload
    def undo(
        self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: Literal[True]
    ) -> Callable[
        [Callable[[ContextT, DoneT | None, StepContext], None]],
        Callable[[ContextT, DoneT | None, StepContext], None],
    ]: ...
    def undo(
        self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: bool = False
    ) -> Callable[[FunctionT], FunctionT]:
        """Declare how to undo this outcome, or an unknown one (`done` is then None), when the workflow unwinds.

        Without `retry` the undo has `Retry(attempts=undo_attempts)`, a setting of the engine.
        With `blocking=True` it is a plain function, which runs in a thread.
        """
        frame = declaring_frame()
        location = line_of(frame)
        cls = cast("type[Event]", event)

        def add_undo(function: FunctionT) -> FunctionT:
            mistakes.after_first_use(self._machine, location)
            mistakes.in_undo(self._machine, self._declared, cls, location)
            mistakes.in_undo_retry(retry, location)
            check_undo(cls, step=self.name, returns=self._declared.returns, location=location)
            arguments = (self._machine.context, cls, StepContext)
            shape, local = "(context, done, ctx)", frame.f_locals
            check_async(
                function,
                kind="undo",
                arguments=arguments,
                shape=shape,
                local=local,
                location=location,
                blocking=blocking,
            )
            declaration = UndoDeclaration(cls, cast("UndoFunction", function), location, retry, blocking)
            self._declared.undos.append(declaration)
            return function

        return add_undo

    def failed(
        self, action: Callable[[ContextT, StepFailure], ContextT]
    ) -> Callable[[ContextT, StepFailure], ContextT]:
        """Declare a pure action for the move to `failed=`: `(context, failure) -> context`."""
        frame = declaring_frame()
        location = line_of(frame)
        mistakes.after_first_use(self._machine, location)
        mistakes.in_failed_action(self._declared, location)
        context = self._machine.context
        arguments = (context, StepFailure)
        check_pure(action, kind="action", arguments=arguments, returns=context, local=frame.f_locals, location=location)
        self._declared.failed_action = cast("FailedAction", action)
        return action
