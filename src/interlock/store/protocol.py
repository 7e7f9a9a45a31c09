"""The contract of a store: its protocols, in prose and types. `memory` is the executable form of it.

A store never decides. It gets groups of changes that the engine has decided, and makes each change durable wholly or
not at all (G3), in their order. A change names the revision it was decided upon. If the workflow has another one, or a
delivery key of the change was used before, the change is *lost*: nothing of it is written, `commit` returns its id, and
the other changes of the group are not affected (G1). A change that `commit` has returned survives any crash (G2). When
the outcome is unknown it raises OutcomeUnknown (G9), and the caller reads before it decides again. An invalid group
raises InternalError and changes nothing: two changes of one workflow, or a version or key twice in one history.

Reads return only durable data (G7), and everything that `commit` has returned. `shared` means that other processes
write to the same store: then nothing may be answered from memory. Long results come in pages: `after` is the last item
of the page before, and changes between two pages neither hide other items nor repeat them.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from interlock.core.search import MachineSearch, Search
from interlock.store.chart_store import ChartStore
from interlock.store.records import (
    Change,
    ChildRecord,
    Cursor,
    Delivered,
    HistoryRecord,
    Letter,
    OwedEffect,
    Row,
    RowsPage,
)

# --- Leases: one holder of a name at a time, across processes (C10) --------------------------------------------------
# A lease ends when it is released or expires, only by the clock of its keeper (C11): the database's on PostgreSQL,
# the store's own where one process has the store. Each grant of a name has a higher token than all before, also
# after a release or restart. A resource refuses tokens lower than the highest it got, so a late former holder does
# no harm (G4).
#
# Each call is one atomic step without state between calls, so that it works through any pooler. Waiting, renewing
# and giving up are the same for every keeper; `interlock.engine.leases` has them.


class Granted(msgspec.Struct, frozen=True):
    """The lease was granted."""

    token: int
    """Fencing token: each grant of the name has a higher one."""


class Held(msgspec.Struct, frozen=True):
    """Another owner has the lease."""

    owner: str
    since_us: int
    """When it was granted, by the keeper's clock."""
    now_us: int
    """The keeper's time of this answer."""


class Leases(Protocol):
    """A keeper of leases."""

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner for `lease_s`, unless another owner has it.

        An owner that has it already gets the same token again, with the whole time, so that a call with an unknown
        outcome can be repeated. Tasks that must exclude each other need different owner names.
        """
        ...

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Extend the lease to `lease_s` from now. Return False when it was released or granted again since this token.

        An expired lease is extended if no other owner has acquired it meanwhile.
        """
        ...

    async def release(self, name: str, token: int) -> bool:
        """Release the lease. Return False when it was released or granted again since this token. The token is kept."""
        ...


class LeaseRow(NamedTuple):
    """The last lease of a name, as a store without a server keeps it."""

    owner: str
    token: int
    since_us: int
    until_us: int | None
    """None: it was released."""


def next_lease(last: LeaseRow | None, owner: str, now_us: int, until_us: int) -> LeaseRow | Held:
    """Return the lease that the owner gets, or who has it: the rule of `acquire` where the store's own time counts."""
    if last is None:
        return LeaseRow(owner, 1, now_us, until_us)
    if last.until_us is not None and last.until_us > now_us and last.owner != owner:
        return Held(last.owner, last.since_us, now_us)
    if last.owner == owner and last.until_us is not None:
        return last._replace(until_us=until_us)
    return LeaseRow(owner, last.token + 1, now_us, until_us)


# --- Pruning ---------------------------------------------------------------------------------------------------------
# A store does not know which states are final; the caller names one machine and state at a time. A batch reads
# `limit` workflows after the end of the last batch, the longest in the state first. It never removes one that is
# active or has a wake time, and without `owing` none with an owed effect or a dead letter. A parent stays until it has
# counted its children, also with `owing`: the end of a child is a record of its parent. A child stays while its parent
# is in the visit that started it: the join gets its context, and a start that is repeated must find it. On a shared
# store it skips locked rows, so that neither side waits for the other.


