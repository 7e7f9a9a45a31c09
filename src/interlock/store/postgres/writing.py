"""The writing of one group, mostly by one statement.

It takes more than one when the group is very large, and when an open transaction that has started one of its workflows
blocks it. Then the group is halved until the blocked change is alone; that change is lost, and the others are written.
Each statement is a transaction of its own, so from the second one on a failure no longer means that nothing happened,
and raises OutcomeUnknown (G9).
"""

import uuid
from collections.abc import Sequence

from interlock.errors import ConstraintViolation, InterlockError, InternalError, OutcomeUnknown
from interlock.sql.postgres.failures import Blocked
from interlock.sql.postgres.pool import Pool
from interlock.store.postgres import columns
from interlock.store.postgres.databasetime import DatabaseTime
from interlock.store.postgres.statement import Parts, group_statement
from interlock.store.shared import Holder
from interlock.store.values import Change

GROUP_MAX = 10_000
"""Changes in one statement; a larger group is split, because a statement is kept in memory as a whole."""

NO_HOLDER = Holder("", 0.0, str(uuid.UUID(int=0)))
"""The holder of a group that is committed without an engine."""


def values_of(changes: Sequence[Change], parts: Parts, holder: Holder) -> list[object]:
    """The parameters of the group's statement."""
    return [*columns.arrays_of(changes, parts), holder.envelope, holder.owner, holder.lease_s]


class Writing:
    """One group on its way."""

    def __init__(self, pool: Pool, time: DatabaseTime, holder: Holder) -> None:
        self.lost: set[str] = set()
        self._pool = pool
        self._time = time
        self._holder = holder
        self._begun = False
        """Whether a part of it is durable."""

    async def write(self, changes: Sequence[Change]) -> None:
        """Make the changes durable that are not lost."""
        try:
            for begin in range(0, len(changes), GROUP_MAX):
                await self._part(changes[begin : begin + GROUP_MAX])
        except OutcomeUnknown:
            raise
        except InterlockError as error:
            if not self._begun:
                raise
            raise OutcomeUnknown(
                f"only a part of a group was written: {error.what}",
                why="The group took several statements, and a later one failed.",
            ) from error

    async def _part(self, changes: Sequence[Change]) -> None:
        holder = self._holder
        parts = columns.parts_of(changes)
        values = values_of(changes, parts, holder)
        statement = group_statement(self._pool.address.schema, parts)
        try:
            [row] = await self._pool.write(statement, values, reserve=holder.urgent)
        except Blocked:
            await self._halves(changes)
            return
        except ConstraintViolation as error:
            raise InternalError(
                f"a group of changes contradicts the history that is stored: {error.what}",
                why="A version or a delivery key stands in history once; what was decided upon was something else.",
            ) from error
        self._begun = True
        self._time.heard(row[0])
        self.lost.update(row[1])

    async def _halves(self, changes: Sequence[Change]) -> None:
        if len(changes) == 1:
            self.lost.add(changes[0].row.id)
            return
        middle = len(changes) // 2
        await self._part(changes[:middle])
        await self._part(changes[middle:])
