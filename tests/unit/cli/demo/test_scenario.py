"""What will happen to each order follows from the seed and the number of orders alone."""

import pytest

from interlock.cli.demo.journeys import STUCK_MAX, TROUBLE_FROM, journeys, stuck_of
from interlock.examples.order import State


@pytest.mark.parametrize(("orders", "stuck"), [(TROUBLE_FROM - 1, 0), (TROUBLE_FROM, 2), (600, 12), (5_000, STUCK_MAX)])
def test_a_bounded_number_of_plain_orders_of_the_second_half_gets_stuck(orders: int, stuck: int) -> None:
    planned = list(journeys(orders, 1))
    held = [(number, journey) for number, (_, journey) in enumerate(planned, start=1) if journey.stuck]
    assert len(held) == stuck_of(orders) == stuck
    assert all(number > orders / 2 and journey.plain for number, journey in held)
    assert all(journey.refund_in in {None, State.SHIPPED, State.DELIVERED} for _, journey in held)


def test_the_same_seed_gives_the_same_journeys() -> None:
    first, second = (list(journeys(300, 7)) for _ in range(2))
    assert first == second
    assert first != list(journeys(300, 8))
