"""What can be wrong with a database in a bucket, each with why it matters and what to do: the doctor's knowledge.

An error means that something acknowledged is damaged or gone, or that the bucket could let two owners both win; a
warning that something will get in the way; an info is worth knowing. Of each kind only some are told: a bucket that was
wiped has no end of symptoms.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from interlock.core.values import Finding
from interlock.lanes.objects.probe import Check
from interlock.lanes.symptoms import SYMPTOMS_MAX

RESTORE = (
    "Keep the bucket as it is, and restore what is whole: `interlock restore URL --at SEQ FILE`. "
    "If the bucket keeps old versions of objects, bring this one back."
)
_CHANGED = "An object of a log is written once. Somebody or something other than Interlock has changed the bucket."


class Notes:
    """The findings of one look, bounded."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._count: Counter[str] = Counter()

    def add(self, finding: Finding) -> None:
        """Note one."""
        self._count[finding.code] += 1
        if self._count[finding.code] <= SYMPTOMS_MAX:
            self._found.append(finding)

    @property
    def errors(self) -> bool:
        """Whether there is damage."""
        return any(finding.severity == "error" for finding in self._found)

    def all(self) -> list[Finding]:
        """The findings, and how many more there are."""
        last = {finding.code: at for at, finding in enumerate(self._found)}
        told = list(self._found)
        for code, count in self._count.items():
            if count > SYMPTOMS_MAX:
                finding = told[last[code]]
                more = f"{finding.what} There are {count - SYMPTOMS_MAX:,} more of this kind."
                told[last[code]] = msgspec.structs.replace(finding, what=more)
        return told


def manifest_wrong(told: str) -> Finding:
    """The manifest is gone, or says what cannot be."""
    return Finding(
        code="manifest",
        severity="error",
        what=told,
        why="The manifest says where replay begins and who may write; without it the database cannot be opened.",
        fix="Bring its last version back, if the bucket keeps old versions. Keep everything else as it is.",
    )


def missing(first: str, count: int) -> Finding:
    """Objects of the log are not there."""
    run = "is" if count == 1 else f"and {count - 1:,} behind it are"
    return Finding(
        code="object-missing",
        severity="error",
        what=f"{first} {run} missing.",
        why="The log has no gaps above the floor, and only what lies below it is ever deleted.",
        fix=RESTORE,
    )


def damaged(what: str) -> Finding:
    """An object of the log is not what was stored."""
    return Finding(code="object-damaged", severity="error", what=what, why=_CHANGED, fix=RESTORE)


def misplaced(what: str) -> Finding:
    """An object of the log is whole, and does not belong where it is."""
    return Finding(code="object-misplaced", severity="error", what=what, why=_CHANGED, fix=RESTORE)


def snapshot_damaged(what: str, *, newest: bool) -> Finding:
    """A snapshot cannot be loaded."""
    return Finding(
        code="snapshot-damaged",
        severity="error",
        what=what,
        why="Opening the database begins with this snapshot."
        if newest
        else "States behind it are restored from an earlier snapshot, with a longer replay, if there is one.",
        fix=RESTORE,
    )


def snapshot_differs(seq: int, pages: int) -> Finding:
    """A snapshot is not what the log says."""
    return Finding(
        code="snapshot-differs",
        severity="error",
        what=f"the snapshot at {seq} is not what the log makes of the one before: {pages:,} pages differ.",
        why="Both carry right checksums, so what differs was stored so: a mistake of Interlock, or of the memory.",
        fix=f"Please report it. Restore {seq - 1} and {seq}, compare them, and keep the bucket as it is.",
    )


def fence_missing(what: str) -> Finding:
    """A fence that must be there is not."""
    return Finding(
        code="fence-missing",
        severity="error",
        what=what,
        why="A fence keeps an owner that was replaced from writing on. Fences are never deleted by Interlock.",
        fix="Make sure that no process of an earlier epoch is alive; let nothing but Interlock delete in the bucket.",
    )


def left_over(groups: int, parts: int, strays: int) -> Iterable[Finding]:
    """Objects that nobody needs."""
    if groups or parts or strays:
        yield Finding(
            code="left-over",
            severity="info",
            what=f"{groups:,} groups below the history, {parts:,} parts of snapshots that the manifest does not name "
            f"and {strays:,} objects that are not Interlock's lie below the address.",
            why="An upkeep that was interrupted leaves some behind; a snapshot that is just being stored counts too.",
            fix="Nothing needs to be done; they cost only the space.",
        )


def overdue(objects: int, log_bytes: int, expected: int) -> Finding:
    """The log behind the newest snapshot is long."""
    return Finding(
        code="snapshot-overdue",
        severity="warning",
        what=f"{objects:,} objects of {log_bytes:,} bytes lie behind the newest snapshot; one is usually taken when "
        f"they weigh {expected:,}.",
        why="Snapshots fail, or snapshot_bytes_min was raised. The next owner without a local file replays all of it.",
        fix="Look at the owner: it needs space in its temporary folder, and the right to write below snapshot/.",
    )


def promises(checks: Iterable[Check]) -> Iterable[Finding]:
    """What the bucket does not promise."""
    for check in checks:
        if check.verdict != "yes":
            wrong = "must hold" if check.verdict == "no" else "could not be found out"
            yield Finding(
                code="bucket-promise",
                severity="error" if check.verdict == "no" else "warning",
                what=f"of the bucket it {wrong} that {check.promise}: {check.told}.",
                why=check.why,
                fix=check.fix,
            )


def in_bucket(finding: Finding) -> Finding:
    """A finding about the pages, with what is to be done in a bucket."""
    return msgspec.structs.replace(finding, fix=RESTORE) if finding.code == "damaged" else finding
