"""`interlock route`: move a database or workflows to another engine while they run.

It shows what the move would take before it makes it, and how to take it back afterwards. A name is that of a machine
whose workflows live at the home, or else of a database.
"""

import asyncio
from typing import Annotated, Protocol

import typer

from interlock.catalog.catalog import ALL, workflows_at
from interlock.catalog.moves import Moved, Plan, Watch
from interlock.cli.doctor import Diagnosis
from interlock.cli.output import Exit, counted, stderr, stdout, watching
from interlock.cli.views import show_json, show_table
from interlock.clock import SystemClock
from interlock.errors import MovedElsewhere
from interlock.relocate.database.mover import is_same, shown_url
from interlock.relocate.database.route import Route, abandon_route, find_route, move_along, plan_route
from interlock.urls import is_postgres_url

KIB = 1_024
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def route(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A database: its name at the home, or its address. Or a machine of the home, for its workflows.",
        ),
    ],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="Where it goes: lanes:///folder/name, postgresql://host/db, or s3://bucket/name.",
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would take, and change nothing.")] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="End a move that was begun: it stays where it is.")
    ] = False,
    home: Annotated[
        str | None,
        typer.Option("--home", metavar="URL", envvar="INTERLOCK_HOME", help="Where the name is written down."),
    ] = None,
    output: Annotated[Diagnosis, typer.Option("--output", "-o", help="Text for people, or JSON.")] = Diagnosis.TABLE,
) -> None:
    """Move a database, or workflows, to another place while they are used: copied, caught up with, compared, switched.

    Writers wait only for the last moment, and follow by themselves. Until then nothing has moved; the same command
    goes on with a move that was interrupted, and does nothing when it is over. Exits with 2 when there is something at
    the target already, with 4 when there is no such database, and with 5 when it cannot be done now.
    """
    moving = asyncio.run(_moving(name, to, home, finish=not dry_run))
    if abandon:
        _say_abandoned(moving.place, begun=asyncio.run(moving.abandon()))
        return
    plan = _planned(moving)
    if plan is not None and (dry_run or output is Diagnosis.TABLE):
        _show_plan(plan, output)
    if dry_run:
        if plan is None:
            stderr().print(f"There is no move to plan: everything lives at {shown_url(moving.target)}.", soft_wrap=True)
        raise typer.Exit(Exit.OK)
    with watching("watch") as watch:
        moved = asyncio.run(moving.move(watch))
    _show_moved(moved, moving.undo, output)


class Moving(Protocol):
    """A database or workflows that can be moved."""

    target: str
    undo: str
    place: str
    """A text that says what it is and where it is."""
    is_there: bool
    """Whether an earlier move is complete."""

    async def plan(self) -> Plan:
        """Return the estimate of the move."""
        ...

    async def move(self, watch: Watch) -> Moved:
        """Move it."""
        ...

    async def abandon(self) -> bool:
        """Abandon a move that was begun; return whether there was one."""
        ...


async def _moving(name: str, to: str, home: str | None, *, finish: bool) -> Moving:
    if home is not None and "://" not in name and await _may_be_workflows(name, to, home):
        from interlock.cli.route_workflows import WorkflowsMoving  # noqa: PLC0415 -- an extra.

        found = await WorkflowsMoving.found(name, to, home=home)
        if found is not None:
            return found
    return _Database(await find_route(name, to, home=home, clock=SystemClock(), finish=finish))


async def _may_be_workflows(name: str, to: str, home: str) -> bool:
    """Return whether workflows may be meant: they move only to or from PostgreSQL, whose driver is an extra."""
    return name == ALL or is_postgres_url(to) or is_postgres_url(await workflows_at(home, [name]))


class _Database:
    def __init__(self, found: Route) -> None:
        self._found, self._clock = found, SystemClock()
        self.target, self.undo, self.is_there = found.target, found.undo, found.is_there
        self.place = f"{found.name} stays at {shown_url(found.source)}"

    async def plan(self) -> Plan:
        return await plan_route(self._found, clock=self._clock)

    async def move(self, watch: Watch) -> Moved:
        return await move_along(self._found, clock=self._clock, watch=watch)

    async def abandon(self) -> bool:
        return await abandon_route(self._found, clock=self._clock)


def routed(found: Route) -> Moved:
    """Move a database, and show the progress."""
    with watching("watch") as watch:
        return asyncio.run(_Database(found).move(watch))


def _planned(moving: Moving) -> Plan | None:
    """Return the estimate; None when the source is already sealed or the move is complete."""
    if moving.is_there:
        return None
    try:
        return asyncio.run(moving.plan())
    except MovedElsewhere as error:
        if not is_same(error.url, moving.target):
            raise
        return None


def _show_plan(plan: Plan, output: Diagnosis) -> None:
    if output is Diagnosis.JSON:
        show_json(plan)
        return
    show_table(
        ("table", "rows", "size"),
        [(each.table, f"{each.rows:,}", _size(each.bytes)) for each in plan.amounts],
    )
    console = stdout()
    console.print(f"From {plan.source}\n  to {plan.target}, as move {plan.epoch}.", soft_wrap=True)
    console.print(
        f"{counted(plan.rows, 'row')}, {_size(plan.bytes)}: about {_seconds(plan.copy_s)} to copy and compare while it "
        f"serves, then about {plan.seal_ms:,.0f} ms in which writers wait.",
        soft_wrap=True,
    )
    for note in plan.notes:
        console.print(f"Note: {note}", soft_wrap=True)


def _show_moved(moved: Moved, undo: str, output: Diagnosis) -> None:
    if output is Diagnosis.JSON:
        show_json(moved)
        return
    console = stdout()
    result = f"{counted(moved.rows, 'row')}, checksum {moved.checksum}" if moved.checksum else "It had arrived already"
    waited = f"; writers waited {moved.seal_ms:,.0f} ms" if moved.seal_ms else ""
    console.print(f"Moved {moved.name} to {moved.target}: {result}{waited}.", soft_wrap=True)
    if undo:
        console.print(f"To undo it: {undo}", soft_wrap=True)


def _say_abandoned(place: str, *, begun: bool) -> None:
    result = "The move was ended" if begun else "No move was begun"
    stderr().print(f"{result}: {place}.", soft_wrap=True)


def _size(count: float) -> str:
    for unit in UNITS[:-1]:
        if count < KIB:
            return f"{count:,.0f} {unit}" if unit == UNITS[0] else f"{count:,.1f} {unit}"
        count /= KIB
    return f"{count:,.1f} {UNITS[-1]}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"  # noqa: PLR2004
