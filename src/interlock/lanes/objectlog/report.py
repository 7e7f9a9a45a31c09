"""The doctor's report on a database in a bucket, as data, and the findings in it.

It needs none of the packages for buckets, so the command line can know it without them.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from interlock.core.values import Finding
from interlock.lanes.doctor import SYMPTOMS_MAX
from interlock.lanes.objectlog.probe import Check


class BucketOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of the lease, by the manifest. An owner that died keeps it until another process wants the lane."""

    pid: int
    host: str
    lease_s: float


class SnapshotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of the manifest."""

    seq: int
    time: str | None
    objects_behind: int
    """Objects of the log since then: its age."""
    parts: int
    pages: int
    bytes: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A position in the log, with the lane's time there."""

    seq: int
    time: str | None


class BucketReport(msgspec.Struct, frozen=True, kw_only=True):
    """The doctor's report. None stands for a value that could not be read; `findings` says why."""

    url: str
    healthy: bool
    """No finding is worse than info."""
    database: str | None = None
    """The id that every object of the database carries."""
    revision: int | None = None
    epoch: int | None = None
    owner: BucketOwner | None = None
    snapshots: list[SnapshotFacts] = []
    log_objects: int = 0
    """Objects of the history, which begins at the first snapshot."""
    log_bytes: int = 0
    fences: int = 0
    fences_below: int = 0
    """Fences older than the history: they stay for ever."""
    replay_objects: int = 0
    """Objects after the newest snapshot, which the next owner without a local file replays."""
    replay_bytes: int = 0
    first: State | None = None
    """The first state that can be restored, and the last one."""
    last: State | None = None
    lost: list[tuple[int, int]] = []
    """States between those that cannot be restored: from, to."""
    page_bytes: int | None = None
    pages: int | None = None
    pages_free: int | None = None
    schema_version: int | None = None
    tables: int | None = None
    keys: int | None = None
    lane_time: str | None = None
    findings: list[Finding] = []


# --- Findings --------------------------------------------------------------------------------------------------------
# An error means that something acknowledged is damaged or gone, or that the bucket could let two owners both win; a
# warning that something will get in the way; an info is worth knowing. The number of each kind is bounded: a bucket
# that was wiped has no end of symptoms.

RESTORE = (
    "Keep the bucket as it is, and restore what is whole: `interlock restore URL --at SEQ FILE`. "
    "If the bucket keeps old versions of objects, bring this one back."
)
_CHANGED = "An object of a log is written once. Something other than Interlock has changed the bucket."


class Notes:
    """The findings of one look, bounded."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._count: Counter[str] = Counter()

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self._count[finding.code] += 1
        if self._count[finding.code] <= SYMPTOMS_MAX:
            self._found.append(finding)

    @property
    def errors(self) -> bool:
        """Whether there is damage."""
        return any(finding.severity == "error" for finding in self._found)

    def all(self) -> list[Finding]:
        """Return the findings, with the number of the omitted ones."""
        last = {finding.code: at for at, finding in enumerate(self._found)}
        findings = list(self._found)
        for code, count in self._count.items():
            if count > SYMPTOMS_MAX:
                finding = findings[last[code]]
                more = f"{finding.what} There are {count - SYMPTOMS_MAX:,} more of this kind."
                findings[last[code]] = msgspec.structs.replace(finding, what=more)
        return findings


def manifest_wrong(problem: str) -> Finding:
    """Report a manifest that is missing or contradicts itself."""
    return Finding(
        code="manifest",
        severity="error",
        what=problem,
        why="The manifest says where replay begins and who may write; without it the database cannot be opened.",
        fix="Bring its last version back, if the bucket keeps old versions. Keep everything else as it is.",
    )


def missing(first: str, count: int) -> Finding:
    """Report missing objects of the log."""
    run = "is" if count == 1 else f"and {count - 1:,} after it are"
    return Finding(
        code="object-missing",
        severity="error",
        what=f"{first} {run} missing.",
        why="The log has no gaps above the floor, and only what lies below it is ever deleted.",
        fix=RESTORE,
    )


def damaged(what: str) -> Finding:
    """Report an object of the log whose bytes have changed."""
    return Finding(code="object-damaged", severity="error", what=what, why=_CHANGED, fix=RESTORE)


def misplaced(what: str) -> Finding:
    """Report an intact object of the log in the wrong place."""
    return Finding(code="object-misplaced", severity="error", what=what, why=_CHANGED, fix=RESTORE)


def snapshot_damaged(what: str, *, newest: bool) -> Finding:
    """Report a snapshot that cannot be loaded."""
    return Finding(
        code="snapshot-damaged",
        severity="error",
        what=what,
        why="Opening the database begins with this snapshot."
        if newest
        else "Later states are restored from an earlier snapshot, with a longer replay, if there is one.",
        fix=RESTORE,
    )


def snapshot_differs(seq: int, pages: int) -> Finding:
    """Report a snapshot that differs from the log."""
    return Finding(
        code="snapshot-differs",
        severity="error",
        what=f"the snapshot at {seq} is not what the log makes of the one before: {pages:,} pages differ.",
        why="Both carry right checksums, so what differs was stored so: a mistake of Interlock, or of the memory.",
        fix=f"Please report it. Restore {seq - 1} and {seq}, compare them, and keep the bucket as it is.",
    )


def fence_missing(what: str) -> Finding:
    """Report a fence that must be there and is not."""
    return Finding(
        code="fence-missing",
        severity="error",
        what=what,
        why="A fence keeps an owner that was replaced from writing on. Fences are never deleted by Interlock.",
        fix="Make sure that no process of an earlier epoch is alive; let nothing but Interlock delete in the bucket.",
    )


def left_over(groups: int, parts: int, strays: int) -> Iterable[Finding]:
    """Report objects that are not needed."""
    if groups or parts or strays:
        yield Finding(
            code="left-over",
            severity="info",
            what=f"{groups:,} groups below the history, {parts:,} parts of snapshots that the manifest does not name "
            f"and {strays:,} objects that are not Interlock's lie below the address.",
            why="An interrupted upkeep leaves some; a snapshot that is just being stored counts too.",
            fix="Nothing needs to be done; they cost only the space.",
        )


def overdue(objects: int, log_bytes: int, expected: int) -> Finding:
    """Report a long log after the newest snapshot."""
    return Finding(
        code="snapshot-overdue",
        severity="warning",
        what=f"{objects:,} objects of {log_bytes:,} bytes lie after the newest snapshot; one is usually taken when "
        f"they weigh {expected:,}.",
        why="Snapshots fail, or snapshot_bytes_min was raised. The next owner without a local file replays all of it.",
        fix="Look at the owner: it needs space in its temporary folder, and the right to write below snapshot/.",
    )


def promises(checks: Iterable[Check]) -> Iterable[Finding]:
    """Report the promises that the bucket does not keep."""
    for check in checks:
        if check.verdict != "yes":
            wrong = "does not guarantee" if check.verdict == "no" else "is not known to guarantee"
            yield Finding(
                code="bucket-promise",
                severity="error" if check.verdict == "no" else "warning",
                what=f"the bucket {wrong} that {check.promise}: {check.evidence}.",
                why=check.why,
                fix=check.fix,
            )


def in_bucket(finding: Finding) -> Finding:
    """Return a finding about the pages with the remedy for a bucket."""
    return msgspec.structs.replace(finding, fix=RESTORE) if finding.code == "damaged" else finding
