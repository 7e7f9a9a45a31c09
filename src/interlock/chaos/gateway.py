"""External services that steps call: payment gateway, warehouse and carrier, with a log of every call.

An idempotency key stands for one deed, from any worker. Undoing a deed that was never done closes its key: a call
of a worker that was frozen before it arrives too late. Calls fail before or after the deed; a scenario can make them
hang or refuse them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import NamedTuple

from interlock.chaos.messages import DECLINED, DONE, FAILED, Call
from interlock.seams import Chance

ASKED = "asked"
UNDOES = {"refund": "charge", "release": "reserve"}

FAILS, LOSES = 0.02, 0.04
"""Cumulative shares of calls that fail before the deed, and that lose their answer after it."""

LATENCY_S = 0.03
DECLINED_EVERY = 5


class Line(NamedTuple):
    """One line of the log."""

    what: str
    """asked, done, declined, or failed."""
    deed: str
    workflow: str
    key: str
    undoes: str
    worker: int
    at_s: float


class Hold:
    """Calls that hang until they are released."""

    def __init__(self, matches: Callable[[Call, int], bool]) -> None:
        self.matches = matches
        self.waiting: list[tuple[Call, int]] = []
        self.released = asyncio.Event()


class Gateway:
    """The external services, with the log of all calls."""

    def __init__(self, chance: Chance, now_s: Callable[[], float], changed: Callable[[], None]) -> None:
        self.lines: list[Line] = []
        self.down = False
        """Whether every call for money is refused."""
        self._answers: dict[str, str] = {}
        self._holds: list[Hold] = []
        self._chance = chance
        self._now_s = now_s
        self._changed = changed

    async def ask(self, call: Call, worker: int, order: int) -> str:
        """Do the deed once for this key. It may fail before the deed, or lose the answer after it."""
        luck, latency_s = self._chance.fraction(), self._chance.fraction() * LATENCY_S
        self._write(ASKED, call, worker)
        if self.down and call.deed in {"charge", "refund"}:
            self._write(FAILED, call, worker)
            return FAILED
        await asyncio.sleep(latency_s)
        for hold in self._holds:
            if hold.matches(call, worker):
                hold.waiting.append((call, worker))
                self._changed()
                try:
                    await hold.released.wait()
                finally:
                    hold.waiting.remove((call, worker))
        if luck < FAILS:
            self._write(FAILED, call, worker)
            return FAILED
        answer = self._do_deed(call, worker, declines=call.deed == "collect" and order % DECLINED_EVERY == 0)
        if luck < LOSES and answer == DONE:
            return FAILED
        return answer

    @contextlib.contextmanager
    def holding(self, matches: Callable[[Call, int], bool]) -> Generator[Hold, None, None]:
        """Let matching calls hang until the block is left."""
        hold = Hold(matches)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self.let_go(hold)

    def let_go(self, hold: Hold) -> None:
        """Answer the hanging calls. A second call does nothing."""
        hold.released.set()
        self._holds = [each for each in self._holds if each is not hold]

    def count(self, what: str, deed: str, *, since: int = 0, worker: int | None = None) -> int:
        """Return the number of matching lines from index `since` on."""
        return sum(
            line.what == what and line.deed == deed and worker in {None, line.worker} for line in self.lines[since:]
        )

    def workflows(self, what: str, deed: str, *, since: int = 0) -> set[str]:
        """Return the workflows of matching lines."""
        return {line.workflow for line in self.lines[since:] if line.what == what and line.deed == deed}

    def _do_deed(self, call: Call, worker: int, *, declines: bool) -> str:
        answer = self._answers.get(call.key)
        if answer is None:
            answer = self._answers[call.key] = DECLINED if declines else DONE
            if call.undoes:
                self._answers.setdefault(call.undoes, DECLINED)
            self._write(answer, call, worker)
        return answer

    def _write(self, what: str, call: Call, worker: int) -> None:
        line = Line(what, call.deed, call.workflow, call.key, call.undoes, worker, self._now_s())
        self.lines.append(line)
        self._changed()
