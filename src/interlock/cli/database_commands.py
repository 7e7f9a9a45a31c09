"""Commands on databases: `interlock databases`, `hot`, `migrate`, `restore`, `backup` and `doctor`.

`databases`, `hot` and `doctor` read and change nothing, so they may run beside any process, also a mover. `backup` and
a restore from a bucket take no lease and run beside the owner. `migrate` writes to the store that it is given.
"""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from interlock.backup.backup import back_up_database, moment, put_back, restore_database
from interlock.catalog.catalog import Catalog
from interlock.catalog.catalog_entries import Kind
from interlock.cli.command_place import (
    CommandPlace,
    Home,
    KeyFile,
    Server,
    StoreHome,
    client_at,
    place_of,
    refuse_memory,
)
from interlock.cli.console import (
    SEVERITY_STYLES,
    Exit,
    ListingFormat,
    ResultFormat,
    counted,
    json_text,
    parts,
    remark,
    say,
    show_ids,
    show_json,
    show_listing,
    show_raw,
    show_table,
    stdout,
    watching,
)
from interlock.cli.parse_arguments import Output, OutputOfOne, absolute_url
from interlock.clock import SystemClock
from interlock.database.doctor import HomeReport, examine_database, examine_home, examine_in_bucket, is_home
from interlock.database.inventory import Resident, residents_of
from interlock.errors import BadUsage, TargetNotFound
from interlock.hotrow.contention_windows import Hot, exposition, key_text, look, placed, worst
from interlock.lanes.lane_doctor import LaneReport
from interlock.lanes.objectlog.doctor_report import BucketReport, LogState
from interlock.redis.redis_doctor import RedisReport, examine_redis
from interlock.store.open_store import migrate_store
from interlock.urls import REDIS_SCHEMES, is_bucket_url, parse_redis_url, redact_secrets
from interlock.wire import ShownHot

# --- `interlock databases` -------------------------------------------------------------------------------------------

CELL_CHARACTERS_MAX = 2_000
"""A URL is never cut off."""

TITLES: dict[Kind, str] = {"databases": "database", "workflows": "workflows"}


def databases(*, home: StoreHome, output: Output = ListingFormat.TABLE) -> None:
    """List the databases of a home: where each of them lives, and what is moving. Changes nothing.

    The workflows of machines that were moved are listed too. A place that cannot be looked at is listed as the catalog
    has it. Exits with 4 when there is no such folder, and with 5 when the home itself cannot be reached.
    """
    refuse_memory(home)
    _refuse_absent(home)
    found = asyncio.run(residents_of(home, unlisted=True))
    show_listing(
        output,
        found,
        ("name", "what", "lives at", "move", "state"),
        lambda each: (each.name, TITLES[each.kind], each.url, str(each.epoch) if each.epoch else "", _state_text(each)),
        ids=(each.name for each in found if each.kind == "databases"),
        cell_max=CELL_CHARACTERS_MAX,
    )
    if output is ListingFormat.TABLE:
        for each in found:
            if each.note:
                remark(f"{each.name} could not be looked at: {each.note}")
        if not found:
            remark(f"No database was opened at {redact_secrets(home)} yet.")


def _refuse_absent(home: str) -> None:
    folder = Catalog(home).folder
    if folder is not None and not folder.folder.is_dir():
        raise TargetNotFound(
            f"there is no home at {redact_secrets(home)}.",
            why=f"There is no folder {folder.folder}.",
            fix="Check the address; the first database or engine that is opened there makes the home.",
        )


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


class HotFormat(StrEnum):
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
            callback=absolute_url,
            help="A database or a home: lanes:///var/shop, s3://bucket/shop or postgresql://host/shop.",
        ),
    ] = None,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    seconds: Annotated[
        float, typer.Option(metavar="N", min=0, max=SECONDS_MAX, help="Watch PostgreSQL, or wait for a lane, so long.")
    ] = 3.0,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=LIMIT_MAX, help="The maximum number of rows.")] = 20,
    output: Annotated[
        HotFormat, typer.Option("--output", "-o", help="A table, JSON, only the keys, or metrics for Prometheus.")
    ] = HotFormat.TABLE,
) -> None:
    """List hot rows and hot workflows, whose writers wait for each other, worst first. Changes nothing.

    A write that has to wait for another one of its row is a hand-off; writes to distinct rows are not. Exits with 0
    also when nothing is hot, with 4 when there is no such database, and with 5 when it cannot be reached.
    """
    place = CommandPlace(home=url) if url is not None else place_of(home, server, key_file)
    notes: list[str] = []
    if place.server is not None:
        rows, nothing = asyncio.run(_hot_from_server(place, limit)), NOTHING
    else:
        report = asyncio.run(look(place.home, seconds, clock=SystemClock()))
        rows, nothing, notes = worst(report.windows, limit), NOTHING if report.windows else UNSEEN, list(report.notes)
    match output:
        case HotFormat.TABLE:
            _show_hot(rows, nothing)
        case HotFormat.JSON:
            show_json(rows)
        case HotFormat.IDS:
            show_ids([key_text(row.key).replace("\n", "\\n") for row in rows if row.key is not None])
        case HotFormat.METRICS:
            show_raw(exposition(rows, limit=limit))
    for note in notes:
        remark(note)


