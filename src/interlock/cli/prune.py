"""`interlock prune`: final workflows of a certain age leave the store, with everything that is kept of them.

It needs no code: which states are final stands in the store, in the descriptions of the machines that have written
there. On PostgreSQL it runs beside the service. A lane has one owner, so there the service is stopped, or prunes itself
with `engine.prune`.
"""

import asyncio
from typing import Annotated

import typer

from interlock.cli.doctor import Diagnosis
from interlock.cli.given import seconds_of
from interlock.cli.homes import Home, one_machine, store_at
from interlock.cli.looking import OutputOfOne, refuse_unknown
from interlock.cli.output import counted, stderr, stdout
from interlock.cli.shown import show_json
from interlock.runtime.pruning import BATCH, BATCH_MAX, Pruner
from interlock.store.pruning import Batch

PROGRESS_BATCHES = 10
"""A line of progress behind every so many batches."""


def prune(
    *,
    home: Home,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Those that ended so long ago: 90s, 15m, 2h, 30d.")
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
    Exits with 5 when the service owns the store, and names it.
    """
    older_than_s = seconds_of(older_than)
    described = [] if machine is None or ":" not in machine else [one_machine(machine).describe()]
    name = described[0].name if described else machine
    progress = _Progress(history_only=history_only, dry_run=dry_run)

    async def run() -> None:
        async with store_at(home) as store:
            if name is not None and not described:
                await refuse_unknown(store, name)
            pruner = Pruner(
                store,
                older_than_s=older_than_s,
                machines=None if name is None else [name],
                described=described,
                history_only=history_only,
                owing=with_owed,
                dry_run=dry_run,
                batch=batch,
                pause_s=pause_ms / 1_000,
            )
            await pruner.run(progress.add)

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        stderr().print(f"{progress.text()} before it was stopped.", soft_wrap=True)
        raise
    if output is Diagnosis.JSON:
        show_json({"workflows": progress.workflows, "events": progress.events, "dry_run": dry_run})
    else:
        stdout().print(f"{progress.text()}.", soft_wrap=True)


class _Progress:
    """How much has gone so far."""

    def __init__(self, *, history_only: bool, dry_run: bool) -> None:
        self.workflows = 0
        self.events = 0
        self._batches = 0
        self._history_only = history_only
        self._dry_run = dry_run

    def add(self, batch: Batch) -> None:
        """One more batch is done; now and then it is told."""
        self.workflows += len(batch.workflows)
        self.events += batch.events
        self._batches += 1
        if self._batches % PROGRESS_BATCHES == 0:
            stderr().print(f"{self.text()} so far", soft_wrap=True)

    def text(self) -> str:
        """All of it in words."""
        rows, workflows = counted(self.events, "row") + " of history", counted(self.workflows, "workflow")
        what = f"{rows} of {workflows}" if self._history_only else f"{workflows} and {rows}"
        return f"{what} would be removed" if self._dry_run else f"{what} removed"
