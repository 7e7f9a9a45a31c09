"""Gauges of an engine, for exporters that sample them.

Gauges in memory are read immediately. The others are counted by queries of the store, never in a row that every
transition would write. Each query has a bound, except the count of workflows by state, which scans an index: exporters
cache its result.
"""

from typing import cast

import msgspec

from interlock.engine.bound_machine import OWN_MACHINES
from interlock.engine.dependencies.breakers import Breakers, view_of_line
from interlock.engine.internals import EngineParts
from interlock.lanes.hot_rows import HotRow
from interlock.store.memory import MemoryStore

LETTERS_MAX = 10_000
"""The highest count of dead letters."""

STALLED_MAX = 1_000
"""The highest count of stalled workflows of each machine."""


class Depth(msgspec.Struct, frozen=True):
    """Counts from the store."""

    workflows: dict[tuple[str, str], int]
    """Workflows by machine and state."""
    unwinding: dict[str, int]
    """Workflows whose undos are pending or being tried, by machine: the debt of compensation."""
    letters: dict[str, int]
    """Dead letters by kind."""
    stalled: dict[str, int]
    """Workflows longer in their state than declared, by machine."""


class Gauges:
    """The gauges of one engine."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts

    def enter(self, parts: EngineParts) -> None:
        """Use the new parts of the engine after a move."""
        self._parts = parts

    def breakers(self) -> Breakers:
        """As `Engine.breakers`."""
        self._parts.refuse_if_closed()
        return Breakers(view_of_line(line) for line in self._parts.places.lines.values())

    @property
    def in_flight(self) -> int:
        """Calls under way."""
        return self._parts.gate.in_flight

    @property
    def refused(self) -> int:
        """Calls that were refused."""
        return self._parts.gate.refused

    @property
    def waiting(self) -> int:
        """Workflows and effects that wait for a slot."""
        return self._parts.places.waiting

    @property
    def under_way(self) -> int:
        """Attempts under way."""
        return self._parts.runner.under_way

    @property
    def redis_up(self) -> bool | None:
        """Whether Redis answers; None without Redis."""
        cluster = self._parts.cluster
        return None if cluster is None else cluster.up

    @property
    def observer_failures(self) -> int:
        """The number of exceptions of observers."""
        return self._parts.subscribers.failures

    def hot_rows(self) -> list[tuple[str, HotRow]]:
        """Return the hot workflows and the hot rows of this process, with the database of each, worst first."""
        self._parts.refuse_if_closed()
        return self._parts.hot_rows()

    async def depth(self) -> Depth:
        """Count workflows, undos, dead letters and stalls in the store."""
        parts = self._parts
        parts.refuse_if_closed()
        workflows: dict[tuple[str, str], int] = {}
        unwinding: dict[str, int] = {}
        for bound in parts.declared.values():
            unwinding[bound.name] = 0
            for node in bound.table.nodes.values():
                workflows[bound.name, node.name] = 0
        for (machine, _, state), count in (await parts.store.living()).items():
            if machine in OWN_MACHINES:
                continue
            known = parts.machines.get(machine)
            found = None if known is None else known.stored.get(state)
            name = state if found is None else found.name
            workflows[machine, name] = workflows.get((machine, name), 0) + count
            if found is not None and found.unwinds_to is not None:
                unwinding[machine] += count
        letters: dict[str, int] = {"step": 0, "effect": 0, "undo": 0}
        for letter in await parts.store.letters(limit=LETTERS_MAX):
            letters[letter.kind] += 1
        return Depth(workflows, unwinding, letters, await self._stalled())

    def depth_at_once(self) -> Depth | None:
        """Return the counts of a store in memory without waiting; None for other stores."""
        if not isinstance(self._parts.store, MemoryStore):
            return None
        counting = self.depth()
        try:
            counting.send(None)
        except StopIteration as counted:
            return cast("Depth", counted.value)
        counting.close()
        return None

    async def _stalled(self) -> dict[str, int]:
        found: dict[str, int] = {}
        now_us = self._parts.store.now_us()
        for bound in self._parts.declared.values():
            before = {
                node.name: now_us - int(node.dwell_max_s * 1_000_000)
                for node in bound.table.nodes.values()
                if node.active and node.dwell_max_s is not None
            }
            rows = await self._parts.store.stalled(bound.name, before, limit=STALLED_MAX) if before else ()
            found[bound.name] = len(rows)
        return found
