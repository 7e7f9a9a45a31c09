"""D1, D2: transactions share a group and never harm each other, whatever one of them does."""

import asyncio
import threading
from collections.abc import Callable

import msgspec
import pytest

from interlock.errors import ConstraintViolation, Overloaded, TransactionError
from interlock.lanes.writer import Session, Work
from tests.conformance.lanes.places import EVERYWHERE, Place, opened
from tests.unit.lanes.lanes import count, group, increment, make_counter, read_then_write, rested, rows, run, sql

VIOLENT = {
    "COMMIT": "COMMIT",
    "ROLLBACK": "ROLLBACK",
    "END": "END TRANSACTION",
    "a savepoint of the same name": "RELEASE work",
    "a rollback to the savepoint": "ROLLBACK TO work",
    "ATTACH": "ATTACH ':memory:' AS other",
    "a temporary table": "CREATE TEMP TABLE t (x)",
    "a pragma": "PRAGMA synchronous = OFF",
    "another pragma": "PRAGMA schema_version = 7",
    "VACUUM": "VACUUM",
    "our own table": "DELETE FROM interlock_keys",
    "an extension": "SELECT load_extension('x')",
}
ENDS_THE_GROUP = {
    "OR ROLLBACK": "INSERT OR ROLLBACK INTO counter VALUES (1, 7)",
    "RAISE(ROLLBACK)": "INSERT INTO trap VALUES (1)",
}


@pytest.mark.parametrize("work", [increment, read_then_write], ids=["one statement", "read, then write"])
@EVERYWHERE
def test_no_increment_of_64_clients_is_lost(place: Place, work: object) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)

            async def client() -> None:
                for _ in range(20):
                    await lane.run(work())  # type: ignore[operator]

            await asyncio.gather(*(client() for _ in range(64)))
            assert await count(lane) == 64 * 20
            assert lane.stats().largest_group > 1

    run(scenario)


@pytest.mark.parametrize("statement", VIOLENT.values(), ids=VIOLENT)
def test_what_would_break_out_is_refused_and_harms_nobody(place: Place, statement: str) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            before, culprit, after = await group(lane, increment(), sql(statement), increment())
            assert isinstance(culprit, TransactionError)
            assert (before, after) == (1, 1)
            assert await count(lane) == 2

    run(scenario)


def test_a_cached_control_statement_is_not_a_way_out(place: Place) -> None:
    """The statement cache is keyed by text and a cached statement is not authorized again."""

    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            for statement in ("BEGIN IMMEDIATE", "COMMIT", "SAVEPOINT work", "RELEASE work", "ROLLBACK TO work"):
                [answer] = await group(lane, sql(statement))
                assert isinstance(answer, TransactionError)
                assert "not allowed" in answer.what

    run(scenario)


@pytest.mark.parametrize("statement", ENDS_THE_GROUP.values(), ids=ENDS_THE_GROUP)
def test_a_group_that_vanishes_is_run_again_without_the_culprit(place: Place, statement: str) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            await lane.run(sql("CREATE TABLE trap (x INTEGER)"))
            await lane.run(sql("CREATE TRIGGER t BEFORE INSERT ON trap BEGIN SELECT RAISE(ROLLBACK, 'gone'); END"))
            answers = await group(lane, increment(), increment(), sql(statement), increment())
            assert [isinstance(answer, Exception) for answer in answers] == [False, False, True, False]
            assert await count(lane) == 3

    run(scenario)


