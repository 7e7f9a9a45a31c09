"""`interlock restore`: a database in a bucket, as it was at one place of its log, in a local file."""

from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.output import stdout
from interlock.cli.progress import watching
from interlock.database.restore import moment, restore_database
from interlock.lanes.objects.addresses import redacted


def restore(
    url: Annotated[str, typer.Argument(metavar="URL", help="The address of a database in a bucket: s3://bucket/name.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write it. NAME.lane opens as lanes:///…/NAME.")
    ],
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="SEQ|TIME", help="A number of the log, or a time in ISO 8601. The newest without it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Restore a database in a bucket, as it was at one place of its log, into a local file.

    Takes no lease and changes nothing in the bucket; it may be run beside the owner.
    Exits with 4 when there is no such database or state, and with 5 when the bucket does not answer.
    """
    with watching() as watch:
        done = restore_database(url, file, at=None if at is None else moment(at), force=force, watch=watch)
    when = "before its first group" if done.time is None else f"of {done.time.isoformat(timespec='microseconds')}"
    console = stdout()
    console.print(
        f"Restored {redacted(url)} at {done.seq}, {when}, into {done.path}: "
        f"{done.pages:,} pages of {done.page_bytes:,} bytes.",
        soft_wrap=True,
    )
    if done.url is not None:
        console.print(f"It opens as {done.url}", soft_wrap=True)
