"""The lane: gathers transactions, runs them in groups through the writer, and acknowledges them when they are durable.

Natural batching: while a group is being written the next one gathers; no transaction waits for others unless a window
is set. Clients nudge the driver at the end of their event loop's turn, so a burst of submissions forms one group.

The driver is a thread that a lane has only while there is work; an idle lane costs no thread and no open file but its
lock. G9: a commit or hand-off that fails kills the lane: its group gets OutcomeUnknown, what waits did not happen.

Sections: counters, the durable log, the queue of waiting works, the notification of their callers, the lane.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import apsw
import msgspec

from interlock.clock import Clock, RandomIds
from interlock.errors import CorruptionError, Fenced, MovedElsewhere, OutcomeUnknown, Overloaded, UnavailableError
from interlock.faultpoints import reach
from interlock.lanes import forks
from interlock.lanes.file import LaneFile, Ownership, make_folder
from interlock.lanes.handover import Permission, Tombstone, write_tombstone
from interlock.lanes.hot_rows import Contention, Publishing
from interlock.lanes.idempotency_keys import MakeRow
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.readers import Read, Readers
from interlock.lanes.sqlite_connection import Prepare, closed_error, copy_error, not_executed, opening, stopped_error
from interlock.lanes.writer import LaneTime, Work, Writer, settle

# --- Counters --------------------------------------------------------------------------------------------------------


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a lane since it was opened."""

    groups: int
    transactions: int
    failed: int
    waiting: int
    largest_group: int
    log_bytes: int
    folds_failed: int
    """How often the log could not be folded into the database file; it grows until that works again."""
    upkeep_failed: int = 0
    """On a bucket: how often a snapshot or a collection failed; it is tried again after a while."""


# --- Durable log -----------------------------------------------------------------------------------------------------
# It makes a group durable beyond the local disk. A local lane needs none: its commit is durable when SQLite says so. A
# lane on a bucket hands every group on. Nothing is acknowledged and nothing is shown before that is done (G2, G7).


class DurableLog(Protocol):
    """The log beyond the local disk. Only the lane's driver calls it, except for `is_current`."""

    local_sync: bool
    """Whether the local file must be synced as well; False when it is only a cache."""

    @property
    def upkeep_failed(self) -> int:
        """How often upkeep failed."""
        ...

    def renew(self) -> None:
        """Check now and then, before a group is executed, that this lane is still the owner. Raises as `append`."""
        ...

    def append(self, frames: int, time_us: int) -> None:
        """Make durable what SQLite has committed up to that frame of its write-ahead log; also when that is nothing.

        Raises OutcomeUnknown when that cannot be known, Fenced when the group certainly did not happen.
        """
        ...

    def run_upkeep(self) -> None:
        """Run upkeep, after all waiters were notified. Raises as `append` does."""
        ...

    def is_current(self) -> bool:
        """Whether this lane is surely still the owner, so that reads see the latest state."""
        ...

    def close(self, *, clean: bool) -> None:
        """Close the log. `clean`: everything that is in the local file is in the log."""
        ...


OpenLog = Callable[[Path | None], DurableLog]
"""Opens the log of the lane whose local file this is (None: in memory); the file's lock is held already."""

HandOff = Callable[[], None]
"""A stand-in for a log: returns when the group is durable, raises when that cannot be known."""


class HandedOff:
    """A durable log that is one function, for experiments and tests."""

    local_sync = True
    upkeep_failed = 0

    def __init__(self, hand_off: HandOff) -> None:
        self._hand_off = hand_off

    def renew(self) -> None:
        """Do nothing: there is no other owner."""

    def append(self, frames: int, time_us: int) -> None:
        """Call the function."""
        del frames, time_us
        self._hand_off()

    def run_upkeep(self) -> None:
        """Do nothing: there is no upkeep."""

    def is_current(self) -> bool:
        """Return True: there is no other owner."""
        return True

    def close(self, *, clean: bool) -> None:
        """Do nothing: there is nothing to close."""


# --- Queue -----------------------------------------------------------------------------------------------------------
# Any event loop adds to it without a lock, because that happens a hundred thousand times a second; everything else
# is done with the lane's lock held. A cancelled work stays in the queue: it is skipped when its turn comes, and
# removed when the queue is full. The calls that find the queue full pay for that scan: the next one comes only after
# a quarter as many calls as the last one took steps. So each call costs a few steps, however long the queue is (G6).

