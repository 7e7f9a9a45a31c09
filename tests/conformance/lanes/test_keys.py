"""G3, G9: a transaction with a key happens once and says the same ever after; only what committed uses its key up."""

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

from interlock.errors import KeyReused, TransactionError
from interlock.lanes.idempotency_keys import REMOVED_PER_TRANSACTION, decode_result, encode_result
from interlock.lanes.lane import Lane
from interlock.lanes.writer import Session, Work
from tests.conformance.lanes.places import Place, opened
from tests.unit.lanes.lanes import SetClock, count, group, increment, make_counter, rows, run, sql

ADD = "UPDATE counter SET n = n + 1 WHERE id = 1"
VALUES: list[object] = [
    None,
    True,
    7,
    -(2**70),
    0.1,
    float("inf"),
    "text \u2028 \x00",
    b"\x00\xff",
    Decimal("1.10"),
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    uuid.UUID(int=5),
    [1, [2.5, (3, "x")]],
    {"a": {"$": "tuple", "v": [1]}, "b": [b"x"]},
    (),
    (1, (2, [3])),
]


class Named(NamedTuple):
    id: int
    name: str


def test_the_same_result_comes_back_with_its_types(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            for number, value in enumerate(VALUES * 2):
                key = f"k-{number % len(VALUES)}"
                answer = await lane.run(Work(lambda _session, value=value: value, key=key))  # type: ignore[misc]
                assert answer == value
                assert repr(answer) == repr(value)

    run(scenario)


def test_rows_with_names_are_made_by_whoever_knows_them() -> None:
    data = encode_result([Named(1, "a")])
    assert decode_result(data) == [(1, "a")]
    made = decode_result(data, lambda names, values: Named(**dict(zip(names, values, strict=True))))  # type: ignore[arg-type]
    assert made == [Named(1, "a")]
    assert isinstance(made, list)
    assert made[0].name == "a"


def test_the_function_is_not_run_again(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            for _ in range(3):
                assert await lane.run(sql(ADD, key="k")) == 1
            # Also within one group.
            assert await group(lane, sql(ADD, key="l"), sql(ADD, key="l"), sql(ADD, key="m")) == [1, 1, 1]
            assert await count(lane) == 3
        with opened(place) as lane:
            assert await lane.run(sql(ADD, key="k")) == 1
            assert await count(lane) == 3

    run(scenario)


def test_a_key_used_for_something_else_is_refused_and_harms_nobody(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            await lane.run(sql(ADD, key="k", digest=b"one"))
            answers = await group(
                lane, increment(), sql(ADD, key="k", digest=b"two"), sql("DELETE FROM interlock_keys")
            )
            assert answers[0] == 1
            assert isinstance(answers[1], KeyReused)
            assert "'k'" in answers[1].what
            assert isinstance(answers[2], TransactionError), "the wall is up again after a refusal"
            assert await count(lane) == 2

    run(scenario)


def test_only_a_committed_transaction_uses_its_key_up(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)

            def fails(session: Session) -> object:
                session.execute(ADD)
                raise ValueError("not today")

            ends_the_group = "INSERT OR ROLLBACK INTO counter VALUES (1, 7)"
            for work in (Work(fails, key="k"), sql("UPDATE counter SET n = -1", key="k"), sql(ends_the_group, key="k")):
                [answer] = await group(lane, work)
                assert isinstance(answer, Exception)
            assert await lane.run(sql(ADD, key="k")) == 1
            assert await count(lane) == 1

    run(scenario)


def test_a_result_that_cannot_be_kept_rolls_back(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, key_result_bytes_max=64) as lane:
            await make_counter(lane)

            def gives(result: object) -> Work:
                def function(session: Session) -> object:
                    session.execute(ADD)
                    return result

                return Work(function, key="k")

            for result, told in (("x" * 100, "64"), (object(), "object"), ({1: 2}, "dict")):
                [answer] = await group(lane, gives(result))
                assert isinstance(answer, TransactionError)
                assert told in answer.what
            assert await count(lane) == 0
            assert await lane.run(gives("small")) == "small"

    run(scenario)


async def add(lane: Lane, key: str) -> None:
    await lane.run(sql(ADD, key=key))


def test_keys_are_kept_by_number(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, keys_max=10) as lane:
            await make_counter(lane)
            for number in range(30):
                await add(lane, f"k{number}")
            assert await count(lane) == 30
            for number in range(20, 30):
                await add(lane, f"k{number}")
            assert await count(lane) == 30, "the newest ten are known"
            await add(lane, "k0")
            assert await count(lane) == 31, "the oldest are forgotten"

    run(scenario)


def test_keys_are_kept_for_a_time_and_removed_a_few_at_a_time(place: Place) -> None:
    clock = SetClock()

    async def scenario() -> None:
        with opened(place, clock=clock, keys_retained_s=60.0, idle_s=600.0) as lane:  # `kept` needs its writer.
            await make_counter(lane)
            for number in range(10):
                await add(lane, f"k{number}")
            clock.now_wall_s += 59.0
            await add(lane, "later")
            assert await kept(lane) == 11
            clock.now_wall_s += 2.0
            for turn in range(1, 4):
                await add(lane, f"after {turn}")
                assert await kept(lane) == max(1, 11 - REMOVED_PER_TRANSACTION * turn) + turn
            await add(lane, "k9")
            assert await count(lane) == 15

    async def kept(lane: Lane) -> int:
        names = [f"k{number}" for number in range(10)] + ["later"] + [f"after {turn}" for turn in range(1, 4)]
        connection = lane._writer.connection if lane._writer is not None else None
        assert connection is not None
        # A lane's own tables are walled off from the work it does, so the test looks from below.
        found = connection.cursor().execute
        with lane._writer._wall.down():  # type: ignore[union-attr]
            keys = {key for (key,) in found("SELECT key FROM interlock_keys").fetchall()}
        assert keys <= set(names)
        return len(keys)

    run(scenario)


def test_our_own_statements_are_nobody_elses(place: Place) -> None:
    """A cached statement is not asked for its rights again: the text of ours must not be one that a user can write."""

    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            await lane.run(sql(ADD, key="k"))
            for work in (
                rows("SELECT digest, result FROM interlock_keys WHERE key = ?1", "k"),
                sql(
                    "INSERT INTO interlock_keys (key, digest, result, at_us) VALUES (?1, ?2, ?3, ?4)", "l", b"", b"1", 1
                ),
                sql("UPDATE interlock_lane SET time_us = ?1 WHERE id = 1", 1),
                rows("SELECT time_us FROM interlock_lane"),
            ):
                [answer] = await group(lane, work)
                assert isinstance(answer, TransactionError)
                assert "not allowed" in answer.what

    run(scenario)
