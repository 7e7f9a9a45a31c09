"""Workers that are broken on purpose, each in one way. The campaign must catch each."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from interlock.engine.path.engine_commands import Returned
from interlock.engine.path.staged_group import Group
from interlock.store.postgres.store import PostgresStore
from interlock.store.protocol import Holder, Stored
from interlock.store.records import Change, Row


def acknowledge_before_commit() -> None:
    """Everybody is told before the group is written."""
    commit = PostgresStore.commit_as
    under_way: set[asyncio.Task[list[str]]] = set()

    async def early(self: PostgresStore, changes: Sequence[Change], holder: Holder) -> list[str]:
        task = asyncio.ensure_future(commit(self, changes, holder))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        return []

    PostgresStore.commit_as = early  # type: ignore[method-assign]


def result_of_any_visit() -> None:
    """A result is applied to whatever step runs now, also when it is of a lease that was lost."""

    def decide(self: Returned, group: Group) -> object:
        staged = group.stage(self.workflow)
        return None if staged is None or staged.live.owed.run is None else self.apply(staged, group)

    Returned.decide = decide  # type: ignore[method-assign, assignment]


def leases_without_end() -> None:
    """What a dead worker has left is left for ever."""
    commit, claim = PostgresStore.commit_as, PostgresStore.claim

    async def committed(self: PostgresStore, changes: Sequence[Change], holder: Holder) -> list[str]:
        return await commit(self, changes, holder._replace(lease_s=3_600))

    async def claimed(
        self: PostgresStore,
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
        return await claim(self, machine, owner=owner, limit=limit, lease_s=3_600)

    PostgresStore.commit_as = committed  # type: ignore[method-assign]
    PostgresStore.claim = claimed  # type: ignore[method-assign]


SABOTAGE: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (acknowledge_before_commit, result_of_any_visit, leases_without_end)
}
