"""The doctor of a lane: examines it from outside, beside its owner or without one, and changes nothing.

It reads in the way that disturbs least. A lane without a log is read as an immutable file, which needs no lock and
leaves no file; if a process wrote meanwhile, it looks again. A log that an owner keeps is read beside it, as every
reader does. The log of an owner that died is read with its index mapped read-only; without an index, on a copy in a
temporary folder. Nothing here needs the lane for itself. Only a lane that stays locked for longer than a few seconds
cannot be examined; then the owner is named.
"""

# The type stubs of apsw know less than apsw does.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import apsw
import msgspec

from interlock.clock import Clock
from interlock.core.values import Finding
from interlock.errors import CorruptionError, LaneOwned, UnusableFile
from interlock.lanes.file import lock_path, owner_of
from interlock.lanes.handover import draft_of, is_watched, tombstone_of
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import Prepare, no_lane_error
from interlock.urls import redact_url

# --- Findings --------------------------------------------------------------------------------------------------------
# An error means that data is damaged or cannot be read; a warning means that the lane
# works, but something will get in its way; an info is worth knowing. Lists are bounded: a damaged file has no end of
# symptoms.

SYMPTOMS_MAX = 20
LOG_BYTES_EXPECTED = 4 * LaneSettings().wal_bytes_max
FREE_PAGES_MIN = 10_000
AHEAD_US = 60_000_000

Severity = Literal["error", "warning", "info"]

FINDINGS: dict[str, tuple[Severity, str, str]] = {
    "not-a-lane": (
        "error",
        "Every lane gets that table when it is opened for the first time.",
        "Check the address. To make a lane of it, open it with Database.open.",
    ),
    "time-ahead": (
        "warning",
        "A lane's time never goes back, so now() stands still until the clock has caught up.",
        "Set the clock right. Was the lane written on another machine, compare the two clocks.",
    ),
    "much-free": (
        "info",
        "Deleted rows leave pages that new rows fill again; the file does not shrink by itself.",
        "Nothing needs to be done; the space is used again.",
    ),
    "moved": (
        "info",
        "What is here is the state at the end of the move; no process reads or writes it any more.",
        "Look there. When this file is not wanted any more, delete it; to come back, route it here again.",
    ),
    "arriving": (
        "warning",
        "Until a move is over everything lives at the place that it comes from.",
        "Wait for the move. If its mover has died, run the same `interlock route` again: it goes on.",
    ),
    "leaving": (
        "info",
        "The mover copies while the lane is used, and then catches up; every write costs a little more.",
        "Wait for the move. If its mover has died, run the same `interlock route` again, or abandon the move.",
    ),
    "damaged": (
        "error",
        "Stored bytes contradict themselves or the schema; going on could spread the damage.",
        "Stop the owner, keep a copy of all the files of the lane, and restore a backup.",
    ),
    "foreign-key": (
        "error",
        "A lane enforces foreign keys; something else has written into the file.",
        "Insert the missing row into {parent}, or delete the row of {table}.",
    ),
    "log-large": (
        "warning",
        "A read that does not end keeps the log from being folded, or wal_bytes_max was raised.",
        "Look for long reads; the log is folded after the last of them, and when the lane is closed.",
    ),
    "not-closed": (
        "info",
        "It was killed, or the machine stopped. What it acknowledged is in the file or in its log.",
        "Nothing needs to be done: the next owner folds the log when it opens the lane.",
    ),
    "permissions": (
        "warning",
        "The owner reads and writes the file, its log, its index and its lock, and makes them in the folder.",
        "Give the files to the user that runs the owner, and to no other user (chown, chmod).",
    ),
    "unread-log": ("warning", "", ""),
    "unreadable": (
        "error",
        "It is not a lane, it is damaged, or this user may not read it.",
        "Check the address and the permissions. If it is the lane: keep its files, and restore a backup.",
    ),
}
"""Every finding in a lane by its code: the severity, why, and the fix. Empty: they are those of the error."""


