"""Parents: rows that their children touch without waiting for each other (D15).

    thread = db.parent("thread:17")
    await thread.touch("reply-5012")                  # one appended row; the same reply again counts once
    state = await thread.state()                      # Touched(touches, last_touched_at), every touch included

A child appends an event instead of updating its parent. A roll-up folds events into the snapshot row in one
transaction, and exactly those that it deletes: on PostgreSQL rows do not appear in the order of their ids, so
"all up to this id" could include one that was not there before. Reading is snapshot plus tail in one statement, so no
roll-up happens in between.

The odd choice: one touch in some hundreds, chosen at random, also rolls up. So the tail stays short without shared
state about the last roll-up.
"""

import contextlib
from datetime import datetime
from typing import NamedTuple

from interlock.clock import Chance, SystemChance
from interlock.errors import InterlockError
from interlock.hotrow.tables import checked_amount, checked_name, key_of, ready
from interlock.sql.stored_values import Executor, Statements

ROLLED_UP_MAX = 1_000
"""G6: events that one roll-up folds."""

TOUCHES_PER_ROLL_UP = 250
"""Average number of touches per roll-up, which folds up to four times as many."""

TOUCH = "INSERT INTO hotrow_parent_event (name, touches, touched_at) VALUES ($1, $2, now())"
STATE = (
    "SELECT (SELECT touches FROM hotrow_parent WHERE name = $1) AS folded, "
    "(SELECT last_touched_at FROM hotrow_parent WHERE name = $1) AS folded_at, "
    "(SELECT sum(touches) FROM hotrow_parent_event WHERE name = $1) AS tail, "
    "(SELECT max(touched_at) FROM hotrow_parent_event WHERE name = $1) AS tail_at"
)
FIRST_EVENTS = "SELECT id FROM hotrow_parent_event WHERE name = $1 ORDER BY id LIMIT $2"
REMOVE = "DELETE FROM hotrow_parent_event WHERE name = $1 AND id <= $2 RETURNING touches, touched_at"
SNAPSHOT = "SELECT touches, last_touched_at FROM hotrow_parent WHERE name = $1"
FOLD = "UPDATE hotrow_parent SET touches = $2, last_touched_at = $3 WHERE name = $1"
FIRST_FOLD = "INSERT INTO hotrow_parent (name, touches, last_touched_at) VALUES ($1, $2, $3)"


class Touched(NamedTuple):
    """The number of touches of a parent, and the time of the last one."""

    touches: int
    last_touched_at: datetime | None


class Parent:
    """One parent in a database. Without touches its count is 0."""

    def __init__(self, db: Executor, name: str, *, chance: Chance | None = None) -> None:
        self.name = checked_name("parent", name)
        """The primary key of its row."""
        self._db = db
        self._chance = chance or SystemChance()

    async def touch(self, child_key: str | None = None, n: int = 1) -> None:
        """Record `n` touches by a child. With a key they count once, however often the call is repeated."""
        checked_amount("parent.touch", n)
        await ready(self._db, "hotrow_parent_event")
        await self._db.execute(TOUCH, self.name, n, key=key_of("parent", self.name, child_key))
        if self._chance.fraction() * TOUCHES_PER_ROLL_UP < 1:
            # The touch has happened. A roll-up that fails has changed nothing, and the next one does its work.
            with contextlib.suppress(InterlockError):
                await self.roll_up()

    async def state(self) -> Touched:
        """Return the number of acknowledged touches, and the time of the last one by the database's clock."""
        await ready(self._db, "hotrow_parent", "hotrow_parent_event")
        [(folded, folded_at, tail, tail_at)] = await self._db.query(STATE, self.name)
        count = int(str(folded or 0)) + int(str(tail or 0))
        return Touched(count, _later(folded_at, tail_at))

    async def roll_up(self) -> int:
        """Fold up to `ROLLED_UP_MAX` of the oldest events into the snapshot; return their number."""
        await ready(self._db, "hotrow_parent", "hotrow_parent_event")
        return await self._db.transact(_roll_up, self.name, ROLLED_UP_MAX)


async def _roll_up(tx: Statements, name: str, most: int) -> int:
    first = await tx.query(FIRST_EVENTS, name, most)
    if not first:
        return 0
    # Fold the rows that the DELETE returns, never those that were read before it.
    removed = await tx.query(REMOVE, name, first[-1][0])
    touches, latest = 0, None
    for count, touched_at in removed:
        assert isinstance(count, int)
        touches, latest = touches + count, _later(latest, touched_at)
    snapshot = await tx.query(SNAPSHOT, name)
    if not snapshot:
        await tx.execute(FIRST_FOLD, name, touches, latest)
        return len(removed)
    before, before_at = snapshot[0]
    assert isinstance(before, int)
    await tx.execute(FOLD, name, before + touches, _later(before_at, latest))
    return len(removed)


def _later(one: object, other: object) -> datetime | None:
    times = [time for time in (one, other) if isinstance(time, datetime)]
    return max(times, default=None)