STEPS_PER_CALL = 4


class Waiting:
    """The waiting works of a lane, in the order in which they came.

    A work that must be alone in its group (an interactive transaction) has a queue of its own. Groups and such works
    take turns, so that neither waits for more than one of the other.
    """

    def __init__(self) -> None:
        self._works: deque[Work] = deque()
        self._alone: deque[Work] = deque()
        self._alone_is_next = True
        self._calls_until_look = 0
        self.add = self._works.append
        """Add a work. From any thread, without the lock."""
        self.add_alone = self._alone.append
        """Add a work that is alone in its group. From any thread, without the lock."""

    def __len__(self) -> int:
        """Return the number of works in the queue, cancelled ones included."""
        return len(self._works) + len(self._alone)

    def alive(self) -> int:
        """Return the number of works that are not cancelled."""
        return sum(not work.cancelled() for work in [*self._works, *self._alone])

    def full(self, most: int) -> bool:
        """Whether at least `most` works wait; removes the cancelled ones now and then."""
        if len(self) < most:
            return False
        self._calls_until_look -= 1
        if self._calls_until_look < 0:
            self._throw_out()
            self._calls_until_look = len(self) // STEPS_PER_CALL
        return len(self) >= most

    def take(self, most: int) -> list[Work]:
        """Take at most `most` of the first works, or one that is alone in its group."""
        taken: list[Work] = []
        if self._alone and (self._alone_is_next or not self._works):
            self._alone_is_next = False
            work = self._alone.popleft()
            return [] if work.cancelled() else [work]
        self._alone_is_next = True
        while self._works and len(taken) < most:
            work = self._works.popleft()
            if not work.cancelled():
                taken.append(work)
        return taken

    def _throw_out(self) -> None:
        for works in (self._works, self._alone):
            alive: list[Work] = []
            for _ in range(len(works)):
                work = works.popleft()
                if not work.cancelled():
                    alive.append(work)
            # What another thread has added meanwhile came later.
            works.extendleft(reversed(alive))


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


def _finish(works: Sequence[Work]) -> None:
    for work in works:
        try:
            if work.future is not None:
                settle(work.future, work.value, work.error)
        except Exception:  # noqa: BLE001, S112 -- an error of one must not keep the others waiting.
            continue


# --- Lane ------------------------------------------------------------------------------------------------------------

RUN_NOW_S_MAX = 0.001
"""An event loop runs a group itself only while commits, and all of such groups, take less than this in the mean: it
stands still meanwhile."""

