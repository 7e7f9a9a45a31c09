"""What wants to move a workflow from inside: the results of steps and undos, timers, and attempts that begin.

A report belongs to one visit and one key. If the workflow has moved on meanwhile, it is late: it is noted and changes
nothing (G5: a result is applied at most once). Reports never pass admission.
"""

import asyncio
from typing import Literal

import msgspec

from interlock.core import decide
from interlock.core.events import Event
from interlock.core.table import Node
from interlock.core.values import StepFailure
from interlock.errors import LimitReached, RequestError
from interlock.runtime.owed import Owed
from interlock.runtime.pipeline import Group
from interlock.runtime.staging import Staged, replace
from interlock.store.values import Letter

Late = Literal["late"]


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt did not succeed."""

    error: str
    message: str
    retryable: bool
    delay_s: float
    """How long to wait before the next one, if there is one."""


class _Report:
    """What all reports have; nobody waits for their answer."""

    __slots__ = ("conflicts", "future", "key", "run", "visit", "workflow")

    def __init__(self, workflow: str, visit: int, run: str) -> None:
        self.workflow = workflow
        self.visit = visit
        self.run = run
        """The idempotency key of what is reported on."""
        self.key: str | None = None
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0

    def _staged(self, group: Group) -> Staged | None:
        """The workflow, if it is still the visit and the run that this is about."""
        staged = group.stage(self.workflow)
        if staged is None or staged.live.snapshot.visit != self.visit:
            return None
        owed = staged.live.owed
        known = owed.run is not None and owed.run.key == self.run
        return staged if known or (owed.undos and owed.undos[0].key == self.run) else None


class Begun(_Report):
    """A slot is free: the next attempt begins as soon as that is durable."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Count the attempt before it begins."""
        staged = self._staged(group)
        if staged is None or not group.slots.reserve():
            return "late"
        staged.reserved = True
        owed = staged.live.owed
        if owed.undos:
            first = replace(owed.undos[0], attempts=owed.undos[0].attempts + 1, started=True, retry_us=None)
            staged.owe(replace(owed, undos=(first, *owed.undos[1:]), dead=None), group.now_us)
        else:
            assert owed.run is not None
            run = replace(owed.run, attempts=owed.run.attempts + 1, started=True, retry_us=None)
            staged.owe(replace(owed, run=run, dead=None), group.now_us)
        return None


class Crashed(_Report):
    """The process died while an attempt was under way. It may have happened, it counts, and it is tried again."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Like a failure of that attempt, without a wait."""
        staged = self._staged(group)
        if staged is None:
            return "late"
        failure = Failure("crashed", "the process ended during the attempt", retryable=True, delay_s=0.0)
        if staged.live.owed.run is not None:
            return _failed(staged, group, failure, unknown=True)
        owed = staged.live.owed
        first = replace(owed.undos[0], started=False, retry_us=group.now_us)
        staged.owe(replace(owed, undos=(first, *owed.undos[1:])), group.now_us)
        return None


class Returned(_Report):
    """A step has returned its event."""

    __slots__ = ("event",)

    def __init__(self, workflow: str, visit: int, run: str, event: Event) -> None:
        super().__init__(workflow, visit, run)
        self.event = event

    def decide(self, group: Group) -> object:
        """Apply the event on the current context."""
        staged = self._staged(group)
        if staged is None:
            return "late"
        live = staged.live
        try:
            decision = decide.decide(live.bound.table, live.snapshot, self.event, result=True)
        except RequestError as error:
            # A result that is refused counts as a failure for good. It has happened all the same, if it was the log of
            # runs that was full.
            failure = Failure(error.code, error.what, retryable=False, delay_s=0.0)
            return _failed(staged, group, failure, unknown=isinstance(error, LimitReached))
        staged.move(decision, group.ids, group.slots, group.now_us, result=True)
        return None


class Failed(_Report):
    """An attempt of a step has failed."""

    __slots__ = ("failure",)

    def __init__(self, workflow: str, visit: int, run: str, failure: Failure) -> None:
        super().__init__(workflow, visit, run)
        self.failure = failure

    def decide(self, group: Group) -> object:
        """Retry later, or give up."""
        staged = self._staged(group)
        if staged is None:
            return "late"
        return _failed(staged, group, self.failure, unknown=self.failure.retryable)


