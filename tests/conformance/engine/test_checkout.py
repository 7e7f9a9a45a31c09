"""A8: the checkout pipeline that ships, on the engine in virtual time: every way to its ends, the world's books beside.

PENDING → VALIDATING → CHARGING → RESERVING → COMPLETED; any → UNDOING → FAILED when something must be undone, else
straight to FAILED. The bank has four seconds.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from interlock import PipelineEvent, PipelineState, StepFailure
from interlock.examples.checkout import Checkout, charge, checkout, give_back, release, reserve, validate
from interlock.examples.world import FakePayments, FakeWarehouse, world
from interlock.testing import Harness

CART = Checkout(order_id="o-1", items={"book": 2}, cents=990)
BEGIN = ("pending", "validating")
Till = Harness[PipelineState, Checkout, PipelineEvent]


told: list[str] = []
"""What the world was asked to undo, in order."""


class Bank(FakePayments):
    """Charges, and for a while does not answer."""

    silent = 0

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        answer = await super().confirm(intent_id, key=key)
        if self.silent:
            self.silent -= 1
            await asyncio.Event().wait()
        return answer

    async def cancel(self, intent_id: str, *, key: str) -> None:
        await super().cancel(intent_id, key=key)
        told.append("refund")


class Depot(FakeWarehouse):
    """Puts the goods aside, and may not answer."""

    silent = False

    async def reserve(self, order_id: str, items: Mapping[str, int], *, key: str) -> None:
        await super().reserve(order_id, items, key=key)
        if self.silent:
            await asyncio.Event().wait()

    async def release(self, order_id: str, *, key: str) -> None:
        await super().release(order_id, key=key)
        told.append("release")


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> Bank:
    made = Bank()
    monkeypatch.setattr(world, "payments", made)
    return made


@pytest.fixture
def depot(monkeypatch: pytest.MonkeyPatch) -> Depot:
    made = Depot()
    monkeypatch.setattr(world, "warehouse", made)
    return made


@pytest.fixture(params=["memory", "lanes"])
def till(request: pytest.FixtureRequest, tmp_path: Path, bank: Bank, depot: Depot) -> Iterator[Till]:
    """The checkout on an engine, in a world that keeps books."""
    del bank, depot
    told.clear()
    with Harness(checkout, url="memory:" if request.param == "memory" else f"lanes://{tmp_path}/home") as made:
        yield made


def bought(till: Till, cart: Checkout = CART) -> list[str]:
    """Buy, wait until nothing is left to do, and tell the states that the workflow went through."""
    till.start("o-1", cart)
    till.drain()
    assert till.dead_letters() == []
    return [row.to_state.value for row in till.history("o-1")]


def failure(till: Till) -> StepFailure:
    """Why it failed."""
    [row] = [row for row in till.history("o-1") if row.event == "STEP_FAILED"]
    assert isinstance(row.payload, StepFailure)
    return row.payload


def test_it_completes_in_the_order_of_its_steps(till: Till, bank: Bank, depot: Depot) -> None:
    assert bought(till) == [*BEGIN, "charging", "reserving", "completed"]
    assert bank.charged == {"pi-o-1"}
    assert depot.reserved == {"o-1": {"book": 2}}
    assert [till.calls(each) for each in (validate, charge, reserve, give_back, release)] == [1, 1, 1, 0, 0]
    assert till.view("o-1").context == Checkout("o-1", {"book": 2}, 990, "pi-o-1", reserved=True)


def test_what_cannot_be_bought_goes_straight_to_failed(till: Till, bank: Bank) -> None:
    assert bought(till, Checkout(order_id="o-1")) == [*BEGIN, "failed"]
    assert (failure(till).step, failure(till).unknown) == ("validate", False)
    assert [till.calls(each) for each in (charge, give_back)] == [0, 0]
    assert bank.charged == set()


def test_a_declined_charge_goes_straight_to_failed(till: Till, bank: Bank) -> None:
    """NonRetryable: known without effect, so there is nothing to undo."""
    bank.declines.add("pi-o-1")
    assert bought(till) == [*BEGIN, "charging", "failed"]
    assert (failure(till).step, failure(till).attempts, failure(till).unknown) == ("charge", 1, False)
    assert [till.calls(each) for each in (charge, reserve, give_back)] == [1, 0, 0]


def test_the_bank_has_four_seconds_and_is_asked_again_with_the_same_key(till: Till, bank: Bank) -> None:
    bank.silent = 1
    assert bought(till) == [*BEGIN, "charging", "reserving", "completed"]
    first, second = till.attempts(charge)
    assert first.outcome == "cancelled"
    assert 4 <= second.at_s - first.at_s <= 4.1  # The wait before the second attempt is at most 0.1 s.
    assert first.key == second.key
    assert bank.charged == {"pi-o-1"}


def test_a_charge_that_never_answers_is_undone_with_an_unknown_outcome(till: Till, bank: Bank) -> None:
    """C9: the money was taken, nobody here knows it, and it is given back."""
    bank.silent = 5
    assert bought(till) == [*BEGIN, "charging", "undoing", "failed"]
    assert (failure(till).error, failure(till).attempts, failure(till).unknown) == ("timeout", 5, True)
    assert [till.calls(each) for each in (charge, reserve, give_back)] == [5, 0, 1]
    [undo] = till.attempts(give_back)
    assert [undo.undoes] == till.keys(charge)
    assert isinstance(undo.context, Checkout)
    assert undo.context.payment_intent_id is None
    assert bank.charged == set()


def test_a_charge_is_refunded_when_nothing_is_left_to_reserve(till: Till, bank: Bank, depot: Depot) -> None:
    depot.sold_out.add("book")
    assert bought(till) == [*BEGIN, "charging", "reserving", "undoing", "failed"]
    assert (failure(till).step, failure(till).unknown) == ("reserve", False)
    assert [till.calls(each) for each in (give_back, release)] == [1, 0]
    assert bank.charged == set()


def test_both_are_undone_newest_first_when_the_reservation_is_unknown(till: Till, bank: Bank, depot: Depot) -> None:
    depot.silent = True
    assert bought(till) == [*BEGIN, "charging", "reserving", "undoing", "failed"]
    assert (failure(till).step, failure(till).error, failure(till).unknown) == ("reserve", "timeout", True)
    [released], [refunded] = till.attempts(release), till.attempts(give_back)
    assert [released.undoes, refunded.undoes] == [*till.keys(reserve), *till.keys(charge)]
    assert told == ["release", "refund"]
    assert bank.charged == set()
    assert depot.reserved == {}


def test_a_release_that_fails_keeps_the_refund_waiting(till: Till, bank: Bank, depot: Depot) -> None:
    """Newest first means: one after the other. The older undo begins when the newer one is done."""
    depot.silent = True
    till.fail(release, OSError("closed"), times=2)
    assert bought(till)[-2:] == ["undoing", "failed"]
    assert [call.outcome for call in till.attempts(release)] == ["OSError", "OSError", "done"]
    assert told == ["release", "refund"]
    assert (bank.charged, depot.reserved) == (set(), {})


def test_a_cancellation_during_the_charge_undoes_it(till: Till, bank: Bank) -> None:
    """G5: cut off, so nobody knows; what it may have done is undone."""
    bank.silent = 5
    till.start("o-1", CART)
    till.advance(seconds=1)
    till.send("o-1", checkout.Cancel(reason="too dear"))
    till.drain()
    assert [row.to_state.value for row in till.history("o-1")][-2:] == ["undoing", "failed"]
    assert [till.calls(each) for each in (charge, give_back)] == [1, 1]
    assert bank.charged == set()
