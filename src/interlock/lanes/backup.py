"""The backup of a local lane while its owner goes on: a copy of one instant, with everything acknowledged before.

SQLite's own backup copies page by page inside one read transaction, so the copy is of the moment when it began. A
writer never waits for it. The log beside the file is part of what is read. A lane that no process has open is read
without a lock, and read again if a process opened it meanwhile.

The copy is checked by SQLite and synced before it gets its name.
"""

# The type stubs of apsw know less than apsw does.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import apsw

from interlock.clock import Clock, Ids
from interlock.errors import CorruptionError, LaneOwned, UnusableFile
from interlock.lanes.connection import Prepare, no_lane
from interlock.lanes.doctor import LOOKS_MAX, Facts, look_at, opened_to_look, traces
from interlock.lanes.file import check_target, own_target, put_in_place
from interlock.lanes.handover import admit, moved, tombstone_of, unwatch, watched

PAGES_AT_ONCE = 5_000

Watch = Callable[[str, int, int], None]


class Copied(NamedTuple):
    """The result of a backup."""

    path: Path
    pages: int
    page_bytes: int


def back_up(source: Path, path: Path, *, force: bool, clock: Clock, ids: Ids, prepare: Prepare, watch: Watch) -> Copied:
    """Copy the lane in a file into another one. `prepare` registers the functions that its schema may call.

    Raises TargetNotFound without a lane, UnusableFile for the copy, CorruptionError for a lane that is damaged, and
    LaneOwned for one that stays locked, MovedElsewhere for one that was left.
    """
    if not source.exists():
        raise no_lane(source)
    if path.resolve() == source.resolve():
        raise UnusableFile(f"{path} is the lane itself.", why="A copy is another file.", fix="Name another file.")
    check_target(path, force=force)
    temporary = path.with_name(f".{path.name}.{ids.new().hex}.copying")
    try:
        _copy(source.resolve(), temporary, watch)
        watch("checking the pages", 0, 1)
        facts = _checked(temporary, clock, prepare)
        watch("checking the pages", 1, 1)
        with own_target(path, clock):
            check_target(path, force=force)
            put_in_place(temporary, path, force=force)
    except OSError as error:
        raise UnusableFile(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        for left in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                temporary.with_name(temporary.name + left).unlink(missing_ok=True)
    return Copied(path, facts.pages, facts.page_bytes)


def _copy(source: Path, temporary: Path, watch: Watch) -> None:
    for look in range(LOOKS_MAX):
        before = traces(source)
        try:
            logged = _copied(source, temporary, watch)
        except apsw.BusyError as error:
            raise LaneOwned(
                f"lane {source} stayed locked.",
                why="Its owner is just opening or closing it, or something that is not Interlock has it open.",
                fix="Try again.",
            ) from error
        except (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.FullError, apsw.CantOpenError) as error:
            # Without a lock, pages may be met that an owner is just folding in: then they are read again.
            if look + 1 < LOOKS_MAX and traces(source) != before:
                continue
            raise CorruptionError(
                f"lane {source} cannot be copied: {error}.",
                why="A page cannot be read, or the copy cannot be written.",
                fix="Look at it with `interlock doctor`, and at the room on the disk.",
            ) from error
        if logged or traces(source) == before:
            return
    raise LaneOwned(
        f"lane {source} was opened and written {LOOKS_MAX} times while it was copied.",
        why="No process had it open when the copy began.",
        fix="Try again: beside an owner that goes on, a copy is made in one go.",
    )


def _copied(source: Path, temporary: Path, watch: Watch) -> bool:
    """Copy one instant; return whether it was read under a lock, beside its log."""
    temporary.unlink(missing_ok=True)
    with opened_to_look(source) as (connection, locked):
        # The transaction keeps the instant, however many steps the copy takes.
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        _refuse_elsewhere(connection, source)
        copy = apsw.Connection(str(temporary), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            with copy.backup("main", connection, "main") as backup:
                while not backup.done:
                    backup.step(PAGES_AT_ONCE)
                    watch("copying pages", backup.page_count - backup.remaining, backup.page_count)
            if watched(copy):
                with copy:  # No mover reads notes of the copy.
                    unwatch(copy)
        finally:
            copy.close()
    return locked


def _refuse_elsewhere(connection: apsw.Connection, source: Path) -> None:
    """Raise MovedElsewhere for a lane that was left, UnavailableError for one that a move is filling."""
    stone = tombstone_of(connection)
    if stone is not None:
        raise moved(stone)
    admit(connection, None, f"lane {source}")


def _checked(temporary: Path, clock: Clock, prepare: Prepare) -> Facts:
    facts = look_at(temporary, clock=clock, prepare=prepare)
    for finding in facts.findings:
        if finding.severity == "error":
            raise CorruptionError(
                f"the copy is not whole: {finding.what}",
                why="The lane itself is damaged, or the file is not a lane.",
                fix="Look at it with `interlock doctor`.",
            )
    return facts
