"""The tables of counters: made once, and whoever finds that another one was faster goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest

from interlock.errors import ConstraintViolation, TransactionError
from interlock.hotrow.counters.statements import ATTEMPTS_MAX, Tables
from interlock.sql.values import Executor, Row

ResultT = TypeVar("ResultT")


class Server:
    """Somewhere to make tables, with others who do so too."""

    def __init__(self, *, there: bool = False, lost_races: int = 0, made_by_winner: bool = True) -> None:
        self.there = there
        self.lost_races = lost_races
        self.made_by_winner = made_by_winner
        self.looks = self.attempts = 0

    async def query(self, sql: str, /, *_args: object) -> list[Row]:
        self.looks += 1
        if not self.there:
            raise TransactionError(f"there is no table for {sql}.")
        return []

    async def transact(self, function: Callable[..., Awaitable[ResultT]], /, *_args: object) -> ResultT:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.lost_races:
            self.lost_races -= 1
            self.there = self.made_by_winner
            raise ConstraintViolation("duplicate key value violates unique constraint pg_type_typname_nsp_index.")
        self.there = True
        return cast("ResultT", None)


def need(server: Server, tables: Tables, callers: int = 1) -> None:
    async def scenario() -> None:
        await asyncio.gather(*[tables.need(cast("Executor", server), "counter") for _ in range(callers)])

    asyncio.run(scenario())


def test_what_is_there_is_not_made() -> None:
    server = Server(there=True)
    need(server, Tables())
    assert (server.looks, server.attempts) == (1, 0)


def test_a_burst_makes_them_once_and_nobody_looks_again() -> None:
    server, tables = Server(), Tables()
    need(server, tables, callers=50)
    need(server, tables)
    assert (server.looks, server.attempts) == (1, 1)


def test_each_part_is_made_by_itself() -> None:
    server, tables = Server(), Tables()
    need(server, tables)
    asyncio.run(tables.need(cast("Executor", server), "shard"))
    assert server.looks == 2


def test_whoever_loses_the_race_goes_on_with_the_winners_tables() -> None:
    server = Server(lost_races=1)
    need(server, Tables())
    assert (server.looks, server.attempts) == (2, 1)


def test_a_winner_who_did_not_commit_is_followed_by_another_attempt() -> None:
    server = Server(lost_races=2, made_by_winner=False)
    need(server, Tables())
    assert server.attempts == 3


def test_what_will_never_work_is_said_after_a_few_attempts() -> None:
    server, tables = Server(lost_races=100, made_by_winner=False), Tables()
    with pytest.raises(ConstraintViolation):
        need(server, tables)
    assert server.attempts == ATTEMPTS_MAX
    server.lost_races = 0
    need(server, tables)
    assert server.there
