"""The doctor's report on a database in a bucket, as data, and the findings in it.

It needs none of the packages for buckets, so the command line can know it without them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from interlock.core.values import Finding
from interlock.lanes.lane_doctor import SYMPTOMS_MAX, Severity
from interlock.lanes.objectlog.probe import PromiseCheck


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


class LogState(msgspec.Struct, frozen=True, kw_only=True):
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
    first: LogState | None = None
    """The first state that can be restored, and the last one."""
    last: LogState | None = None
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

_RESTORE = (
    "Keep the bucket as it is, and restore what is whole: `interlock restore URL --at SEQ FILE`. "
    "If the bucket keeps old versions of objects, bring this one back."
)
_CHANGED = "An object of a log is written once. Something other than Interlock has changed the bucket."

FINDINGS: dict[str, tuple[Severity, str, str]] = {
    "manifest": (
        "error",
        "The manifest says where replay begins and who may write; without it the database cannot be opened.",
        "Bring its last version back, if the bucket keeps old versions. Keep everything else as it is.",
    ),
    "object-missing": (
        "error",
        "The log has no gaps above the floor, and only what lies below it is ever deleted.",
        _RESTORE,
    ),
    "object-damaged": ("error", _CHANGED, _RESTORE),
    "object-misplaced": ("error", _CHANGED, _RESTORE),
    "snapshot-damaged": (
        "error",
        "Later states are restored from an earlier snapshot, with a longer replay, if there is one.",
        _RESTORE,
    ),
    "snapshot-differs": (
        "error",
        "Both carry right checksums, so what differs was stored so: a mistake of Interlock, or of the memory.",
        "",
    ),
    "fence-missing": (
        "error",
        "A fence keeps an owner that was replaced from writing on. Fences are never deleted by Interlock.",
        "Make sure that no process of an earlier epoch is alive; let nothing but Interlock delete in the bucket.",
    ),
    "left-over": (
        "info",
        "An interrupted upkeep leaves some; a snapshot that is just being stored counts too.",
        "Nothing needs to be done; they cost only the space.",
    ),
    "snapshot-overdue": (
        "warning",
        "Snapshots fail, or snapshot_bytes_min was raised. The next owner without a local file replays all of it.",
        "Look at the owner: it needs space in its temporary folder, and the right to write below snapshot/.",
    ),
    "bucket-promise": ("error", "", ""),
}
"""Every finding in a bucket by its code: the severity, why, and the fix. Empty: it depends on the finding."""


class BoundedFindings:
    """The findings of one look, bounded."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._count: Counter[str] = Counter()

    def add(self, code: str, what: str, *, why: str = "", fix: str = "") -> None:
        """Add a finding of this kind."""
        severity, usual_why, usual_fix = FINDINGS[code]
        self.add_finding(Finding(code=code, severity=severity, what=what, why=why or usual_why, fix=fix or usual_fix))

    def add_finding(self, finding: Finding) -> None:
        """Add a finding; one about damaged pages gets the remedy for a bucket."""
        self._count[finding.code] += 1
        if self._count[finding.code] <= SYMPTOMS_MAX:
            self._found.append(msgspec.structs.replace(finding, fix=_RESTORE) if finding.code == "damaged" else finding)

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


def broken_promises(checks: Iterable[PromiseCheck]) -> Iterator[Finding]:
    """Yield a finding for each promise that the bucket does not keep."""
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
