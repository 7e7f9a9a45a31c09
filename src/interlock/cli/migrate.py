"""`interlock migrate`: bring the tables of a store in PostgreSQL to what this version of Interlock knows.

An engine does the same when it opens the store. The command is for programs that may not create tables, and for
operators who want to read the statements first.
"""

import asyncio
from typing import Annotated

import typer

from interlock.cli.output import show_raw, stdout
from interlock.cli.places import Home
from interlock.errors import BadUsage
from interlock.store.opening import migrate_store


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
