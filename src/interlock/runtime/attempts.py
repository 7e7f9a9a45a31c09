"""One attempt of a step, an undo or an effect: a task, a time limit, and how it ended.

Cancelling is told apart by who asked for it: the time limit (a failure like any other, C2), the engine that stops (not
counted), or the workflow that has moved on (nothing to report: whatever it still says is late).
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Literal

import msgspec

from interlock.core.declarations import Classify
from interlock.core.policies import Classification, Retry
from interlock.errors import InterlockError
from interlock.redaction import bounded_text, bounded_traceback, error_text, logger_of, storable_text
from interlock.runtime.classifying import Kind, kind_of
from interlock.runtime.pipeline import Envelope
from interlock.runtime.reports import ERROR_CHARACTERS_MAX, Failure
from interlock.runtime.resilience.lines import Pass
from interlock.runtime.resilience.reasons import Outcome
from interlock.runtime.step_threads import StepThread
from interlock.runtime.tracing import Guarded, Traced
from interlock.seams import Chance
from interlock.store.values import Row

IGNORED_S = 1.0
"""How long an attempt may take to end after its time is over. Then it is given up, and goes on beside its successor."""

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
"""What a failure says about the dependency (C3)."""


class Attempt:
    """Something that runs."""

    __slots__ = (
        "_beat_s",
        "_held",
        "_listening",
        "_traced",
        "_tracing",
        "_why",
        "again",
        "begun",
        "born_s",
        "context",
        "cut",
        "ended",
        "failure",
        "heartbeat_s",
        "is_aside",
        "is_effect",
        "key",
        "lease",
        "outcome",
        "over",
        "overdue",
        "stuck",
        "task",
        "thread",
        "timeout_s",
        "told",
        "waited",
        "waiting",
        "workflow",
    )

    def __init__(self, workflow: str, key: str, timeout_s: float, held: Pass, *, is_effect: bool = False) -> None:
        self.workflow = workflow
        self.key = key
        self.timeout_s = timeout_s
        self.is_effect = is_effect
        self.is_aside = False
        """It has given its place at its dependency back before it has begun."""
        self.again: Callable[[], Envelope] | None = None
        """Makes the report of an attempt that was not made."""
        self.heartbeat_s: float | None = None
        """How long it may be silent."""
        self.told = ""
        """Why its time is over."""
        self.outcome: Outcome = "abandoned"
        """What it says about its dependency."""
        self.failure: Failure | None = None
        """How it failed."""
        self.context: Context | None = None
        """In which it runs, if not in that of whoever begins it."""
        self._traced: Traced | None = None
        self._tracing: Guarded | None = None
        self._held = held
        self._why = ""
        self._beat_s = 0.0
        self._listening: asyncio.TimerHandle | None = None
        self.born_s = 0.0
        """When it began, by the event loop's clock."""
        self.lease = 0
        """The token of the lease under which it runs, where others may take it over."""
        self.task: asyncio.Task[None] | None = None
        self.waiting: Coroutine[object, object, None] | None = None
        """What it will run, while it waits for the end of another."""
        self.thread: StepThread | None = None
        """Where a blocking function runs."""
        self.begun = self.over = False
        self.waited = False
        """It has waited for something outside itself: a coroutine that never does has made no call."""
        self.overdue: Callable[[], Envelope] | None = None
        """Makes the report of an attempt whose time is over."""
        self.stuck: Callable[[Attempt], None] | None = None
        """Told when it goes on although its time is over and it was cancelled."""
        self.cut: Cut | None = None
        self.ended: list[Callable[[], None]] = []
        """What waits for its end."""

    def expire(self) -> None:
        """Its time is over."""
        self.told = self.told or f"it took longer than {self.timeout_s:g} s"
        self.cancel("expired")
        if self.task is not None and self.stuck is not None:
            # A thread cannot be cancelled: its workflow need not wait to find that out.
            self.task.get_loop().call_later(0.0 if self.in_thread else IGNORED_S, self.stuck, self)

    @property
    def in_thread(self) -> bool:
        """Whether a thread is at work for it."""
        return self.thread is not None and self.thread.running

    def begin(self) -> None:
        """The first line of the task. A task that is cancelled before it has begun would never say that it ended."""
        self.begun = True
        if self.cut is not None:
            raise asyncio.CancelledError
        if self._held.line is not None and self.task is not None:
            # The loop runs this when the coroutine suspends for the first time, and before it goes on.
            self.task.get_loop().call_soon(self._note_wait)

    def _note_wait(self) -> None:
        self.waited = True

    def beat(self) -> None:
        """It is at work. From any thread."""
        if self.task is not None:
            self._beat_s = self.task.get_loop().time()

    def listen(self) -> None:
        """End it when it is silent for too long."""
        assert self.task is not None
        assert self.heartbeat_s is not None
        loop = self.task.get_loop()
        left_s = self.heartbeat_s - (loop.time() - max(self._beat_s, self.born_s))
        if self.over or self.cut is not None:
            return
        if left_s > 0:
            self._listening = loop.call_later(left_s, self.listen)
            return
        self.told = f"no sign of life for {self.heartbeat_s:g} s"
        self.expire()

    def judged(self, failure: Failure) -> Failure:
        """Take notice of how it failed. A probe that finds its dependency still down costs no attempt (C4)."""
        self._why = failure.text
        self.failure = failure
        if self.cut == "moved_on":
            return failure
        self.outcome = OUTCOMES[failure.kind]
        if self.outcome == "failed" and self._held.is_probe:
            return msgspec.structs.replace(failure, counted=False)
        return failure

    def leave(self, now_s: float) -> None:
        """Give its place back, and say how it went."""
        if self._listening is not None:
            self._listening.cancel()
        if self.thread is not None and self.thread.running:
            self.thread.held = self._held
            self._held.stay(self.outcome, now_s - self.born_s, self._why)
        else:
            self._held.leave(self.outcome, now_s - self.born_s, self._why, reached=self._reached)
        if self._traced is not None and self._tracing is not None:
            error = None if self.failure is None else self.failure.error
            self._tracing.ended(self._traced, self._ending(), error, self._why)

    def follow(
        self, tracing: Guarded, row: Row, stored: str, step: str, kind: str, number: int, *, first: bool
    ) -> None:
        """Have it traced, from its beginning to its end."""
        self._tracing = tracing
        self.context, self._traced = tracing.began(row, stored, step, kind, number, first=first)

    @property
    def _reached(self) -> bool:
        """Whether its end tells something about the dependency (C19).

        A step or effect that worked has called it: that is what they are for. An undo may have had nothing to take
        back, and a refusal may be the step's own: these count if the attempt has waited for something.
        """
        return self.waited or (self.outcome == "done" and self._held.kind != "undo")

    def _ending(self) -> str:
        """How it ended, in the words of StepAttempted."""
        if self.outcome == "done":
            return "done"
        if self.failure is None or self.cut in {"moved_on", "stopping"}:
            return "cancelled"
        return self.failure.outcome

    def step_aside(self) -> None:
        """Give the place at its dependency back: it waits for an attempt that may never end, and others need not."""
        self.is_aside = True
        self._held = self._held.without_place()

    def cancel(self, why: Cut) -> None:
        """End it. The first reason counts."""
        if self.cut is None:
            self.cut = why
        if self.task is not None and self.begun:
            if self.thread is not None:
                self.thread.cancels += 1
            self.task.cancel()