def _failed(staged: Staged, group: Group, failure: Failure, *, unknown: bool) -> object:
    live = staged.live
    owed, node = live.owed, _node(live.bound.table.nodes, live.snapshot.state._name_)
    step = node.step
    assert owed.run is not None
    assert step is not None
    run = replace(owed.run, started=False, unknown=owed.run.unknown or unknown)
    if failure.retryable and not step.retry.exhausted(run.attempts):
        retry_us = group.now_us + int(failure.delay_s * 1_000_000)
        staged.owe(replace(owed, run=replace(run, retry_us=retry_us)), group.now_us)
        return None
    told = StepFailure(
        step=step.name, error=failure.error, message=failure.message, attempts=run.attempts, unknown=run.unknown
    )
    decision = decide.fail(live.bound.table, live.snapshot, told)
    if decision is not None:
        staged.move(decision, group.ids, group.slots, group.now_us)
        return None
    staged.letters.append(_letter("step", staged, group, step.name, run.attempts, failure, run.key))
    staged.owe(replace(owed, run=run, dead="step"), group.now_us)
    return None


class Undone(_Report):
    """An undo is done."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """On to the next one, or out of the unwinding state."""
        staged = self._staged(group)
        if staged is None:
            return "late"
        live = staged.live
        rest = live.owed.undos[1:]
        if rest:
            reserved = staged.reserved = group.slots.reserve()
            first = replace(rest[0], attempts=int(reserved), started=reserved)
            staged.owe(replace(live.owed, undos=(first, *rest[1:])), group.now_us)
            return None
        staged.owe(replace(live.owed, undos=()), group.now_us)
        decision = decide.unwound(live.bound.table, staged.live.snapshot)
        staged.move(decision, group.ids, group.slots, group.now_us)
        return None


class UndoFailed(_Report):
    """An attempt of an undo has failed."""

    __slots__ = ("attempts_max", "failure")

    def __init__(self, workflow: str, visit: int, run: str, failure: Failure, *, attempts_max: int) -> None:
        super().__init__(workflow, visit, run)
        self.failure = failure
        self.attempts_max = attempts_max

    def decide(self, group: Group) -> object:
        """Retry later, or leave it to a person: older undos wait."""
        staged = self._staged(group)
        if staged is None:
            return "late"
        owed = staged.live.owed
        first = replace(owed.undos[0], started=False)
        dead: Literal["undo"] | None = None
        if self.failure.retryable and first.attempts < self.attempts_max:
            first = replace(first, retry_us=group.now_us + int(self.failure.delay_s * 1_000_000))
        else:
            dead = "undo"
            name = f"{first.step}.{first.undo}"
            staged.letters.append(_letter("undo", staged, group, name, first.attempts, self.failure, first.key))
        staged.owe(replace(owed, undos=(first, *owed.undos[1:]), dead=dead), group.now_us)
        return None


class Fired(_Report):
    """The time of a timer has come."""

    __slots__ = ("at_us",)

    def __init__(self, workflow: str, visit: int, at_us: int) -> None:
        super().__init__(workflow, visit, "")
        self.at_us = at_us

    def decide(self, group: Group) -> object:
        """Send its event, if the workflow is still there."""
        staged = group.stage(self.workflow)
        if staged is None or staged.live.snapshot.visit != self.visit:
            return "late"
        owed = staged.live.owed
        timer = next((each for each in owed.timers if each.at_us == self.at_us), None)
        if timer is None or timer.at_us > group.now_us:
            return "late"
        staged.owe(_without(owed, self.at_us), group.now_us)
        live = staged.live
        event = live.bound.codec.decode_event(timer.event, timer.payload)
        try:
            decision = decide.decide(live.bound.table, live.snapshot, event)
        except RequestError:
            return "late"  # The machine says no: the timer has had its chance.
        staged.move(decision, group.ids, group.slots, group.now_us)
        return None


def _without(owed: Owed, at_us: int) -> Owed:
    return replace(owed, timers=tuple(each for each in owed.timers if each.at_us != at_us))


def _letter(kind: str, staged: Staged, group: Group, name: str, attempts: int, failure: Failure, key: str) -> Letter:
    row = staged.live.row
    told = f"{failure.error}: {failure.message}" if failure.message else failure.error
    return Letter(group.ids.new().hex, kind, row.id, name, attempts, told, group.now_us, row.version, key)


def _node(nodes: dict[str, Node], name: str) -> Node:
    return nodes[name]
