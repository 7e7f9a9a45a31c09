"""Commands on databases and stores: `databases`, `hot`, `migrate`, `restore`, `backup` and `prune`.

The first two read and change nothing, so they may run beside any process, also a mover. `backup` and a restore from a
bucket take no lease and run beside the owner. `migrate` and `prune` write to the store that they are given.
"""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from interlock.backup.backup import back_up_database, moment, put_back, restore_database
from interlock.catalog.catalog import Catalog
from interlock.catalog.entries import Kind
from interlock.cli.arguments import seconds_of
from interlock.cli.doctor import Diagnosis
from interlock.cli.homes import (
    Home,
    KeyFile,
    Place,
    Server,
    StoreHome,
    client_at,
    one_machine,
    place_of,
    refuse_memory,
    store_at,
)
from interlock.cli.machines import Listing
from interlock.cli.output import counted, show_raw, stderr, stdout, watching
from interlock.cli.show import Output, OutputOfOne, refuse_unknown
from interlock.cli.views import show_ids, show_json, show_table
from interlock.client.wire import WireHot
from interlock.clock import SystemClock
from interlock.database.inventory import Resident, residents_of
from interlock.engine.pruning import BATCH, BATCH_MAX, Pruner
from interlock.errors import BadUsage, TargetNotFound
from interlock.hotrow.hot_rows import Hot, exposition, key_text, look, placed, worst
from interlock.store.open import migrate_store
from interlock.store.protocol import Batch
from interlock.urls import redact_secrets

# --- `interlock databases` -------------------------------------------------------------------------------------------

CELL_CHARACTERS_MAX = 2_000
"""A URL is never cut off."""

TITLES: dict[Kind, str] = {"databases": "database", "workflows": "workflows"}


def databases(*, home: StoreHome, output: Output = Listing.TABLE) -> None:
    """List the databases of a home: where each of them lives, and what is moving. Changes nothing.

    The workflows of machines that were moved are listed too. A place that cannot be looked at is listed as the catalog
    has it. Exits with 4 when there is no such folder, and with 5 when the home itself cannot be reached.
    """
    refuse_memory(home)
    _refuse_absent(home)
    found = asyncio.run(residents_of(home, unlisted=True))
    match output:
        case Listing.TABLE:
            _show_residents(found)
            if not found:
                stderr().print(f"No database was opened at {redact_secrets(home)} yet.", soft_wrap=True)
        case Listing.JSON:
            show_json(found)
        case Listing.IDS:
            show_ids([each.name for each in found if each.kind == "databases"])


def _refuse_absent(home: str) -> None:
    folder = Catalog(home).folder
    if folder is not None and not folder.folder.is_dir():
        raise TargetNotFound(
            f"there is no home at {redact_secrets(home)}.",
            why=f"There is no folder {folder.folder}.",
            fix="Check the address; the first database or engine that is opened there makes the home.",
        )


def _show_residents(found: list[Resident]) -> None:
    cells = [
        (each.name, TITLES[each.kind], each.url, str(each.epoch) if each.epoch else "", _state_text(each))
        for each in found
    ]
    show_table(("name", "what", "lives at", "move", "state"), cells, cell_max=CELL_CHARACTERS_MAX)
    for each in found:
        if each.note:
            stderr().print(f"{each.name} could not be looked at: {each.note}", soft_wrap=True)


def _state_text(resident: Resident) -> str:
    match resident.state:
        case "left":
            return f"left for {resident.other} (move {resident.other_epoch})"
        case "arriving":
            return f"arriving from {resident.other} (move {resident.other_epoch})"
        case "lives" | "unseen":
            return ""
        case "moving" | "absent":
            return resident.state


# --- `interlock hot` -------------------------------------------------------------------------------------------------
# It reads the report files of lanes and the views of PostgreSQL. Places that cannot be read are named on stderr, so
# that an empty table is not misread.

SECONDS_MAX = 600.0
LIMIT_MAX = 1_000

NOTHING = "Nothing is hot: no writer was seen to wait for another one of the same row."
UNSEEN = "Nothing is hot as far as can be seen from here, and no writer has reported anything."


