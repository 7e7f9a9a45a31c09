"""Doctor of databases and homes: read-only examinations of a lane, a database in a bucket, or a home's catalog.

The database doctor finds the file or the bucket and registers the functions of the dialect. The home doctor compares
the catalog with the places that it names. The packages for buckets are an extra, and are imported only when needed.
"""

import asyncio
from collections.abc import Callable, Iterator

import apsw
import msgspec

from interlock.catalog.catalog import FILE, Catalog
from interlock.catalog.catalog_entries import CatalogEntry
from interlock.catalog.open_lane import opening_thread
from interlock.clock import RandomIds, SystemChance, SystemClock
from interlock.core.values import Finding
from interlock.database.inventory import Resident, residents_of
from interlock.database.lane_engine import register
from interlock.errors import BadUsage, CorruptionError
from interlock.lanes.lane_doctor import LaneReport, examine
from interlock.lanes.objectlog.bucket_protocol import answering
from interlock.lanes.objectlog.doctor_report import BucketReport
from interlock.urls import is_bucket_url, is_postgres_url, lane_path, parse_bucket_url, redact_secrets

# --- Databases -------------------------------------------------------------------------------------------------------


def examine_database(url: str) -> LaneReport:
    """Examine the lane at this address without changes. Raises TargetNotFound, LaneOwned and BadUsage."""
    if is_bucket_url(url):
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
    address = parse_bucket_url(url)
    # An extra, which may not be installed.
    from interlock.lanes.objectlog import bucket_doctor  # noqa: PLC0415
    from interlock.lanes.objectlog import log as objectlog_log  # noqa: PLC0415

    return bucket_doctor.examine(
        objectlog_log.bucket_of(address),
        name=str(address),
        clock=SystemClock(),
        prepare=_prepare,
        folder=objectlog_log.folder_of(address) if probe else None,
        watch=watch,
    )


def _prepare(connection: apsw.Connection, now_us: Callable[[], int]) -> None:
    register(connection, now_us, chance=SystemChance(), ids=RandomIds())


# --- Homes -----------------------------------------------------------------------------------------------------------
# Each place itself decides. An outdated catalog does no harm: a client that opens a name follows the tombstone and
# updates the catalog. It is reported all the same, because a mover that was killed in its last step leaves no other
# trace.


class HomeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of the doctor at a home."""

    home: str
    healthy: bool
    """No finding is worse than info."""
    databases: int
    workflows: int
    """Machines that have an entry of their own."""
    moved: int
    """Number of names that were moved."""
    findings: list[Finding]


async def is_home(url: str) -> bool:
    """Return whether the address has a catalog and not a lane."""
    if is_postgres_url(url):
        return bool(await _load_entries(url))
    if is_bucket_url(url):
        # A database at this address is examined itself; a home has databases below it.
        # The packages for buckets are an extra, which may not be installed.
        from interlock.lanes.objectlog import log as objectlog_log  # noqa: PLC0415
        from interlock.lanes.objectlog import manifest  # noqa: PLC0415

        def has_manifest() -> bool:
            with answering("look for a database"):
                try:
                    return manifest.read_manifest(objectlog_log.bucket_of(parse_bucket_url(url))) is not None
                except CorruptionError:
                    return True  # A damaged one, which the doctor of databases reports.

        return not await asyncio.wrap_future(opening_thread(has_manifest)) and bool(await _load_entries(url))
    path = None if url == "memory:" else lane_path(url)
    return path is not None and not path.exists() and path.with_suffix("").joinpath(FILE).exists()


async def _load_entries(home: str) -> dict[str, CatalogEntry]:
    catalog = Catalog(home)
    return {**await catalog.names("workflows"), **await catalog.names()}


async def examine_home(home: str) -> HomeReport:
    """Examine a home's catalog and every place that it names, without changes."""
    known = await residents_of(home)
    findings = [finding for resident in known for finding in _findings(resident)]
    ranks = ("error", "warning", "info")
    return HomeReport(
        home=redact_secrets(home),
        healthy=all(finding.severity == "info" for finding in findings),
        databases=sum(each.kind == "databases" for each in known),
        workflows=sum(each.kind == "workflows" for each in known),
        moved=sum(each.epoch > 0 for each in known),
        findings=sorted(findings, key=lambda finding: ranks.index(finding.severity)),
    )


def _findings(resident: Resident) -> Iterator[Finding]:
    name, place = resident.name, resident.url
    if resident.note:
        yield Finding(
            code="place-unseen",
            severity="warning",
            what=f"{name!r} could not be looked at: {resident.note}",
            why=f"The catalog says that it lives at {place}.",
            fix="Look at that place: what keeps it from being read keeps it from being opened.",
        )
    if resident.state == "left":
        yield Finding(
            code="stale-catalog",
            severity="info",
            what=f"{name!r} lives at {resident.other} since move {resident.other_epoch}, and the catalog still says "
            f"{place}.",
            why="A mover has ended before it could update the catalog. Clients that open the name still find it.",
            fix="Open it once by its name, or run the same `interlock route` again: either tells the catalog.",
        )
    if resident.state == "arriving":
        yield Finding(
            code="place-arriving",
            severity="warning",
            what=f"{name!r} is only arriving at {place}, from {resident.other} as move {resident.other_epoch}.",
            why="Its place holds the draft of a move that is not over; everything lives where it comes from.",
            fix="Run the same `interlock route` again: it goes on where it ended.",
        )
    if resident.state == "absent" and resident.epoch:
        yield Finding(
            code="place-empty",
            severity="error",
            what=f"{name!r} was moved to {place} (move {resident.epoch}), and nothing is there.",
            why="A move leaves a whole database at its new place: it was deleted, or the address leads elsewhere now.",
            fix="Put it back from a backup, or make the address lead there again, before the name is opened.",
        )
    if resident.state == "moving":
        yield Finding(
            code="leaving",
            severity="info",
            what=f"{name!r} notes what is written to it, for a move that goes on or was not ended.",
            why="Each write costs a little more until then.",
            fix="Wait for it; or run the same `interlock route` again, or end it with --abandon.",
        )