COMMITS_IN_MEAN = 8


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
        self.contention = Contention(settings)
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
        self._resting = False
        """Whether the driver waits for work, so that an event loop may run a group in its place."""
        self._lent = False
        """Whether an event loop does so."""
        self._commit_s = 0.0
        """How long commits, and groups that an event loop ran, took lately, in the mean."""
        self._closing = False
        self._dead: UnavailableError | None = None
        self._transactions = self._failed = self._largest_group = 0
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
        forks.watch(self)

    def _take(self, open_log: OpenLog | None) -> None:
        path = self.path
        if path is not None:
            forks.refuse_inherited(path)
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
            frames, at_us = self._writer.frames or self._file.frames, self._stored_us()
            self._log.append(frames, at_us)  # The lane's own tables, when it is new.
        if path is not None:
            self._close_writer()  # It is sound, and stays closed until there is work.

    # --- the clients' side: event loops --------------------------------------------------------------------------

    async def run(self, work: Work) -> object:
        """Wait until the work is durable; returns its value or raises its error.

        A caller that is cancelled while the work is queued withdraws it. Once the work has begun it completes, and the
        cancelled caller gets no answer.
        """
        return await self.submit(work)

    def submit(self, work: Work, *, alone: bool = False) -> asyncio.Future[object]:
        """Queue the work and return the future that `run` awaits. Awaiting it directly saves one coroutine each.

        A work that is `alone` in its group runs once only: no other work can end its group.
        """
        self._refuse_if_unusable()
        loop = asyncio.get_running_loop()
        future = work.future = loop.create_future()
        work.waiting_since_s = self._clock.monotonic_s()
        (self._waiting.add_alone if alone else self._waiting.add)(work)
        if self._nudging is not loop:
            self._nudging = loop  # Each loop nudges for itself: another one may be blocked, or never run again.
            loop.call_soon(self._nudge)
        return future

    def run_now(self, work: Work) -> bool:
        """Run the work as a group of its own in the calling event loop, if nothing waits and the disk is fast.

        Spares two hand-overs between threads, for one short stop of the loop. Returns False if it has to be submitted.
        """
        with self._lock:
            writer = self._writer
            if not self._resting or self._waiting or self._lent or writer is None or self._log is not None:
                return False
            if self._commit_s > RUN_NOW_S_MAX or writer.log_bytes >= self.settings.wal_bytes_max or self._closing:
                return False
            self._lent = True
        try:
            work.waiting_since_s = self._clock.monotonic_s()
            self._file.refuse_if_lost(writer.connection)  # Before it begins: inside a transaction nothing can be saved.
            if not writer.begin_now():
                return False
            self._complete([work])
        except UnavailableError as error:
            self._die(error, [work])
        except BaseException as error:  # An interrupt from the keyboard: what reached the disk is unknown (G9).
            self._die(OutcomeUnknown(f"a group was interrupted: {error!r}."), [work])
            raise
        finally:
            with self._lock:
                self._lent = False
                if self._stirs():
                    self._arrived.notify_all()  # The driver, not only one that closes the lane and waits for it.
        return True

    async def read(self, read: Read, *, pinned_s: float | None = None) -> object:
        """Run a read beside the writer; its answer is held until everything it may have seen is durable (G7).

        A read with `pinned_s` sees one snapshot from its beginning, and may take `pinned_s` seconds. It returns rows
        before it ends, so it awaits `durable_up_to` itself.
        """
        self._refuse_if_unusable()
        if self._readers is None:
            return await self.submit(Work(lambda session: session.lend(read, pinned_s)), alone=pinned_s is not None)
        if self._log is not None and not self._log.is_current():
            await self.run(Work(lambda _session: None))  # An empty group: it renews the lease, or finds it lost.
        answer = await self._readers.run(read, self._read_left, pinned_s=pinned_s)
        if self._log is not None:
            await self.durable_up_to(self.committed)
        return answer

    async def leave(self, stone: Tombstone) -> None:
        """Run the last transaction of a lane that its only user leaves. Nothing else may wait in the lane with it."""
        await self.run(Work(lambda session: session.own(lambda run: write_tombstone(run, stone))))

    def here(self) -> bool:
        """Whether the lane surely still lives here; False when only a read can tell. Raises MovedElsewhere."""
        return (self._readers is None or self._readers.look()) if self._log is None else self._log.is_current()

    def _read_left(self) -> None:  # In the thread that has read, also without a caller that awaits the answer.
        if not self._driving or (self._readers is not None and self._readers.is_held):
            self._nudge()  # So that the connection it has returned is closed after a while.

    async def durable_up_to(self, groups: int) -> None:
        """Wait until the first `groups` groups since the opening are durable."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.durable >= groups:
                return
            if self._dead is not None:
                raise copy_error(self._dead)
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
                    loop.call_soon_threadsafe(settle, future, None, None)
                elif self._dead is not None:
                    loop.call_soon_threadsafe(settle, future, None, copy_error(self._dead))

    def _refuse_if_unusable(self) -> None:
        if self._dead is not None or self._closing:
            raise closed_error() if self._dead is None else copy_error(self._dead)
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
            while self._waiting:
                waiting = self._waiting.take(len(self._waiting))
                for work in waiting:
                    work.error = UnavailableError(f"the lane could not start its thread: {error}; this did not happen.")
                notify_waiters(waiting)

    # --- the driver's side: one thread at a time -----------------------------------------------------------------

    def _drive(self) -> None:
        while (group := self._gather()) is not None:
            self._complete(group)
            group = []  # Not kept alive while the lane waits for the next one.

    def _complete(self, group: Sequence[Work]) -> None:
        try:
            self._write(group)
        except UnavailableError as error:
            self._die(error, group)
        except Exception as error:  # noqa: BLE001 -- any error: without a driver every work waits for ever.
            self._die(OutcomeUnknown(f"a group could not be made durable: {error!r}."), group)
        notify_waiters(group)
        reach("group.acknowledged")
        self._let_go()
        self._look_after()
        if group:
            size = len(group)
            self.publishing.count_group(size, group[self.durable % size].waiting_since_s)

    def _look_after(self) -> None:
        if self._log is None or self._dead is not None:
            return
        try:
            self._log.run_upkeep()
        except Exception as error:  # noqa: BLE001 -- as above; nothing is unknown here, but the lane has lost its log.
            known = error if isinstance(error, UnavailableError) else UnavailableError(f"its upkeep failed: {error!r}")
            self._die(known, ())

    def _gather(self) -> list[Work] | None:
        """Wait for work; return None when there was none for `idle_s`, or the lane is closed."""
        while True:
            with self._lock:
                if not self._waiting and not self._closing:
                    self._rest()
                if self._waiting:
                    self._arrived.wait_for(self._full, self.settings.group_commit_window)
                    return self._waiting.take(self.settings.group_commit_max_batch)
            if self._rests():
                return None

    def _rest(self) -> None:
        """Wait for work until the lane was idle for `idle_s`. Called with the lock held."""
        self._resting, before = True, -1
        while before != self.durable or self._lent:  # Groups were run by an event loop meanwhile, or one is.
            before = self.durable
            if self._arrived.wait_for(self._stirs, self.settings.idle_s):
                break
        self._resting = False

    def _full(self) -> bool:
        full, alone = self.settings.group_commit_max_batch, not self.settings.group_commit_window
        return alone or self._closing or len(self._waiting) >= full

    def _stirs(self) -> bool:
        if self._lent:
            return False
        return bool(self._waiting) or self._closing or (self._readers is not None and self._readers.stuck)

    def _write(self, group: Sequence[Work]) -> None:
        if self._dead is not None:
            for work in group:
                work.error = copy_error(self._dead)
            return
        if not group:
            return
        if not self._lent:
            self._file.refuse_if_lost(None if self._writer is None else self._writer.connection)
        reach("group.begun")
        if self._log is not None:
            self._log.renew()
        begun_s = self._clock.monotonic_s()
        try:
            writer = self._executed(group)
        except MovedElsewhere:
            raise  # For ever: this lane is of no use any more.
        except (apsw.Error, OSError, UnavailableError, CorruptionError) as error:
            self._give_up(error, group)
            return
        reach("group.executed")
        # From here on a reader may see the group; it is held back until `durable` has caught up (G7).
        self.committed += 1
        if not self._lent:
            begun_s = self._clock.monotonic_s()
        writer.commit()
        self._commit_s += (self._clock.monotonic_s() - begun_s - self._commit_s) / COMMITS_IN_MEAN
        reach("group.committed")
        if self._log is not None:
            self._log.append(writer.frames, self._stored_us())
        self.durable += 1
        reach("group.durable")
        self._transactions += len(group)
        self._failed += sum(work.error is not None for work in group)
        self._largest_group = max(self._largest_group, len(group))
        # No event loop stops for that: the next group, or the end of the driver, folds it.
        if not self._lent and writer.fold_log(self.settings.wal_bytes_max):
            reach("log.folded")
        if self._readers is not None:
            self._readers.make_way(writer.log_bytes)

    def _stored_us(self) -> int:
        """Return the time that a group is stored with: the clock's, or the lane's own if that is ahead.

        The lane's own stands still while no transaction asks for the time, and history is kept and found by this one.
        """
        return max(self._time.shown_us, int(self._clock.wall_s() * 1_000_000))

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

    def _die(self, error: UnavailableError, group: Sequence[Work]) -> None:
        for work in group:
            work.error = copy_error(error)
            work.value = None
        self._dead = stopped_error(error)
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
            groups=self.durable,
            transactions=self._transactions,
            failed=self._failed,
            waiting=self._waiting.alive(),
            largest_group=self._largest_group,
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
            # An owner that was replaced between two groups has nothing in its file that is not in the log.
            replaced = isinstance(self._dead, Fenced) and self.committed == self.durable
            clean, self._dead = self._dead is None or replaced, self._dead or closed_error()
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

    @property
    def is_broken(self) -> bool:
        """Whether only another opening helps. Not for one that has left its place, or that would lose its rows."""
        left = self._dead is None or isinstance(self._dead, Fenced | MovedElsewhere)
        return not left and not self._closing and self.path is not None

    def forked(self) -> None:
        """Disable the lane in the child of a fork: nothing of it may be used, or even closed. It is the parent's."""
        forks.leak(self._writer, self._readers, self._prepare)
        if self.path is not None and not self._closing:
            forks.inherit(self.path)
        self._dead = forks.forked_error(self.path)
        self._lock = self._ending = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._closing, self._driving, self._waiting = True, False, Waiting()
        self._writer = self._readers = self._ownership = self._log = None
