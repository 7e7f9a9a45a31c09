"""The writing of one group, mostly by one statement.

It takes more than one when the group is very large, and when it is blocked by somebody who has started one of its
workflows in a transaction that is still open. Then the group is halved until the one who is blocked is alone; that
change is lost like any other, and everybody else goes on. Each statement is a transaction of its own, so from the
second one on a failure no longer means that nothing happened, and is told as an unknown outcome (G9).
"""

from collections.abc import Sequence
from typing import NamedTuple

from interlock.errors import ConstraintViolation, InterlockError, InternalError, OutcomeUnknown
from interlock.sql.postgres.failures import Blocked
from interlock.sql.postgres.pool import Pool
from interlock.store.postgres import columns
from interlock.store.postgres.databasetime import DatabaseTime
from interlock.store.postgres.statement import group_statement
from interlock.store.values import Change

GROUP_MAX = 10_000
"""Changes in one statement; a larger group is several, for a statement is held in memory as a whole."""


class Holding(NamedTuple):
    """What of a group is held by whoever commits it."""

    names: frozenset[str]
    """Ids of workflows and of effects."""
    owner: str
    lease_s: float


class Writing:
    """One group on its way."""

    def __init__(self, pool: Pool, time: DatabaseTime, holding: Holding) -> None:
        self.lost: set[str] = set()
        self.leases: dict[str, int] = {}
        self._pool = pool
        self._time = time
        self._holding = holding
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
        holding = self._holding
        parts = columns.parts_of(changes)._replace(held=bool(holding.names))
        values: list[object] = [*columns.arrays_of(changes, parts, holding.names)]
        if parts.held:
            values += [holding.owner, holding.lease_s]
        try:
            [row] = await self._pool.write(group_statement(self._pool.address.schema, parts), values)
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
        if parts.held:
            self.leases.update(zip(row[2], row[3], strict=True))

    async def _halves(self, changes: Sequence[Change]) -> None:
        if len(changes) == 1:
            self.lost.add(changes[0].row.id)
            return
        middle = len(changes) // 2
        await self._part(changes[:middle])
        await self._part(changes[middle:])
