"""`interlock restore`: restore a database of a bucket into a local file, or put a copy back to a URL.

The order of the arguments decides: from a URL into a file, or from a file to a URL.
"""

from pathlib import Path
from typing import Annotated

import typer

from interlock.catalog.secrets import shown
from interlock.cli.output import counted, stdout
from interlock.cli.progress import watching
from interlock.database.restore import moment, restore_database
from interlock.database.restoring import put_back
from interlock.errors import BadUsage


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
        f"Restored {shown(source)} at {done.seq}, {when}, into {done.path}: "
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
    stdout().print(f"Put {done.path} back as {shown(url)}: {done.what}{below(done.parts)}, checked.", soft_wrap=True)


def below(parts: int) -> str:
    """Return a text with the number of streams and shards, if any."""
    return f", and {counted(parts, 'database')} below it" if parts else ""
