"""Retention: final workflows of a certain age leave the store, or their history does, batch by batch.

Which states are final is nowhere in the rows: `active` is false for resting workflows too, and those may go on for
years. It is read from the descriptions of the machines that have ever written to the store. A state is taken for final
only if every one of these descriptions that knows it, under this name or the one it was given later, says so; one that
no description knows is left alone.

Each batch is a short transaction of its own. Whoever stops between two has removed whole workflows, and the next run
goes on with the rest.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec

from interlock.core.description import MachineDescription, StateDescription, description_from_json
from interlock.errors import BadUsage
from interlock.runtime.definitions import PREFIX
from interlock.store.cursors import Cursor
from interlock.store.protocol import Store
from interlock.store.pruning import Batch, Old

BATCH = 1_000
BATCH_MAX = 100_000


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """How much was removed, or with `dry_run` would be."""

    workflows: int = 0
    """Those that are gone; with `history_only`, those whose history is gone."""
    events: int = 0
    """Rows of history."""


class Pruner:
    """One run over a store. `done` says how far it got, also when it was stopped."""

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
                why="It is how long ago a workflow must have ended to be removed.",
                fix="Give an age, such as 30 * 86_400 for thirty days.",
            )
        if not 1 <= batch <= BATCH_MAX or not pause_s >= 0:
            raise BadUsage(
                f"a batch of {batch!r} workflows with a pause of {pause_s!r} s cannot be meant.",
                why="Each batch is one transaction, and a large one is held in memory as a whole.",
                fix=f"Give batch between 1 and {BATCH_MAX:,}, and a pause of 0 s or more.",
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

    async def run(self, gone: Callable[[Batch], None] = lambda _batch: None) -> Pruned:
        """Remove what may go; `gone` is called behind every batch."""
        before_us = self._store.now_us() - round(self._older_than_s * 1_000_000)
        finals = final_states(await self._store.noted(), self._described)
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
                await self._run(old, gone)
        return self.done

    async def _run(self, old: Old, gone: Callable[[Batch], None]) -> None:
        after: Cursor | None = None
        while True:
            batch = await self._store.pruning.batch(old, after=after, limit=self._batch, dry_run=self._dry_run)
            self.done = Pruned(
                workflows=self.done.workflows + len(batch.workflows), events=self.done.events + batch.events
            )
            gone(batch)
            after = batch.after
            if after is None:
                return
            # Also without a pause: whoever else uses this event loop has a turn.
            await asyncio.sleep(self._pause_s)


def final_states(noted: Mapping[str, str], described: Iterable[MachineDescription] = ()) -> dict[str, set[str]]:
    """The states of each machine, by the names they are stored with, in which a workflow has ended for good."""
    texts = [text for name, text in noted.items() if name.startswith(PREFIX)]
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
