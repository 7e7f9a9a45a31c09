"""The lane: gathers transactions, runs them in groups through the writer, and acknowledges them when they are durable.

Natural batching: while a group is being written the next one gathers; no transaction waits for others unless a window
is set. Clients nudge the driver at the end of their event loop's turn, so a burst of submissions forms one group.

The driver is a thread that a lane has only while there is work; an idle lane costs no thread and no open file but its
lock. G9: a commit or hand-off that fails kills the lane: its group gets OutcomeUnknown, what waits did not happen.

The queue of waiting works and the notification of their callers come first, then the lane itself.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import apsw

from interlock import faultpoints
from interlock.clock import Clock, RandomIds
from interlock.errors import CorruptionError, MovedElsewhere, OutcomeUnknown, Overloaded, UnavailableError
from interlock.lanes import ownership
from interlock.lanes.connection import Prepare, again, closed, make_folder, not_executed, opening, stopped
from interlock.lanes.contention import Contention, Publishing
from interlock.lanes.durable_log import DurableLog, OpenLog, stored_us
from interlock.lanes.file import LaneFile
from interlock.lanes.handover import Permission
from interlock.lanes.keys import MakeRow
from interlock.lanes.ownership import Ownership
from interlock.lanes.readers import Read, Readers
from interlock.lanes.settings import LaneSettings
from interlock.lanes.transaction import Counts, LaneStats, LaneTime, Work
from interlock.lanes.writer import Writer

# --- Queue -----------------------------------------------------------------------------------------------------------
# Any event loop adds to it without a lock, because that happens a hundred thousand times a second; everything else
# is done with the lane's lock held. A cancelled work stays in the queue: it is skipped when its turn comes, and
# removed when the queue is full. The calls that find the queue full pay for that scan: the next one comes only after
# a quarter as many calls as the last one took steps. So each call costs a few steps, however long the queue is (G6).

STEPS_PER_CALL = 4


class Waiting:
    """The waiting works of a lane, in the order in which they came."""

    def __init__(self) -> None:
        self._works: deque[Work] = deque()
        self._calls_until_look = 0
        self.add = self._works.append
        """Add a work. From any thread, without the lock."""

    def __len__(self) -> int:
        """Return the number of works in the queue, cancelled ones included."""
        return len(self._works)

    def alive(self) -> int:
        """Return the number of works that are not cancelled."""
        return sum(not work.cancelled() for work in list(self._works))

    def full(self, most: int) -> bool:
        """Whether at least `most` works wait; removes the cancelled ones now and then."""
        if len(self._works) < most:
            return False
        self._calls_until_look -= 1
        if self._calls_until_look < 0:
            self._throw_out()
            self._calls_until_look = len(self._works) // STEPS_PER_CALL
        return len(self._works) >= most

    def take(self, most: int) -> list[Work]:
        """Take at most `most` of the first works."""
        taken: list[Work] = []
        while self._works and len(taken) < most:
            work = self._works.popleft()
            if not work.cancelled():
                taken.append(work)
        return taken

    def _throw_out(self) -> None:
        alive: list[Work] = []
        for _ in range(len(self._works)):
            work = self._works.popleft()
            if not work.cancelled():
                alive.append(work)
        # What another thread has added meanwhile came later.
        self._works.extendleft(reversed(alive))


# --- Notification of waiters -----------------------------------------------------------------------------------------


def notify_waiters(works: Sequence[Work]) -> None:
    """Complete the futures of all works, with one call into each event loop. May be called from any thread."""
    waiters: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in works:
        if work.future is not None:
            waiters.setdefault(work.future.get_loop(), []).append(work)
    for loop, theirs in waiters.items():
        # A closed loop has no waiter left.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_finish, theirs)


def settle(future: asyncio.Future[None], error: Exception | None) -> None:
    """Complete one waiter's future, or fail it, unless it is done. Runs in the waiter's event loop."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _finish(works: Sequence[Work]) -> None:
    for work in works:
        try:
            work.finish()
        except Exception:  # noqa: BLE001, S112 -- an error of one must not keep the others waiting.
            continue


# --- Lane ------------------------------------------------------------------------------------------------------------


