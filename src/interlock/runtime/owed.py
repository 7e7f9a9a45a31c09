"""Pending work of a workflow: its running step, its timers, its undo log, the undos of an unwinding.

It is written with the workflow's row, in the same commit as the transition that owes it (G3). Stores do not
decode it. Idempotency keys are made only here: once, from random ids, and written before the first attempt (C6).
"""

from typing import Literal

import msgspec

from interlock.core.values import TimerPolicy
from interlock.seams import Ids


class StepRun(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The step of the current visit, from when it is owed until its result is applied."""

    key: str
    attempts: int = 0
    """Attempts that were begun; counted before they begin, so that one that kills the process counts too."""
    token: int = 0
    """The token of the running attempt, one more for each, counted or not. A result with another token is late."""
    started: bool = False
    """Whether an attempt is under way, or was when the process died."""
    retry_us: int | None = None
    unknown: bool = False
    """Whether a failed attempt may have had an effect."""
    parked: bool = False
    """Whether `retry_us` is the next check of its dependency, and not the end of a backoff."""
    crashed: bool = False
    """Whether the last attempt ended with its process. The next is then not a retry of a failed call."""

    @property
    def attempted(self) -> bool:
        """Whether it may have had an effect: an attempt is under way, or one has ended with an unknown outcome."""
        return self.started or self.unknown

    @property
    def is_retry(self) -> bool:
        """Whether the next attempt repeats one that has failed."""
        return self.retry_us is not None and self.attempts > 0 and not self.crashed


class TimerRun(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A timer of the current visit."""

    event: str
    payload: bytes
    policy: TimerPolicy
    after_us: int
    at_us: int
    """When it fires, by the store's clock."""
    set_us: int = 0
    """When `at_us` was computed: running time for the policy "remaining" counts from there."""


class PastRun(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A run in the undo log, which an unwinding would undo."""

    step: str
    visit: int
    key: str
    event: str | None = None
    """None when its outcome is unknown."""
    payload: bytes = b""


class UndoRun(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pending undo. The first of them is the one that runs."""

    step: str
    undo: str
    visit: int
    key: str
    undoes: str
    event: str | None = None
    payload: bytes = b""
    attempts: int = 0
    token: int = 0
    started: bool = False
    retry_us: int | None = None
    parked: bool = False


class Owed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All pending work of one workflow, besides its effects."""

    run: StepRun | None = None
    timers: tuple[TimerRun, ...] = ()
    past: tuple[PastRun, ...] = ()
    undos: tuple[UndoRun, ...] = ()
    dead: Literal["step", "undo", "settled"] | None = None
    """The kind of work that became a dead letter; "settled" is a step whose letter an operator has resolved."""
    letter: str = ""
    """The id of the dead letter, while there is one."""
    trace: str = ""
    """With tracing, the W3C `traceparent` of its last pass and, after a space, that of its first if it differs. Later
    passes link to them, also after a crash."""

    @property
    def current(self) -> StepRun | UndoRun | None:
        """The step or the newest undo that runs or is next; None for a dead letter."""
        if self.dead is not None:
            return None
        return self.run or (self.undos[0] if self.undos else None)

    def wake_us(self, now_us: int) -> int | None:
        """Return when a worker must check the workflow again; now for a running attempt, in case this process dies."""
        if self is NOTHING:
            return None
        soonest = None
        current = self.current
        if current is not None:
            soonest = current.retry_us or now_us
        for timer in self.timers:
            if soonest is None or timer.at_us < soonest:
                soonest = timer.at_us
        return soonest


UUID_CHARACTERS = 36

NOTHING = Owed()
_decoder = msgspec.json.Decoder(Owed)
_encode = msgspec.json.Encoder().encode


def encode_owed(owed: Owed) -> bytes:
    """Encode it for the store; empty when nothing is owed."""
    return b"" if owed is NOTHING else _encode(owed)


def decode_owed(data: bytes) -> Owed:
    """Decode it from the store."""
    return _decoder.decode(data) if data else NOTHING


def fresh_key(name: str, ids: Ids) -> str:
    """Make an idempotency key: the name of the step, undo or effect, and a random UUID. Never from a clock (C6)."""
    return f"{name}-{ids.text()}"


def named_in(key: str) -> str:
    """Return the name of the step, undo or effect that a key was made for."""
    return key[: -UUID_CHARACTERS - 1]
