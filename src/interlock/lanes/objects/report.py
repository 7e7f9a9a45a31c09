"""The doctor's report on a database in a bucket, as data.

It needs none of the packages for buckets, so the command line can know it without them.
"""

import msgspec

from interlock.core.values import Finding


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
