"""A lane without a thread: the test decides when a group is gathered, executed, committed and acknowledged.

In production a thread drives the writer; this is the other driver. It runs the same writer, step by step, in the test's
own thread, so that a seed decides every interleaving: who is in which group, and where the power goes out. What a step
has not acknowledged, nobody was told.
"""

from collections.abc import Sequence
from pathlib import Path

from interlock.lanes.connection import make_folder, open_writer
from interlock.lanes.contention import Contention
from interlock.lanes.lanetime import LaneTime
from interlock.lanes.settings import LaneSettings
from interlock.lanes.work import Work
from interlock.lanes.writer import Writer
from interlock.seams import Clock, Ids


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
            contention=Contention(
                rows_max=self.settings.contention_rows_max, flag_threshold=self.settings.contention_flag_threshold
            ),
        )

    def submit(self, work: Work) -> Work:
        """Let a work wait for the next group."""
        self.waiting.append(work)
        return work

    def gather(self, most: int | None = None) -> int:
        """Take waiting works into the next group, all or the first `most`; returns how many."""
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
        """Tell the works of the committed group: from now on they have their value or their error."""
        done, self.group = self.group, []
        return done

    def run(self) -> Sequence[Work]:
        """All steps for everything that waits, as one group."""
        self.gather()
        self.execute()
        self.commit()
        return self.acknowledge()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
