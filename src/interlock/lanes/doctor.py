"""The doctor of a lane: examines it from outside, beside its owner or without one, and changes nothing.

It reads in the way that disturbs least. A lane without a log is read as an immutable file, which needs no lock and
leaves no file; if a process wrote meanwhile, it looks again. A log that an owner keeps is read beside it, as every
reader does. The log of an owner that died is read with its index mapped read-only; without an index, on a copy in a
temporary folder. Nothing here needs the lane for itself. Only a lane that stays locked for longer than a few seconds
cannot be examined; then the owner is named.
"""

# The type stubs of apsw know less than apsw does.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

import apsw
import msgspec

from interlock.clock import Clock
from interlock.core.values import Finding
from interlock.errors import CorruptionError, LaneOwned, UnusableFile
from interlock.lanes.connection import Prepare, no_lane
from interlock.lanes.handover import draft_of, tombstone_of, watched
from interlock.lanes.ownership import lock_path, owner_of
from interlock.lanes.settings import LaneSettings
from interlock.urls import redact_url

# --- Findings --------------------------------------------------------------------------------------------------------
# An error means that data is damaged or cannot be read; a warning means that the lane
# works, but something will get in its way; an info is worth knowing. Lists are bounded: a damaged file has no end of
# symptoms.

SYMPTOMS_MAX = 20
LOG_BYTES_EXPECTED = 4 * LaneSettings().wal_bytes_max
FREE_PAGES_MIN = 10_000
AHEAD_US = 60_000_000


