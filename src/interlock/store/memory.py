"""A store in memory: the executable specification, and a fast store for tests.

Every rule of the protocol has its plainest form here, so that the other stores can be compared with it. Its content is
lost when it is closed.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import msgspec

from interlock.clock import Clock
from interlock.core.search import UPDATED, MachineSearch, Plain, Search, SearchField, plain_of
from interlock.errors import InternalError, UnavailableError
from interlock.store.chart_store import ChartRecord, MemoryCharts
from interlock.store.protocol import Batch, Granted, Held, LeaseRow, Old, next_lease
from interlock.store.records import (
    COUNTED,
    ENDED,
    Change,
    ChildRecord,
    Cursor,
    Delivered,
    HistoryRecord,
    Letter,
    OwedEffect,
    Row,
    RowsPage,
    StoreTime,
    parse_cursor,
    refuse_twice,
)
from interlock.store.search_pages import matches, parse_place, place_cursor


class _Kept:
    """The whole content of the store."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.numbers: dict[str, int] = {}
        """In the order of creation."""
        self.started = 0
        """How many there ever were: a number is not given again when its workflow is pruned."""
        self.history: dict[str, dict[int, HistoryRecord]] = {}
        """By version."""
        self.keys: dict[tuple[str, str], HistoryRecord] = {}
        self.effects: dict[str, OwedEffect] = {}
        self.letters: dict[str, Letter] = {}
        self.children: dict[str, ChildRecord] = {}
        self.notes: dict[str, str] = {}
        self.leases: dict[str, LeaseRow] = {}
        self.charts: dict[str, ChartRecord] = {}


