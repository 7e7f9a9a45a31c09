"""A lane without a thread: its writer, run step by step in the test's own thread.

In production a thread drives the writer; this is the other driver. It runs the same writer, so that a seed decides
every interleaving: the members of each group, and the instant of a power cut. A client gets no answer before the step
that acknowledges it. `tables` is a store of workflows on such a lane.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import apsw

from interlock.clock import Clock, Ids, SeededIds
from interlock.lanes.file import make_folder
from interlock.lanes.hot_rows import Contention
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import open_writer
from interlock.lanes.writer import LaneTime, Work, Writer
from interlock.store.lane_store import SqliteStore


class SteppedLane:
    """The writer of a lane, and the works that wait for it."""

    def __init__(
        self, path: Path | None, *, clock: Clock, ids: Ids, settings: LaneSettings | None = None, vfs: str | None = None
    ) -> None:
        self.settings = settings or LaneSettings()
        self.waiting: list[Work] = []
        self.group: list[Work] = []
        if path is not None:
            make_folder(path.parent)
        self._writer = Writer(
            open_writer(path, vfs=vfs),
            settings=self.settings,
            clock=clock,
            time=LaneTime(clock),
            ids=ids,
            prepare=lambda _connection, _now_us: None,
            contention=Contention(self.settings),
        )

    def submit(self, work: Work) -> Work:
        """Queue a work for the next group."""
        self.waiting.append(work)
        return work

    def gather(self, most: int | None = None) -> int:
        """Take queued works into the next group, all or the first `most`; return their number."""
        assert not self.group, "one group at a time"
        most = min(self.settings.group_commit_max_batch, len(self.waiting) if most is None else most)
        self.group, self.waiting = self.waiting[:most], self.waiting[most:]
        return len(self.group)

    def execute(self) -> None:
        """Run the gathered group up to, but not including, its commit."""
        self._writer.execute(self.group)

    def commit(self) -> None:
        """Make the executed group durable."""
        self._writer.commit()

    def acknowledge(self) -> Sequence[Work]:
        """Set the value or the error of the works of the committed group, and return them."""
        done, self.group = self.group, []
        return done

    def run(self) -> Sequence[Work]:
        """Run all steps for all queued works, as one group."""
        self.gather()
        self.execute()
        self.commit()
        return self.acknowledge()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class _InlineLane:
    """The part of a lane that a store uses, without a thread: work runs synchronously."""

    def __init__(self, clock: Clock) -> None:
        self._stepped = SteppedLane(None, clock=clock, ids=SeededIds(0))

    async def submit(self, work: Work) -> object:
        self._stepped.submit(work)
        self._stepped.run()
        if work.error is not None:
            raise work.error
        return work.value

    def run_now(self, _work: Work) -> bool:
        return False  # `submit` runs it immediately, too.

    async def read(self, read: Callable[[apsw.Connection], object]) -> object:
        return await self.submit(Work(lambda session: session.lend(read)))

    def close(self) -> None:
        self._stepped.close()


def tables(clock: Clock) -> tuple[SqliteStore, Callable[[], None]]:
    """Return a store of tables in memory without a thread, and its close function. Call `begin` before use."""
    lane = _InlineLane(clock)
    return SqliteStore(cast("Lane", lane), clock), lane.close