def contents(
    connection: apsw.Connection, *, is_lane: bool, pages: int, pages_free: int, time_us: int, now_us: int
) -> list[Finding]:
    """Return the findings in the pages, the keys and the lane's own table."""
    found = [*_damage(connection), *_orphans(connection), *_moves(connection)]
    if not is_lane:
        found.append(
            Finding(
                code="not-a-lane",
                severity="error",
                what="the file is a SQLite database, but not a lane: it has no table interlock_lane.",
                why="Every lane gets that table when it is opened for the first time.",
                fix="Check the address. To make a lane of it, open it with Database.open.",
            )
        )
    if time_us > now_us + AHEAD_US:
        found.append(
            Finding(
                code="time-ahead",
                severity="warning",
                what=f"the lane's time is {(time_us - now_us) / 1_000_000:,.0f} s ahead of this machine's clock.",
                why="A lane's time never goes back, so now() stands still until the clock has caught up.",
                fix="Set the clock right. Was the lane written on another machine, compare the two clocks.",
            )
        )
    if pages_free > max(FREE_PAGES_MIN, pages // 2):
        found.append(
            Finding(
                code="much-free",
                severity="info",
                what=f"{pages_free:,} of {pages:,} pages are free.",
                why="Deleted rows leave pages that new rows fill again; the file does not shrink by itself.",
                fix="Nothing needs to be done; the space is used again.",
            )
        )
    return found


def _moves(connection: apsw.Connection) -> Iterator[Finding]:
    stone, draft = tombstone_of(connection), draft_of(connection)
    if stone is not None:
        yield Finding(
            code="moved",
            severity="info",
            what=f"move {stone.epoch} has left: everything lives at {redact_url(stone.url)} now.",
            why="What is here is the state at the end of the move; no process reads or writes it any more.",
            fix="Look there. When this file is not wanted any more, delete it; to come back, route it here again.",
        )
    if draft is not None:
        yield Finding(
            code="arriving",
            severity="warning",
            what=f"it is a draft of move {draft.epoch} from {redact_url(draft.source)}, and cannot be opened yet.",
            why="Until a move is over everything lives at the place that it comes from.",
            fix="Wait for the move. If its mover has died, run the same `interlock route` again: it goes on.",
        )
    if watched(connection):
        yield Finding(
            code="leaving",
            severity="info",
            what="a move is under way: the keys of rows that are written are noted for its mover.",
            why="The mover copies while the lane is used, and then catches up; every write costs a little more.",
            fix="Wait for the move. If its mover has died, run the same `interlock route` again, or abandon the move.",
        )


def _damage(connection: apsw.Connection) -> Iterator[Finding]:
    for (message,) in connection.execute(f"PRAGMA integrity_check({SYMPTOMS_MAX})"):
        if message != "ok":
            yield Finding(
                code="damaged",
                severity="error",
                what=f"integrity_check says: {message}.",
                why="Stored bytes contradict themselves or the schema; going on could spread the damage.",
                fix="Stop the owner, keep a copy of all the files of the lane, and restore a backup.",
            )


def _orphans(connection: apsw.Connection) -> Iterator[Finding]:
    for place, (table, row, parent, _key) in enumerate(connection.execute("PRAGMA foreign_key_check")):
        if place == SYMPTOMS_MAX:
            return
        yield Finding(
            code="foreign-key",
            severity="error",
            what=f"row {row} of {table} refers to a row of {parent} that is not there.",
            why="A lane enforces foreign keys; something else has written into the file.",
            fix=f"Insert the missing row into {parent}, or delete the row of {table}.",
        )


def log_and_owner(path: Path, log_bytes: int, *, owned: bool) -> list[Finding]:
    """Return the findings in the log and the lock file."""
    found: list[Finding] = []
    if log_bytes > LOG_BYTES_EXPECTED:
        found.append(
            Finding(
                code="log-large",
                severity="warning",
                what=f"the log has {log_bytes:,} bytes; it is usually folded at {LaneSettings().wal_bytes_max:,}.",
                why="A read that does not end keeps the log from being folded, or wal_bytes_max was raised.",
                fix="Look for long reads; the log is folded after the last of them, and when the lane is closed.",
            )
        )
    lock = lock_path(path)
    if not owned and (log_bytes or (lock.exists() and lock.stat().st_size)):
        found.append(
            Finding(
                code="not-closed",
                severity="info",
                what="the last owner ended without closing the lane.",
                why="It was killed, or the machine stopped. What it acknowledged is in the file or in its log.",
                fix="Nothing needs to be done: the next owner folds the log when it opens the lane.",
            )
        )
    return found


def permissions(path: Path) -> list[Finding]:
    """Return the findings in the permissions of the files, as far as this process can see them."""
    found: list[Finding] = []
    for each in (path.with_name(path.name + end) for end in ("", "-wal", "-shm", ".lock")):
        if not each.exists():
            continue
        if not os.access(each, os.R_OK | os.W_OK):
            found.append(_wrong_permissions(f"{each} cannot be read and written by this user", "error"))
        elif each.stat().st_uid != path.stat().st_uid:
            found.append(_wrong_permissions(f"{each} belongs to another user than {path.name}", "warning"))
        if each.stat().st_mode & stat.S_IWOTH:
            found.append(_wrong_permissions(f"{each} can be written by every user of this machine", "warning"))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        found.append(_wrong_permissions(f"the folder {path.parent} cannot be written by this user", "error"))
    return found


def _wrong_permissions(what: str, severity: Literal["error", "warning"]) -> Finding:
    return Finding(
        code="permissions",
        severity=severity,
        what=f"{what}.",
        why="The owner reads and writes the file, its log, its index and its lock, and makes them in the folder.",
        fix="Give the files to the user that runs the owner, and to no other user (chown, chmod).",
    )


def unreadable(path: Path, error: Exception) -> Finding:
    """Return the finding for a lane that could not be read at all."""
    if isinstance(error, UnusableFile):
        return Finding(code="unread-log", severity="warning", what=error.what, why=error.why, fix=error.fix)
    return Finding(
        code="unreadable",
        severity="error",
        what=f"{path} could not be read: {error}.",
        why="It is not a lane, it is damaged, or this user may not read it.",
        fix="Check the address and the permissions. If it is the lane: keep its files, and restore a backup.",
    )


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
        raise no_lane(path)
    if not is_file:
        raise UnusableFile(f"{path} is not a file.", why="A lane is one file.")
    findings = permissions(path)
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
            findings.append(unreadable(path, error))
            break
        if _log_bytes(path) or traces(path) == before:
            break
    if facts is not None:
        findings += facts.findings
    findings += log_and_owner(path, _log_bytes(path), owned=_owner_record(path) is not None)
    return _report(path, facts, findings)


def look_at(path: Path, *, clock: Clock, prepare: Prepare) -> Facts:
    """Examine the pages of a file that no process uses. Raises CorruptionError when they cannot even be read."""
    try:
        return _look(path, clock, prepare)
    except apsw.Error as error:
        raise CorruptionError(f"its pages cannot be read: {error}.") from error


def _report(path: Path, facts: Facts | None, findings: list[Finding]) -> LaneReport:
    time_us = facts.lane_time_us if facts else None
    ranks = ("error", "warning", "info")
    return LaneReport(
        path=str(path),
        healthy=all(finding.severity == "info" for finding in findings),
        owner=_owner(path),
        database_bytes=path.stat().st_size,
        log_bytes=_log_bytes(path),
        page_bytes=facts.page_bytes if facts else None,
        pages=facts.pages if facts else None,
        pages_free=facts.pages_free if facts else None,
        schema_version=facts.schema_version if facts else None,
        tables=facts.tables if facts else None,
        keys=facts.keys if facts else None,
        lane_time=_time_text(time_us / 1_000_000) if time_us else None,
        findings=sorted(findings, key=lambda finding: ranks.index(finding.severity)),
    )


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
            contents(
                connection,
                is_lane="interlock_lane" in own,
                pages=pages,
                pages_free=pages_free,
                time_us=int(str(time_us or 0)),
                now_us=int(clock.wall_s() * 1_000_000),
            ),
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
        since=_time_text(since_s) if isinstance(since_s, int | float) else None,
    )


def _locked(path: Path) -> LaneOwned:
    owner = _owner(path)
    who = f"process {owner.pid} on host {owner.host}" if owner else f"a process that does not hold {lock_path(path)}"
    return LaneOwned(
        f"lane {path} stayed locked for {BUSY_MS / 1_000:g} s by {who}.",
        why="Its owner is just opening or closing it, or something that is not Interlock has it open.",
        fix="Try again; if it stays so, find out what else has the file open.",
    )


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
