"""The bank of the demo: it declines as often as it is told, and keeps books that must balance in the end.

It honours idempotency keys as a payment provider does: asked again with the same key, it answers the same and charges
nothing more. An account is closed when its order is done, so the books do not grow with the number of orders.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from interlock.examples.world import FakeWarehouse, world


@dataclass(slots=True)
class Account:
    """One payment intent: what was taken, what was given back, and every answer by its idempotency key."""

    declines_left: int = 0
    taken: int = 0
    given_back: int = 0
    answers: dict[str, bool] = field(default_factory=dict[str, bool])


@dataclass(slots=True)
class Bank:
    """A payment provider with one account per intent."""

    accounts: dict[str, Account] = field(default_factory=dict[str, Account])
    taken: int = 0
    given_back: int = 0

    def open_account(self, order_id: str, declines: int) -> None:
        """Announce an order whose payment is declined so many times."""
        self.accounts[intent_of(order_id)] = Account(declines_left=declines)

    def close_account(self, order_id: str) -> Account:
        """The books of an order that is done; they are not kept any longer."""
        return self.accounts.pop(intent_of(order_id))

    async def create_intent(self, order_id: str, *, key: str) -> str:
        """Announce a payment. The intent follows from the order, so a repeated call gets the same one."""
        del key
        return intent_of(order_id)

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        """Charge once per key, unless it is to be declined."""
        account = self.accounts[intent_id]
        if key not in account.answers:
            account.answers[key] = account.declines_left == 0
            if account.answers[key]:
                account.taken += 1
                self.taken += 1
            else:
                account.declines_left -= 1
        return account.answers[key]

    async def cancel(self, intent_id: str, *, key: str) -> None:
        """Void the intent, or give back what was taken."""
        del key
        account = self.accounts[intent_id]
        owed = account.taken - account.given_back
        account.given_back += owed
        self.given_back += owed


def intent_of(order_id: str) -> str:
    """The payment intent of an order."""
    return f"pi-{order_id}"


@contextmanager
def in_this_world(bank: Bank, warehouse: FakeWarehouse) -> Generator[None, None, None]:
    """Let the steps of the examples talk to this bank and this warehouse for a while."""
    before = world.payments, world.warehouse
    world.payments, world.warehouse = bank, warehouse
    try:
        yield
    finally:
        world.payments, world.warehouse = before
