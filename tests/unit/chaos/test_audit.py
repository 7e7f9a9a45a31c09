"""C14, G2, G3, G5: the audit of `interlock chaos` can fail, and says what is wrong."""

import asyncio

import pytest

from interlock.chaos.shop import (
    Acknowledgement,
    AuditRow,
    ChaosOrder,
    LoggedCall,
    StoredOrder,
    load_orders,
    order,
    problems,
)
from interlock.chaos.worker_messages import Operation
from interlock.engine.engine import Engine

PLACED = {"order-2": 2, "order-5": 5}
"""One that nobody cancels, and one that the carrier declines."""

DONE_ROWS = (
    AuditRow(1, "new", "STARTED"),
    AuditRow(2, "reserving", "SUBMIT", "submit-order-2"),
    AuditRow(3, "charging", "RESERVED", run="reserve-1"),
    AuditRow(4, "shipping", "CHARGED", run="charge-1"),
    AuditRow(5, "shipping", "COLLECTED", run="ship-1"),
    AuditRow(6, "done", "DELIVERED", run="ship-2"),
)
UNDONE_ROWS = (
    AuditRow(1, "new", "STARTED"),
    AuditRow(2, "reserving", "SUBMIT", "submit-order-5"),
    AuditRow(3, "charging", "RESERVED", run="reserve-5"),
    AuditRow(4, "shipping", "CHARGED", run="charge-5"),
    AuditRow(5, "undoing", "STEP_FAILED"),
    AuditRow(6, "cancelled", "UNWOUND"),
)
KEPT = {"order-2": StoredOrder("done", DONE_ROWS), "order-5": StoredOrder("cancelled", UNDONE_ROWS)}


def line(deed: str, workflow: str, key: str, undoes: str = "") -> LoggedCall:
    return LoggedCall("done", deed, workflow, key, undoes, 1, 0.0)


BOOKS = [
    line("reserve", "order-2", "reserve-1"),
    line("charge", "order-2", "charge-1"),
    line("reserve", "order-5", "reserve-5"),
    line("charge", "order-5", "charge-5"),
    line("refund", "order-5", "refund-5", "charge-5"),
    line("release", "order-5", "release-5", "reserve-5"),
]
ACKNOWLEDGED = [
    Acknowledgement(Operation(1, "start", "order-2", 2, "start-order-2"), 1, "new", ignored=False),
    Acknowledgement(Operation(2, "submit", "order-2", 2, "submit-order-2"), 2, "reserving", ignored=False),
]


def found(
    kept: dict[str, StoredOrder] | None = None,
    acknowledged: list[Acknowledgement] | None = None,
    books: list[LoggedCall] | None = None,
) -> list[str]:
    return problems(
        {**KEPT, **(kept or {})}, ACKNOWLEDGED if acknowledged is None else acknowledged, books or BOOKS, PLACED
    )


def test_nothing_is_wrong_when_everybody_agrees() -> None:
    assert found() == []


def test_an_order_that_is_gone_is_lost() -> None:
    assert problems({"order-5": KEPT["order-5"]}, ACKNOWLEDGED, BOOKS, PLACED) == [
        "start of order-2 was acknowledged as version 1, new, and is lost",
        "submit of order-2 was acknowledged as version 2, reserving, and is lost",
    ]


def test_a_version_that_was_acknowledged_and_is_not_there_is_lost() -> None:
    [problem, *_] = found({"order-2": StoredOrder("new", DONE_ROWS[:1])})
    assert problem == "submit of order-2 was acknowledged as version 2, reserving, and is lost"


def test_another_state_than_the_one_acknowledged_is_told() -> None:
    other = Acknowledgement(ACKNOWLEDGED[1].operation, 2, "undoing", ignored=False)
    assert found(acknowledged=[other]) == ["submit of order-2 was acknowledged as version 2, undoing, and is reserving"]


def test_an_event_whose_key_is_not_in_the_history_was_not_applied() -> None:
    other = Acknowledgement(Operation(3, "submit", "order-2", 2, "another"), 2, "reserving", ignored=False)
    assert found(acknowledged=[other]) == [
        "submit of order-2 was acknowledged as version 2, reserving, and its key is not there"
    ]


def test_an_ignored_event_has_no_key_in_the_history() -> None:
    ignored = Acknowledgement(Operation(3, "cancel", "order-2", 2, "cancel-order-2"), 6, "done", ignored=True)
    assert found(acknowledged=[ignored]) == []


def test_an_order_that_is_under_way_has_not_ended() -> None:
    [problem] = found({"order-2": StoredOrder("shipping", DONE_ROWS[:5])})
    assert problem == "order-2 has not ended: it is shipping"


def test_what_waits_for_a_person_is_told() -> None:
    [problem] = found({"dead letter 7": StoredOrder("undo refund of order-5", ())})
    assert problem == "dead letter 7: no customer placed it (undo refund of order-5)"


def test_a_gap_between_versions_is_told() -> None:
    [problem] = found({"order-2": StoredOrder("done", (*DONE_ROWS[:5], DONE_ROWS[5]._replace(version=7)))})
    assert problem == "order-2: version 7 follows 5"


def test_a_result_that_was_applied_twice_was_not_fenced() -> None:
    twice = (*DONE_ROWS[:5], DONE_ROWS[4]._replace(version=6), DONE_ROWS[5]._replace(version=7))
    [problem] = found({"order-2": StoredOrder("done", twice)})
    assert problem == "order-2: a late result was not refused, the one of run ship-1 was applied 2 times"


def test_an_order_that_ran_out_of_attempts_was_given_up() -> None:
    given_up = {
        "order-2": StoredOrder(
            "cancelled", (*DONE_ROWS[:2], AuditRow(3, "undoing", "STEP_FAILED"), AuditRow(4, "cancelled", "X"))
        )
    }
    books = [each for each in BOOKS if each.workflow != "order-2"]
    [problem] = found(given_up, books=books)
    assert problem.startswith("order-2 was given up without a cancellation")


def test_a_second_charge_is_a_double_charge() -> None:
    assert found(books=[*BOOKS, line("charge", "order-2", "charge-2")]) == [
        "order-2 is done, and there are 2 charges that count"
    ]


def test_a_deed_that_was_done_twice_for_one_key_is_told() -> None:
    assert found(books=[*BOOKS, line("charge", "order-2", "charge-1")]) == ["charge charge-1 was done 2 times"]


@pytest.mark.parametrize(("undo", "deed"), [("refund", "charge"), ("release", "reserve")])
def test_a_missing_undo_is_told(undo: str, deed: str) -> None:
    books = [each for each in BOOKS if each.deed != undo]
    assert found(books=books) == [f"order-5 was taken back, and its {deed} was not: compensation is missing"]


def test_a_finished_order_that_was_refunded_was_not_paid() -> None:
    books = [*BOOKS, line("refund", "order-2", "refund-2", "charge-1")]
    assert found(books=books) == ["order-2 is done, and there are 0 charges that count"]


async def _stored(home: str) -> dict[str, StoredOrder]:
    async with Engine.open(home, machines=[order], worker=False) as engine:
        await engine.start(order, "order-1", ChaosOrder(1))
    return await load_orders(home)


def test_the_store_is_read_by_its_histories(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = f"lanes://{tmp_path_factory.mktemp('audit')}/home"
    assert asyncio.run(_stored(home)) == {"order-1": StoredOrder("new", [AuditRow(1, "new", "STARTED")])}
