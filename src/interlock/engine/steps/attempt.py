"""One attempt of a step, an undo or an effect: a task, a time limit, and how it ended.

A cancelled attempt knows its reason: the time limit (a failure like any other, C2), the engine that stops (not
counted), or the workflow that has moved on (nothing to report: its result would be late).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from typing import Literal

import msgspec

from interlock.clock import Chance
from interlock.core.declarations import Classify
from interlock.core.policies import Classification, Retry
from interlock.engine.dependencies.classify_errors import Kind, kind_of
from interlock.engine.dependencies.outlet import Outcome
from interlock.engine.dependencies.step_threads import StepThread
from interlock.engine.dependencies.wait_queue import Pass
from interlock.engine.path.engine_commands import ERROR_CHARACTERS_MAX, Failure
from interlock.engine.path.staged_group import Envelope
from interlock.engine.tracer_protocol import Guarded, Traced
from interlock.errors import InterlockError
from interlock.redaction import bounded_text, bounded_traceback, error_text, logger_of, storable_text
from interlock.store.records import Row

IGNORED_S = 1.0
"""How long an attempt may run on after its timeout. Then it is given up, and runs on beside its successor."""

DELAY_S_MAX = 30 * 86_400.0
"""The longest wait that a step can ask for with RetryAfter."""

Cut = Literal["expired", "stopping", "moved_on"]

log = logger_of("interlock.steps")

OUTCOMES: dict[Kind, Outcome] = {
    Kind.INFRASTRUCTURE: "failed",
    Kind.BUSINESS: "refused",
    Kind.UNEXPECTED: "abandoned",
    Kind.MISTAKE: "abandoned",
}
"""The outcome for the breaker of each kind of failure (C3)."""


class RunningAttempt:
    """One attempt of a step, an undo or an effect. Lives in the event loop."""

    # Defaults are attributes of the class: an attempt sets the few that differ, and one is made per step.
    is_aside: bool = False
    """Whether it released its slot at the dependency before it began."""
    again: Callable[[], Envelope] | None = None
    """Makes the report of an attempt that was not made."""
    heartbeat_s: float | None = None
    """The longest time between two heartbeats."""
    timeout_reason: str = ""
    """Why it timed out."""
    outcome: Outcome = "abandoned"
    """The outcome for the breaker of its dependency."""
    failure: Failure | None = None
    """Its failure, if it failed."""
    context: Context | None = None
    """The context in which it runs; None for that of its creator."""
    born_s: float = 0.0
    """When it began, by the event loop's clock."""
    lease: int = 0
    """The token of the lease under which it runs, on a shared store."""
    task: "asyncio.Task[None] | None" = None
    waiting: Coroutine[object, object, None] | None = None
    """Its coroutine, while it waits for the end of another attempt."""
    thread: StepThread | None = None
    """The thread of a blocking function."""
    begun: bool = False
    over: bool = False
    waited: bool = False
    """Whether its coroutine has suspended: one that never does has made no call."""
    overdue: Callable[[], Envelope] | None = None
    """Makes the report of an attempt whose time is over."""
    stuck: "Callable[[RunningAttempt], None] | None" = None
    """Called when it still runs after its timeout and cancellation."""
    cut: Cut | None = None
    ended: Sequence[Callable[[], None]] = ()
    """Called at its end."""
    _traced: Traced | None = None
    _tracing: Guarded | None = None
    _why: str = ""
    _beat_s: float = 0.0
    _listening: asyncio.TimerHandle | None = None

    def __init__(self, workflow: str, key: str, timeout_s: float, permit: Pass, *, is_effect: bool = False) -> None:
        self.workflow = workflow
        self.key = key
        self.timeout_s = timeout_s
        self.permit = permit
        self.is_effect = is_effect

    def expire(self) -> None:
        """Cancel it because of its timeout."""
        self.timeout_reason = self.timeout_reason or f"it took longer than {self.timeout_s:g} s"
        self.cancel("expired")
        if self.task is not None and self.stuck is not None:
            # A thread cannot be cancelled: waiting for its end would only delay the workflow.
            self.task.get_loop().call_later(0.0 if self.in_thread else IGNORED_S, self.stuck, self)

    @property
    def in_thread(self) -> bool:
        """Whether a thread runs for it."""
        return self.thread is not None and self.thread.running

    def begin(self) -> None:
        """Mark it as begun, in the first line of the task. A task cancelled before that would never report its end."""
        self.begun = True
        if self.cut is not None:
            raise asyncio.CancelledError
        if self.permit.line is not None and self.task is not None:
            # The loop runs this when the coroutine suspends for the first time, and before it goes on.
            self.task.get_loop().call_soon(self._note_wait)

    def _note_wait(self) -> None:
        self.waited = True

    def beat(self) -> None:
        """Record a heartbeat. From any thread."""
        if self.task is not None:
            self._beat_s = self.task.get_loop().time()

    def listen(self) -> None:
        """Expire it when its last heartbeat is older than `heartbeat_s`."""
        assert self.task is not None
        assert self.heartbeat_s is not None
        loop = self.task.get_loop()
        left_s = self.heartbeat_s - (loop.time() - max(self._beat_s, self.born_s))
        if self.over or self.cut is not None:
            return
        if left_s > 0:
            self._listening = loop.call_later(left_s, self.listen)
            return
        self.timeout_reason = f"no sign of life for {self.heartbeat_s:g} s"
        self.expire()

    def judged(self, failure: Failure) -> Failure:
        """Record its failure. A probe that finds its dependency still down does not count as an attempt (C4)."""
        self._why = failure.text
        self.failure = failure
        if self.cut == "moved_on":
            return failure
        self.outcome = OUTCOMES[failure.kind]
        if self.outcome == "failed" and self.permit.is_probe:
            return msgspec.structs.replace(failure, counted=False)
        return failure

    def leave(self, clock_s: Callable[[], float]) -> None:
        """Return its permit with its outcome. A call at a dependency also reports its duration, by this clock."""
        if self._listening is not None:
            self._listening.cancel()
        permit = self.permit
        if permit.line is None and self.thread is None:
            permit.slots.release()
        elif self.thread is not None and self.thread.running:
            self.thread.kept_pass = permit
            permit.stay(self.outcome, clock_s() - self.born_s, self._why)
        else:
            permit.leave(self.outcome, clock_s() - self.born_s, self._why, reached=self._reached)
        if self._traced is not None and self._tracing is not None:
            error = None if self.failure is None else self.failure.error
            self._tracing.ended(self._traced, self._span_outcome(), error, self._why)

    def follow(
        self, tracing: Guarded, row: Row, stored: str, step: str, kind: str, number: int, *, first: bool
    ) -> None:
        """Trace it from its beginning to its end."""
        self._tracing = tracing
        self.context, self._traced = tracing.began(row, stored, step, kind, number, first=first)

    @property
    def _reached(self) -> bool:
        """Whether its end counts for the breaker of the dependency (C19).

        A step or effect that succeeded has called it. An undo may have had nothing to undo, and a refusal may be the
        step's own: these count only if the coroutine has suspended.
        """
        return self.waited or (self.outcome == "done" and self.permit.kind != "undo")

    def _span_outcome(self) -> str:
        """Return its outcome as an `outcome` of StepAttempted."""
        if self.outcome == "done":
            return "done"
        if self.failure is None or self.cut in {"moved_on", "stopping"}:
            return "cancelled"
        return self.failure.outcome

    def step_aside(self) -> None:
        """Release its slot at the dependency, because it waits for an attempt that may never end."""
        self.is_aside = True
        self.permit = self.permit.without_place()

    def cancel(self, why: Cut) -> None:
        """Cancel it. The first reason counts."""
        if self.cut is None:
            self.cut = why
        if self.task is not None and self.begun:
            if self.thread is not None:
                self.thread.cancels += 1
            self.task.cancel()


