"""`interlock hot`: the rows and workflows on which writers wait for each other, worst first (D9).

It stops no process and changes nothing: it reads the report files of lanes and the views of PostgreSQL. Places that
cannot be read are named on stderr, so that an empty table is not misread.
"""

import asyncio
from enum import StrEnum
from typing import Annotated

import typer

from interlock.cli.output import show_raw, stderr, stdout
from interlock.cli.places import Home, KeyFile, Place, Server, client_at, place_of
from interlock.cli.shown import show_ids, show_json, show_table
from interlock.client.reading import WireHot
from interlock.hotrow.signal.looking import look
from interlock.hotrow.signal.metrics import exposition
from interlock.hotrow.signal.windows import Hot, key_text, placed, worst
from interlock.seams import SystemClock

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
            _show(rows, nothing)
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


def _show(rows: list[Hot], nothing: str) -> None:
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
