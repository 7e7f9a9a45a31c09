"""A real lane on a simulated process: its driver, its reads and its upkeep run as strands.

Nothing of the lane is replaced but its threads: the driver is begun as a strand, the condition it waits with parks, and
reads run in the strand of their event loop instead of a pool. Groups, acknowledgements, the gate that holds reads back,
the hand-off and everything below it are the code that runs in production.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import apsw

from interlock.lanes.beyond import DurableLog
from interlock.lanes.gate import Shares
from interlock.lanes.lane import Lane
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.log import ObjectLog
from interlock.lanes.objects.opening import open_log
from interlock.lanes.objects.world import World
from interlock.lanes.reads import READ_THREADS_MAX, Readers, _Call  # pyright: ignore[reportPrivateUsage]
from interlock.lanes.settings import LaneSettings
from interlock.seams import SeededIds
from interlock.testing.luck import Luck
from interlock.testing.simulation.baton import Baton, Life
from interlock.testing.simulation.loop import BatonCondition
from interlock.testing.simulation.weather import DriftingClock

CACHE_PAGES = 10
"""So few pages in memory that a large transaction spills into the log before it is rolled back."""


class _InlineReaders(Readers):
    def start(self, call: _Call) -> bool:
        """Run the read in the strand of its event loop: there are no threads here."""
        call.future.get_loop().call_soon_threadsafe(self._serve, call)
        return True


class SimulatedLane(Lane):
    """A lane whose threads are strands of one life."""

    def __init__(
        self,
        path: Path,
        *,
        baton: Baton,
        life: Life,
        clock: DriftingClock,
        settings: LaneSettings,
        open_log: Callable[[Path | None], DurableLog],
    ) -> None:
        self._baton = baton
        self._life = life
        super().__init__(path, settings=settings, clock=clock, prepare=_prepare, open_log=open_log)
        self._arrived = cast("threading.Condition", BatonCondition(baton, self._lock))
        # Places of its own: those of a process that is killed are gone with it.
        self._readers = _InlineReaders(
            self._file,
            settings=settings,
            clock=clock,
            prepare=_prepare,
            time=self._time,
            shares=Shares(READ_THREADS_MAX),
        )

    @property
    def log(self) -> ObjectLog | None:
        """The log in the bucket, while the lane is open."""
        return cast("ObjectLog | None", self._log)

    @property
    def stopped(self) -> bool:
        """Whether the lane has died and must be opened again."""
        return self._dead is not None

    def _start_driver(self) -> None:
        self._driving = True
        self._baton.spawn(self._life, "driver", self._drive)

    def drop(self) -> None:
        """The process was killed: let go of what the kernel would have let go of."""
        self._close_writer()
        if self._readers is not None:
            self._readers.close()
        if self._ownership is not None:
            self._ownership.release()


def open_lane(
    path: Path,
    bucket: Bucket,
    *,
    machine: str,
    baton: Baton,
    life: Life,
    clock: DriftingClock,
    settings: LaneSettings,
    luck: Luck,
) -> SimulatedLane:
    """Open the lane as a process does: the local lock, the log, the file."""

    def pause(seconds: float) -> None:
        baton.park(seconds / clock.rate)

    def beside(work: Callable[[], None]) -> Callable[[], None]:
        strand = baton.spawn(life, "beside", work)
        return lambda: baton.join(strand)

    world = World(clock=clock, chance=luck.chance, ids=SeededIds(luck.number()), pause=pause, beside=beside)

    def opened(local: Path | None) -> DurableLog:
        assert local is not None
        # One machine is one local file, wherever the simulator has put it this time.
        local.with_name(local.name + ".id").write_text(machine)
        return open_log(bucket, local, settings=settings, world=world)

    return SimulatedLane(path, baton=baton, life=life, clock=clock, settings=settings, open_log=opened)


def _prepare(connection: apsw.Connection, _now_us: Callable[[], int]) -> None:
    connection.execute(f"PRAGMA cache_size = {CACHE_PAGES}")
