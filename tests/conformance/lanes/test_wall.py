"""The wall that statements of users cannot climb, and settings that are bounds."""

import math

import pytest

from interlock.errors import DefinitionError, TransactionError
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.writer import Session, Work
from tests.conformance.lanes.places import Place, opened
from tests.unit.lanes.lanes import count, group, increment, make_counter, rows, run, sql

ON_OUR_TABLES = [
    "ALTER TABLE interlock_lane RENAME TO mine",
    "ALTER TABLE interlock_keys ADD COLUMN mine",
    "CREATE TRIGGER t AFTER INSERT ON interlock_keys BEGIN UPDATE counter SET n = n + 1000; END",
    "CREATE INDEX i ON interlock_keys (at_us)",
    "DROP TABLE interlock_keys",
    "CREATE TABLE interlock_mine (x)",
    "SELECT * FROM Interlock_Keys",
    "INSERT INTO interlock_keys (key, digest, result, at_us) VALUES ('k', x'', x'', 0)",
]


@pytest.mark.parametrize("statement", ON_OUR_TABLES)
def test_our_tables_are_out_of_reach(place: Place, statement: str) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            before, answer, after = await group(lane, increment(), rows(statement), increment())
            assert isinstance(answer, TransactionError)
            assert (before, after) == (1, 1)
            assert await lane.run(sql("UPDATE counter SET n = n + 1", key="k")) == 1
            assert await count(lane) == 3

    run(scenario)


@pytest.mark.parametrize("statement", ["UPDATE counter SET n = n + 1 RETURNING n", "SELECT 1 UNION ALL SELECT 2"])
def test_a_statement_with_rows_that_nobody_reads_is_run_to_its_end(place: Place, statement: str) -> None:
    """Left half-way it would keep the savepoint from ending, and with it everybody in the group."""

    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            await lane.run(sql("INSERT INTO counter VALUES (2, 0), (3, 0)"))
            answers = await group(lane, increment(), sql(statement), increment())
            assert [isinstance(answer, int) for answer in answers] == [True] * 3
            assert await count(lane) == (3 if statement.startswith("UPDATE") else 2)

    run(scenario)


def test_no_number_of_culprits_harms_the_others(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            works = []
            for _ in range(20):
                works += [increment(), sql("INSERT OR ROLLBACK INTO counter VALUES (1, 7)")]
            answers = await group(lane, *works)
            assert answers[::2] == [1] * 20
            assert all(isinstance(answer, TransactionError) for answer in answers[1::2])
            assert await count(lane) == 20

    run(scenario)


class Stop(BaseException):
    """Like KeyboardInterrupt: not an Exception."""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), Stop(), GeneratorExit()], ids=repr)
def test_even_what_is_no_exception_ends_only_its_own_transaction(place: Place, error: BaseException) -> None:
    def function(session: Session) -> object:
        session.execute("UPDATE counter SET n = n + 100 WHERE id = 1")
        raise error

    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            before, answer, after = await group(lane, increment(), Work(function), increment())
            assert (before, after) == (1, 1)
            assert isinstance(answer, TransactionError)
            assert type(error).__name__ in answer.what
            assert await count(lane) == 2

    run(scenario)


def test_a_double_quoted_text_is_an_error(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            [answer] = await group(lane, rows('SELECT "no such column" FROM counter'))
            assert isinstance(answer, TransactionError)

    run(scenario)


@pytest.mark.parametrize("value", [-1, math.inf, math.nan, True, "many", None])
@pytest.mark.parametrize("name", ["queue_max", "statement_timeout_s"])
def test_a_bound_that_is_not_one_is_refused(name: str, value: object) -> None:
    with pytest.raises(DefinitionError, match=name):
        LaneSettings(**{name: value})  # type: ignore[arg-type]