class MemoryStore:
    """Workflows in dictionaries."""

    shared = False

    def __init__(self, clock: Clock) -> None:
        self._time = StoreTime(clock)
        self._remembered: _Kept | None = _Kept()
        self.leases = MemoryLeases(lambda: self._kept.leases, self.now_us)
        self.charts = MemoryCharts(lambda: self._kept.charts)

    @property
    def _kept(self) -> _Kept:
        if self._remembered is None:
            raise UnavailableError("the store is closed.", fix="Open it again; what was in memory is gone.")
        return self._remembered

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these workflows."""
        rows = self._kept.rows
        return {each: rows[each] for each in ids if each in rows}

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Apply each change whose workflow has the expected revision and that uses no key again."""
        kept = self._kept
        refuse_twice(changes)
        lost = [change.row.id for change in changes if _lost(kept, change)]
        won = [change for change in changes if change.row.id not in lost]
        for change in won:
            _refuse_contradiction(kept, change)
        for change in won:
            _apply(kept, change)
        return lost

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """Return the recorded uses of these delivery keys."""
        found = {key: self._kept.keys[key] for key in keys if key in self._kept.keys}
        return {key: Delivered(each.version, each.to_state, each.key_digest) for key, each in found.items()}

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[HistoryRecord]:
        """Return the history after a version."""
        rows = self._kept.history.get(workflow, {})
        # B3: by version, never by clock or by arrival.
        return [rows[version] for version in sorted(rows) if version > after][:limit]

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> RowsPage:
        """Return the workflows of a machine in the order of creation, or of one state in the order of entry."""
        kept, begin = self._kept, parse_cursor(after)
        places = sorted(
            Cursor(0 if state is None else row.entered_us, kept.numbers[row.id])
            for row in kept.rows.values()
            if row.machine == machine and state in {None, row.state}
        )
        if begin is not None:
            start = Cursor(0 if state is None else begin.entered_us, begin.number)
            places = [place for place in places if place > start]
        ids = {number: workflow for workflow, number in kept.numbers.items()}
        rows = tuple(kept.rows[ids[place.number]] for place in places[:limit])
        numbers = tuple(place.number for place in places[:limit])
        if len(places) <= limit:
            return RowsPage(rows, None, numbers)
        return RowsPage(rows, str(Cursor(rows[-1].entered_us, numbers[-1])), numbers)

    async def declare_search(self, searches: Sequence[MachineSearch]) -> bool:
        """Return False: a search reads all workflows."""
        del searches
        return False

    async def fill_search(self) -> bool:
        """Return False: there is no index."""
        return False

    async def search(self, search: Search) -> RowsPage:
        """Return the workflows that match, in the order of the search."""
        after = parse_place("memory", search)
        found: list[tuple[_Place, Row]] = []
        for row in self._kept.rows.values():
            if row.machine != search.machine:
                continue
            context = cast("dict[str, object]", msgspec.json.decode(row.context))
            if matches(search, row.state, row.updated_us, context):
                found.append((_place(_order_key(search, row, context), self._kept.numbers[row.id]), row))
        found.sort(key=lambda each: each[0], reverse=search.descending)
        if after is not None:
            key, number = after
            decimal = isinstance(search.order, SearchField) and search.order.basis == "decimal" and key is not None
            begin = _place(Decimal(str(key)) if decimal else key, number)
            found = [each for each in found if (each[0] < begin if search.descending else each[0] > begin)]
        page = found[: search.limit]
        if len(found) <= search.limit:
            return RowsPage(tuple(row for _, row in page), None)
        (valued, key, number), _ = page[-1]
        shown_key = None if not valued else str(key) if isinstance(key, Decimal) else key
        return RowsPage(tuple(row for _, row in page), place_cursor("memory", search, shown_key, number))

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """Return the active workflows that have been in their state for too long."""
        late = [
            row
            for row in self._kept.rows.values()
            if row.active
            and row.machine == machine
            and row.state in before_us
            and row.entered_us < before_us[row.state]
        ]
        return sorted(late, key=lambda row: row.entered_us)[:limit]

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """Return the owed effects, soonest first."""
        owed = {(effect.wake_us, effect.id): effect for effect in self._kept.effects.values()}
        begin = None if after is None else (after.wake_us, after.id)
        return [owed[place] for place in sorted(owed) if begin is None or place > begin][:limit]

    async def letters(
        self,
        kind: str | None = None,
        *,
        workflow: str | None = None,
        after: Letter | None = None,
        limit: int = 1_000,
    ) -> list[Letter]:
        """Return the dead letters, of all workflows or of one, oldest first."""
        wanted = {
            (letter.since_us, letter.id): letter
            for letter in self._kept.letters.values()
            if kind in {None, letter.kind} and workflow in {None, letter.workflow}
        }
        begin = None if after is None else (after.since_us, after.id)
        return [wanted[place] for place in sorted(wanted) if begin is None or place > begin][:limit]

    async def children(
        self,
        parent: str,
        *,
        visit: int | None = None,
        after: ChildRecord | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> list[ChildRecord]:
        """Return the children of a workflow by visit, position and id."""
        places = {
            (each.visit, each.position, each.id): each
            for each in self._kept.children.values()
            if each.parent == parent and visit in {None, each.visit}
        }
        begin = None if after is None else (after.visit, after.position, after.id)
        found = [
            places[place]
            for place in sorted(places, reverse=newest_first)
            if begin is None or (place < begin if newest_first else place > begin)
        ]
        return found[:limit]

    async def ended_children(self, parent: str, *, limit: int) -> list[ChildRecord]:
        """Return children that have ended and that their parent has not counted."""
        found = [each for each in self._kept.children.values() if each.parent == parent and each.stage == ENDED]
        return sorted(found, key=lambda each: (each.visit, each.position))[:limit]

    async def parents_to_count(self, *, after: str = "", limit: int) -> list[str]:
        """Return the ids of workflows with such children."""
        found = {each.parent for each in self._kept.children.values() if each.stage == ENDED and each.parent > after}
        return sorted(found)[:limit]

    async def living(self) -> dict[tuple[str, int, str], int]:
        """Count the workflows by machine, version and state."""
        counts: dict[tuple[str, int, str], int] = {}
        for row in self._kept.rows.values():
            place = (row.machine, row.machine_version, row.state)
            counts[place] = counts.get(place, 0) + 1
        return counts

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name."""
        self._kept.notes[name] = text

    async def notes(self) -> dict[str, str]:
        """Return all notes by name."""
        return dict(self._kept.notes)

    async def prune(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """Read the next workflows and remove those that match."""
        kept = self._kept
        places = sorted(
            (Cursor(row.entered_us, kept.numbers[row.id]), row.id)
            for row in kept.rows.values()
            if row.machine == old.machine and row.state == old.state and row.entered_us < old.before_us
        )
        looked = [place for place in places if after is None or place[0] > after][:limit]
        owing = {each.workflow for each in kept.effects.values()} | {each.workflow for each in kept.letters.values()}
        parents = {each.parent for each in kept.children.values() if each.stage != COUNTED}
        awaited = {
            each.id
            for each in kept.children.values()
            if each.parent in kept.rows and kept.rows[each.parent].visit == each.visit
        }
        chosen = [
            workflow
            for _, workflow in looked
            if not kept.rows[workflow].active
            and kept.rows[workflow].wake_us is None
            and (old.owing or workflow not in owing)
            and ((old.owing and old.history_only) or workflow not in parents)
            and (old.history_only or workflow not in awaited)
            and (kept.history.get(workflow) or not old.history_only)
        ]
        events = sum(len(kept.history.get(workflow, {})) for workflow in chosen)
        if not dry_run:
            _remove(kept, set(chosen), history_only=old.history_only)
        return Batch(tuple(chosen), events, looked[-1][0] if len(looked) == limit else None)

    def now_us(self) -> int:
        """The time, which never goes back."""
        return self._time.now_us()

    async def close(self) -> None:
        """Forget everything."""
        self._remembered = None


_Place = tuple[bool, Any, int]
"""The place of a workflow in the order of a search; None comes before all values."""


def _place(key: object, number: int) -> _Place:
    return key is not None, 0 if key is None else key, number


def _order_key(search: Search, row: Row, context: Mapping[str, object]) -> Plain:
    if isinstance(search.order, SearchField):
        return plain_of(search.order, context)
    return row.updated_us if search.order == UPDATED else None


class MemoryLeases:
    """Leases in a dictionary."""

    def __init__(self, leases: Callable[[], dict[str, LeaseRow]], now_us: Callable[[], int]) -> None:
        self._leases = leases
        self._now_us = now_us

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner, unless another owner has it."""
        leases, now_us = self._leases(), self._now_us()
        lease = next_lease(leases.get(name), owner, now_us, now_us + round(lease_s * 1_000_000))
        if isinstance(lease, Held):
            return lease
        leases[name] = lease
        return Granted(lease.token)

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Extend the lease to `lease_s` from now."""
        return self._change(name, token, self._now_us() + round(lease_s * 1_000_000))

    async def release(self, name: str, token: int) -> bool:
        """Release the lease."""
        return self._change(name, token, None)

    def _change(self, name: str, token: int, until_us: int | None) -> bool:
        leases = self._leases()
        last = leases.get(name)
        if last is None or last.token != token or last.until_us is None:
            return False
        leases[name] = last._replace(until_us=until_us)
        return True


def _remove(kept: _Kept, workflows: set[str], *, history_only: bool) -> None:
    for workflow in workflows:
        kept.history.pop(workflow, None)
        if not history_only:
            del kept.rows[workflow], kept.numbers[workflow]
    kept.keys = {place: each for place, each in kept.keys.items() if place[0] not in workflows}
    if not history_only:
        kept.effects = {name: each for name, each in kept.effects.items() if each.workflow not in workflows}
        kept.letters = {name: each for name, each in kept.letters.items() if each.workflow not in workflows}
        kept.children = {name: each for name, each in kept.children.items() if each.parent not in workflows}


def _lost(kept: _Kept, change: Change) -> bool:
    before = kept.rows.get(change.row.id)
    if (0 if before is None else before.revision) != change.expected:
        return True
    return any(each.key is not None and (change.row.id, each.key) in kept.keys for each in change.history)


def _refuse_contradiction(kept: _Kept, change: Change) -> None:
    """Nothing of a group may happen when one of its changes has a version or key of history twice."""
    versions = {each.version for each in change.history}
    keys = [each.key for each in change.history if each.key is not None]
    known = kept.history.get(change.row.id, {})
    if len(versions) < len(change.history) or len(set(keys)) < len(keys) or any(each in known for each in versions):
        raise InternalError(
            f"a change of workflow {change.row.id!r} contradicts its history.",
            why="A version or a delivery key stands in history once; what was decided upon was something else.",
        )


def _apply(kept: _Kept, change: Change) -> None:
    row = change.row
    kept.rows[row.id] = row
    if row.id not in kept.numbers:
        kept.started += 1
        kept.numbers[row.id] = kept.started
    kept.history.setdefault(row.id, {}).update({each.version: each for each in change.history})
    kept.keys.update({(row.id, each.key): each for each in change.history if each.key is not None})
    kept.effects.update({effect.id: effect for effect in change.effects})
    for again, known in change.effects_again:
        if again.id in kept.effects and kept.effects[again.id].attempts == known:
            kept.effects[again.id] = again
    for dead in change.effects_dead:
        if dead.id in kept.effects and kept.effects[dead.id].attempts == dead.attempts:
            del kept.effects[dead.id]
    kept.letters.update({letter.id: letter for letter in change.letters})
    for done in change.effects_done:
        kept.effects.pop(done, None)
    for letter_id in change.letters_gone:
        kept.letters.pop(letter_id, None)
    for child in change.children:
        if child.id not in kept.children or kept.children[child.id].stage <= child.stage:
            kept.children[child.id] = child
