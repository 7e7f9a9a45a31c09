"""Reads of a lane on their own connections, beside the writer. They show only durable groups (G7).

SQLite publishes a commit to readers only after its log is synced, so a read of a local lane sees only durable groups. A
lane on a bucket becomes durable later: there a read notes how many groups may have been visible to it, and its answer
is held until all of them are durable.

All lanes of the process share the threads fairly (`ReaderGate`). Connections belong to the lane, are opened when needed
and closed when idle. A read whose caller has gone ends within a millisecond, and releases both.

The odd choice is that nothing interrupts SQLite for that: the connection checks, every few steps, whether its own read
was given up. An interrupt that comes a moment late would end the next read instead.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, cast

import apsw

from interlock.clock import Clock, RandomIds
from interlock.errors import Overloaded, UnavailableError
from interlock.lanes.file import LaneFile
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import Prepare, Wall, closed_error, translate_error
from interlock.lanes.writer import STEPS_BETWEEN_LOOKS, LaneTime, Lookout, settle

# --- Gate ------------------------------------------------------------------------------------------------------------
# A lane has a few places for reads, and a fair queue for reads that find all of them taken. No thread waits here: all
# lanes share the read threads, and one busy lane must not keep them from the others (D4). No event loop takes part
# either: the thread that frees a place starts the next visitor itself. So a loop that has stopped or was closed can
# never keep a place.
#
# Each lane has its gate, and all gates share one number of threads:
#
# - A lane without a running read gets the next free thread, before any lane that already reads.
# - For its second and every further read a lane gets a thread only while more than half of all are free, in turn with
#   the others. So lanes with slow reads have at most half of the threads beyond their first.
#
# The gate of a lane can also be held shut for a while: no visitor enters until it is released.


class Visitor(Protocol):
    """A read that wants a place."""

    @property
    def given_up(self) -> bool:
        """Whether it no longer wants a place."""
        ...

    def start(self) -> bool:
        """Begin, with a place; return False if it cannot, which frees the place. Must not block, nor leave the gate."""
        ...


class Shares:
    """A number of threads, shared by the gates of all lanes. Its lock is the lock of all its gates."""

    def __init__(self, threads: int) -> None:
        self.free = threads
        self._kept = threads // 2
        """Threads that are reserved for lanes without a running read."""
        self.lock = threading.Lock()
        self._first: OrderedDict[ReaderGate, None] = OrderedDict()
        self._further: OrderedDict[ReaderGate, None] = OrderedDict()

    def enough(self, inside: int) -> bool:
        """Whether a lane with `inside` running reads may start one more."""
        return self.free > (self._kept if inside else 0)

    def stand(self, gate: "ReaderGate") -> None:
        """Add the gate to its queue or remove it, after its need of a thread may have changed."""
        here, there = (self._further, self._first) if gate.inside else (self._first, self._further)
        there.pop(gate, None)
        if gate.wants:
            here.setdefault(gate)  # A gate that is queued already keeps its turn.
        else:
            here.pop(gate, None)

    def share_out(self) -> None:
        """Give the free threads to the waiting gates, each in its turn."""
        while (self._first and self.enough(0)) or (self._further and self.enough(1)):
            gate, _ = (self._first or self._further).popitem(last=False)
            gate.admit()
            self.stand(gate)


class ReaderGate:
    """Lets at most `places` in at a time, from any number of event loops and threads."""

    def __init__(self, places: int, *, waiting_max: int, shares: Shares) -> None:
        self.inside = 0
        self.is_held = False
        self._closed = False
        self._places = places
        self._waiting_max = waiting_max
        self._shares = shares
        self._waiting: OrderedDict[Visitor, None] = OrderedDict()

    @property
    def wants(self) -> bool:
        """Whether a visitor waits here for a thread and for nothing else."""
        return bool(self._waiting) and self._has_room

    @property
    def _has_room(self) -> bool:
        return self.inside < self._places and not self.is_held

    def enter(self, visitor: Visitor) -> None:
        """Start the visitor now, or when there is a place for it. A started visitor must leave. Raises Overloaded."""
        with self._shares.lock:
            if self._closed:
                raise closed_error()
            if self._has_room and self._shares.enough(self.inside):
                self._let_in(visitor)
                return
            if len(self._waiting) >= self._waiting_max:
                raise Overloaded(1.0, f"{len(self._waiting):,} reads wait in this lane already (queue_max).")
            self._waiting[visitor] = None
            self._shares.stand(self)

    def forget(self, visitor: Visitor) -> None:
        """Remove the visitor from the queue, if it waits."""
        with self._shares.lock:
            self._waiting.pop(visitor, None)
            self._shares.stand(self)

    def leave(self) -> None:
        """Give the place to the next visitor."""
        with self._shares.lock:
            self._give_back()
            self._shares.stand(self)
            self._shares.share_out()

    def hold(self) -> None:
        """Admit no visitor until `let_go`."""
        with self._shares.lock:
            self.is_held = True
            self._shares.stand(self)

    def let_go(self) -> None:
        """Admit visitors again."""
        with self._shares.lock:
            self.is_held = False
            self._shares.stand(self)
            self._shares.share_out()

    def close(self) -> list[Visitor]:
        """Close the gate for good; return the visitors that still waited."""
        with self._shares.lock:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
            self._shares.stand(self)
            return left

    def admit(self) -> None:
        """Admit the next visitor. Called by the shares, with the lock held."""
        while self._waiting:
            visitor, _ = self._waiting.popitem(last=False)
            if not visitor.given_up and self._let_in(visitor):
                return

    def _let_in(self, visitor: Visitor) -> bool:
        self.inside += 1
        self._shares.free -= 1
        if visitor.start():
            return True
        self._give_back()
        return False

    def _give_back(self) -> None:
        self.inside -= 1
        self._shares.free += 1


# --- Readers ---------------------------------------------------------------------------------------------------------

READ_THREADS_MAX = 16
"""Read threads of the process, for all lanes together. The pool starts them only when enough reads run concurrently."""

LOG_EXCESS_MAX = 4
"""How many times larger than `wal_bytes_max` the log may become before new reads wait."""

Read = Callable[[apsw.Connection], object]

_threads = ThreadPoolExecutor(READ_THREADS_MAX, thread_name_prefix="interlock-read")
_shares = Shares(READ_THREADS_MAX)


class _Call:
    """One call of `Readers.run`: queues at the gate, runs in a thread, and is answered in its event loop."""

    __slots__ = ("_claimed", "_given_up", "_loop", "_readers", "future", "left", "pinned_s", "read")

    def __init__(self, readers: "Readers", read: Read, left: Callable[[], None], pinned_s: float | None) -> None:
        self._readers = readers
        self.pinned_s = pinned_s
        """Seconds that it may take if it sees its snapshot from the beginning; None for a read of one answer."""
        self._claimed = threading.Lock()
        self.read = read
        self.left = left
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[object] = self._loop.create_future()
        self._given_up = False

    @property
    def given_up(self) -> bool:
        """Whether no caller awaits its answer any more, or its event loop is closed."""
        return self._given_up or self._loop.is_closed()

    def give_up(self) -> None:
        """Note that no caller awaits its answer."""
        self._given_up = True

    def start(self) -> bool:
        """Hand it to a thread; return False if no thread could be started."""
        return self._readers.start(self)

    def claim(self) -> bool:
        """Return True for the first caller only: that one ends the call."""
        return self._claimed.acquire(blocking=False)

    def answer(self, value: object, error: Exception | None = None) -> None:
        """Pass the value or the error to the awaiting caller. May be called from any thread."""
        with contextlib.suppress(RuntimeError):  # A closed loop has no waiter left.
            self._loop.call_soon_threadsafe(settle, self.future, value, error)


def _in_child() -> None:
    # Threads do not come through a fork: a pool that counts on them would let every read wait for ever.
    global _threads, _shares  # noqa: PLW0603 -- one pool per process.
    _threads = ThreadPoolExecutor(READ_THREADS_MAX, thread_name_prefix="interlock-read")
    _shares = Shares(READ_THREADS_MAX)


os.register_at_fork(after_in_child=_in_child)


class _Reader:
    """One reading connection, with the time of the read that it runs."""

    def __init__(self, file: LaneFile, prepare: Prepare, clock: Clock, time: LaneTime) -> None:
        self.connection = file.open_reader()
        self._own = self.connection.cursor().execute
        # As in the writer: no other code can write these texts, so the cache gives them to no other statement.
        mark = f" -- {RandomIds().new()}"
        self._begin, self._end = f"BEGIN{mark}", f"COMMIT{mark}"
        self._clock = clock
        self._time = time
        self._now_us: int | None = None
        self._deadline_s = float("inf")
        self._call: _Call | None = None
        prepare(self.connection, self._now)
        self._lookout = Lookout(self._own)
        self._wall = Wall()
        self.connection.set_authorizer(self._wall)
        self.connection.set_progress_handler(self._overdue, STEPS_BETWEEN_LOOKS)

    def run(self, call: _Call, timeout_s: float) -> object:
        """Run the read in one transaction: all its statements see one moment, the look at the schema included."""
        self._control(self._begin)
        self._now_us = None
        self._deadline_s = self._clock.monotonic_s() + (timeout_s if call.pinned_s is None else call.pinned_s)
        self._call = call
        try:
            if call.pinned_s is not None:
                self.look()  # Before the read, which returns rows before it ends. It takes the snapshot.
                return call.read(self.connection)
            answer = call.read(self.connection)
            self.look()  # After the read: both see the same snapshot.
            return answer
        finally:
            self._call = None  # An idle connection keeps nothing of its last read alive.
            self._deadline_s = float("inf")
            if self.connection.in_transaction:
                self._control(self._end)

    def look(self) -> None:
        """Raise MovedElsewhere when there is a tombstone."""
        with self._wall.down():
            self._lookout.look()

    def _control(self, sql: str) -> None:
        with self._wall.down():
            self._own(sql)

    def _now(self) -> int:
        if self._now_us is None:
            self._now_us = self._time.now_us()  # G8
        return self._now_us

    def _overdue(self) -> bool:
        call = self._call
        return (call is not None and call.given_up) or self._clock.monotonic_s() > self._deadline_s


class Readers:
    """The reading connections of one lane."""

    def __init__(
        self,
        file: LaneFile,
        *,
        settings: LaneSettings,
        clock: Clock,
        prepare: Prepare,
        time: LaneTime,
        shares: Shares | None = None,
    ) -> None:
        self._file = file
        self._settings = settings
        self._clock = clock
        self._prepare = prepare
        self._time = time
        self._idle: list[_Reader] = []
        self._lock = threading.Lock()
        self._over = threading.Condition(self._lock)
        self._running: set[_Call] = set()
        self._gate = ReaderGate(settings.readers_max, waiting_max=settings.queue_max, shares=shares or _shares)
        self._closed = False

    async def run(self, read: Read, left: Callable[[], None], *, pinned_s: float | None = None) -> object:
        """Run the read in a thread of the process's pool, which calls `left` when the connection is free again."""
        call = _Call(self, read, left, pinned_s)
        self._gate.enter(call)
        try:
            return await call.future
        except asyncio.CancelledError:
            self._gate.forget(call)
            raise
        finally:
            # Nothing else here: the garbage collector clears an abandoned loop, possibly while any lock is held. The
            # call then goes through the gate in its turn, and is skipped.
            call.give_up()

    def start(self, call: _Call) -> bool:
        """Hand the call, which has a place, to a thread. If none can be started, the caller gets UnavailableError."""
        with self._lock:
            self._running.add(call)
        try:
            _threads.submit(self._serve, call)
        except RuntimeError as error:
            # It may be in the queue of the threads all the same: the first thread that claims it ends it.
            if not call.claim():
                return True
            refused = UnavailableError(f"the lane could not start a thread that reads: {error}.")
            refused.__cause__ = error
            call.answer(None, refused)
            self._ended(call)
            return False
        return True

    def _serve(self, call: _Call) -> None:
        if not call.claim():
            return
        value: object = None
        failure: Exception | None = None
        try:
            value = self._read(call)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is the caller's.
            failure = error
        self._ended(call)
        try:
            call.left()
        finally:
            self._gate.leave()
            call.answer(value, failure)
            del value, failure  # An error keeps this frame alive.

    def _ended(self, call: _Call) -> None:
        with self._lock:
            self._running.discard(call)
            self._over.notify_all()

    def look(self) -> bool:
        """Look for a tombstone immediately, in the caller's thread; return False without an idle connection."""
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        if reader is None:
            return False
        try:
            reader.look()
        except apsw.Error:
            return False  # The next read reports the error.
        finally:
            self._put_back(reader)
        return True

    @property
    def idle(self) -> bool:
        """Whether there are open connections that no read uses."""
        return bool(self._idle)

    @property
    def is_held(self) -> bool:
        """Whether new reads wait, so that the log can be folded."""
        return self._gate.is_held

    @property
    def stuck(self) -> bool:
        """Whether new reads wait and none runs: the log can be folded as soon as the writer releases it."""
        return self._gate.is_held and not self._running

    def make_way(self, log_bytes: int) -> None:
        """Hold or release new reads by the size of the log after a group; 0 means that all of it has been folded.

        SQLite starts its log anew only when no read needs it. Reads that overlap for ever would let it grow for ever,
        so when it is far too large new reads wait until those that run are over (G6).
        """
        if log_bytes > LOG_EXCESS_MAX * self._settings.wal_bytes_max:
            self._gate.hold()
        elif self._gate.is_held and (log_bytes or not self._gate.inside):
            self._gate.let_go()

    def close_idle(self) -> None:
        """Close the connections that no read uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for reader in idle:
            with contextlib.suppress(apsw.Error):
                reader.connection.close()
        self._gate.let_go()

    def close(self) -> None:
        """Close for good: refuse the waiting reads, end the running ones, and wait for them.

        While a read runs SQLite cannot fold its log. A read that runs no statement does not notice that it was given
        up: it is awaited for `statement_timeout_s` at most, and closes its own connection.
        """
        self._closed = True
        for visitor in self._gate.close():
            cast("_Call", visitor).answer(None, closed_error())
        with self._lock:
            for call in self._running:
                call.give_up()
            self._over.wait_for(lambda: not self._running, self._settings.statement_timeout_s)
        self.close_idle()

    def _read(self, call: _Call) -> object:
        reader: _Reader | None = None
        try:
            if call.given_up:
                raise closed_error()  # noqa: TRY301 -- no caller receives it: the waiter has gone.
            with self._lock:
                reader = self._idle.pop() if self._idle else None
            self._file.refuse_if_gone()
            if reader is None:
                reader = _Reader(self._file, self._prepare, self._clock, self._time)
            return reader.run(call, self._settings.statement_timeout_s)
        except BaseException as error:
            ended = isinstance(error, apsw.InterruptError) and self._closed
            raise (closed_error() if ended else translate_error(error)) from error
        finally:
            if reader is not None:
                self._put_back(reader)

    def _put_back(self, reader: _Reader) -> None:
        with self._lock:
            if not self._closed and not reader.connection.in_transaction:
                self._idle.append(reader)
                return
        with contextlib.suppress(apsw.Error):
            reader.connection.close()
