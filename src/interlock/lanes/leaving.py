"""A mover's connection to the file of a local lane, beside the owner, in any process, or without an owner.

The owner goes on serving while the mover copies. `watch` makes the owner's own transactions note the rows they write;
`touched` returns these notes. `sealed` is SQLite's write lock: the owner's next group waits for it. It vanishes with
the mover, kill -9 included, as if nothing had been. Inside it `Seal.leave` commits the tombstone, which decides: before
that commit nothing has moved, after it everything has.

The odd choice is that the mover never notifies the owner: the owner finds the tombstone inside its next transaction. It
must do so anyway when the mover or the owner dies.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from interlock.errors import OutcomeUnknown, TargetNotFound, UnavailableError
from interlock.lanes import forks, notes
from interlock.lanes.connection import Prepare, open_beside
from interlock.lanes.descriptors import with_room
from interlock.lanes.failures import opening
from interlock.lanes.sealing import SealWait
from interlock.lanes.tombstone import Tombstone, moved, tombstone_of, write_tombstone
from interlock.seams import Clock

__all__ = ["Leaving", "Seal", "Tombstone", "tombstone_of"]

WRITE_WAIT_S = 10.0
"""How long a short write of the mover waits for the owner's groups."""

LOOK_S = 0.0002
"""Between two looks at the owner's lock: a busy owner lets go of it for a tenth of a millisecond at a time."""

FORGOTTEN_AT_ONCE = 5_000

ResultT = TypeVar("ResultT")


class Seal:
    """The write lock of a lane, held by a mover."""

    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        self.connection = connection
        """Reads the last state there is, inside the transaction that holds the lock."""
        self.left: Tombstone | None = None
        self._clock = clock

    def leave(self, url: str, epoch: int) -> Tombstone:
        """Write the tombstone and commit, durably: from here on everything has moved.

        Raises OutcomeUnknown when the commit fails; opening the file again shows whether it has happened.
        """
        stone = Tombstone(url, epoch, int(self._clock.wall_s() * 1_000_000))
        notes.unwatch(self.connection)
        write_tombstone(self.connection.execute, stone)
        try:
            self.connection.execute("COMMIT")
        except apsw.Error as error:
            raise OutcomeUnknown(
                f"the commit that ends move {epoch} failed: {error}.",
                why="After a failed write or fsync it cannot be known what reached the disk (G9).",
                fix="Run the same `interlock route` again: it looks, and goes on from what it finds.",
            ) from error
        self.left = stone
        return stone


class Leaving:
    """A mover's connection to the file of a local lane. For one thread at a time; close it."""

    def __init__(self, path: Path, *, clock: Clock, prepare: Prepare) -> None:
        self.path = path
        self._clock = clock
        forks.refuse_inherited(path)
        if not path.exists():
            raise TargetNotFound(
                f"there is no lane at {path}.",
                why="A lane lanes:///folder/name is kept in the file /folder/name.lane.",
                fix="Check the address; a lane exists once it has been opened for the first time.",
            )
        with opening(path):
            self.connection = with_room(lambda: open_beside(path))
            try:
                prepare(self.connection, self._now_us)
            except BaseException:
                self.connection.close()
                raise
        self._closed = False
        forks.watch(self)

    def tombstone(self) -> Tombstone | None:
        """Return the tombstone, if a move has left."""
        return tombstone_of(self.connection)

    def write(self, function: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Run a short function in a transaction of its own, between two groups of the owner."""
        with self._immediate(WRITE_WAIT_S):
            result = function(self.connection)
            self.connection.execute("COMMIT")
            return result

    def watch(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Note every write to these tables from now on, each with the columns of its key. Repeating it is harmless.

        Raises MovedElsewhere when nothing lives here any more.
        """

        def begin(connection: apsw.Connection) -> None:
            self._refuse_if_moved()
            notes.watch(connection, tables)

        self.write(begin)

    def touched(self, after: int, limit: int) -> list[notes.Note]:
        """Return the notes above number `after`, in order: (number, table, key). A row has one, of its last write."""
        return notes.touched(self.connection, after, limit)

    def forget(self, upto: int) -> None:
        """Delete the notes up to this number."""
        while self.write(lambda connection: notes.forget(connection, upto, FORGOTTEN_AT_ONCE)) == FORGOTTEN_AT_ONCE:
            pass

    def unwatch(self) -> None:
        """Stop noting writes: the move is given up."""
        self.write(notes.unwatch)

    @contextlib.contextmanager
    def sealed(self, wait_s: float) -> Generator[Seal]:
        """Hold the lane's write lock, so that its writer waits. Without `leave` nothing has happened when it ends.

        Raises UnavailableError if the lock was not acquired within `wait_s`, MovedElsewhere if the lane has left.
        """
        with self._immediate(wait_s):
            self._refuse_if_moved()
            yield Seal(self.connection, self._clock)

    def close(self) -> None:
        """Close the connection. SQLite folds its log only if no other connection has the file open."""
        self._closed = True
        self.connection.close()

    def forked(self) -> None:
        """Disable the connection in the child of a fork: it and SQLite's locks on the file are the parent's."""
        forks.leak(self.connection)
        if not self._closed:
            forks.inherit(self.path)

    @contextlib.contextmanager
    def _immediate(self, wait_s: float) -> Generator[None]:
        self.connection.set_busy_handler(SealWait(wait_s, look_s=LOOK_S))
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise UnavailableError(
                f"lane {self.path} could not be locked for {wait_s:g} s.",
                why="Its owner writes all the time, or something else holds the lock.",
                fix="Try again; if it stays so, wait longer, or move it at a quieter time.",
            ) from error
        try:
            yield
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _refuse_if_moved(self) -> None:
        stone = self.tombstone()
        if stone is not None:
            raise moved(stone)

    def _now_us(self) -> int:
        return int(self._clock.wall_s() * 1_000_000)