class Shape(StrEnum):
    """How hot rows are printed."""

    TABLE = "table"
    JSON = "json"
    IDS = "ids"
    METRICS = "metrics"


def hot(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="A database or a home: lanes:///var/shop, s3://bucket/shop or postgresql://host/shop.",
        ),
    ] = None,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    seconds: Annotated[
        float,
        typer.Option(metavar="N", min=0, max=SECONDS_MAX, help="Watch PostgreSQL, or wait for a lane, so long."),
    ] = 3.0,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=LIMIT_MAX, help="The maximum number of rows.")] = 20,
    output: Annotated[
        Shape, typer.Option("--output", "-o", help="A table, JSON, only the keys, or metrics for Prometheus.")
    ] = Shape.TABLE,
) -> None:
    """List the rows and workflows that writers wait for each other on, worst first. Changes nothing.

    A write that has to wait for another one of its row is a hand-off; writes to distinct rows are not. Exits with 0
    also when nothing is hot, with 4 when there is no such database, and with 5 when it cannot be reached.
    """
    place = Place(home=url) if url is not None else place_of(home, server, key_file)
    notes: list[str] = []
    if place.server is not None:
        rows, nothing = asyncio.run(_hot_from_server(place, limit)), NOTHING
    else:
        report = asyncio.run(look(place.home, seconds, clock=SystemClock()))
        rows, nothing, notes = worst(report.windows, limit), NOTHING if report.windows else UNSEEN, list(report.notes)
    match output:
        case Shape.TABLE:
            _show_hot(rows, nothing)
        case Shape.JSON:
            show_json(rows)
        case Shape.IDS:
            show_ids([key_text(row.key).replace("\n", "\\n") for row in rows if row.key is not None])
        case Shape.METRICS:
            show_raw(exposition(rows, limit=limit))
    for note in notes:
        stderr().print(note, soft_wrap=True)


async def _hot_from_server(place: Place, limit: int) -> list[Hot]:
    """Return the hot rows that the server has seen, worst first."""
    async with client_at(place) as client:
        rows = (await client.contention())[:limit]
    return [placed(row, (row.database or "") if isinstance(row, WireHot) else "") for row in rows]


def _show_hot(rows: list[Hot], nothing: str) -> None:
    if not rows:
        stdout().print(nothing, soft_wrap=True)
        return
    cells = [
        (
            row.database,
            row.source,
            row.table,
            "?" if row.key is None else key_text(row.key),
            f"{row.handoffs_per_s:,.1f}",
            f"{row.conflicts_per_s:,.1f}",
            f"{row.writes_per_s:,.1f}",
            f"{row.wait_s * 1_000:,.2f}",
            "yes" if row.flagged else "",
        )
        for row in rows
    ]
    heading = ("database", "source", "table", "key", "hand-offs/s", "conflicts/s", "writes/s", "wait ms", "flagged")
    show_table(heading, cells)


# --- `interlock migrate` ---------------------------------------------------------------------------------------------
# An engine does the same when it opens the store. The command is for programs that may not create tables, and for
# operators who want to read the statements first.


def migrate(
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="The address of a store: postgresql://host/database. Without it, --home."),
    ] = None,
    *,
    home: Home = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the SQL that is missing, as psql can run it, and change nothing.")
    ] = False,
) -> None:
    """Apply the migrations that a store in PostgreSQL has not seen yet, all or none.

    Exits with 5 when the server cannot be reached, and with 1 when a later version of Interlock has made the tables.
    """
    store = url or home
    if store is None:
        raise BadUsage(
            "no store is given.",
            why="Its tables are the ones that are migrated.",
            fix="Write interlock migrate postgresql://host/database; or set INTERLOCK_HOME, or home in interlock.toml.",
        )
    missing, script, place = asyncio.run(migrate_store(store, dry_run=dry_run))
    if dry_run and missing:
        show_raw(script)
        return
    if not missing:
        stdout().print(f"{place} is up to date.", soft_wrap=True)
        return
    stdout().print(f"Migrated {place}: {', '.join(missing)}.", soft_wrap=True)


