"""What is collected is never needed to restore a state of the time that is to be kept."""

import pytest

from interlock.lanes.objects.manifest import Manifest, Snapshot
from interlock.lanes.objects.snapshots import collectable
from interlock.lanes.settings import LaneSettings

HOUR_US = 3_600_000_000


def kept(*hours: int) -> Manifest:
    """A manifest with a snapshot at each of these hours, ten slots apart."""
    snapshots = tuple(
        Snapshot(seq=10 * at, hash="", nonce="", parts=1, pages=1, page_bytes=512, bytes=512, time_us=hour * HOUR_US)
        for at, hour in enumerate(hours, start=1)
    )
    return Manifest(database="", revision=1, nonce="", epoch=1, owner=None, lease_s=1.0, snapshots=snapshots)


@pytest.mark.parametrize(
    ("manifest", "retention_s", "expected"),
    [
        (kept(), 0.0, False),
        (kept(5), 0.0, True),
        (kept(5), 3_600.0, False),  # The first one: what is before it is all that there is of the last hour.
        (kept(5, 6), 3_600.0, True),
        (kept(5, 6), 3_601.0, False),
    ],
)
def test_groups_go_when_the_oldest_snapshot_covers_the_time_to_keep(
    manifest: Manifest, retention_s: float, expected: bool
) -> None:
    assert collectable(manifest, LaneSettings(retention_s=retention_s)) is expected
