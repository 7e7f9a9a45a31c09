"""`interlock prune`: remove final workflows of a certain age from the store, with their history and letters.

It needs no code: the store has the descriptions of its machines, which name the final states. On PostgreSQL it runs
beside the service. A lane has one owner, so there the server prunes (`--server`), or the service is stopped.
"""

import asyncio
from typing import Annotated, NamedTuple

import typer

from interlock.cli.doctor import Diagnosis
from interlock.cli.given import seconds_of
from interlock.cli.homes import one_machine, store_at
from interlock.cli.looking import OutputOfOne, refuse_unknown
from interlock.cli.output import counted, stderr, stdout
from interlock.cli.places import Home, KeyFile, Place, Server, client_at, place_of
from interlock.cli.shown import show_json
from interlock.errors import BadUsage
from interlock.runtime.pruning import BATCH, BATCH_MAX, Pruner
from interlock.store.pruning import Batch

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
    progress = _Progress(history_only=history_only, dry_run=dry_run)
    wanted = _Wanted(older_than_s, history_only, with_owed, dry_run, batch, pause_ms / 1_000)
    try:
        asyncio.run(
            _here(place, machine, wanted, progress) if place.server is None else _there(place, wanted, progress)
        )
    except KeyboardInterrupt:
        if place.server is None:
            stderr().print(f"{progress.text()} before it was stopped.", soft_wrap=True)
        raise
    if output is Diagnosis.JSON:
        show_json({"workflows": progress.workflows, "events": progress.events, "dry_run": dry_run})
    else:
        stdout().print(f"{progress.text()}.", soft_wrap=True)


class _Wanted(NamedTuple):
    """The options of the removal."""

    older_than_s: float
    history_only: bool
    with_owed: bool
    dry_run: bool
    batch: int
    pause_s: float


async def _here(place: Place, machine: str | None, wanted: _Wanted, progress: "_Progress") -> None:
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


async def _there(place: Place, wanted: _Wanted, progress: "_Progress") -> None:
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


class _Progress:
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