class Judge:
    """Says what an error means for the attempt that raised it (C3)."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._doubted: dict[int, Classify] = {}
        """Classifiers that were told to be wrong, by their id. They are kept, so that no other can have it."""

    def failure(self, error: BaseException, retry: Retry, attempt: int, classify: Classify | None = None) -> Failure:
        """Whether to try again, when, and what to tell."""
        kind, asked_s = kind_of(error)
        if classify is not None and isinstance(error, Exception):
            kind = self._classified(error, classify) or kind
        delay_s = retry.delay_s(attempt, self._chance.fraction())
        if asked_s is not None and asked_s > delay_s:
            delay_s = min(asked_s, DELAY_S_MAX)
        name = error.code if isinstance(error, InterlockError) else type(error).__name__
        # G5: known without effect is only what the dependency, the step or its classifier refuses for good.
        again, unknown = kind not in {Kind.BUSINESS, Kind.MISTAKE}, kind is not Kind.BUSINESS
        traceback = "" if again and not retry.exhausted(attempt) else bounded_traceback(error)
        return Failure(name, _text_of(error), again, delay_s, unknown=unknown, kind=kind, traceback=traceback)

    def _classified(self, error: Exception, classify: Classify) -> Kind | None:
        """What the step's own classifier says, if it has an opinion."""
        try:
            verdict: object = classify(error)
        except Exception as wrong:  # noqa: BLE001 -- a classifier that raises has no opinion.
            self._doubt(classify, f"raised {type(wrong).__name__} ({_text_of(wrong)})")
            return None
        if verdict is None:
            return None
        if not isinstance(verdict, Classification):
            self._doubt(classify, f"returned {type(verdict).__name__} instead of a Classification or None")
            return None
        return Kind.INFRASTRUCTURE if verdict is Classification.RETRYABLE else Kind.BUSINESS

    def _doubt(self, classify: Classify, what: str) -> None:
        if id(classify) in self._doubted:
            return
        self._doubted[id(classify)] = classify
        name = getattr(classify, "__qualname__", type(classify).__name__)
        log.warning("The classifier %s %s. It is told once; the usual classification applies.", name, what)

    def timeout(self, told: str, retry: Retry, attempt: int, error: BaseException | None = None) -> Failure:
        """An attempt that took too long, or was silent for too long: retryable, of unknown outcome (C2)."""
        delay_s = retry.delay_s(attempt, self._chance.fraction())
        traceback = bounded_traceback(error) if error is not None and retry.exhausted(attempt) else ""
        return Failure("timeout", told, retryable=True, delay_s=delay_s, traceback=traceback)


def _text_of(error: BaseException) -> str:
    """The text of an error as every store takes it: bounded, with secrets masked."""
    text = error.what if isinstance(error, InterlockError) else error_text(error)
    return storable_text(bounded_text(text, ERROR_CHARACTERS_MAX))
