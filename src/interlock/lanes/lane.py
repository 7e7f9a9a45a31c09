"""A lane: gathers transactions, lets the writer run them in groups, and acknowledges them when they are durable.

Natural batching: while a group is being written the next one gathers; nobody waits for company unless a window is set.
Clients nudge the driver at the end of their event loop's turn and not at their first transaction, so that everything
a burst of clients has to say is in one group.

The driver is a thread that a lane has only while there is work; an idle lane costs no thread and no open file but its
lock. G9: a commit or hand-off that fails kills the lane: its group gets OutcomeUnknown, what waits did not happen.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from interlock.errors import Overloaded, UnavailableError
from interlock.lanes import points
from interlock.lanes.connection import Prepare, make_folder, open_writer
from interlock.lanes.contention import Contention
from interlock.lanes.ownership import Ownership
from interlock.lanes.reads import Read, Readers
from interlock.lanes.settings import LaneSettings
from interlock.lanes.work import Work
from interlock.lanes.writer import Writer
from interlock.seams import Clock, RandomIds

HandOff = Callable[[], None]
"""What makes a committed group durable beyond the local disk; returns when it is, raises when it cannot be known."""


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane has done since it was opened."""

    groups: int
    transactions: int
    failed: int
    waiting: int
    largest_group: int
    log_bytes: int


