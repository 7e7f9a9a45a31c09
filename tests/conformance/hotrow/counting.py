"""What the suite of counters shares: counters as one process has them, rolled up only when a test says so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from interlock.clock import Chance, Clock
from interlock.hotrow.counters import Counter, Counters, Form, Kind
from interlock.sql.stored_values import Executor

FORMS: tuple[Form, ...] = ("exact", "sharded", "event_log")
KINDS: tuple[Kind, ...] = (*FORMS, "auto")

NEVER_S = 3_600.0
"""A cadence that no test waits for: these roll up when they say so."""

of_every_kind = pytest.mark.parametrize("kind", KINDS)


@asynccontextmanager
async def counters(
    db: Executor,
    *,
    shard_count: int = 4,
    clock: Clock | None = None,
    chance: Chance | None = None,
) -> AsyncIterator[Counters]:
    """The counters of a database, as one process has them."""
    opened = Counters(db, shard_count=shard_count, clock=clock, chance=chance, roll_up_every_s=NEVER_S)
    try:
        yield opened
    finally:
        await opened.close()


def chosen(counter: Counter, form: Form) -> None:
    """Let an auto counter have chosen this form."""
    counter._known.automatic.form = form


async def entries(db: Executor) -> int:
    [(count,)] = await db.query("SELECT count(*) FROM hotrow_counter_event")
    return cast("int", count)