def test_many_culprits_leave_clean_errors(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            culprits = [sql(ENDS_THE_GROUP["OR ROLLBACK"]) for _ in range(5)]
            answers = await group(lane, increment(), *culprits, increment())
            happened = sum(not isinstance(answer, Exception) for answer in answers)
            assert all(isinstance(answer, int | TransactionError) for answer in answers)
            assert await count(lane) == happened

    run(scenario)


def test_a_constraint_and_a_deferred_foreign_key_end_only_their_own_transaction(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            await lane.run(sql("CREATE TABLE child (id INTEGER REFERENCES counter (id) DEFERRABLE INITIALLY DEFERRED)"))
            answers = await group(
                lane,
                increment(),
                sql("UPDATE counter SET n = -1 WHERE id = 1"),
                sql("INSERT INTO child VALUES (99)"),
                increment(),
            )
            assert isinstance(answers[1], ConstraintViolation)
            assert isinstance(answers[2], ConstraintViolation)
            assert (answers[0], answers[3]) == (1, 1)
            assert await lane.run(rows("SELECT count(*) FROM child")) == [(0,)]
            assert await count(lane) == 2

    run(scenario)


def test_a_function_that_fails_halfway_leaves_nothing(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)

            def half(session: Session) -> object:
                session.execute("UPDATE counter SET n = n + 100 WHERE id = 1")
                raise KeyError("halfway")

            answers = await group(lane, increment(), Work(half), increment())
            assert isinstance(answers[1], KeyError)
            assert await count(lane) == 2

    run(scenario)


def test_a_statement_that_does_not_end_is_ended(place: Place) -> None:
    endless = "WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"
    endless_write = f"UPDATE counter SET n = ({endless}) WHERE id = 1"

    async def scenario() -> None:
        with opened(place, statement_timeout_s=0.05) as lane:
            await make_counter(lane)
            answers = await group(lane, increment(), rows(endless), sql(endless_write), increment())
            assert isinstance(answers[1], TransactionError)
            assert isinstance(answers[2], TransactionError)
            assert "statement_timeout_s" in answers[2].what
            assert await count(lane) == 2

    run(scenario)


@pytest.mark.parametrize("swallowed", [Exception, BaseException])
def test_a_function_that_holds_the_lane_is_ended_and_the_others_go_on(
    place: Place, swallowed: type[BaseException]
) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)

            def holds(session: Session) -> object:
                session.execute("UPDATE counter SET n = n + 100 WHERE id = 1")
                while True:
                    try:
                        sum(range(1_000))
                    except swallowed:
                        continue

            answers = await group(lane, increment(), Work(holds, limit_s=0.05), increment())
            assert isinstance(answers[1], TransactionError)
            assert "held the lane" in answers[1].what
            assert await count(lane) == 2

    run(scenario)


def test_a_cancelled_client_that_waits_has_done_nothing(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            tasks = [asyncio.ensure_future(lane.run(increment())) for _ in range(10)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            done = sum(answer == 1 for answer in answers)
            assert sum(isinstance(answer, asyncio.CancelledError) for answer in answers) == 5
            # Cancelled before the lane took it: not happened. Cancelled later: happened wholly. Never half.
            assert done <= await count(lane) <= 10

    run(scenario)


def test_a_full_queue_refuses_at_once(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, queue_max=5, idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)  # So that nobody takes one before all have come.
            answers = await group(lane, *(increment() for _ in range(8)))
            refused = [answer for answer in answers if isinstance(answer, Overloaded)]
            assert len(refused) == 3
            assert refused[0].retry_after_s > 0
            assert await count(lane) == 5

    run(scenario)


def test_a_batch_is_never_larger_than_its_bound(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, group_commit_max_batch=4) as lane:
            await make_counter(lane)
            await group(lane, *(increment() for _ in range(20)))
            assert await count(lane) == 20
            assert lane.stats().largest_group == 4

    run(scenario)


def test_a_window_gathers_those_who_come_a_little_later(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, group_commit_max_batch=3) as lane:
            await make_counter(lane)
            lane.settings = msgspec.structs.replace(lane.settings, group_commit_window=3_600.0)
            before = lane.stats().groups
            waiting, wait_for = threading.Event(), lane._arrived.wait_for

            def waits(enough: Callable[[], bool], timeout_s: float | None = None) -> bool:
                waiting.set()
                return wait_for(enough, timeout_s)

            lane._arrived.wait_for = waits  # type: ignore[method-assign,assignment]
            first = asyncio.ensure_future(lane.run(increment()))
            await asyncio.to_thread(waiting.wait)
            await group(lane, increment(), increment())
            await first
            assert lane.stats().groups == before + 1

    run(scenario)
