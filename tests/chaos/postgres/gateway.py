"""The gateway outside: it lives in the process of the test, which nobody kills, and writes down every call.

It keeps what it has promised: the same idempotency key is the same deed, whoever asks. Taking back a deed that was
never done closes its key: a worker that was frozen before it could ask asks too late. Beyond that nothing can be relied
upon: it fails before or after it has done what was asked, hangs, declines, and takes its time.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from interlock.clock import Chance
from tests.crash.engine.gateway import ASKED, DECLINED, DONE, Line

FAILED = "failed"
ANSWERED, FAILED_BEFORE, LOST, HUNG_BEFORE, HUNG_AFTER = 0.89, 0.93, 0.96, 0.965, 0.97
"""The share of calls up to which they go so; what is left is declined, by those that can be."""

LATENCY_S = 0.06
DECLINABLE = {"charge", "reserve"}


class Call(NamedTuple):
    """A call that somebody is waiting for."""

    life: int
    line: Line
    gone: asyncio.Event
    """Whoever asked does not wait any more."""


class Gateway:
    """Everything that was ever asked of it, and by which life of a process."""

    def __init__(self, chance: Chance, told: Callable[[Line], None]) -> None:
        self.lines: list[Line] = []
        self.lives: list[int] = []
        """Which life each of the lines came from."""
        self.under_way: dict[int, Call] = {}
        self.calls: Counter[int] = Counter()
        """How often each life has asked."""
        self.seen: Counter[str] = Counter()
        self.last: dict[str, int] = {}
        """Which life has asked last, by workflow."""
        self._answers: dict[str, str] = {}
        self._chance = chance
        self._told = told

    async def ask(self, call: Call) -> str | None:
        """Do the deed once for this key, or not, and say so, or not: None is an answer that is never given."""
        luck, latency_s = self._chance.fraction(), self._chance.fraction() * LATENCY_S
        number = len(self.lines)
        if any(each.life == call.life and each.line.key == call.line.key for each in self.under_way.values()):
            self.seen["two attempts of one worker at once"] += 1
        self._write(ASKED, call)
        self.calls[call.life] += 1
        self.last[call.line.workflow] = call.life
        self.under_way[number] = call
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(call.gone.wait(), latency_s)
            return await self._answer(call, luck)
        finally:
            del self.under_way[number]

    async def _answer(self, call: Call, luck: float) -> str | None:
        if ANSWERED <= luck < FAILED_BEFORE:
            return FAILED
        if LOST <= luck < HUNG_BEFORE:
            await call.gone.wait()
            return None
        answer = self._done(call, declines=luck >= HUNG_AFTER)
        if FAILED_BEFORE <= luck < LOST:
            return FAILED
        if HUNG_BEFORE <= luck < HUNG_AFTER:
            await call.gone.wait()
            return None
        return answer

    def _done(self, call: Call, *, declines: bool) -> str:
        line = call.line
        answer = self._answers.get(line.key)
        if answer is None:
            answer = DECLINED if declines and line.deed in DECLINABLE else DONE
            self._answers[line.key] = answer
            if line.undoes != "-" and self._answers.setdefault(line.undoes, DECLINED) == DECLINED:
                self.seen["taken back before it was done"] += 1
            self._write(answer, call)
        return answer

    def under_way_of(self, life: int) -> set[str]:
        """The workflows for which a life waits for an answer at this moment."""
        calls = self.under_way.values()
        return {call.line.workflow for call in calls if call.life == life and not call.gone.is_set()}

    def asked_by_others(self, life: int, since: int) -> set[str]:
        """The workflows for which anybody else has asked for something, from a number of lines on."""
        return {
            line.workflow
            for line, asking in zip(self.lines[since:], self.lives[since:], strict=True)
            if asking != life and line.what == ASKED
        }

    def _write(self, what: str, call: Call) -> None:
        line = call.line._replace(what=what)
        self.lines.append(line)
        self.lives.append(call.life)
        self._told(line)