async def _hot_from_server(place: CommandPlace, limit: int) -> list[Hot]:
    """Return the hot rows that the server has seen, worst first."""
    async with client_at(place) as client:
        rows = (await client.contention())[:limit]
    return [placed(row, (row.database or "") if isinstance(row, ShownHot) else "") for row in rows]


def _show_hot(rows: list[Hot], nothing: str) -> None:
    if not rows:
        say(nothing)
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
        typer.Argument(
            metavar="URL",
            callback=absolute_url,
            help="The address of a store: postgresql://host/database. Without it, --home.",
        ),
    ] = None,
    *,
    home: Home = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the SQL that is missing, as psql can run it, and change nothing.")
    ] = False,
) -> None:
    """Apply the pending migrations of a store in PostgreSQL, all or none.

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
        say(f"{place} is up to date.")
        return
    say(f"Migrated {place}: {', '.join(missing)}.")


# --- `interlock restore` and `interlock backup` ----------------------------------------------------------------------
# The order of the arguments of `restore` decides: from a URL into a file, or from a file to a URL.


def restore(
    source: Annotated[
        str,
        typer.Argument(
            metavar="URL|FILE",
            callback=absolute_url,
            help="A database in a bucket, s3://bucket/name; or a copy of any.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL", callback=absolute_url, help="A file, NAME.lane opens as lanes:///…/NAME; or an address."
        ),
    ],
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="SEQ|TIME", help="A number of the log, or a time in ISO 8601. The newest without it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> None:
    """Restore a database from a bucket at any point of its log, or from a copy.

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
    say(
        f"Restored {redact_secrets(source)} at {done.seq}, {when}, into {done.path}: "
        f"{done.pages:,} pages of {done.page_bytes:,} bytes{below(done.parts)}."
    )
    if done.url is not None:
        say(f"It opens as {done.url}")


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
    say(f"Put {done.path} back as {redact_secrets(url)}: {done.what}{below(done.parts)}, checked.")


def below(parts: int) -> str:
    """Return a text with the number of streams and shards, if any."""
    return f", and {counted(parts, 'database')} below it" if parts else ""


