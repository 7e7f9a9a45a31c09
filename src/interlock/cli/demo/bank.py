"""The bank and the warehouse of the demo: external services with faults and books, which survive every kill.

They run in the process that kills, not in the one that is killed. Both honour idempotency keys as a payment provider
does: a second call with the same key returns the same answer and does nothing more. Some calls fail before anything
was done, some answers are lost, some are late. During an outage the bank refuses every call. The books have one entry
per deed.
"""

import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

FAILED, LOST, SLOW = 0.04, 0.08, 0.12
"""The share of first calls up to which the call fails, up to which the answer is lost, and up to which it is late."""

LATE_S = 0.4
"""The longest delay of an answer."""

FAULTS = frozenset({"failed", "lost", "slow", "refused"})
"""Entries of the books that record a fault, not a deed."""

Operation = Literal["create_intent", "confirm", "cancel", "reserve", "release"]
Verdict = Literal["done", "declined", "failed", "lost", "down"]


class BookEntry(NamedTuple):
    """An entry of the books: the deed, the order and the idempotency key."""

    deed: str
    order: str
    key: str


class BankCall(NamedTuple):
    """A request to the bank or the warehouse."""

    operation: Operation
    order: str
    key: str
    declines: int = 0
    """How often this customer's card is declined, as with the test cards of a real provider."""


class Bank:
    """A payment provider and a warehouse. It does nothing twice under one key, and writes every deed to the books."""

    def __init__(self, seed: int) -> None:
        self.books: list[BookEntry] = []
        """Everything that was done or went wrong, in order."""
        self.down = False
        """True during an outage of the bank. The warehouse never has one."""
        self.refused = 0
        """Calls during an outage."""
        self._seed = seed
        self._known: dict[str, str] = {}
        """The deed of each key that had an effect."""
        self._declined: dict[str, int] = {}
        self._charged: dict[str, int] = {}
        self._called_keys: set[str] = set()

    def answer(self, call: BankCall) -> tuple[Verdict, float]:
        """Execute the call, once per key. Return the answer and its delay in seconds."""
        if call.operation == "release":
            self._once("released", call.order, f"{call.key}:release")
            return "done", 0.0
        if self.down and call.operation != "reserve":
            self.refused += 1
            self.books.append(BookEntry("refused", call.order, call.key))
            return "down", 0.0
        luck = self._luck(call)
        if luck < FAILED:
            self.books.append(BookEntry("failed", call.order, call.key))
            return "failed", 0.0
        verdict = self._do(call)
        if luck < LOST:
            self.books.append(BookEntry("lost", call.order, call.key))
            return "lost", 0.0
        if luck < SLOW:
            self.books.append(BookEntry("slow", call.order, call.key))
            return verdict, LATE_S * (luck - LOST) / (SLOW - LOST)
        return verdict, 0.0

    def _do(self, call: BankCall) -> Verdict:
        order_id = call.order
        if call.operation == "confirm":
            declines = self._declined.get(order_id, 0) < call.declines
            return "done" if self._once("declined" if declines else "charged", order_id, call.key) else "declined"
        if call.operation == "cancel":
            if self._charged.get(order_id, 0) > 0:
                self._once("refunded", order_id, call.key)
        elif call.operation == "reserve":
            self._once("reserved", order_id, call.key)
        return "done"

    def _once(self, deed: str, order_id: str, key: str) -> bool:
        """Do the deed unless the key already has one. Return False when the deed of the key is a decline."""
        if key not in self._known:
            self.books.append(BookEntry(deed, order_id, key))
            self._known[key] = deed
            if deed == "declined":
                self._declined[order_id] = self._declined.get(order_id, 0) + 1
            elif deed in {"charged", "refunded"}:
                self._charged[order_id] = self._charged.get(order_id, 0) + (1 if deed == "charged" else -1)
        return self._known[key] != "declined"

    def _luck(self, call: BankCall) -> float:
        """Draw the fault of a call in [0, 1]. Only first calls have faults; a retry gets 1.0."""
        if call.key in self._called_keys:
            return 1.0
        self._called_keys.add(call.key)
        digest = hashlib.blake2b(f"{self._seed}/{call.order}/{call.operation}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big") / 2**32


def home_in(folder: Path) -> str:
    """Return the URL of the engine's home in the demo's folder."""
    return f"lanes://{folder / 'home'}"
