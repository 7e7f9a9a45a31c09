"""Move of a database, or of workflows, by a name: lookup in the catalog and the tombstones, and update of the catalog.

A name without an address is looked up at the home. In either case the tombstones decide: the address of a place that
was left stands for the current place. A repeated call for a completed move reports that it is completed.

Sections: databases, workflows.
"""

import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

from interlock.catalog.catalog import ALL, Catalog, workflows_at
from interlock.clock import Clock
from interlock.database.inventory import marks_at
from interlock.engine.bound_machine import OWN_MACHINES
from interlock.errors import BadUsage, CorruptionError, UnavailableError
from interlock.relocate.mover import (
    abandon_database,
    is_same,
    move_database,
    opened_source,
    plan_database,
    refuse_unreachable,
    shown_url,
    unwatched,
)
from interlock.relocate.stages import At, Moved, Plan, Watch, nowhere
from interlock.relocate.workflow_move import (
    abandon_workflows,
    last_epoch_at,
    machines_at,
    move_workflows,
    plan_workflows,
    refuse_if_left,
)
from interlock.urls import is_bucket_url, redact_secrets, with_secrets, without_secrets

# --- Databases -------------------------------------------------------------------------------------------------------

HOPS_MAX: Final = 32
"""Maximum length of a chain of tombstones."""


class Route(NamedTuple):
    """Source and target of a move."""

    name: str
    source: str
    target: str
    home: str | None
    epoch: int = 0
    """Epoch of the last move in the catalog, or of the target if the database is there already."""

    @property
    def is_there(self) -> bool:
        """Whether the database is at the target already."""
        return self.epoch > 0 and is_same(self.source, self.target)

    @property
    def undo(self) -> str:
        """Return the command that moves it back; empty when nothing is moved."""
        if self.is_there:
            return ""
        named = (self.name, "--home", without_secrets(self.home)) if self.home else (without_secrets(self.target),)
        # Quoted: an address of PostgreSQL has an ampersand in it, and is pasted into a shell.
        return shlex.join(("interlock", "route", *named, "--to", without_secrets(self.source)))


async def find_route(
    name: str, target: str, *, home: str | None, clock: Clock, source: str = "", finish: bool = False
) -> Route:
    """Find the current place of the database. `source` is its known address, if any.

    With `finish` an earlier move whose mover died after the tombstone is completed; otherwise it is refused.
    """
    if "://" not in target:
        raise BadUsage(
            f"{target!r} is not an address.",
            why="A move goes to a place, and the scheme in front says of which kind it is.",
            fix="Write lanes:///var/shop/stock, s3://bucket/stock or postgresql://host/shop?schema=stock.",
        )
    epoch = 0
    if not source and "://" in name:
        source, home = name, None
    elif home is None:
        raise BadUsage(
            f"{name!r} is the name of a database, and its home is missing.",
            why="Where a name lives is written down in the catalog of a home.",
            fix="Add --home lanes:///var/shop, or name the database by its address.",
        )
    else:
        catalog = Catalog(home)
        entry = await catalog.entry(name)
        source, epoch = source or catalog.address(name, entry), entry.epoch
    source = await _lives_at(source, target, clock, finish=finish)
    if is_same(source, target):
        epoch = max(epoch, await _last_epoch(source, clock))
    return Route(name if home else shown_url(name), source, with_secrets(target, source, home or ""), home, epoch)


async def _lives_at(url: str, target: str, clock: Clock, *, finish: bool) -> str:
    visited = [url]
    while len(visited) < HOPS_MAX:
        here = visited[-1]
        left = await _left(here) if is_same(here, target) else await _stone_at(here, clock)
        if left is None:
            return here
        there = with_secrets(target if is_same(left[0], target) else left[0], *reversed(visited))
        marks = await marks_at(there)
        if marks.state != "left" or marks.epoch < left[1]:  # It was not left since: the chain ends here.
            if is_same(there, target):
                return here  # It is arriving or has arrived at the target: `finish` completes that move.
            if marks.state in {"left", "arriving"}:
                await _let_arrive(here, there, left[1], clock, finish=finish)
            return there
        visited.append(there)
    raise CorruptionError(
        f"{shown_url(url)} was moved more than {HOPS_MAX} times, and is still not found.",
        fix="Name the database by the address where it lives.",
    )