def _finding(code: str, what: str, **names: object) -> Finding:
    severity, why, fix = FINDINGS[code]
    return Finding(code=code, severity=severity, what=what, why=why, fix=fix.format(**names))


def _contents(
    connection: apsw.Connection, *, is_lane: bool, pages: int, pages_free: int, time_us: int, now_us: int
) -> Iterator[Finding]:
    """Yield the findings in the pages, the keys and the lane's own table."""
    for (message,) in connection.execute(f"PRAGMA integrity_check({SYMPTOMS_MAX})"):
        if message != "ok":
            yield _finding("damaged", f"integrity_check says: {message}.")
    for table, row, parent, _key in itertools.islice(connection.execute("PRAGMA foreign_key_check"), SYMPTOMS_MAX):
        problem = f"row {row} of {table} refers to a row of {parent} that is not there."
        yield _finding("foreign-key", problem, parent=parent, table=table)
    yield from _moves(connection)
    if not is_lane:
        yield _finding("not-a-lane", "the file is a SQLite database, but not a lane: it has no table interlock_lane.")
    if time_us > now_us + AHEAD_US:
        ahead_s = (time_us - now_us) / 1_000_000
        yield _finding("time-ahead", f"the lane's time is {ahead_s:,.0f} s ahead of this machine's clock.")
    if pages_free > max(FREE_PAGES_MIN, pages // 2):
        yield _finding("much-free", f"{pages_free:,} of {pages:,} pages are free.")


def _moves(connection: apsw.Connection) -> Iterator[Finding]:
    stone, draft = tombstone_of(connection), draft_of(connection)
    if stone is not None:
        yield _finding("moved", f"move {stone.epoch} has left: everything lives at {redact_url(stone.url)} now.")
    if draft is not None:
        source = redact_url(draft.source)
        yield _finding("arriving", f"it is a draft of move {draft.epoch} from {source}, and cannot be opened yet.")
    if is_watched(connection):
        yield _finding("leaving", "a move is under way: the keys of rows that are written are noted for its mover.")


def _log_and_owner(path: Path, log_bytes: int) -> Iterator[Finding]:
    """Yield the findings in the log and the lock file."""
    if log_bytes > LOG_BYTES_EXPECTED:
        usual = LaneSettings().wal_bytes_max
        yield _finding("log-large", f"the log has {log_bytes:,} bytes; it is usually folded at {usual:,}.")
    lock = lock_path(path)
    if _owner_record(path) is None and (log_bytes or (lock.exists() and lock.stat().st_size)):
        yield _finding("not-closed", "the last owner ended without closing the lane.")


def _permissions(path: Path) -> Iterator[Finding]:
    """Yield the findings in the permissions of the files, as far as this process can see them."""

    def wrong(what: str, severity: Severity) -> Finding:
        return msgspec.structs.replace(_finding("permissions", f"{what}."), severity=severity)

    for each in (_beside(path, suffix) for suffix in ("", "-wal", "-shm", ".lock")):
        if not each.exists():
            continue
        if not os.access(each, os.R_OK | os.W_OK):
            yield wrong(f"{each} cannot be read and written by this user", "error")
        elif each.stat().st_uid != path.stat().st_uid:
            yield wrong(f"{each} belongs to another user than {path.name}", "warning")
        if each.stat().st_mode & stat.S_IWOTH:
            yield wrong(f"{each} can be written by every user of this machine", "warning")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        yield wrong(f"the folder {path.parent} cannot be written by this user", "error")


def _unreadable(path: Path, error: Exception) -> Finding:
    """Return the finding for a lane that could not be read at all."""
    if isinstance(error, UnusableFile):
        return msgspec.structs.replace(_finding("unread-log", error.what), why=error.why, fix=error.fix)
    return _finding("unreadable", f"{path} could not be read: {error}.")


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Whether no finding is worse than info."""
    return all(finding.severity == "info" for finding in findings)


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings sorted by severity."""
    return sorted(findings, key=lambda finding: ("error", "warning", "info").index(finding.severity))


# --- Examination -----------------------------------------------------------------------------------------------------

BUSY_MS = 5_000
LOOKS_MAX = 3
COPY_BYTES_MAX = 1_073_741_824
"""The largest lane that is copied to be looked at; a larger one has to be opened by an owner first."""

_BROKEN = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.CantOpenError, apsw.SQLError)


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a lane, as its lock file names it."""

    pid: int | None
    host: str | None
    since: str | None


class LaneReport(msgspec.Struct, frozen=True, kw_only=True):
    """The doctor's report. None stands for a value that could not be read; `findings` says why."""

    path: str
    healthy: bool
    """No finding is worse than info."""
    owner: Owner | None
    database_bytes: int
    log_bytes: int
    page_bytes: int | None = None
    pages: int | None = None
    pages_free: int | None = None
    schema_version: int | None = None
    tables: int | None = None
    keys: int | None = None
    lane_time: str | None = None
    findings: list[Finding]