class Judge:
    """Classifies the errors of attempts (C3)."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._warned: dict[int, Classify] = {}
        """Classifiers that were logged as wrong, by `id()`. Keeping them prevents the reuse of an id."""

    def failure(self, error: BaseException, retry: Retry, attempt: int, classify: Classify | None = None) -> Failure:
        """Return the failure for an error: its kind, text, whether to retry, and the delay."""
        kind, asked_s = kind_of(error)
        if classify is not None and isinstance(error, Exception):
            kind = self._kind_by_classifier(error, classify) or kind
        delay_s = retry.delay_s(attempt, self._chance.fraction())
        if asked_s is not None and asked_s > delay_s:
            delay_s = min(asked_s, DELAY_S_MAX)
        name = error.code if isinstance(error, InterlockError) else type(error).__name__
        # G5: only a permanent refusal by the dependency, the step or its classifier is known to have no effect.
        again, unknown = kind not in {Kind.BUSINESS, Kind.MISTAKE}, kind is not Kind.BUSINESS
        traceback = "" if again and not retry.exhausted(attempt) else bounded_traceback(error)
        return Failure(name, _text_of(error), again, delay_s, unknown=unknown, kind=kind, traceback=traceback)

    def _kind_by_classifier(self, error: Exception, classify: Classify) -> Kind | None:
        """Return the kind from the step's own classifier; None if it returns None or is wrong."""
        try:
            verdict: object = classify(error)
        except Exception as wrong:  # noqa: BLE001 -- a classifier that raises decides nothing.
            self._warn_once(classify, f"raised {type(wrong).__name__} ({_text_of(wrong)})")
            return None
        if verdict is None:
            return None
        if not isinstance(verdict, Classification):
            self._warn_once(classify, f"returned {type(verdict).__name__} instead of a Classification or None")
            return None
        return Kind.INFRASTRUCTURE if verdict is Classification.RETRYABLE else Kind.BUSINESS

    def _warn_once(self, classify: Classify, what: str) -> None:
        if id(classify) in self._warned:
            return
        self._warned[id(classify)] = classify
        name = getattr(classify, "__qualname__", type(classify).__name__)
        log.warning("The classifier %s %s. This is logged once; the usual classification applies.", name, what)

    def timeout(self, text: str, retry: Retry, attempt: int, error: BaseException | None = None) -> Failure:
        """Return the failure of an attempt that timed out: retryable, of unknown outcome (C2)."""
        delay_s = retry.delay_s(attempt, self._chance.fraction())
        traceback = bounded_traceback(error) if error is not None and retry.exhausted(attempt) else ""
        return Failure("timeout", text, retryable=True, delay_s=delay_s, traceback=traceback)


def _text_of(error: BaseException) -> str:
    """Return the text of an error for the store: bounded, with secrets masked."""
    text = error.what if isinstance(error, InterlockError) else error_text(error)
    return storable_text(bounded_text(text, ERROR_CHARACTERS_MAX))
