"""C14: the customers of `interlock chaos` write down what they were told, and repeat what nobody answered."""

from interlock.chaos.shop import Customers
from interlock.chaos.worker_messages import Acknowledged, Operation, OperationRefused


def asked(customers: Customers, worker: int = 1) -> Operation:
    operation = customers.next(worker)
    assert operation is not None
    return operation


def acknowledge(customers: Customers, operation: Operation) -> None:
    customers.answered(Acknowledged(operation.number, 1, "new"))


def test_an_order_is_started_then_submitted() -> None:
    customers = Customers()
    customers.place()
    customers.place()
    first, second = asked(customers), asked(customers)
    assert [first.what, second.what, customers.next(1)] == ["start", "start", None]
    acknowledge(customers, second)
    assert asked(customers) == Operation(3, "submit", "order-2", 2, "submit-order-2")


def test_one_in_five_is_cancelled_again() -> None:
    customers = Customers()
    customers.place()
    for what in ("start", "submit", "cancel"):
        operation = asked(customers)
        assert operation.what == what
        acknowledge(customers, operation)
    assert customers.answered_all
    assert not customers.quiet
    customers.ended["order-1"] = "cancelled"
    assert customers.quiet


def test_what_a_dead_worker_was_asked_for_is_asked_again_with_the_same_key() -> None:
    customers = Customers()
    customers.place()
    operation = asked(customers, worker=1)
    customers.put_back(2)
    assert customers.asked_of(1) == 1
    customers.put_back(1)
    assert asked(customers, worker=2) == operation


def test_a_refusal_is_written_down_and_nothing_follows() -> None:
    customers = Customers()
    customers.place()
    operation = asked(customers)
    customers.answered(OperationRefused(operation.number, "invalid-transition"))
    assert customers.refused == [(operation, "invalid-transition")]
    assert customers.open == ["order-1"]
    assert customers.next(1) is None