async def _let_arrive(here: str, there: str, epoch: int, clock: Clock, *, finish: bool) -> None:
    """Complete a move whose mover died after the tombstone. A draft cannot be moved on before its arrival."""
    if not finish:
        words = ("interlock", "route", without_secrets(here), "--to", without_secrets(there))
        raise UnavailableError(
            f"move {epoch} has left {shown_url(here)} and has not arrived at {shown_url(there)} yet.",
            why="Its mover has ended after the tombstone. The target is a complete draft, which cannot be moved on.",
            fix=f"Open the database once, or finish that move: {shlex.join(words)}",
        )
    _ = await move_database(here, there, name=shown_url(here), epoch=epoch, clock=clock, checked=False)


async def _stone_at(url: str, clock: Clock) -> tuple[str, int] | None:
    if is_bucket_url(url):
        return await _left(url)  # The manifest has it; without reading the whole log.
    end = await opened_source(url, clock=clock)
    try:
        return await end.moved()
    finally:
        await end.close()


async def _left(target: str) -> tuple[str, int] | None:
    """Return where the database went from a place that may not exist, if it was there before."""
    marks = await marks_at(target)
    return (marks.other, marks.epoch) if marks.state == "left" else None


async def _last_epoch(url: str, clock: Clock) -> int:
    end = await opened_source(url, clock=clock)
    try:
        return await end.last_epoch()
    finally:
        await end.close()


async def plan_route(route: Route, *, clock: Clock) -> Plan:
    """Return the plan of the move. Changes nothing."""
    return await plan_database(route.source, route.target, name=route.name, epoch=route.epoch + 1, clock=clock)


async def move_along(
    route: Route, *, clock: Clock, watch: Watch = unwatched, at: At = nowhere, checked: bool = True
) -> Moved:
    """Move the database, and update the catalog. A repeated call continues, and does nothing for a completed move."""
    if route.is_there:
        return _over(route.name, route.target, route.epoch)
    moved = await move_database(
        route.source,
        route.target,
        name=route.name,
        epoch=route.epoch + 1,
        clock=clock,
        watch=watch,
        at=at,
        checked=checked,
    )
    if route.home is not None:
        watch("enter", 0, 0)
        at("enter/before")
        _ = await Catalog(route.home).enter(route.name, route.target, moved.epoch)
        at("enter")
    return moved


async def abandon_route(route: Route, *, clock: Clock) -> bool:
    """Abandon an interrupted move. Return False when there was none."""
    return await abandon_database(route.source, route.target, clock=clock)


def _over(name: str, url: str, epoch: int) -> Moved:
    where = shown_url(url)
    return Moved(
        name=name,
        source=where,
        target=where,
        epoch=epoch,
        amounts=(),
        checksum="",
        copy_s=0.0,
        seal_ms=0.0,
        resumed=True,
    )


# --- Workflows -------------------------------------------------------------------------------------------------------
# A home has one store for all of its machines, which share its ids, leases and keys, and an engine has one store. So
# they move together (decision 0022); `workflows` names them all, and one machine of several has to be named with
# `--all`. A repeated call for a completed move returns its result: an engine that followed may have finished it.


class WorkflowsRoute(NamedTuple):
    """The workflows of a home on their way."""

    name: str
    source: str
    target: str
    home: str
    epoch: int
    """Of this move."""

    @property
    def is_there(self) -> bool:
        """Return whether an earlier move has brought them to the target: nothing is left to do."""
        return is_same_home(self.source, self.target)

    @property
    def undo(self) -> str:
        """Return the command that moves them back; empty when nothing is moved."""
        if self.is_there:
            return ""
        # Quoted: an address of PostgreSQL may have an ampersand in it, and is pasted into a shell.
        words = ("interlock", "route", ALL, "--home", without_secrets(self.home), "--to", without_secrets(self.source))
        return shlex.join(words)


