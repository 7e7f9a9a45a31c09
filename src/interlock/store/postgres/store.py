"""A store in PostgreSQL, shared with any number of processes.

A change is lost when another writer has changed its workflow meanwhile, and also when another transaction has locked
its row: the statement never waits for a row. The engine loads it and decides again.

Reads go to the database each time: nothing is answered from memory (`shared`). Times of leases and claims are the
database's own; `now_us` follows its clock. A lost connection is opened again by itself: a read is repeated, a write
that never left is UnavailableError, and one that may have arrived is OutcomeUnknown, which `settle` resolves.
"""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from interlock.errors import InterlockError, MovedElsewhere, TransactionError, UnavailableError
from interlock.seams import Clock
from interlock.sql.postgres.failures import closed
from interlock.sql.postgres.link import Record
from interlock.sql.postgres.pool import Pool
from interlock.store import cursors
from interlock.store.postgres import columns
from interlock.store.postgres.claims import Claims
from interlock.store.postgres.databasetime import DatabaseTime
from interlock.store.postgres.hints import LEFT, Hints
from interlock.store.postgres.locks import PostgresLeases
from interlock.store.postgres.marks import is_missing, marks_of, refuse_marked
from interlock.store.postgres.pruning import PostgresPruning
from interlock.store.postgres.queries import Queries
from interlock.store.postgres.settling import Settling
from interlock.store.postgres.transactions import PostgresTransactions
from interlock.store.postgres.turns import Turns
from interlock.store.postgres.writing import NO_HOLDER, Writing
from interlock.store.shared import Due, Holder, Stored
from interlock.store.values import Change, Delivered, Found, Happened, Letter, OwedEffect, Row, refuse_twice

ResultT = TypeVar("ResultT")

BEFORE_ALL_US = -(2**52)
"""A time before all others that PostgreSQL can hold: the year 1827."""


