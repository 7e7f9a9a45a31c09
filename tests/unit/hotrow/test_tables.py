"""Tables are looked for, made once, and made although somebody else makes them at the same time."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from interlock.errors import ConstraintViolation, TransactionError
from interlock.hotrow import tables
from interlock.hotrow.tables import ATTEMPTS_MAX, TABLES, ready
from interlock.sql.stored_values import EngineName, Executor, Row

ResultT = TypeVar("ResultT")


class Racing:
    """A database in which others make the same tables: each attempt of ours fails, until theirs is there."""

    url = "postgresql://racing"
    engine: EngineName = "postgres"

    def __init__(self, failures: int, *, theirs_appears: bool = True) -> None:
        self.failures = failures
        self.theirs_appears = theirs_appears
        self.there = False
        self.looked = self.made = 0

    async def query(self, sql: str, /, *args: object, key: str | None = None) -> list[Row]:
        self.looked += 1
        if not self.there:
            raise TransactionError("there is no such table.")
        return []

    async def execute(self, sql: str, /, *args: object, key: str | None = None) -> int:
        self.made += 1
        if self.failures:
            self.failures -= 1
            self.there = self.theirs_appears and not self.failures
            raise ConstraintViolation("pg_type_typname_nsp_index")
        self.there = True
        return 0

    async def transact(
        self, function: Callable[..., Awaitable[ResultT]], /, *args: object, key: str | None = None
    ) -> ResultT:
        return await function(self, *args)

    async def shard(self, number: int) -> Executor:
        raise NotImplementedError


def test_a_table_is_looked_for_once_and_then_known() -> None:
    db = Racing(0)
    db.there = True

    async def scenario() -> None:
        await asyncio.gather(*(ready(db, "hotrow_stock") for _ in range(10)))
        assert (db.looked, db.made) == (1, 0)

    asyncio.run(scenario())


def test_a_burst_makes_a_table_once_and_each_table_is_made_by_itself() -> None:
    db = Racing(0)

    async def scenario() -> None:
        await asyncio.gather(*(ready(db, "hotrow_balance") for _ in range(50)))
        await ready(db, "hotrow_balance")
        assert (db.looked, db.made) == (1, 1)
        db.there = False
        await ready(db, "hotrow_counter_shard")
        assert (db.looked, db.made) == (2, 2)

    asyncio.run(scenario())


def test_a_winner_who_did_not_commit_is_followed_by_another_attempt() -> None:
    db = Racing(2, theirs_appears=False)
    asyncio.run(ready(db, "hotrow_balance"))
    assert (db.looked, db.made) == (3, 3)


def test_who_loses_the_race_to_make_a_table_finds_it() -> None:
    db = Racing(2)
    asyncio.run(ready(db, "hotrow_balance"))
    assert (db.looked, db.made) == (3, 2)


def test_a_table_that_cannot_be_made_is_told_and_tried_again_by_the_next_call() -> None:
    db = Racing(ATTEMPTS_MAX, theirs_appears=False)

    async def scenario() -> None:
        with pytest.raises(ConstraintViolation):
            await ready(db, "hotrow_balance")
        assert db.made == ATTEMPTS_MAX
        await ready(db, "hotrow_balance")

    asyncio.run(scenario())
    assert db.made == ATTEMPTS_MAX + 1


def test_a_database_that_is_gone_is_forgotten() -> None:
    """G6: what is known of databases does not outlive them."""
    db = Racing(0)
    asyncio.run(ready(db, *TABLES))
    known = len(tables._known)
    del db
    gc.collect()
    assert len(tables._known) < known