class Lane:
    """One database with one writer."""

    def __init__(
        self,
        path: Path | None,
        *,
        settings: LaneSettings,
        clock: Clock,
        prepare: Prepare,
        open_log: OpenLog | None = None,
        vfs: str | None = None,
        make_row: MakeRow = lambda _names, values: values,
        permission: Permission = None,
    ) -> None:
        self.path = path
        self.settings = settings
        self.contention = Contention.watching(settings)
        self.publishing = Publishing(path, self.contention, clock)
        self._clock = clock
        self._prepare = prepare
        self._log: DurableLog | None = None
        self._file = LaneFile(path, vfs=vfs, ids=RandomIds(), permission=permission)
        self._make_row = make_row
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._ending = threading.Lock()
        self._waiting = Waiting()
        self._nudging: asyncio.AbstractEventLoop | None = None
        self._driving = False
        self._closing = False
        self._dead: UnavailableError | None = None
        self._counts = Counts()
        self._folds_failed = 0
        self.committed = 0
        """Groups that readers may have seen."""
        self.durable = 0
        """Groups that nothing can take back."""
        self._held_reads: dict[asyncio.Future[None], tuple[int, asyncio.AbstractEventLoop]] = {}
        self._time = LaneTime(clock)
        self._readers: Readers | None = None
        self._ownership: Ownership | None = None
        self._writer: Writer | None = None
        try:
            with opening(path):
                self._take(open_log)
        except BaseException as error:
            self._close_writer()
            if self._log is not None:
                self._log.close(clean=isinstance(error, MovedElsewhere))  # Nothing was written to find that out.
            if self._ownership is not None:
                self._ownership.release()
            raise
        ownership.watch(self)

    def _take(self, open_log: OpenLog | None) -> None:
        path = self.path
        if path is not None:
            ownership.refuse_inherited(path)
            make_folder(path.parent)
            self._ownership = self._file.own(self._clock)
            self._readers = Readers(
                self._file, settings=self.settings, clock=self._clock, prepare=self._prepare, time=self._time
            )
        if open_log is not None:
            self._log = open_log(path)
            self._file.sync = self._log.local_sync
        self._writer = self._open_writer()
        if self._log is not None:
            frames, at_us = self._writer.frames or self._file.frames, stored_us(self._time.shown_us, self._clock)
            self._log.append(frames, at_us)  # The lane's own tables, when it is new.
        if path is not None:
            self._close_writer()  # It is sound, and stays closed until there is work.

    # --- the clients' side: event loops --------------------------------------------------------------------------

    async def run(self, work: Work) -> object:
        """Wait until the work is durable; returns its value or raises its error.

        Cancelled while it waits, it does not happen. Cancelled later, it happens wholly, and the caller gets no answer.
        """
        return await self.submit(work)

    def submit(self, work: Work) -> asyncio.Future[object]:
        """Queue the work and return the future that `run` awaits. Awaiting it directly saves one coroutine each."""
        self._refuse_if_unusable()
        loop = asyncio.get_running_loop()
        future = work.future = loop.create_future()
        work.waiting_since_s = self._clock.monotonic_s()
        self._waiting.add(work)
        if self._nudging is not loop:
            self._nudging = loop  # Each loop nudges for itself: another one may be blocked, or never run again.
            loop.call_soon(self._nudge)
        return future

    async def read(self, read: Read) -> object:
        """Run a read beside the writer; its answer is held until everything it may have seen is durable (G7)."""
        self._refuse_if_unusable()
        if self._readers is None:
            return await self.run(Work(lambda session: session.lend(read)))
        if self._log is not None and not self._log.current():
            await self.run(Work(lambda _session: None))  # An empty group: it renews the lease, or finds it lost.
        answer = await self._readers.run(read, self._read_left)
        if self._log is not None:
            await self._durable_up_to(self.committed)
        return answer

    def here(self) -> bool:
        """Whether the lane surely still lives here; False when only a read can tell. Raises MovedElsewhere."""
        return (self._readers is None or self._readers.look()) if self._log is None else self._log.current()

    def _read_left(self) -> None:  # In the thread that has read, also without a caller that awaits the answer.
        if not self._driving or (self._readers is not None and self._readers.is_held):
            self._nudge()  # So that the connection it has returned is closed after a while.

    async def _durable_up_to(self, groups: int) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.durable >= groups:
                return
            if self._dead is not None:
                raise again(self._dead)
            future: asyncio.Future[None] = loop.create_future()
            self._held_reads[future] = (groups, loop)
        try:
            await future
        finally:
            self._held_reads.pop(future, None)

    def _let_go(self) -> None:
        """Release the reads whose groups are durable, or fail all of them when the lane is dead."""
        with self._lock:
            held_reads = list(self._held_reads.items())
        for future, (groups, loop) in held_reads:
            with contextlib.suppress(RuntimeError):
                if groups <= self.durable:
                    loop.call_soon_threadsafe(settle, future, None)
                elif self._dead is not None:
                    loop.call_soon_threadsafe(settle, future, again(self._dead))

    def _refuse_if_unusable(self) -> None:
        if self._dead is not None or self._closing:
            raise closed() if self._dead is None else again(self._dead)
        if len(self._waiting) >= (most := self.settings.queue_max):
            with self._lock:
                if self._waiting.full(most):
                    raise Overloaded(1.0, f"{len(self._waiting):,} transactions wait in this lane already (queue_max).")

    def _nudge(self) -> None:
        self._nudging = None
        with self._lock:
            if self._driving:
                self._arrived.notify()
            elif self._waiting or not self._closing:
                self._start_driver()

    def _start_driver(self) -> None:
        # Called with the lock held. If the thread cannot start, the waiting works fail, and the next work tries again.
        try:
            self._driving = True
            threading.Thread(target=self._drive, name="interlock-lane", daemon=True).start()
        except RuntimeError as error:
            self._driving = False
            waiting = self._waiting.take(len(self._waiting))
            for work in waiting:
                work.error = UnavailableError(f"the lane could not start its thread: {error}; this did not happen.")
            self._acknowledge(waiting)

    # --- the driver's side: one thread at a time -----------------------------------------------------------------

    def _drive(self) -> None:
        while (group := self._gather()) is not None:
            try:
                self._write(group)
            except UnavailableError as error:
                self._die(error, group)
            except Exception as error:  # noqa: BLE001 -- any error: without a driver every work waits for ever.
                self._die(OutcomeUnknown(f"a group could not be made durable: {error!r}."), group)
            self._acknowledge(group)
            faultpoints.reach("group.acknowledged")
            self._let_go()
            self._look_after()
            self.publishing.ended(group)
            group = []  # Not kept alive while the lane waits for the next one.

    def _look_after(self) -> None:
        if self._log is None or self._dead is not None:
            return
        try:
            self._log.between()
        except Exception as error:  # noqa: BLE001 -- as above; nothing is unknown here, but the lane has lost its log.
            known = error if isinstance(error, UnavailableError) else UnavailableError(f"its upkeep failed: {error!r}")
            self._die(known, ())

    def _gather(self) -> list[Work] | None:
        """Wait for work; return None when there was none for `idle_s`, or the lane is closed."""
        while True:
            with self._lock:
                if not self._waiting and not self._closing:
                    self._arrived.wait_for(self._stirs, self.settings.idle_s)
                if self._waiting:
                    self._arrived.wait_for(self._full, self.settings.group_commit_window)
                    return self._waiting.take(self.settings.group_commit_max_batch)
            if self._rests():
                return None

    def _full(self) -> bool:
        full, alone = self.settings.group_commit_max_batch, not self.settings.group_commit_window
        return alone or self._closing or len(self._waiting) >= full

    def _stirs(self) -> bool:
        return bool(self._waiting) or self._closing or (self._readers is not None and self._readers.stuck)

    def _write(self, group: Sequence[Work]) -> None:
        if self._dead is not None:
            for work in group:
                work.error = again(self._dead)
            return
        if not group:
            return
        self._file.refuse_if_lost(None if self._writer is None else self._writer.connection)
        faultpoints.reach("group.begun")
        try:
            writer = self._executed(group)
        except MovedElsewhere:
            raise  # For ever: this lane is of no use any more.
        except (apsw.Error, OSError, UnavailableError, CorruptionError) as error:
            self._give_up(error, group)
            return
        faultpoints.reach("group.executed")
        # From here on a reader may see the group; it is held back until `durable` has caught up (G7).
        self.committed += 1
        writer.commit()
        faultpoints.reach("group.committed")
        if self._log is not None:
            self._log.append(writer.frames, stored_us(self._time.shown_us, self._clock))
        self.durable += 1
        faultpoints.reach("group.durable")
        self._counts.count(group)
        if writer.fold_log(self.settings.wal_bytes_max):
            faultpoints.reach("log.folded")
        if self._readers is not None:
            self._readers.make_way(writer.log_bytes)

    def _executed(self, group: Sequence[Work]) -> Writer:
        self._file.refuse_if_gone()
        writer = self._writer = self._writer or self._open_writer()
        writer.execute(group)
        return writer

    def _give_up(self, error: Exception, group: Sequence[Work]) -> None:
        """Fail a group that could not be executed: nothing of it happened. The next one gets a fresh connection."""
        for work in group:
            work.value = None
            work.error = not_executed(error)
        if self.path is None:
            raise error  # A database in memory is gone with its connection.
        self._close_writer()

    def _acknowledge(self, group: Sequence[Work]) -> None:
        notify_waiters(group)

    def _die(self, error: UnavailableError, group: Sequence[Work]) -> None:
        for work in group:
            work.error = again(error)
            work.value = None
        self._dead = stopped(error)
        self._close_writer()

    def _rests(self) -> bool:
        """Close the files; return False when there is new work."""
        # Without the lock: SQLite folds its log when it is closed, and no event loop may wait for that.
        if self.path is not None:
            self._close_writer()
        if self._readers is not None:
            self._readers.close_idle()
        with self._lock:
            # The driver first announces its end, then looks. Either it sees the connection that a read has returned
            # meanwhile, or that read sees no driver and nudges. Work always nudges, and that waits for the lock.
            self._driving = False
            has_idle_reader = self._readers is not None and self._readers.idle and not self._closing
            self._driving = bool(self._waiting) or has_idle_reader
            if not self._driving:
                self._arrived.notify_all()
            return not self._driving

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._folds_failed += writer.folds_failed
            with contextlib.suppress(apsw.Error):  # What is durable is in the log, whether or not it could be folded.
                writer.close()

    def _open_writer(self) -> Writer:
        return self._file.open_writer(
            lambda connection: Writer(
                connection,
                settings=self.settings,
                clock=self._clock,
                time=self._time,
                ids=RandomIds(),
                prepare=self._prepare,
                contention=self.contention,
                make_row=self._make_row,
            )
        )

    # --- state and closing -------------------------------------------------------------------------------------------

    def stats(self) -> LaneStats:
        """Return the counters of the lane since it was opened."""
        return LaneStats(
            groups=self._counts.groups,
            transactions=self._counts.transactions,
            failed=self._counts.failed,
            waiting=self._waiting.alive(),
            largest_group=self._counts.largest,
            log_bytes=self._file.log_bytes(),
            folds_failed=self._folds_failed + (0 if (writer := self._writer) is None else writer.folds_failed),
            upkeep_failed=0 if self._log is None else self._log.upkeep_failed,
        )

    def close(self) -> None:
        """Finish the waiting transactions, end the reads, fold the log, release the lane. Blocks; twice is harmless."""
        with self._lock:
            self._closing = True
            if self._waiting and not self._driving:
                self._start_driver()
            self._arrived.notify_all()
            self._arrived.wait_for(lambda: not self._driving)
            # Work that another thread submits after this is refused.
            clean, self._dead = self._dead is None, self._dead or closed()
        with self._ending, contextlib.ExitStack() as each:  # Whatever fails on the way, the lane is released.
            if self._ownership is not None:
                each.callback(self._ownership.release)
            if self._log is not None:
                each.callback(self._log.close, clean=clean)
                self._log = None
            each.callback(self._close_writer)
            each.callback(self.publishing.close)
            if self._readers is not None:
                each.callback(self._readers.close)

    @property
    def state(self) -> Literal["idle", "busy", "dead", "closed"]:
        """The lane's condition: an idle one has no thread, a dead one has to be opened again."""
        if self._closing:
            return "closed"
        return "dead" if self._dead is not None else "busy" if self._driving or self._waiting else "idle"

    def forked(self) -> None:
        """Disable the lane in the child of a fork: nothing of it may be used, or even closed. It is the parent's."""
        ownership.leak(self._writer, self._readers, self._prepare)
        if self.path is not None and not self._closing:
            ownership.inherit(self.path)
        self._dead = ownership.forked(self.path)
        self._lock = self._ending = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._closing, self._driving, self._waiting = True, False, Waiting()
        self._writer = self._readers = self._ownership = self._log = None
