"""Opening a store by its address.

`memory:` is a new store that is lost when it is closed. `lanes:///folder` and a folder in a bucket are homes: workflows
live there in the database `workflows`, beside the databases of the program, and a database that was moved is followed.
`postgresql://…` is a schema that any number of processes share. The scheme says which store it is, so an address means
the same in every program.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from interlock.catalog.catalog import FolderCatalog
from interlock.catalog.catalog_entries import below
from interlock.catalog.open_lane import closing_thread, open_in_thread, place_of
from interlock.clock import Clock
from interlock.errors import BadUsage
from interlock.lanes.handover import Arrived
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import KINDS
from interlock.lanes.sqlite_connection import opening
from interlock.settings import configured, lane_settings
from interlock.store.lane_store import SqliteStore, refuse_other_lane
from interlock.store.memory import MemoryStore
from interlock.store.protocol import Store
from interlock.urls import (
    is_bucket_url,
    is_lane_url,
    is_postgres_url,
    parse_postgres_url,
    redact_url,
    resolve_url,
    unknown_url,
)

NAME = "workflows"
"""The database at a home that workflows live in."""


async def open_store(
    url: str,
    *,
    clock: Clock,
    settings: Mapping[str, float] | None = None,
    cache: str | None = None,
    epoch: int | None = None,
) -> Store:
    """Open the store at an address. Raises LaneOwned, which names the owner, when another process has it.

    Raises MovedElsewhere when the workflows have moved. A caller that follows it passes its `epoch` with the new
    address, and so may finish an arrival whose mover died.

    Settings are those of `LaneSettings`; what is not given here comes from the environment, then from `interlock.toml`.
    `cache` is the folder for the local file of a home in a bucket. PostgreSQL takes its few settings in the address.
    """
    url = resolve_url(url)
    _refuse_no_store(url)
    if is_postgres_url(url):
        from interlock.store.postgres.store import open_postgres  # noqa: PLC0415 -- an extra, which may be missing.

        # Only the length of leases is used here; an unknown setting is an error everywhere.
        chosen = lane_settings({**configured(NAME, KINDS), **(settings or {})})
        return await open_postgres(url, clock=clock, lease_s=chosen.lease_s, epoch=epoch)
    with opening(redact_url(url)):
        chosen = lane_settings({**configured(NAME, KINDS), **(settings or {})})
        if url == "memory:":
            return MemoryStore(clock)
        address = below(url, NAME) if is_bucket_url(url) else FolderCatalog(url).locate(NAME)
        # A caller that followed a tombstone knows that the move has happened: a draft has arrived.
        permission = None if epoch is None else Arrived(epoch)
        place = place_of(address, settings=chosen, clock=clock, cache=cache, permission=permission)
        if epoch is not None and place.path is not None and place.open_log is None:
            refuse_other_lane(place.path, epoch)
    lane = await open_in_thread(
        lambda: Lane(
            place.path,
            settings=chosen,
            clock=clock,
            prepare=lambda _connection, _now_us: None,
            open_log=place.open_log,
            permission=permission,
        )
    )
    store = SqliteStore(lane, clock)
    try:
        await store.begin()
    except BaseException as error:
        # Also when this is cancelled: no other task has the lane, and it would stay owned.
        closing = closing_thread(lane.close)
        if not isinstance(error, GeneratorExit):  # An event loop that is thrown away waits for nothing any more.
            await asyncio.wrap_future(closing)
        raise
    return store


class Migrated(NamedTuple):
    """The migrations that a store was missing."""

    names: list[str]
    script: str
    """The migrations as SQL that psql can run."""
    redacted_url: str
    """The address without secrets."""


async def migrate_store(url: str, *, dry_run: bool) -> Migrated:
    """Migrate the tables at an address, or with `dry_run` only list what is missing. PostgreSQL only."""
    if not isinstance(url, str) or not is_postgres_url(url):
        raise BadUsage(
            f"{redact_url(str(url))!r} is not an address of PostgreSQL.",
            why="Only there tables are shared with other programs and migrated by hand; a lane looks after its own.",
            fix="Write postgresql://user@host/database, with ?schema= where the schema is not `interlock`.",
        )
    from interlock.store.postgres.migrations import migrate, script  # noqa: PLC0415 -- an extra, which may be missing.

    address = parse_postgres_url(url)
    missing = await migrate(url, dry_run=dry_run)
    return Migrated([each.name for each in missing], script(address.schema, missing), address.redacted_url)


def _refuse_no_store(url: object) -> None:
    if not isinstance(url, str):
        raise BadUsage(
            f"{type(url).__name__} {url!r} is not the address of a store: it must be a text.",
            why="The scheme in front of the path says which store keeps the workflows.",
            fix='Write "lanes:///var/shop", or f"lanes://{path}" with an absolute path.',
        )
    if url != "memory:" and not is_lane_url(url) and not is_bucket_url(url) and not is_postgres_url(url):
        raise unknown_url(url, "the address of a store")
