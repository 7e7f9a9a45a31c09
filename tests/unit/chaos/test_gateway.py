"""C14: the world outside of `interlock chaos` keeps to its idempotency keys, whatever else it does."""

import asyncio
from collections.abc import Iterator

from interlock.chaos.shop import ASKED, Gateway
from interlock.chaos.worker_messages import DECLINED, DONE, FAILED, ServiceCall

NUMBERS = iter(range(1, 1_000))


class Lucky:
    """Luck that is given."""

    def __init__(self, *fractions: float) -> None:
        self._fractions: Iterator[float] = iter((*fractions, *[0.9] * 100))

    def fraction(self) -> float:
        return next(self._fractions)


def gateway(*luck: float) -> Gateway:
    """Each call asks its luck twice: whether it works, and how long it takes."""
    return Gateway(Lucky(*(each for fraction in luck for each in (fraction, 0.0))), lambda: 0.0, lambda: None)


def call(deed: str, key: str, undoes: str = "") -> ServiceCall:
    return ServiceCall(next(NUMBERS), deed, "order-2", key, undoes)


def asked(outside: Gateway, *calls: ServiceCall, order: int = 2) -> list[str]:
    async def main() -> list[str]:
        return [await outside.ask(each, 1, order) for each in calls]

    return asyncio.run(main())


def written(outside: Gateway) -> list[tuple[str, str]]:
    return [(line.what, line.key) for line in outside.lines if line.what != ASKED]


def test_the_same_key_is_the_same_deed() -> None:
    outside = gateway()
    assert asked(outside, call("charge", "k"), call("charge", "k")) == [DONE, DONE]
    assert written(outside) == [(DONE, "k")]


def test_a_call_may_fail_before_the_deed() -> None:
    outside = gateway(0.0)
    assert asked(outside, call("charge", "k")) == [FAILED]
    assert written(outside) == [(FAILED, "k")]


def test_an_answer_may_be_lost_behind_the_deed() -> None:
    outside = gateway(0.03)
    assert asked(outside, call("charge", "k"), call("charge", "k")) == [FAILED, DONE]
    assert written(outside) == [(DONE, "k")]


def test_the_carrier_declines_one_in_five() -> None:
    assert asked(gateway(), call("collect", "k"), order=5) == [DECLINED]
    assert asked(gateway(), call("collect", "k"), order=6) == [DONE]


def test_taking_back_what_was_never_done_closes_its_key() -> None:
    outside = gateway()
    assert asked(outside, call("refund", "r", undoes="k"), call("charge", "k")) == [DONE, DECLINED]


def test_a_gateway_that_is_down_refuses_money_and_nothing_else() -> None:
    outside = gateway()
    outside.down = True
    assert asked(outside, call("charge", "k"), call("refund", "r"), call("reserve", "w")) == [FAILED, FAILED, DONE]


def test_a_call_hangs_until_it_is_let_go_and_leaves_when_nobody_waits() -> None:
    async def main() -> None:
        # The one that is awaited here asks its luck first, and takes its time: the others hang by then.
        outside = Gateway(Lucky(0.9, 1.0, 0.9, 0.0, 0.9, 0.0), lambda: 0.0, lambda: None)
        with outside.holding(lambda each, _worker: each.deed == "charge") as hold:
            hanging = asyncio.ensure_future(outside.ask(call("charge", "a"), 1, 2))
            given_up = asyncio.ensure_future(outside.ask(call("charge", "b"), 1, 2))
            assert await outside.ask(call("reserve", "c"), 1, 2) == DONE
            assert len(hold.waiting) == 2
            given_up.cancel()
            await asyncio.wait([given_up])
            assert [each.key for each, _ in hold.waiting] == ["a"]
        assert await hanging == DONE
        assert written(outside) == [(DONE, "c"), (DONE, "a")]

    asyncio.run(main())
