"""Moves of workflows by the name of a machine: the catalog has their address, and gets the new one.

A home has one store for all of its machines, which share its notes, leases and keys. So a move of one machine moves all
of them, and the plan says so; `workflows` names them all. A repeated call for a completed move returns its result: an
engine that followed may have finished it.
"""

import shlex
from typing import NamedTuple

from interlock.catalog.catalog import Catalog
from interlock.catalog.moves import At, Moved, Plan, Watch, nowhere
from interlock.catalog.secrets import shown, with_secrets, without_secrets
from interlock.catalog.workflows import ALL, workflows_at
from interlock.errors import BadUsage
from interlock.seams import Clock
from interlock.store.moving.workflows import (
    abandon_workflows,
    machines_at,
    move_workflows,
    plan_workflows,
    refuse_if_left,
)


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
        return _is_same(self.source, self.target)

    @property
    def undo(self) -> str:
        """The command that moves them back; empty when nothing is moved."""
        if self.is_there:
            return ""
        # Quoted: an address of PostgreSQL may have an ampersand in it, and is pasted into a shell.
        words = ("interlock", "route", ALL, "--home", without_secrets(self.home), "--to", without_secrets(self.source))
        return shlex.join(words)


async def find_workflows(name: str, target: str, *, home: str | None, clock: Clock) -> WorkflowsRoute | None:
    """Find the current place of a machine's workflows. Return None when the home has no such machine.

    Raises BadUsage for a name that a machine and a database share, unless it is `workflows`, which no database has.
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
            f"{name!r} is a machine and a database of {shown(home)}.",
            why="Either could be meant, and Interlock does not guess.",
            fix=f"Write `{ALL}` for all workflows of the home, or the address of the database.",
        )
    known = await catalog.entry(ALL, kind="workflows")
    there = _is_same(source, target)
    if there:
        await refuse_if_left(source, clock=clock)
        if not known.epoch:
            raise _live_there(home, target)
    epoch = known.epoch if there else known.epoch + 1
    return WorkflowsRoute(name, source, with_secrets(target, source, home), home, epoch)


async def plan_for_workflows(route: WorkflowsRoute, *, clock: Clock) -> Plan:
    """Return the plan of the move. Changes nothing."""
    if route.is_there:
        raise _live_there(route.home, route.target)
    return await plan_workflows(route.source, route.target, epoch=route.epoch, clock=clock)


async def move_along(route: WorkflowsRoute, *, clock: Clock, watch: Watch, at: At = nowhere) -> Moved:
    """Move them, and tell the catalog. The same again goes on where it ended, and does nothing when it is over."""
    if route.is_there:
        where = shown(route.target)
        return Moved(
            name=ALL,
            source=where,
            target=where,
            epoch=route.epoch,
            amounts=(),
            checksum="",
            copy_s=0.0,
            seal_ms=0.0,
            resumed=True,
        )
    moved = await move_workflows(route.source, route.target, epoch=route.epoch, clock=clock, watch=watch, at=at)
    watch("enter", 0, 0)
    at("enter/before")
    _ = await Catalog(route.home).enter(ALL, route.target, moved.epoch, kind="workflows")
    at("enter")
    return moved


async def abandon_route(route: WorkflowsRoute, *, clock: Clock) -> bool:
    """End a move that was begun. False when there was none."""
    if route.is_there:
        raise _live_there(route.home, route.target)
    return await abandon_workflows(route.source, route.target, epoch=route.epoch, clock=clock)


def _is_same(one: str, other: str) -> bool:
    return shown(without_secrets(one)).rstrip("/") == shown(without_secrets(other)).rstrip("/")


def _live_there(home: str, target: str) -> BadUsage:
    return BadUsage(
        f"the workflows of {shown(home)} live at {shown(target)} already.",
        why="A move brings them to another place.",
        fix="Nothing is left to do. To move them, name another place with --to.",
    )
