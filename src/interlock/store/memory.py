"""A store in memory: the executable specification, and a fast store for tests.

Every rule of the protocol is written here in the plainest way, so that the others can be compared with it. Gone when it
is closed.
"""

from collections.abc import Sequence

from interlock.seams import Clock
from interlock.store.values import Change, Delivered, Found, Happened, Letter, OwedEffect, Row


class MemoryStore:
    """Workflows in dictionaries."""

    shared = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_us = 0
        self._rows: dict[str, Row] = {}
        self._history: dict[str, list[Happened]] = {}
        self._effects: dict[str, OwedEffect] = {}
        self._letters: dict[str, Letter] = {}
        self._notes: dict[str, str] = {}

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """The rows of these workflows."""
        return {each: self._rows[each] for each in ids if each in self._rows}

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Apply each change whose workflow has the expected revision."""
        lost: list[str] = []
        for change in changes:
            row = change.row
            before = self._rows.get(row.id)
            if (before.revision if before is not None else 0) != change.expected or self._has_key(change):
                lost.append(row.id)
                continue
            self._rows[row.id] = row
            self._history.setdefault(row.id, []).extend(change.history)
            self._effects.update({effect.id: effect for effect in change.effects})
            self._letters.update({letter.id: letter for letter in change.letters})
            for done in change.effects_done:
                self._effects.pop(done, None)
            for gone in change.letters_gone:
                self._letters.pop(gone, None)
        return lost

    def _has_key(self, change: Change) -> bool:
        used = {each.key for each in self._history.get(change.row.id, []) if each.key is not None}
        return any(each.key in used for each in change.history)

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """What these delivery keys were used for."""
        wanted = set(keys)
        return {
            (each.workflow, each.key): Delivered(each.version, each.to_state, each.key_digest)
            for workflow in {workflow for workflow, _ in wanted}
            for each in self._history.get(workflow, [])
            if each.key is not None and (workflow, each.key) in wanted
        }

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[Happened]:
        """The history behind a version."""
        return [each for each in self._history.get(workflow, []) if each.version > after][:limit]

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> Found:
        """The workflows of a machine, in the order of their creation."""
        ids = list(self._rows)
        start = ids.index(after) + 1 if after in self._rows else 0
        rows = [
            row
            for row in (self._rows[each] for each in ids[start:])
            if row.machine == machine and state in {None, row.state}
        ]
        return Found(tuple(rows[:limit]), rows[limit - 1].id if len(rows) > limit else None)

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """The active workflows that have been in their state for too long."""
        late = [
            row
            for row in self._rows.values()
            if row.active and row.machine == machine and row.entered_us < before_us.get(row.state, -1)
        ]
        return sorted(late, key=lambda row: row.entered_us)[:limit]

    async def due(self, *, limit: int) -> list[Row]:
        """The workflows with something to wake up for."""
        waking = [row for row in self._rows.values() if row.wake_us is not None]
        return sorted(waking, key=lambda row: row.wake_us or 0)[:limit]

    async def effects(self, *, limit: int) -> list[OwedEffect]:
        """The effects that are owed."""
        return sorted(self._effects.values(), key=lambda effect: effect.wake_us)[:limit]

    async def letters(self, kind: str | None = None, *, limit: int = 1_000) -> list[Letter]:
        """The dead letters, oldest first."""
        wanted = [letter for letter in self._letters.values() if kind in {None, letter.kind}]
        return sorted(wanted, key=lambda letter: letter.since_us)[:limit]

    async def living(self) -> dict[tuple[str, int, str], int]:
        """How many workflows there are by machine, version and state."""
        counts: dict[tuple[str, int, str], int] = {}
        for row in self._rows.values():
            place = (row.machine, row.machine_version, row.state)
            counts[place] = counts.get(place, 0) + 1
        return counts

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name."""
        self._notes[name] = text

    async def noted(self) -> dict[str, str]:
        """Everything that was noted."""
        return dict(self._notes)

    def now_us(self) -> int:
        """The time, which never goes back."""
        self._last_us = max(self._last_us, int(self._clock.wall_s() * 1_000_000))
        return self._last_us

    async def close(self) -> None:
        """Nothing is left to do."""
