"""A single statement has no savepoint of its own, and harms nobody all the same."""

import asyncio

import pytest

from interlock.errors import TransactionError, UnavailableError
from interlock.lanes.writer import Session, Work
from tests.conformance.lanes.places import Place, opened
from tests.conformance.lanes.test_groups import ENDS_THE_GROUP
from tests.unit.lanes.lanes import count, group, increment, make_counter, rows, run, sql


def single(text: str, *, then: Exception | None = None) -> Work:
    """One statement and nothing else, as `Database.execute` runs it; `then` is raised behind the statement."""

    def function(session: Session) -> object:
        changed = session.execute(text)
        if then is not None:
            raise then
        return changed

    return Work(function, single=True)


UP = "UPDATE counter SET n = n + 1 WHERE id = 1"
BROKEN = {
    "a statement that fails": single("UPDATE counter SET n = -1"),
    "a result that cannot be decoded": single("UPDATE counter SET n = n + 1000", then=ValueError("out of range")),
    "a deferred foreign key": single("INSERT INTO child VALUES (99)"),
    "a statement that ends the group": single(ENDS_THE_GROUP["OR ROLLBACK"]),
}


@pytest.mark.parametrize("culprit", BROKEN)
def test_a_single_statement_without_a_savepoint_harms_nobody_either(place: Place, culprit: str) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            await lane.run(sql("CREATE TABLE child (id INTEGER REFERENCES counter (id) DEFERRABLE INITIALLY DEFERRED)"))
            broken = Work(BROKEN[culprit].function, single=True)
            answers = await group(lane, single(UP), broken, single(UP), increment())
            assert [isinstance(answer, Exception) for answer in answers] == [False, True, False, False]
            assert await count(lane) == 3
            assert await lane.run(rows("SELECT count(*) FROM child")) == [(0,)]

    run(scenario)


def test_cancelled_works_do_not_fill_the_queue(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, queue_max=4) as lane:
            await make_counter(lane)
            tasks = [asyncio.ensure_future(lane.run(increment())) for _ in range(4)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert await asyncio.gather(*(lane.run(increment()) for _ in range(4))) == [1, 1, 1, 1]

    run(scenario)


def test_a_stop_iteration_ends_its_own_transaction_only(place: Place) -> None:
    """To Python it means that a coroutine has ended, so it cannot be handed to one that waits."""

    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            nothing = iter(())
            answers = await group(lane, increment(), Work(lambda _session: next(nothing)), increment())
            assert (answers[0], answers[2]) == (1, 1)
            assert isinstance(answers[1], TransactionError)

    run(scenario)


def test_a_lane_that_gets_no_thread_says_so_and_goes_on_later(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            with monkeypatch.context() as patched:
                patched.setattr("threading.Thread.start", refuse)
                [answer] = await group(lane, sql("CREATE TABLE a (x)"))
                assert isinstance(answer, UnavailableError)
            await make_counter(lane)
            assert await count(lane) == 0

    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    run(scenario)
