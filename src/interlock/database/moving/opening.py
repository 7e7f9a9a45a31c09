"""Source and target of a move from their addresses.

An engine's modules are imported only for its addresses: the driver of PostgreSQL is an extra.
"""

from interlock.catalog.addresses import lane_path
from interlock.catalog.secrets import without_secrets
from interlock.database.moving.ends import Source, Target
from interlock.errors import BadUsage, TargetNotFound
from interlock.lanes.objects.addresses import is_bucket
from interlock.lanes.objects.addresses import redacted as redacted_elsewhere
from interlock.seams import Clock
from interlock.sql.postgres.address import is_postgres, redacted


def shown_url(url: str) -> str:
    """Return an address without secrets."""
    return redacted(url) if is_postgres(url) else redacted_elsewhere(url)


def is_same(one: str, other: str) -> bool:
    """Return whether both addresses name one place, apart from secrets."""
    return shown_url(without_secrets(one)) == shown_url(without_secrets(other))


async def opened_source(url: str, *, clock: Clock) -> Source:
    """Open the source. Raises TargetNotFound without a database there."""
    if is_postgres(url):
        from interlock.database.moving.postgres_source import PostgresSource  # noqa: PLC0415 -- an extra.

        return await PostgresSource.opened(url, clock=clock)
    _refuse_memory(url)
    if is_bucket(url):
        raise _stays(url)
    from interlock.database.moving.lane_source import LaneSource  # noqa: PLC0415 -- only for lanes.

    path = lane_path(url)
    assert path is not None
    if not path.exists():
        raise TargetNotFound(
            f"there is no database at {shown_url(url)}.",
            why=f"There is no file {path}.",
            fix="Check the name and --home; `interlock route` moves a database that is there.",
        )
    return await LaneSource.opened(path, shown_url(url), clock=clock)


async def opened_target(url: str, *, clock: Clock, only_look: bool) -> Target:
    """Open the target. With `only_look` it does not lock out other movers."""
    if is_postgres(url):
        from interlock.database.moving.postgres_target import PostgresTarget  # noqa: PLC0415 -- an extra.

        return await PostgresTarget.opened(url, clock=clock, only_look=only_look)
    _refuse_memory(url)
    if is_bucket(url):
        from interlock.database.moving.bucket_target import BucketTarget  # noqa: PLC0415 -- an extra.

        return BucketTarget(url, shown_url(url), clock)
    from interlock.database.moving.lane_target import LaneTarget  # noqa: PLC0415 -- only for lanes.

    return await LaneTarget.opened(url, shown_url(url), clock=clock)


def _refuse_memory(url: str) -> None:
    if url == "memory:":
        raise BadUsage(
            "a database in memory cannot be moved.",
            why="It exists only inside the program that opened it.",
            fix="Name a place that stays: lanes:///var/shop/stock, s3://bucket/stock or postgresql://host/shop.",
        )


def _stays(url: str) -> BadUsage:
    return BadUsage(
        f"the database at {shown_url(url)} cannot be moved while it runs: it is in a bucket.",
        why="A bucket cannot note concurrent writes, as triggers do on a disk and on PostgreSQL.",
        fix=f"End the programs that use it, and bring it to a disk with {restoring(url)}; what is opened at that file "
        "is the database as it was then.",
    )


def restoring(url: str) -> str:
    """Return the command that restores a database from a bucket into a file."""
    return f"`interlock restore '{shown_url(url)}' FILE` (or with --at SEQ, as it was earlier)"