class Facts(NamedTuple):
    """The facts in the pages of a lane, all of the same instant."""

    page_bytes: int
    pages: int
    pages_free: int
    schema_version: int
    tables: int
    keys: int | None
    lane_time_us: int | None
    findings: list[Finding]


def examine(path: Path, *, clock: Clock, prepare: Prepare) -> LaneReport:
    """Examine the lane in this file. `prepare` registers the functions that its schema may call.

    Raises TargetNotFound if no lane is there, and LaneOwned when it stays locked.
    """
    try:
        path = path.resolve()  # The log and the lock lie beside the file itself.
        exists, is_file = path.exists(), path.is_file()
    except OSError as error:
        raise UnusableFile(f"{path} cannot be looked at: {error.strerror or error}.") from error
    if not exists:
        raise no_lane_error(path)
    if not is_file:
        raise UnusableFile(f"{path} is not a file.", why="A lane is one file.")
    findings = [*_permissions(path)]
    facts: Facts | None = None
    for look in range(LOOKS_MAX):
        before = traces(path)
        try:
            facts = _look(path, clock, prepare)
        except apsw.BusyError:
            raise _locked(path) from None
        except (*_BROKEN, OSError, UnusableFile) as error:
            # A look without a lock may meet pages that an owner is just folding in: then look again.
            if look + 1 < LOOKS_MAX and traces(path) != before:
                continue
            findings.append(_unreadable(path, error))
            break
        if _log_bytes(path) or traces(path) == before:
            break
    if facts is not None:
        findings += facts.findings
    findings += _log_and_owner(path, _log_bytes(path))
    return LaneReport(
        path=str(path),
        healthy=is_healthy(findings),
        owner=_owner(path),
        database_bytes=path.stat().st_size,
        log_bytes=_log_bytes(path),
        findings=worst_first(findings),
        **members(facts),
    )


def look_at(path: Path, *, clock: Clock, prepare: Prepare) -> Facts:
    """Examine the pages of a file that no process uses. Raises CorruptionError when they cannot even be read."""
    try:
        return _look(path, clock, prepare)
    except apsw.Error as error:
        raise CorruptionError(f"its pages cannot be read: {error}.") from error


def members(facts: Facts | None) -> dict[str, Any]:
    """Return the facts as the members that every report has; empty when the pages could not be read."""
    if facts is None:
        return {}
    values = facts._asdict()
    del values["findings"]
    values["lane_time"] = time_text(values.pop("lane_time_us"))
    return values


