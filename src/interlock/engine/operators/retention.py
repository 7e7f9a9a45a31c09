"""Retention: removal of old final workflows, or of their history, batch by batch.

Rows do not say which states are final: `active` is false for resting workflows too, which may go on after years. The
descriptions of all machines that have ever written to the store say it. A state counts as final only if every
description that knows it, under this name or its later one, says so. States without a description are kept.

Each batch is a short transaction of its own. A run that stops between two batches has removed whole workflows, and the
next run goes on with the rest.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec

from interlock.core.describe import MachineDescription, StateDescription, description_from_json
from interlock.engine.check_definitions import PREFIX
from interlock.errors import BadUsage
from interlock.store.protocol import Batch, Old, Store
from interlock.store.records import Cursor

BATCH = 1_000
BATCH_MAX = 100_000


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """The amount that was removed, or with `dry_run` would be."""

    workflows: int = 0
    """Removed workflows; with `history_only`, workflows whose history was removed."""
    events: int = 0
    """Rows of history."""


class Pruner:
    """One run over a store. `done` is its progress, also when it was stopped."""

    def __init__(
        self,
        store: Store,
        *,
        older_than_s: float,
        machines: Iterable[str] | None = None,
        described: Iterable[MachineDescription] = (),
        history_only: bool = False,
        owing: bool = False,
        dry_run: bool = False,
        batch: int = BATCH,
        pause_s: float = 0.0,
    ) -> None:
        if not older_than_s >= 0 or older_than_s == float("inf"):
            raise BadUsage(
                f"older_than_s is {older_than_s!r}; it must be a number of seconds from 0 up.",
                why="A workflow is removed if it ended longer ago than that.",
                fix="Pass an age, such as 30 * 86_400 for thirty days.",
            )
        if not 1 <= batch <= BATCH_MAX or not pause_s >= 0:
            raise BadUsage(
                f"a batch of {batch!r} workflows with a pause of {pause_s!r} s is out of range.",
                why="Each batch is one transaction, and a large one is held in memory as a whole.",
                fix=f"Pass a batch between 1 and {BATCH_MAX:,}, and a pause of 0 s or more.",
            )
        self.done = Pruned()
        self._store = store
        self._older_than_s = older_than_s
        self._machines = None if machines is None else frozenset(machines)
        self._described = tuple(described)
        self._history_only = history_only
        self._owing = owing
        self._dry_run = dry_run
        self._batch = batch
        self._pause_s = pause_s

    async def run(self, removed: Callable[[Batch], None] = lambda _batch: None) -> Pruned:
        """Remove the old workflows; call `removed` after every batch."""
        before_us = self._store.now_us() - round(self._older_than_s * 1_000_000)
        finals = final_states(await self._store.notes(), self._described)
        for machine in sorted(finals):
            if self._machines is not None and machine not in self._machines:
                continue
            for state in sorted(finals[machine]):
                old = Old(
                    machine=machine,
                    state=state,
                    before_us=before_us,
                    history_only=self._history_only,
                    owing=self._owing,
                )
                await self._run(old, removed)
        return self.done

    async def _run(self, old: Old, removed: Callable[[Batch], None]) -> None:
        after: Cursor | None = None
        while True:
            batch = await self._store.prune(old, after=after, limit=self._batch, dry_run=self._dry_run)
            self.done = Pruned(
                workflows=self.done.workflows + len(batch.workflows), events=self.done.events + batch.events
            )
            removed(batch)
            after = batch.after
            if after is None:
                return
            # Also without a pause: other tasks of this event loop get a turn.
            await asyncio.sleep(self._pause_s)


def final_states(notes: Mapping[str, str], described: Iterable[MachineDescription] = ()) -> dict[str, set[str]]:
    """Return the final states of each machine, by their stored names."""
    texts = [text for name, text in notes.items() if name.startswith(PREFIX)]
    known: dict[str, list[MachineDescription]] = {}
    for each in (*(description_from_json(text.encode()) for text in texts), *described):
        known.setdefault(each.name, []).append(each)
    return {machine: _finals(descriptions) for machine, descriptions in known.items()}


def _finals(descriptions: list[MachineDescription]) -> set[str]:
    names = {name for each in descriptions for name in (*(state.name for state in each.states), *each.renamed)}
    finals: set[str] = set()
    for name in names:
        states = [state for each in descriptions if (state := _known_as(each, name)) is not None]
        if states and all(state.final for state in states):
            finals.add(name)
    return finals


def _known_as(description: MachineDescription, name: str) -> StateDescription | None:
    return description.state(name) or description.state(description.renamed.get(name, ""))
