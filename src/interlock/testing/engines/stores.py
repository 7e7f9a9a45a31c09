"""The store of the simulated engine: it outlives every crash, and each commit of a life may fail.

A commit may be refused, may end with an unknown outcome (made or lost), or may kill the process before or after it
became durable. A share of the seeds runs on tables instead of dictionaries: the store of lanes, on a writer that is
stepped in the same thread, so that it is reproducible.
"""

# pyright: reportUnknownMemberType=false

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import apsw

from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.lanes.lane import Lane
from interlock.lanes.work import Work
from interlock.seams import Clock, SeededIds
from interlock.store.protocol import Store
from interlock.store.sqlite import SqliteStore
from interlock.store.values import Change, Row
from interlock.testing.lives import Life, never
from interlock.testing.luck import Luck
from interlock.testing.stepping import SteppedLane
from interlock.testing.virtual import VirtualLoop

COMMIT_FAULTS = (
    "commit refused",
    "commit refused",
    "commit unknown, made",
    "commit unknown, lost",
    "killed before the commit",
    "killed after the commit",
)


class FaultyLife(Life):
    """A store with faulty commits."""

    def __init__(
        self,
        store: Store,
        loop: VirtualLoop,
        luck: Luck,
        *,
        faults: float,
        applied: Callable[[Sequence[Change]], None],
        fault: Callable[[str], None],
    ) -> None:
        super().__init__(store, loop, keep=True)
        self.faults = faults
        self._luck = luck
        self._applied = applied
        self._fault = fault

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Load from the store, or raise an injected fault."""
        if self._luck.often(self.faults / 4):
            self._fault("read refused")
            raise UnavailableError("the store does not answer.")
        return await super().load(ids)

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Commit to the store, with an injected fault."""
        if self.dead:
            await never()
        luck = self._luck
        fault = luck.one(COMMIT_FAULTS) if luck.often(self.faults) else ""
        if fault:
            self._fault(fault)
        delay_s = luck.one((0.0, 0.0, 0.0, 0.005, 0.05))
        if delay_s:
            await asyncio.sleep(delay_s)
        if fault == "commit refused":
            raise UnavailableError("the store refuses the commit.")
        if fault == "killed before the commit":
            self.end()
        if self.dead:
            await never()
        lost: list[str] = []
        if fault != "commit unknown, lost":
            lost = await self.store.commit(changes)
            self._applied([change for change in changes if change.row.id not in lost])
        if fault.startswith("commit unknown"):
            raise OutcomeUnknown("it is unknown whether the commit was made.")
        if fault == "killed after the commit":
            self.end()
        elif delay_s:
            await asyncio.sleep(delay_s)
        if self.dead:
            await never()
        return lost


class _StandingLane:
    """The part of a lane that a store uses, without a thread: work runs synchronously."""

    def __init__(self, clock: Clock) -> None:
        self._stepped = SteppedLane(None, clock=clock, ids=SeededIds(0))

    async def submit(self, work: Work) -> object:
        self._stepped.submit(work)
        self._stepped.run()
        if work.error is not None:
            raise work.error
        return work.value

    async def read(self, read: Callable[[apsw.Connection], object]) -> object:
        return await self.submit(Work(lambda session: session.lend(read)))

    def close(self) -> None:
        self._stepped.close()


def tables(clock: Clock) -> tuple[SqliteStore, Callable[[], None]]:
    """Return a store of tables in memory without a thread, and its close function. Call `begin` before use."""
    lane = _StandingLane(clock)
    return SqliteStore(cast("Lane", lane), clock), lane.close