class Lane:
    """One database with one writer."""

    def __init__(
        self,
        path: Path | None,
        *,
        settings: LaneSettings,
        clock: Clock,
        prepare: Prepare,
        hand_off: HandOff | None = None,
        vfs: str | None = None,
    ) -> None:
        self.path = path
        self.settings = settings
        self.contention = Contention(
            rows_max=settings.contention_rows_max, flag_threshold=settings.contention_flag_threshold
        )
        self._clock = clock
        self._prepare = prepare
        self._hand_off = hand_off
        self._vfs = vfs
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._waiting: deque[Work] = deque()
        self._nudging = False
        self._driving = False
        self._closing = False
        self._dead: UnavailableError | None = None
        self._groups = self._transactions = self._failed = self._largest = 0
        self.committed = 0
        """Groups that readers may have seen."""
        self.durable = 0
        """Groups that nothing can take back."""
        self._held: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._readers = Readers(path, settings=settings, clock=clock, prepare=prepare) if path is not None else None
        self._ownership: Ownership | None = None
        if path is not None:
            make_folder(path.parent)
            self._ownership = Ownership.take(path, clock)
        try:
            self._writer: Writer | None = self._open_writer()
        except BaseException:
            if self._ownership is not None:
                self._ownership.release()
            raise

    # --- the clients' side: event loops --------------------------------------------------------------------------

    async def run(self, work: Work) -> object:
        """Wait until the work is durable; returns its value or raises its error.

        Cancelled while it waits, it does not happen; cancelled later, it happens wholly and nobody is told.
        """
        self._refuse_if_unusable()
        loop = asyncio.get_running_loop()
        work.loop = loop
        work.future = loop.create_future()
        work.waiting_since_s = self._clock.monotonic_s()
        self._waiting.append(work)
        if not self._nudging:
            self._nudging = True
            loop.call_soon(self._nudge)
        try:
            return await work.future
        except asyncio.CancelledError:
            with self._lock:
                if work.state == "waiting":
                    work.state = "cancelled"
            raise

    async def read(self, read: Read) -> object:
        """Run a read beside the writer; its answer is held until everything it may have seen is durable (G7)."""
        self._refuse_if_unusable()
        if self._readers is None:
            return await self.run(Work(lambda session: read(session.connection)))
        answer = await self._readers.run(read)
        if self._hand_off is not None:
            await self._durable_up_to(self.committed)
        return answer

    async def _durable_up_to(self, groups: int) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.durable >= groups:
                return
            if self._dead is not None:
                raise self._dead
            future: asyncio.Future[None] = loop.create_future()
            self._held.append((groups, loop, future))
        await future

    def _let_go(self) -> None:
        """Let go of the reads whose groups are durable, or of all with the error when the lane is dead."""
        with self._lock:
            ready = [held for held in self._held if held[0] <= self.durable or self._dead is not None]
            self._held = [held for held in self._held if held not in ready]
        for groups, loop, future in ready:
            error = None if groups <= self.durable else self._dead
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, error)

    def _refuse_if_unusable(self) -> None:
        if self._dead is not None:
            raise self._dead
        if self._closing:
            raise UnavailableError("the lane is closed.", fix="Open the database again.")
        if len(self._waiting) >= self.settings.queue_max:
            raise Overloaded(1.0, f"{len(self._waiting):,} transactions wait in this lane already (queue_max).")

    def _nudge(self) -> None:
        self._nudging = False
        with self._lock:
            if self._driving:
                self._arrived.notify()
            elif self._waiting and not self._closing:
                self._driving = True
                threading.Thread(target=self._drive, name="interlock-lane", daemon=True).start()

    # --- the driver's side: one thread at a time -----------------------------------------------------------------

    def _drive(self) -> None:
        while (group := self._gather()) is not None:
            try:
                self._write(group)
            except UnavailableError as error:
                self._die(error, group)
            self._acknowledge(group)
            points.reach("group.acknowledged")
            if self._held:
                self._let_go()

    def _gather(self) -> list[Work] | None:
        """Wait for work; None when there was none for a while, or the lane is closed."""
        settings = self.settings
        with self._lock:
            if not self._waiting and not self._closing:
                self._arrived.wait(settings.idle_s)
            if not self._waiting:
                self._rest()
                return None
            if settings.group_commit_window and not self._closing:
                full = settings.group_commit_max_batch
                self._arrived.wait_for(lambda: len(self._waiting) >= full, settings.group_commit_window)
            group: list[Work] = []
            while self._waiting and len(group) < settings.group_commit_max_batch:
                work = self._waiting.popleft()
                if work.state == "waiting":
                    work.state = "taken"
                    group.append(work)
            return group

    def _write(self, group: Sequence[Work]) -> None:
        if self._dead is not None:
            for work in group:
                work.error = self._dead
            return
        if not group:
            return
        if self._writer is None:
            self._writer = self._open_writer()
        points.reach("group.begun")
        self._writer.execute(group)
        points.reach("group.executed")
        # From here on a reader may see the group; it is held back until `durable` has caught up (G7).
        self.committed += 1
        self._writer.commit()
        points.reach("group.committed")
        if self._hand_off is not None:
            self._hand_off()
        self.durable += 1
        points.reach("group.durable")
        self._count(group)
        if self._writer.fold_log(self.settings.wal_bytes_max):
            points.reach("log.folded")

    def _count(self, group: Sequence[Work]) -> None:
        self._groups += 1
        self._transactions += len(group)
        self._failed += sum(work.error is not None for work in group)
        self._largest = max(self._largest, len(group))

    def _acknowledge(self, group: Sequence[Work]) -> None:
        waiters: dict[asyncio.AbstractEventLoop, list[Work]] = {}
        for work in group:
            if work.loop is not None:
                waiters.setdefault(work.loop, []).append(work)
        for loop, works in waiters.items():
            # A loop that is closed has nobody left who could be told.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_finish, works)

    def _die(self, error: UnavailableError, group: Sequence[Work]) -> None:
        for work in group:
            work.error = error
            work.value = None
        self._dead = UnavailableError(
            f"this lane has stopped: {error.what}",
            why="After a failed commit it cannot know what is on the disk, and does not guess.",
            fix="Open the database again; what was acknowledged is there.",
        )
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(Exception):
                writer.close()

    def _rest(self) -> None:
        # Called with the lock held: either new work sees a driver, or it starts one.
        self._driving = False
        if self.path is not None and self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._readers is not None:
            self._readers.close_idle()
        self._arrived.notify_all()

    def _open_writer(self) -> Writer:
        return Writer(
            open_writer(self.path, vfs=self._vfs),
            settings=self.settings,
            clock=self._clock,
            ids=RandomIds(),
            prepare=self._prepare,
            contention=self.contention,
        )

    # --- the end -------------------------------------------------------------------------------------------------

    def stats(self) -> LaneStats:
        """What the lane has done so far."""
        log = self.path.with_name(self.path.name + "-wal") if self.path else None
        return LaneStats(
            groups=self._groups,
            transactions=self._transactions,
            failed=self._failed,
            waiting=len(self._waiting),
            largest_group=self._largest,
            log_bytes=log.stat().st_size if log is not None and log.exists() else 0,
        )

    def close(self) -> None:
        """Finish what waits, fold the log, give the lane up. Blocks; a second time does nothing."""
        with self._lock:
            self._closing = True
            if self._waiting and not self._driving:
                self._driving = True
                threading.Thread(target=self._drive, name="interlock-lane", daemon=True).start()
            self._arrived.notify_all()
            self._arrived.wait_for(lambda: not self._driving)
        if self._readers is not None:
            self._readers.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._ownership is not None:
            self._ownership.release()


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _finish(works: Sequence[Work]) -> None:
    for work in works:
        work.finish()