def _look(path: Path, clock: Clock, prepare: Prepare) -> Facts:
    with opened_to_look(path) as (connection, _):
        prepare(connection, lambda: int(clock.wall_s() * 1_000_000))
        # One transaction, so that every number is of the same instant.
        connection.execute("BEGIN")
        page_bytes, pages, pages_free, schema_version = (
            int(str(connection.execute(f"PRAGMA {name}").get))
            for name in ("page_size", "page_count", "freelist_count", "schema_version")
        )
        own = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        keys = connection.execute("SELECT count(*) FROM interlock_keys").get if "interlock_keys" in own else None
        time_us = connection.execute("SELECT max(time_us) FROM interlock_lane").get if "interlock_lane" in own else None
        return Facts(
            page_bytes,
            pages,
            pages_free,
            schema_version,
            sum(not name.startswith(("interlock_", "sqlite_")) for name in own),
            int(str(keys)) if keys is not None else None,
            int(str(time_us)) if time_us is not None else None,
            [
                *_contents(
                    connection,
                    is_lane="interlock_lane" in own,
                    pages=pages,
                    pages_free=pages_free,
                    time_us=int(str(time_us or 0)),
                    now_us=int(clock.wall_s() * 1_000_000),
                )
            ],
        )


@contextmanager
def opened_to_look(path: Path) -> Generator[tuple[apsw.Connection, bool], None, None]:
    """Open the lane read-only; the flag says whether it is read under a lock. If not, an owner may write meanwhile."""
    if not _log_bytes(path):
        with _connected(path, "immutable=1") as connection:
            yield connection, False
    elif _owner_record(path) is not None:
        with _connected(path) as connection:
            yield connection, True
    elif _beside(path, "-shm").exists():
        with _connected(path, "readonly_shm=1") as connection:
            yield connection, True
    else:
        if path.stat().st_size + _log_bytes(path) > COPY_BYTES_MAX:
            raise UnusableFile(
                f"{path} has a log without an index, and is too large to be looked at in a copy.",
                why="Reading such a log makes an index beside it, and the doctor changes nothing.",
                fix="Open the lane once, which folds the log, and look again.",
            )
        with tempfile.TemporaryDirectory(prefix="interlock-doctor-") as folder:
            copy = Path(folder) / path.name
            shutil.copyfile(path, copy)
            shutil.copyfile(_beside(path, "-wal"), _beside(copy, "-wal"))
            with _connected(copy) as connection:
                yield connection, False


@contextmanager
def _connected(path: Path, *options: str) -> Generator[apsw.Connection, None, None]:
    address = f"file:{quote(str(path))}?{'&'.join(('mode=ro', *options))}"
    connection = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        connection.set_busy_timeout(BUSY_MS)
        for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        yield connection
    finally:
        connection.close()


def traces(path: Path) -> tuple[int, int, int]:
    """Return the sizes and times that a write changes."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, _log_bytes(path)


def _log_bytes(path: Path) -> int:
    log = _beside(path, "-wal")
    return log.stat().st_size if log.exists() else 0


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _owner_record(path: Path) -> dict[str, object] | None:
    try:
        return owner_of(path)
    except OSError:
        # A lock that this user may not read: a process may hold it, so the lane is read as if one did.
        return {}


def _owner(path: Path) -> Owner | None:
    record = _owner_record(path)
    if record is None:
        return None
    pid, host, since_s = record.get("pid"), record.get("host"), record.get("since_s")
    return Owner(
        pid=pid if isinstance(pid, int) else None,
        host=str(host) if host is not None else None,
        since=time_text(int(since_s * 1_000_000)) if isinstance(since_s, int | float) else None,
    )


def _locked(path: Path) -> LaneOwned:
    owner = _owner(path)
    who = f"process {owner.pid} on host {owner.host}" if owner else f"a process that does not hold {lock_path(path)}"
    return LaneOwned(
        f"lane {path} stayed locked for {BUSY_MS / 1_000:g} s by {who}.",
        why="Its owner is just opening or closing it, or something that is not Interlock has it open.",
        fix="Try again; if it stays so, find out what else has the file open.",
    )


def time_text(time_us: int | None) -> str | None:
    """Return a time in ISO 8601; None for no time."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat(timespec="seconds") if time_us else None