class Old(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of workflows to remove, or whose history to remove."""

    machine: str
    state: str
    before_us: int
    """Only workflows that entered the state before this time."""
    history_only: bool = False
    """The workflow stays, with the digest by which a repeated start is known (B4); its history goes."""
    owing: bool = False
    """Also workflows with an owed effect or a dead letter, which are then removed too."""


class Batch(msgspec.Struct, frozen=True):
    """The result of one batch: what it removed, or with `dry_run` would have."""

    workflows: tuple[str, ...]
    events: int
    after: Cursor | None
    """Where the next batch begins; None: this was the last one."""


# --- Store -----------------------------------------------------------------------------------------------------------


class Store(Protocol):
    """A place for workflows. Used from one event loop.

    Texts have neither NUL nor lone surrogates: the layer above refuses them. A store that gets one nevertheless keeps
    it exactly, or raises InvalidPayload and changes nothing.
    """

    shared: bool

    @property
    def leases(self) -> Leases:
        """The leases of this store (C10)."""
        ...

    @property
    def charts(self) -> ChartStore:
        """The charts of this store (F7)."""
        ...

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these workflows; missing ones are left out."""
        ...

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Make the changes durable, at most one per workflow; return the ids of those that were lost.

        Effects and letters are inserted before completed ones are deleted. Raises OutcomeUnknown when the result cannot
        be known, UnavailableError when nothing was written.
        """
        ...

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """Return the recorded uses of these delivery keys, as (workflow, key); unused ones are left out."""
        ...

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[HistoryRecord]:
        """Return the history after a version, in the order of versions (B3)."""
        ...

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> RowsPage:
        """Return the workflows of a machine in the order of creation; those of one state in the order of entry.

        `after` is the cursor of the page before. Raises InvalidPayload for one that no page has given.
        """
        ...

    async def declare_search(self, searches: Sequence[MachineSearch]) -> bool:
        """Begin to keep the indexes that these machines declare, and drop those that they no longer do.

        Takes a moment, whatever is stored. Returns whether `fill_search` has the rest to do.
        """
        ...

    async def fill_search(self) -> bool:
        """Do one bounded part of what the declared indexes lack; return False when nothing is left. Blocks no writer.

        Repeat it until it returns False; where another process does it, with a pause.
        """
        ...

    async def search(self, search: Search) -> RowsPage:
        """Return the workflows that match, in the order of the search; ties in the order of creation.

        A page may be short although its cursor is set: it looks at a bounded number of workflows. Raises InvalidPayload
        for a cursor of another search, and UnavailableError while an index that it needs is not complete.
        """
        ...

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """Return the active workflows that entered their state before its time in `before_us`, longest first (B7)."""
        ...

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """Return the owed effects, soonest first; `after` is the last one of the page before."""
        ...

    async def letters(
        self,
        kind: str | None = None,
        *,
        workflow: str | None = None,
        after: Letter | None = None,
        limit: int = 1_000,
    ) -> list[Letter]:
        """Return the dead letters, of all or of one workflow, oldest first; `after` is the last of the page before."""
        ...

    async def children(
        self,
        parent: str,
        *,
        visit: int | None = None,
        after: ChildRecord | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> list[ChildRecord]:
        """Return the children of a workflow, or those of one visit, by visit, position and id.

        `after` is the last one of the page before.
        """
        ...

    async def ended_children(self, parent: str, *, limit: int) -> list[ChildRecord]:
        """Return children that have ended and that their parent has not counted, by visit and position."""
        ...

    async def parents_to_count(self, *, after: str = "", limit: int) -> list[str]:
        """Return the ids of workflows with such children, in their order, after an id."""
        ...

    async def living(self) -> dict[tuple[str, int, str], int]:
        """Count all workflows by machine, version of the machine, and state. Reads all of them."""
        ...

    async def note(self, name: str, text: str) -> None:
        """Store a short text under a name, durably: state of the engine itself."""
        ...

    async def notes(self) -> dict[str, str]:
        """Return all notes by name."""
        ...

    async def prune(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """Read the next `limit` workflows and remove those that match, in one short transaction.

        With `dry_run` only count them.
        """
        ...

    def now_us(self) -> int:
        """Return the store's time in microseconds; it never goes back before a commit, also after a restart (G8)."""
        ...

    async def close(self) -> None:
        """Finish running calls and close the store; later calls raise UnavailableError."""
        ...


# --- Transactions of the caller --------------------------------------------------------------------------------------
# The store never sees the connection. Its generators yield a statement with its values and are sent the rows; the
# caller, which has the connection, runs them. So it is the same for every driver, with and without an event loop.

ResultT = TypeVar("ResultT")

Question = tuple[str, Sequence[object]]
StatementGenerator = Generator[Question, Sequence[Sequence[Any]], ResultT]


class LockedWorkflow(NamedTuple):
    """A workflow as the transaction sees it."""

    now_us: int
    """The database's time."""
    row: Row | None


class Transactions(Protocol):
    """Statements inside the caller's transaction. None of them commits or rolls back."""

    def load(self, workflow: str, *, lock: bool) -> StatementGenerator[LockedWorkflow]:
        """Load the workflow; with `lock` its row is locked until the transaction ends."""
        ...

    def delivered(self, workflow: str, key: str) -> StatementGenerator[Delivered | None]:
        """Load the recorded use of the key. Run it while the workflow is locked, so that the key stays unused."""
        ...

    def notes(self) -> StatementGenerator[dict[str, str]]:
        """Load the notes of the store, by name."""
        ...

    def write(self, change: Change, *, hint: bool) -> StatementGenerator[bool]:
        """Write the change; return False when another writer was faster, and nothing was written.

        With `hint` workers are notified of due work when the transaction commits.
        """
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store whose tables a transaction of the caller can reach."""

    def transactions(self) -> Transactions:
        """Return the statements for the caller's transaction."""
        ...


# --- Shared store ----------------------------------------------------------------------------------------------------
# An engine that works on a workflow has a lease on its row, with a token that only ever grows. A lease is taken in
# the commit that begins an attempt, or by a claim of a due workflow without a lease. A claim changes the row's
# revision, so that every earlier decision about the row is lost (G4). All times are the store's own (C11).


class Holder(NamedTuple):
    """The engine that commits a group."""

    owner: str
    """Random per start: no two lives of a process have the same."""
    lease_s: float
    envelope: str
    """A UUID that every row of history of the group carries: by it an unknown outcome is resolved (G9)."""
    urgent: bool = False
    """The group undoes something: it may have the connections that are kept for that (C16)."""


class DueWork(NamedTuple):
    """The times of the next due work, by the store's own clock; None: no work."""

    now_us: int
    machines: dict[str, int]
    """By machine: the first due workflow without a lease."""
    effects_us: int | None


class Stored(NamedTuple):
    """Workflows of a machine that one of its versions has stored in one state. What is empty or None matches all."""

    machine: str
    version: int | None
    state: str
    workflow: str = ""

    def matches(self, row: Row) -> bool:
        """Whether the row is one of them."""
        return (
            self.machine in {"", row.machine}
            and self.version in {None, row.machine_version}
            and self.state in {"", row.state}
            and self.workflow in {"", row.id}
        )


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store with `shared = True`."""

    lease_s: float
    """Seconds after which a lease that is not renewed may be taken over."""

    async def commit_as(self, changes: Sequence[Change], holder: Holder) -> list[str]:
        """Commit like `commit`; workflows that a change holds are leased to the holder in the same write."""
        ...

    async def settle(self, changes: Sequence[Change], envelope: str) -> set[str]:
        """Return which changes of a group with an unknown outcome were committed; the others never will be (G9).

        Only a start may still be committed later: it is recognised by its digest.
        """
        ...

    async def due(self, machines: Sequence[str]) -> DueWork:
        """Return when there is work to claim. Reads the heads of two indexes."""
        ...

    async def claim(
        self,
        machine: str,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        timers: bool = False,
        states: Sequence[str] = (),
        ids: Sequence[str] = (),
        refused: Collection[Stored] = (),
    ) -> list[Row]:
        """Claim up to `limit` workflows of a machine that are due (`wake_us`) and have no lease.

        With `timers` only those with a due timer, with `states` only those in one of them, also if others wait longer.
        With `ids` only those, even before they are due. Never one that is `refused`.

        Each is given to one claimer, with a token and a revision that are higher than before.
        """
        ...

    async def claim_effects(
        self, machines: Sequence[str], *, owner: str, limit: int, lease_s: float, refused: Collection[Stored] = ()
    ) -> list[OwedEffect]:
        """Claim up to `limit` due effects of these machines' workflows that have no lease.

        Effects of workflows that are `refused` are left to others.

        An effect that is done, or owed again, is free.
        """
        ...

    async def renew(self, leases: Mapping[str, int], *, owner: str, lease_s: float) -> set[str]:
        """Renew the leases of workflows, by token; return those that this owner has lost."""
        ...

    async def renew_effects(self, effects: Collection[str], *, owner: str, lease_s: float) -> None:
        """Renew the leases of running effects; those of other owners are not changed."""
        ...

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        """Release the leases of workflows; return those that this owner had lost before."""
        ...

    async def release_effects(self, effects: Collection[str], *, owner: str) -> None:
        """Release effects that this owner claimed and did not begin; those of other owners are not changed."""
        ...

    async def hint(self, *, left: bool = False) -> None:
        """Notify listening engines of due work. Only a hint: it may be lost, and polling finds everything.

        With `left`: that a workflow has left the state whose attempt is running.
        """
        ...

    async def hinted(self) -> bool:
        """Wait for a hint; return whether one had `left`. Never returns where hints cannot be received."""
        ...
