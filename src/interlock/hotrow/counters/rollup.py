"""The roll-up of the event log: entries become part of a snapshot, so that reading stays cheap (D6).

It has its own cadence and a bounded cost: a turn starts one cadence after the first append that is not rolled up, and
folds a bounded number of bounded transactions. A fold takes entries out of the log and adds them to the snapshot in ONE
transaction, so no crash can fall between the two, and no reader sees an entry twice or not at all. A concurrent fold of
another process takes other entries, or fails and is retried.

A counter without appends starts no turn. Between turns nothing but a timer with a weak reference exists, so a
database that is dropped without being closed is not kept alive. A turn that fails is counted, logged and repeated; a
counter that fails again and again is left alone until its next append. What is not rolled up counts all the same.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakMethod

from interlock.hotrow.counters import statements
from interlock.hotrow.counters.amounts import whole
from interlock.redaction import logger_of
from interlock.sql.executor import Executor, Statements

CADENCE_S: Final = 1.0
ROWS_MAX: Final = 1_000
"""Entries in one fold, which is one transaction."""

FOLDS_PER_TURN: Final = 100
"""Folds in one turn, of all counters together."""

FAILURES_MAX: Final = 5
"""Turns that a counter may fail one after the other."""

OWED_MAX: Final = 10_000
"""G6: counters that wait for a turn. One more is left alone until its next append; its entries count all the same."""

log = logger_of("interlock.hotrow")


async def fold(tx: Statements, name: str, rows_max: int) -> int:
    """Move the oldest entries of a counter from the log into its snapshot; return their number."""
    taken = await tx.query(statements.TAKE, name, rows_max)
    if taken:
        await tx.execute(statements.SNAP, name, sum(whole(delta) for (delta,) in taken))
    return len(taken)


class Rollup:
    """Rolls up the counters of one database that have been appended to."""

    def __init__(self, executor: Executor, *, cadence_s: float = CADENCE_S, rows_max: int = ROWS_MAX) -> None:
        self._executor = executor
        self._cadence_s = cadence_s
        self._rows_max = rows_max
        self._owed: dict[str, int] = {}
        """Counters with entries in the log, and how many turns they have failed in a row."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the next turn waits or runs."""
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Task[None] | None = None
        self._closed = False
        self.failures = 0
        """Folds that failed since the database was opened."""

    def appended(self, name: str) -> None:
        """Schedule a roll-up of this counter within the cadence; called after an append."""
        if len(self._owed) < OWED_MAX:
            self._owed.setdefault(name, 0)
        # The event loop that the next turn waited in may have ended without it.
        if not self._closed and (self._loop is None or self._loop.is_closed()):
            self._wait()

    async def run(self, name: str) -> int:
        """Roll up one counter now; return how many entries were folded."""
        folded = 0
        for _ in range(FOLDS_PER_TURN):
            taken = await self._executor.transact(fold, name, self._rows_max)
            folded += taken
            if taken < self._rows_max:
                break
        return folded

    async def close(self) -> None:
        """Start no further turn; a running one ends after its current fold."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        turn = self._turn
        if turn is not None and turn.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([turn])

    def _wait(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._cadence_s, _call, WeakMethod(self._begin))

    def _begin(self) -> None:
        if not self._closed and self._loop is not None:
            self._turn = self._loop.create_task(self._take_turn(), name="interlock-roll-up")

    async def _take_turn(self) -> None:
        try:
            await self._fold_owed()
        except BaseException:
            self._loop = None  # It was cancelled with its event loop: the next append begins anew.
            raise
        finally:
            self._turn = None
        if self._owed and not self._closed:
            self._wait()
        else:
            self._loop = None

    async def _fold_owed(self) -> None:
        waiting = deque(self._owed)
        for _ in range(FOLDS_PER_TURN):
            if self._closed or not waiting:
                return
            name = waiting.popleft()
            if await self._fold(name):
                waiting.append(name)  # There is more, but first it is the others' turn.

    async def _fold(self, name: str) -> bool:
        """Fold once; return whether to fold again in this turn."""
        failed = self._owed.pop(name, 0)  # Before it is folded: what is appended meanwhile is owed again.
        try:
            taken = await self._executor.transact(fold, name, self._rows_max)
        except Exception as error:  # noqa: BLE001 -- no caller awaits a turn: every failure is counted and logged.
            self.failures += 1
            log.warning("counter %r could not be rolled up (%d in a row): %s", name, failed + 1, error)
            if failed + 1 < FAILURES_MAX:
                self._owed[name] = failed + 1
            return False
        if taken < self._rows_max:
            return False
        self._owed.setdefault(name, 0)
        return True


def _call(method: WeakMethod[Callable[[], None]]) -> None:
    found = method()
    if found is not None:
        found()
