"""Arrows: the transitions of a machine by name, to compare possible transitions with taken ones.

An arrow is one way out of one state: a catch-all is one arrow per state it applies to, a step that gives up is the
arrow STEP_FAILED, a completed unwinding is UNWOUND, and a timer is the arrow of the event that it sends. Where a
pipeline goes straight to its failure because nothing has to be undone, that is an arrow of its own.

The odd choice: guards are distinguished by name, so a second guard of the same name on the same state and event (two
lambdas, say) is called `name#2`.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from interlock.core.events import STEP_FAILED, UNWOUND
from interlock.core.graph import Ends
from interlock.core.table import Node, Table, Transition


class Arrow(msgspec.Struct, frozen=True):
    """One transition: states by their stored name, the event by its wire name, the guard by its function's name."""

    from_state: str
    event: str
    to_state: str
    guard: str | None = None

    def __str__(self) -> str:
        guard = "" if self.guard is None else f" [{self.guard}]"
        return f"{self.from_state} --{self.event}{guard}--> {self.to_state}"


class Compiled(Protocol):
    """Any machine, whatever its types."""

    @property
    def compiled(self) -> Table:
        """The compiled machine."""
        ...


def transitions(machine: Compiled) -> frozenset[Arrow]:
    """Return every transition that the machine can take: the total of transition coverage."""
    return frozenset(arrows_of(machine.compiled))


def arrows_of(table: Table) -> tuple[Arrow, ...]:
    """Return every transition in declared order, the initial state first."""
    ends = Ends(table)
    nodes = sorted(table.nodes.values(), key=lambda node: node is not table.initial)
    return tuple(dict.fromkeys(arrow for node in nodes for arrow in _out_of(node, ends)))


def guard_label(moves: tuple[Transition, ...], taken: Transition) -> str | None:
    """Return the guard's name of the taken transition; the second guard of the same name is `name#2`."""
    name = taken.guard_name
    if name is None:
        return None
    earlier = moves[: next(index for index, move in enumerate(moves) if move is taken)]
    before = sum(1 for move in earlier if move.guard_name == name)
    return f"{name}#{before + 1}" if before else name


def _out_of(node: Node, ends: Ends) -> Iterator[Arrow]:
    for moves in node.moves.values():
        for move in moves:
            label = guard_label(moves, move)
            for target in ends.of(node, move.target):
                yield Arrow(node.name, move.event, target.name, label)
    if node.failed is not None:
        for target in ends.of(node, node.failed):
            yield Arrow(node.name, STEP_FAILED, target.name)
    if node.unwinds_to is not None:
        yield Arrow(node.name, UNWOUND, node.unwinds_to.name)
