"""External services of the examples: the protocols that their steps call, and fakes that keep books.

A real program puts its HTTP clients here. The fakes answer immediately and can be configured to fail. They
honour idempotency keys like a payment provider: the same key gets the same answer, and is charged once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from interlock.errors import NonRetryable


class Payments(Protocol):
    """A payment provider."""

    async def create_intent(self, order_id: str, *, key: str) -> str:
        """Announce a payment; returns the intent's id. Nothing is charged yet."""
        ...

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        """Charge the intent. False when the bank declines."""
        ...

    async def cancel(self, intent_id: str, *, key: str) -> None:
        """Void the intent, or give the money back if it was charged."""
        ...


class Warehouse(Protocol):
    """A warehouse that can put goods aside."""

    async def reserve(self, order_id: str, items: Mapping[str, int], *, key: str) -> None:
        """Put the goods aside."""
        ...

    async def release(self, order_id: str, *, key: str) -> None:
        """Put them back; does nothing if nothing is reserved."""
        ...


@dataclass
class FakePayments:
    """Keeps its books in memory: `charged` has every intent that was charged and not given back."""

    declines: set[str] = field(default_factory=set)
    charged: set[str] = field(default_factory=set)
    answers: dict[str, bool] = field(default_factory=dict)

    async def create_intent(self, order_id: str, *, key: str) -> str:
        """The intent's id follows from the order, so a repeated call gets the same intent."""
        del key
        return f"pi-{order_id}"

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        """Charge once per key; declined when the intent is in `declines`."""
        if key not in self.answers:
            self.answers[key] = intent_id not in self.declines
            if self.answers[key]:
                self.charged.add(intent_id)
        return self.answers[key]

    async def cancel(self, intent_id: str, *, key: str) -> None:
        """Give the money back; does nothing if nothing was charged."""
        del key
        self.charged.discard(intent_id)


@dataclass
class FakeWarehouse:
    """Keeps its books in memory: `reserved` has the goods of every order."""

    sold_out: set[str] = field(default_factory=set)
    reserved: dict[str, dict[str, int]] = field(default_factory=dict)

    async def reserve(self, order_id: str, items: Mapping[str, int], *, key: str) -> None:
        """Put the goods aside; a sold-out item is a failure that is not retried."""
        del key
        missing = sorted(self.sold_out & set(items))
        if missing:
            raise NonRetryable(f"sold out: {', '.join(missing)}")
        self.reserved[order_id] = dict(items)

    async def release(self, order_id: str, *, key: str) -> None:
        """Put the goods back."""
        del key
        self.reserved.pop(order_id, None)


@dataclass
class World:
    """The services that the example steps call. Replace its members to call others."""

    payments: Payments = field(default_factory=FakePayments)
    warehouse: Warehouse = field(default_factory=FakeWarehouse)


world = World()
