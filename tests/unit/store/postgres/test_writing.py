"""The writing of one group: halved when it is blocked, and honest when only a part of it was written (G9)."""

import asyncio
from collections.abc import Sequence

import pytest

from interlock.clock import SystemClock
from interlock.errors import InvalidPayload, OutcomeUnknown, UnavailableError
from interlock.postgres.pool import Pool, PostgresRow
from interlock.postgres.translate_errors import Blocked
from interlock.store.postgres import statement
from interlock.store.postgres.statement import GroupWriter
from interlock.store.protocol import Holder
from interlock.store.records import DatabaseTime
from interlock.urls import parse_postgres_url
from tests.conformance.store.samples import started

ALL = tuple("abcdefgh")


class Answers(Pool):
    """A server on which some workflows are being started by somebody else, and which fails after so many statements."""

    def __init__(self, blocked: str = "", fails_after: int = 99, failure: Exception | None = None) -> None:
        super().__init__(parse_postgres_url("postgresql://h/d"))
        self.written: list[str] = []
        self._blocked = blocked
        self._left = fails_after
        self._failure = failure or UnavailableError("away.")

    async def write(self, sql: str, values: Sequence[object], *, reserve: bool = False) -> list[PostgresRow]:
        ids = values[0]
        assert isinstance(ids, list)
        if any(each in self._blocked for each in ids):
            raise Blocked("somebody is starting it.")
        if self._left == 0:
            raise self._failure
        self._left -= 1
        self.written.append("".join(ids))
        return [(0, [])]


def written(pool: Answers) -> GroupWriter:
    group = GroupWriter(pool, DatabaseTime(SystemClock()), Holder("", 0.0, ""))
    asyncio.run(group.write([started(each) for each in ALL]))
    return group


def test_a_group_that_nobody_blocks_is_one_statement() -> None:
    pool = Answers()
    assert written(pool).lost == set()
    assert pool.written == ["abcdefgh"]


@pytest.mark.parametrize("blocked", ["a", "h", "cd", "af", "abcdefgh"])
def test_whoever_is_blocked_is_lost_and_the_others_are_written_once(blocked: str) -> None:
    """G1: in the order given."""
    pool = Answers(blocked)
    assert written(pool).lost == set(blocked)
    assert "".join(pool.written) == "".join(each for each in ALL if each not in blocked)


def test_a_large_group_is_several_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "GROUP_MAX", 3)
    pool = Answers()
    written(pool)
    assert pool.written == ["abc", "def", "gh"]


@pytest.mark.parametrize("failure", [UnavailableError("away."), InvalidPayload("NUL.")])
def test_a_failure_behind_a_part_that_is_durable_is_an_unknown_outcome(failure: Exception) -> None:
    """G9: "nothing happened" would be a lie, and the caller would decide again upon it."""
    with pytest.raises(OutcomeUnknown, match="only a part of a group") as caught:
        written(Answers("h", fails_after=1, failure=failure))
    assert caught.value.__cause__ is failure
    with pytest.raises(type(failure)) as alone:
        written(Answers(fails_after=0, failure=failure))
    assert alone.value is failure
