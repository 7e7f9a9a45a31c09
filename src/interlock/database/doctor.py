"""Doctor for a database's address: finds the file or the bucket, and registers the functions of the dialect.

The packages for buckets are an extra, and are imported only for an address in a bucket.
"""

from collections.abc import Callable

import apsw

from interlock.catalog.addresses import lane_path
from interlock.database.translation import register
from interlock.errors import BadUsage
from interlock.lanes.doctor import LaneReport, examine
from interlock.lanes.objects.addresses import is_bucket, parse
from interlock.lanes.objects.report import BucketReport
from interlock.seams import RandomIds, SystemChance, SystemClock


def examine_database(url: str) -> LaneReport:
    """Examine the lane at this address without changes. Raises TargetNotFound, LaneOwned and BadUsage."""
    if is_bucket(url):
        raise BadUsage(
            "a database in a bucket has no file of its own to be looked at.",
            why="Its local file is only a cache; what counts is in the bucket.",
            fix="Look at the bucket: examine_in_bucket(url), or `interlock doctor URL`.",
        )
    path = lane_path(url)
    if path is None:
        raise BadUsage(
            "a database in memory cannot be looked at from outside.",
            why="It exists only inside the process that opened it.",
            fix="Name a lane: lanes:///var/shop/stock.",
        )
    return examine(path, clock=SystemClock(), prepare=_prepare)


def examine_in_bucket(
    url: str, *, probe: bool = False, watch: Callable[[str, int, int], None] = lambda _what, _done, _of: None
) -> BucketReport:
    """Examine the database in a bucket at this address, without changes and without a lease.

    `probe` also tests the guarantees of the bucket, which writes a few objects beside the database and deletes them.
    `watch` receives the current activity, the amount done, and the total. Raises TargetNotFound, UnavailableError and
    BadUsage.
    """
    address = parse(url)
    from interlock.lanes.objects import doctor, door  # noqa: PLC0415 -- an extra, which may not be installed.

    return doctor.examine(
        door.bucket_of(address),
        name=str(address),
        clock=SystemClock(),
        prepare=_prepare,
        folder=door.folder_of(address) if probe else None,
        watch=watch,
    )


def _prepare(connection: apsw.Connection, now_us: Callable[[], int]) -> None:
    register(connection, now_us, chance=SystemChance(), ids=RandomIds())