# --- `interlock restore` and `interlock backup` ----------------------------------------------------------------------
# The order of the arguments of `restore` decides: from a URL into a file, or from a file to a URL.


def restore(
    source: Annotated[
        str, typer.Argument(metavar="URL|FILE", help="A database in a bucket, s3://bucket/name; or a copy of any.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="A file, NAME.lane opens as lanes:///…/NAME; or an address.")
    ],
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="SEQ|TIME", help="A number of the log, or a time in ISO 8601. The newest without it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> None:
    """Restore a database in a bucket, as it was at one place of its log, into a local file; or put a copy back.

    From a bucket it takes no lease and changes nothing there; it may be run beside the owner. A copy goes to
    lanes:///folder/name, s3://bucket/name or postgresql://host/database, where nothing is replaced without --force, and
    a lane that is open never. Exits with 4 when there is no such database, state or file, and with 5 when the place
    does not answer or is in use.
    """
    if "://" in target or target == "memory:":
        _put_back(source, target, at=at, force=force)
        return
    file = Path(target)
    with watching() as watch:
        done = restore_database(source, file, at=None if at is None else moment(at), force=force, watch=watch)
    when = "before its first group" if done.time is None else f"of {done.time.isoformat(timespec='microseconds')}"
    console = stdout()
    console.print(
        f"Restored {redact_secrets(source)} at {done.seq}, {when}, into {done.path}: "
        f"{done.pages:,} pages of {done.page_bytes:,} bytes{below(done.parts)}.",
        soft_wrap=True,
    )
    if done.url is not None:
        console.print(f"It opens as {done.url}", soft_wrap=True)


def _put_back(source: str, url: str, *, at: str | None, force: bool) -> None:
    if "://" in source:
        raise BadUsage(
            "both are addresses.",
            why="A state of a bucket is restored into a file, to be looked at first; a copy is put back from one.",
            fix="Restore it into FILE.lane, then: interlock restore FILE.lane URL.",
        )
    if at is not None:
        raise BadUsage("a copy is one instant, and has no --at.", fix="Leave it out.")
    with watching() as watch:
        done = put_back(Path(source), url, force=force, watch=watch)
    stdout().print(
        f"Put {done.path} back as {redact_secrets(url)}: {done.what}{below(done.parts)}, checked.", soft_wrap=True
    )


def below(parts: int) -> str:
    """Return a text with the number of streams and shards, if any."""
    return f", and {counted(parts, 'database')} below it" if parts else ""


def backup(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="A database: lanes:///folder/name, s3://bucket/name, postgresql://…; or a home that has one.",
        ),
    ],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Where to write it. NAME.lane opens as lanes:///…/NAME; of PostgreSQL any other name is an archive.",
        ),
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Copy a database into a local file: one instant of it, with everything that was acknowledged before.

    It may be run beside the owner, which does not wait for it, and changes nothing. Exits with 4 when there is no such
    database, and with 5 when it stays locked, or when its bucket does not answer.
    """
    with watching() as watch:
        done = back_up_database(url, file, force=force, watch=watch)
    console = stdout()
    console.print(
        f"Copied {redact_secrets(done.source)} into {done.path}: {done.amount}{below(done.parts)}, checked.",
        soft_wrap=True,
    )
    if done.url is not None:
        console.print(f"It opens as {done.url}", soft_wrap=True)


# --- `interlock prune` -----------------------------------------------------------------------------------------------
# It needs no code: the store has the descriptions of its machines, which name the final states. On PostgreSQL it
# runs beside the service. A lane has one owner, so there the server prunes (`--server`), or the service is stopped.

PROGRESS_BATCHES = 10
"""The number of batches per line of progress."""


def prune(
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            "--older-than-s",
            metavar="TIME",
            help="Those that ended so long ago: seconds, or 90s, 15m, 2h, 30d.",
        ),
    ],
    machine: Annotated[
        str | None, typer.Option(metavar="MACHINE", help="Only of this machine: its name, or MODULE:ATTR.")
    ] = None,
    history_only: Annotated[
        bool, typer.Option("--history-only", help="Keep the workflows, and remove only their history.")
    ] = False,
    with_owed: Annotated[
        bool, typer.Option("--with-owed", help="Also those that owe an effect or have a dead letter, with these.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would go, and remove nothing.")] = False,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=BATCH_MAX, help="Workflows in one transaction.")
    ] = BATCH,
    pause_ms: Annotated[
        int, typer.Option(metavar="N", min=0, max=60_000, help="Wait so long between two transactions.")
    ] = 0,
    output: OutputOfOne = Diagnosis.TABLE,
) -> None:
    """Remove workflows that ended some time ago: the workflow, its history, its effects and letters.

    Only final workflows go; resting ones never. May be stopped with Ctrl-C at any time, and run again.
    Exits with 5 when the service owns the store, and names it. A server prunes all of its machines, bit by bit; its key
    needs the scope admin.
    """
    older_than_s = seconds_of(older_than)
    place = place_of(home, server, key_file)
    if place.server is not None and machine is not None:
        raise BadUsage(
            "--machine is given together with a server.",
            why="A server prunes all of the machines that it serves.",
            fix="Leave --machine out, or prune the store itself with --home.",
        )
    progress = _PruneProgress(history_only=history_only, dry_run=dry_run)
    wanted = _PruneOptions(older_than_s, history_only, with_owed, dry_run, batch, pause_ms / 1_000)
    try:
        asyncio.run(
            _prune_store(place, machine, wanted, progress)
            if place.server is None
            else _prune_on_server(place, wanted, progress)
        )
    except KeyboardInterrupt:
        if place.server is None:
            stderr().print(f"{progress.text()} before it was stopped.", soft_wrap=True)
        raise
    if output is Diagnosis.JSON:
        show_json({"workflows": progress.workflows, "events": progress.events, "dry_run": dry_run})
    else:
        stdout().print(f"{progress.text()}.", soft_wrap=True)


class _PruneOptions(NamedTuple):
    """The options of the removal."""

    older_than_s: float
    history_only: bool
    with_owed: bool
    dry_run: bool
    batch: int
    pause_s: float


async def _prune_store(place: Place, machine: str | None, wanted: _PruneOptions, progress: "_PruneProgress") -> None:
    described = [] if machine is None or ":" not in machine else [one_machine(machine).describe()]
    name = described[0].name if described else machine
    async with store_at(place.home) as store:
        if name is not None and not described:
            await refuse_unknown(store, name)
        pruner = Pruner(
            store,
            older_than_s=wanted.older_than_s,
            machines=None if name is None else [name],
            described=described,
            history_only=wanted.history_only,
            owing=wanted.with_owed,
            dry_run=wanted.dry_run,
            batch=wanted.batch,
            pause_s=wanted.pause_s,
        )
        await pruner.run(progress.add)


async def _prune_on_server(place: Place, wanted: _PruneOptions, progress: "_PruneProgress") -> None:
    async with client_at(place) as client:
        done = await client.prune(
            older_than_s=wanted.older_than_s,
            history_only=wanted.history_only,
            with_owed=wanted.with_owed,
            dry_run=wanted.dry_run,
            batch=wanted.batch,
            pause_s=wanted.pause_s,
        )
    progress.workflows, progress.events = done.workflows, done.events


class _PruneProgress:
    """The totals of what was removed so far."""

    def __init__(self, *, history_only: bool, dry_run: bool) -> None:
        self.workflows = 0
        self.events = 0
        self._batches = 0
        self._history_only = history_only
        self._dry_run = dry_run

    def add(self, batch: Batch) -> None:
        """Count a completed batch; print a line every PROGRESS_BATCHES."""
        self.workflows += len(batch.workflows)
        self.events += batch.events
        self._batches += 1
        if self._batches % PROGRESS_BATCHES == 0:
            stderr().print(f"{self.text()} so far", soft_wrap=True)

    def text(self) -> str:
        """Return the totals as text."""
        rows, workflows = counted(self.events, "row") + " of history", counted(self.workflows, "workflow")
        what = f"{rows} of {workflows}" if self._history_only else f"{workflows} and {rows}"
        return f"{what} would be removed" if self._dry_run else f"{what} removed"
