"""The pending work of a store: steps, undos, effects and running attempts, as data and as text.

It asks the store, not the engine's memory: work that is only in memory would be lost with the next crash.
"""

from collections.abc import Mapping

import msgspec

from interlock.core.table import Node
from interlock.runtime.bound import Bound
from interlock.runtime.inside import Inside
from interlock.runtime.views import view_of
from interlock.store.protocol import Store
from interlock.store.values import OwedEffect

SHOWN_MAX = 10


class Pending(msgspec.Struct, frozen=True):
    """The work that is left to do."""

    running: int
    """Attempts that are under way."""
    workflows: tuple[str, ...]
    """Workflows with a step or an undo to run, each with its state and version."""
    effects: tuple[OwedEffect, ...]

    def __str__(self) -> str:
        lines = [f"  {each}" for each in self.workflows[:SHOWN_MAX]]
        lines += [f"  {each.workflow}: effect {each.name!r} after {each.attempts} attempts" for each in self.effects]
        more = len(self.workflows) - SHOWN_MAX
        lines += [f"  and {more} more"] if more > 0 else []
        return "\n".join([*lines, f"  attempts under way: {self.running}"])


async def pending(store: Store, inside: Inside, machines: Mapping[str, Bound]) -> Pending | None:
    """Return the pending work without timers of the machines and dead letters; None when there is nothing to do."""
    workflows: list[str] = []
    for bound in machines.values():
        for node in bound.table.nodes.values():
            for row in await inside.all_in(bound, node) if _owes(node) else ():
                live = bound.live(row)
                if live.owed.current is not None:
                    waiting = view_of(live).waiting or "its step is under way"
                    workflows.append(f"{row.id}: in {row.state!r} at version {row.version}: {waiting}")
    effects = tuple(await store.effects(limit=SHOWN_MAX))
    running = inside.runner.under_way
    if not workflows and not effects and not running:
        return None
    return Pending(running, tuple(workflows), effects)


def _owes(node: Node) -> bool:
    return node.step is not None or node.unwinds_to is not None
