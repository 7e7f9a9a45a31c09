"""`interlock doctor`: the integrity, the owner and the problems of a lane in a file or a bucket, or of a Redis.

It may run at any time, also beside the owner, and changes nothing. The exit code is for scripts, the findings are for
people.
"""

import asyncio
from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from interlock.cli.output import SEVERITY_STYLES, Exit, counted, parts, show_raw, stdout, watching
from interlock.database.doctor import HomeReport, examine_database, examine_home, examine_in_bucket, is_home
from interlock.errors import BadUsage
from interlock.lanes.doctor import LaneReport
from interlock.lanes.objectlog.report import BucketReport, State
from interlock.redis.doctor import RedisReport, examine_redis
from interlock.urls import REDIS_SCHEMES, is_bucket_url, parse_redis_url

Report = LaneReport | BucketReport | RedisReport | HomeReport


class Diagnosis(StrEnum):
    """How a report is printed."""

    TABLE = "table"
    JSON = "json"


def doctor(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="A lane, lanes:///folder/name or s3://bucket/name; a home with a catalog; or a Redis, "
            "redis://host:6379/0.",
        ),
    ],
    *,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also test the bucket's conditional writes, with objects of its own.")
    ] = False,
    output: Annotated[Diagnosis, typer.Option("--output", "-o", help="Text for people, or JSON.")] = Diagnosis.TABLE,
) -> None:
    """Look at a lane: is it whole, who owns it, what stands in its way. Changes nothing.

    Exits with 1 when there are errors or warnings, with 4 when there is no such lane,
    and with 5 when it is locked so that it cannot even be read, or when its bucket does not answer.
    """
    report = _examined(url, probe=probe)
    if output is Diagnosis.JSON:
        show_raw(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        _show(report)
    if not report.healthy:
        raise typer.Exit(Exit.ERROR)


def _examined(url: str, *, probe: bool) -> Report:
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


def _show(report: Report) -> None:
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


def _rows_of(report: Report) -> list[tuple[str, str]]:
    if isinstance(report, LaneReport):
        return _rows(report)
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


def _rows(report: LaneReport) -> list[tuple[str, str]]:
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


def _state(state: State | None) -> str:
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