class PostgresStore:
    """A store on PostgreSQL. Made by `opening.open_postgres`."""

    shared = True

    def __init__(self, pool: Pool, clock: Clock, lease_s: float = 10.0) -> None:
        self.lease_s = lease_s
        self._pool = pool
        self._schema = pool.address.schema
        self._queries = Queries(self._schema)
        self._time = DatabaseTime(clock)
        self._turns = Turns()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._claims = Claims(pool, self._time)
        self._hints = Hints(pool)
        self._settling = Settling(pool)
        self.leases = PostgresLeases(self._schema, self._safely)
        self.pruning = PostgresPruning(self._schema, self._safely)

    async def begin(self) -> None:
        """Read the database's time."""
        [(server_us,)] = await self._pool.read(self._queries.time)
        self._time.heard(int(server_us))

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Commit the whole group in one statement."""
        return await self.commit_as(changes, NO_HOLDER)

    async def commit_as(self, changes: Sequence[Change], holder: Holder) -> list[str]:
        """Commit the group, and lease the workflows that it holds to the holder (see `leasing`)."""
        self._refuse_closed()
        refuse_twice(changes)
        return await self._finished(self._commit(list(changes), holder)) if changes else []

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these workflows."""
        rows = await self._read(self._queries.load, list(ids))
        return {row.id: row for row in map(columns.row_of, rows)}

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """Return the recorded uses of these delivery keys."""
        workflows, names = [workflow for workflow, _ in keys], [key for _, key in keys]
        rows = await self._read(self._queries.delivered, workflows, names)
        return {(row[0], row[1]): columns.delivered_of(row[2], row[3], row[4]) for row in rows}

    async def settle(self, changes: Sequence[Change], envelope: str) -> set[str]:
        """Return which changes of a group with an unknown outcome were committed (see `settling`)."""
        self._refuse_closed()
        try:
            return await self._finished(self._settling.settle(changes, envelope))
        except MovedElsewhere as moved:
            return await self._settled_aside(changes, envelope, moved)

    async def _settled_aside(self, changes: Sequence[Change], envelope: str, moved: MovedElsewhere) -> set[str]:
        """Settle a group after a move, from the tables that were put aside and never change again.

        Raises MovedElsewhere when those are not available.
        """
        try:
            return await self._settling.look_aside(changes, envelope, moved.epoch)
        except TransactionError:
            raise moved from None

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[Happened]:
        """Return the history after a version."""
        return [columns.happened_of(row) for row in await self._read(self._queries.history, workflow, after, limit)]

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> Found:
        """Return the workflows of a machine in the order of creation, or of one state in the order of entry."""
        begin = cursors.parsed(after) or cursors.Cursor(BEFORE_ALL_US, 0)
        if state is None:
            found = await self._read(self._queries.find, machine, begin.number, limit + 1)
        else:
            found = await self._read(self._queries.find_in_state, machine, state, *begin, limit + 1)
        page = found[:limit]
        end = None
        if len(found) > limit:
            end = str(cursors.Cursor(page[-1][columns.ENTERED_AT], page[-1][columns.ROW_WIDTH]))
        return Found(tuple(map(columns.row_of, page)), end)

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """Return the active workflows that have been in their state for too long."""
        rows = await self._read(self._queries.stalled, machine, list(before_us), list(before_us.values()), limit)
        return [columns.row_of(row) for row in rows]

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """Return the owed effects, soonest first."""
        begin = (BEFORE_ALL_US, "") if after is None else (after.wake_us, after.id)
        return [columns.effect_of(row) for row in await self._read(self._queries.effects, *begin, limit)]

    async def letters(
        self, kind: str | None = None, *, after: Letter | None = None, limit: int = 1_000
    ) -> list[Letter]:
        """Return the dead letters, oldest first."""
        begin = (BEFORE_ALL_US, "") if after is None else (after.since_us, after.id)
        return [columns.letter_of(row) for row in await self._read(self._queries.letters, *begin, kind, limit)]

    async def living(self) -> dict[tuple[str, int, str], int]:
        """Count the workflows by machine, version and state."""
        return {(row[0], row[1], row[2]): row[3] for row in await self._read(self._queries.living)}

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name."""
        self._refuse_closed()
        await self._finished(self._note(name, text))

    async def noted(self) -> dict[str, str]:
        """Return all notes by name."""
        return {row[0]: row[1] for row in await self._read(self._queries.noted)}

    async def due(self, machines: Sequence[str]) -> Due:
        """Return when there is work to claim (see `claims`)."""
        self._refuse_closed()
        return await self._explained(self._claims.due(machines))

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
        """Claim due workflows without a lease (see `claims`)."""
        self._refuse_closed()
        claim = self._claims.claim(
            machine,
            owner=owner,
            limit=limit,
            lease_s=lease_s,
            timers=timers,
            states=states,
            ids=ids,
            refused=refused,
        )
        return await self._finished(claim)

    async def claim_effects(
        self, machines: Sequence[str], *, owner: str, limit: int, lease_s: float, refused: Collection[Stored] = ()
    ) -> list[OwedEffect]:
        """Claim due effects without a lease (see `claims`)."""
        self._refuse_closed()
        claim = self._claims.claim_effects(machines, owner=owner, limit=limit, lease_s=lease_s, refused=refused)
        return await self._finished(claim)

    async def renew(self, leases: Mapping[str, int], *, owner: str, lease_s: float) -> set[str]:
        """Renew the leases of workflows, by token; return those that were lost."""
        self._refuse_closed()
        return await self._finished(self._claims.renew(leases, owner=owner, lease_s=lease_s))

    async def renew_effects(self, effects: Collection[str], *, owner: str, lease_s: float) -> None:
        """Renew the leases of running effects."""
        self._refuse_closed()
        await self._finished(self._claims.renew_effects(effects, owner=owner, lease_s=lease_s))

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        """Release the leases of workflows; return those that were lost before."""
        self._refuse_closed()
        return await self._finished(self._claims.release(leases, owner=owner))

    async def release_effects(self, effects: Collection[str], *, owner: str) -> None:
        """Release effects that this owner claimed and did not begin."""
        self._refuse_closed()
        await self._finished(self._claims.release_effects(effects, owner=owner))

    async def hint(self, *, left: bool = False) -> None:
        """Notify listening engines of due work, or that a workflow left its state."""
        self._refuse_closed()
        await self._finished(self._hints.say(LEFT if left else ""))

    async def hinted(self) -> bool:
        """Wait for a hint; return whether one had `left`."""
        return await self._hints.heard()

    def now_us(self) -> int:
        """Return the database's time, which never goes back."""
        return self._time.now_us()

    async def close(self) -> None:
        """Finish running calls and close the connections."""
        self._closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)
        await self._hints.close()
        await self._pool.close()

    async def _commit(self, changes: list[Change], holder: Holder) -> list[str]:
        writing = Writing(self._pool, self._time, holder)
        async with self._turns.turn([change.row.id for change in changes]):
            try:
                await writing.write(changes)
            except TransactionError as error:
                raise _unusable(error) from error
        return [change.row.id for change in changes if change.row.id in writing.lost]

    async def _safely(self, sql: str, values: Sequence[object]) -> list[Record]:
        self._refuse_closed()
        return await self._finished(self._written(sql, values))

    async def _note(self, name: str, text: str) -> None:
        async with self._turns.turn([f"/{name}"]):  # In the order given; the id of a workflow has no slash.
            await self._written(self._queries.note, (name, text))

    async def _written(self, sql: str, values: Sequence[object]) -> list[Record]:
        try:
            return await self._pool.write(sql, values)
        except TransactionError as error:
            raise _unusable(error) from error

    async def _read(self, sql: str, *values: object) -> list[Record]:
        self._refuse_closed()
        return await self._explained(self._query(sql, values))

    async def _query(self, sql: str, values: Sequence[object]) -> list[Record]:
        try:
            if self._time.stale:
                await self.begin()
            return await self._pool.read(sql, *values)
        except TransactionError as error:
            raise _unusable(error) from error

    async def _explained(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run work; where the tables are missing, raise the error of workflows that have left or are arriving."""
        try:
            return await work
        except InterlockError as error:
            if is_missing(error):
                refuse_marked(await marks_of(self._pool.read, self._schema), self._pool.address.shown)
            raise

    async def _finished(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Finish the work even if the caller is cancelled, so that later calls keep their order."""
        task = asyncio.ensure_future(self._explained(work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise closed()

    def transactions(self) -> PostgresTransactions:
        """Return the statements for a transaction of the caller (B11)."""
        return PostgresTransactions(self._schema)


def _unusable(error: TransactionError) -> UnavailableError:
    return UnavailableError(
        f"the store could not do it: {error.what}",
        why="The schema is not what it was, or this user may not use it. Nothing was changed.",
        fix="Look at the tables and the rights of the user; `interlock migrate` says what is missing.",
    )