async def find_workflows(
    name: str, target: str, *, home: str | None, clock: Clock, everything: bool = False
) -> WorkflowsRoute | None:
    """Find the current place of a machine's workflows. Return None when the home has no such machine.

    Raises BadUsage for a name that a machine and a database share, unless it is `workflows`, which no database has;
    and without `everything` for one machine of several, which would take the others along.
    """
    if home is None or "://" in name:
        return None
    catalog = Catalog(home)
    source = await workflows_at(home, [name])
    try:
        machines = await machines_at(source, clock=clock)
    except BadUsage:
        if name == ALL:
            raise
        return None
    if name != ALL and name not in machines:
        return None
    if name != ALL and name in await catalog.names():
        raise BadUsage(
            f"{name!r} is a machine and a database of {redact_secrets(home)}.",
            why="Either could be meant, and Interlock does not guess.",
            fix=f"Write `{ALL}` for all workflows of the home, or the address of the database.",
        )
    if name != ALL and machines.keys() - {name, *OWN_MACHINES} and not everything:
        raise _several(name, machines)
    known = await catalog.entry(ALL, kind="workflows")
    there = is_same_home(source, target)
    if there:
        await refuse_if_left(source, clock=clock)
        if not known.epoch:
            raise _live_there(home, target)
    # A home that workflows came to from another has no catalog of their moves.
    epoch = known.epoch if there else max(known.epoch, await last_epoch_at(source, clock=clock)) + 1
    return WorkflowsRoute(name, source, with_secrets(target, source, home), home, epoch)


async def plan_for_workflows(route: WorkflowsRoute, *, clock: Clock) -> Plan:
    """Return the plan of the move. Changes nothing."""
    if route.is_there:
        raise _live_there(route.home, route.target)
    return await plan_workflows(route.source, route.target, epoch=route.epoch, clock=clock)


async def move_workflows_along(
    route: WorkflowsRoute, *, clock: Clock, watch: Watch, at: At = nowhere, checked: bool = True
) -> Moved:
    """Move them, and update the catalog. A repeated call continues, and does nothing for a completed move."""
    if route.is_there:
        return _over(ALL, route.target, route.epoch)
    if checked:
        await refuse_unreachable(route.source, route.target)
    moved = await move_workflows(route.source, route.target, epoch=route.epoch, clock=clock, watch=watch, at=at)
    watch("enter", 0, 0)
    at("enter/before")
    _ = await Catalog(route.home).enter(ALL, route.target, moved.epoch, kind="workflows")
    at("enter")
    return moved


async def abandon_workflows_route(route: WorkflowsRoute, *, clock: Clock) -> bool:
    """Abandon an interrupted move. Return False when there was none."""
    if route.is_there:
        raise _live_there(route.home, route.target)
    return await abandon_workflows(route.source, route.target, clock=clock)


def _live_there(home: str, target: str) -> BadUsage:
    return BadUsage(
        f"the workflows of {redact_secrets(home)} live at {redact_secrets(target)} already.",
        why="A move brings them to another place.",
        fix="Nothing is left to do. To move them, name another place with --to.",
    )


def _several(name: str, machines: Mapping[str, int]) -> BadUsage:
    counts = ", ".join(f"{count:,} of {machine!r}" for machine, count in machines.items())
    return BadUsage(
        f"{name!r} is one of {len(machines)} machines of this home, and all of them would move: {counts}.",
        why="The machines of a home share one store, and its ids, leases and keys are for all. Nothing was copied.",
        fix=f"Add --all, or write `{ALL}`, to move all of them. A machine that has to move alone needs its own home.",
    )


def is_same_home(one: str, other: str) -> bool:
    """Return whether both addresses name one home, apart from secrets."""
    return redact_secrets(without_secrets(one)).rstrip("/") == redact_secrets(without_secrets(other)).rstrip("/")
