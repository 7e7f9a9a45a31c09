"""`interlock backup`: a consistent copy of a database in a local file, while its owner goes on."""

from pathlib import Path
from typing import Annotated

import typer

from interlock.catalog.secrets import shown
from interlock.cli.output import stdout
from interlock.cli.progress import watching
from interlock.cli.restore import below
from interlock.database.backup import back_up_database


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
        f"Copied {shown(done.source)} into {done.path}: {done.amount}{below(done.parts)}, checked.",
        soft_wrap=True,
    )
    if done.url is not None:
        console.print(f"It opens as {done.url}", soft_wrap=True)