def backup(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            callback=absolute_url,
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
    """Copy a database into a local file: a consistent snapshot with everything that was acknowledged before.

    It may be run beside the owner, which does not wait for it, and changes nothing. Exits with 4 when there is no such
    database, and with 5 when it stays locked, or when its bucket does not answer.
    """
    with watching() as watch:
        done = back_up_database(url, file, force=force, watch=watch)
    say(f"Copied {redact_secrets(done.source)} into {done.path}: {done.amount}{below(done.parts)}, checked.")
    if done.url is not None:
        say(f"It opens as {done.url}")


# --- `interlock doctor` ----------------------------------------------------------------------------------------------
# It may run at any time, also beside the owner. The exit code is for scripts, the findings are for people.

Examination = LaneReport | BucketReport | RedisReport | HomeReport


def doctor(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            callback=absolute_url,
            help="A lane, lanes:///folder/name or s3://bucket/name; a home with a catalog; or a Redis, "
            "redis://host:6379/0.",
        ),
    ],
    *,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also test the bucket's conditional writes, with objects of its own.")
    ] = False,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Inspect a lane: whether its file is healthy, and which process owns it. Changes nothing.

    Exits with 1 when there are errors or warnings, with 4 when there is no such lane,
    and with 5 when it is locked so that it cannot even be read, or when its bucket does not answer.
    """
    report = _examine(url, probe=probe)
    if output is ResultFormat.JSON:
        show_raw(json_text(report))
    else:
        _show_examination(report)
    if not report.healthy:
        raise typer.Exit(Exit.ERROR)


def _examine(url: str, *, probe: bool) -> Examination:
    if url.partition("://")[0] in REDIS_SCHEMES and not probe:
        return examine_redis(parse_redis_url(url))
    if not probe and asyncio.run(is_home(url)):
        return asyncio.run(examine_home(url))
    if is_bucket_url(url):
        with watching() as watch:
            return examine_in_bucket(url, probe=probe, watch=watch)
    if probe:
        raise BadUsage("--probe is for databases in buckets.", why="A local lane makes no use of a bucket.")
    return examine_database(url)


def _show_examination(report: Examination) -> None:
    console = stdout()
    for name, value in _rows_of(report):
        console.print(Text.assemble((f" {name:<11}", "dim"), value), soft_wrap=True)
    for finding in report.findings:
        text = Text.assemble(
            (f"{finding.severity} ", SEVERITY_STYLES[finding.severity]),
            (f"[{finding.code}]", "bold"),
            parts(f"\n  {finding.what}\n  why: {finding.why}\n  fix: {finding.fix}"),
        )
        console.print(text, soft_wrap=True)
    problems = sum(finding.severity != "info" for finding in report.findings)
    verdict = counted(problems, "problem") if problems else "healthy"
    console.print(Text(verdict, style="bold red" if problems else "green"))


def _rows_of(report: Examination) -> list[tuple[str, str]]:
    if isinstance(report, LaneReport):
        return _rows_of_lane(report)
    if isinstance(report, HomeReport):
        return _rows_of_home(report)
    return _rows_in_bucket(report) if isinstance(report, BucketReport) else _rows_of_redis(report)


def _rows_of_home(report: HomeReport) -> list[tuple[str, str]]:
    return [
        ("home", report.home),
        ("databases", f"{report.databases:,}"),
        ("workflows", f"of {counted(report.workflows, 'machine')} elsewhere" if report.workflows else "at the home"),
        ("moved", f"{report.moved:,}"),
    ]


def _rows_of_redis(report: RedisReport) -> list[tuple[str, str]]:
    most = f"{report.bytes_max:,} bytes at most" if report.bytes_max else "no maxmemory"
    return [
        ("redis", f"{report.url}, prefix {report.prefix}"),
        ("version", f"{report.version}, {report.mode}, {report.role}"),
        ("answers", f"in {report.round_trip_ms:g} ms"),
        ("memory", f"{report.used_bytes:,} bytes used, {most}, {report.policy}"),
        ("keeps", report.keeps),
    ]


def _rows_of_lane(report: LaneReport) -> list[tuple[str, str]]:
    owner = report.owner
    owned_by = "none"
    if owner is not None:
        owned_by = "unknown" if owner.pid is None else f"process {owner.pid} on {owner.host}, since {owner.since}"
    rows = [
        ("lane", report.path),
        ("owner", owned_by),
        ("database", f"{report.database_bytes:,} bytes"),
        ("log", f"{report.log_bytes:,} bytes"),
    ]
    return rows + _contents(report)


def _rows_in_bucket(report: BucketReport) -> list[tuple[str, str]]:
    rows = [("lane", report.url)]
    if report.database is None:
        return rows
    owner = report.owner
    owned_by = "none" if owner is None else f"process {owner.pid} on {owner.host}, with a lease of {owner.lease_s:g} s"
    lost = [f"{first:,} to {last:,}" for first, last in report.lost]
    log = f"{counted(report.log_objects, 'object')}, {report.log_bytes:,} bytes"
    rows += [
        ("database", report.database),
        ("owner", owned_by),
        ("epoch", f"{report.epoch:,}, revision {report.revision:,} of the manifest"),
        ("log", log),
        ("fences", f"{report.fences:,} in the log, {report.fences_below:,} older"),
        *(
            ("snapshot", f"{each.seq:,}, {each.bytes:,} bytes, {counted(each.objects_behind, 'object')} ago")
            for each in report.snapshots
        ),
        ("replay", f"{counted(report.replay_objects, 'object')}, {report.replay_bytes:,} bytes"),
        ("history", f"{_state(report.first)} to {_state(report.last)}"),
        *(("lost", each) for each in lost),
    ]
    return rows + _contents(report)


def _state(state: LogState | None) -> str:
    if state is None:
        return "nothing"
    return f"{state.seq:,} ({state.time or 'the beginning'})"


def _contents(report: LaneReport | BucketReport) -> list[tuple[str, str]]:
    if report.pages is None:
        return []
    return [
        ("pages", f"{report.pages:,} of {report.page_bytes:,} bytes, {report.pages_free:,} free"),
        ("schema", f"version {report.schema_version}, {counted(report.tables or 0, 'table')}"),
        ("keys", "unknown" if report.keys is None else f"{report.keys:,}"),
        ("lane time", report.lane_time or "not asked for yet"),
    ]
