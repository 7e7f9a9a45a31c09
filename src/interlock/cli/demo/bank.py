"""The bank and the warehouse of the demo: the world outside, which has faults and books, and survives every kill.

They live in the process that kills, not in the one that is killed. Both honour idempotency keys as a payment provider
does: asked again with the same key, they answer the same and do nothing more. Now and then a call fails before anything
was done, an answer is lost afterwards, or comes late; and during an outage the bank answers nobody. The books are a
file that is only appended to, a line per deed: what is in there has happened.
"""

import hashlib
import os
from pathlib import Path
from typing import Literal, NamedTuple

FAILED, LOST, SLOW = 0.04, 0.08, 0.12
"""The share of first calls up to which nobody answers, up to which the answer is lost, and up to which it is late."""

LATE_S = 0.4
"""How late an answer can be."""

BOOKS = "books"
"""The file of the books in the demo's folder."""

FAULTS = frozenset({"failed", "lost", "slow", "refused"})
"""Entries of the books that tell of bad luck, and not of a deed."""

Asked = Literal["create_intent", "confirm", "cancel", "reserve", "release"]
Verdict = Literal["done", "declined", "failed", "lost", "down"]


class Entry(NamedTuple):
    """A line of the books: what was done for which order, under which idempotency key."""

    deed: str
    order: str
    key: str


class Books:
    """A file of entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def write(self, deed: str, order_id: str, key: str) -> None:
        """Add an entry, in one piece."""
        os.write(self._file, f"{deed} {order_id} {key}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def entries(path: Path) -> list[Entry]:
    """Everything in the books at a path."""
    with path.open(encoding="utf-8") as lines:
        return [Entry(*line.split()) for line in lines]


class Call(NamedTuple):
    """What somebody asks for."""

    asked: Asked
    order: str
    key: str
    declines: int = 0
    """How often this customer's card is declined: it is on the card, as on the test cards of a real provider."""


class Bank:
    """A payment provider and a warehouse. It does nothing twice under one key, and writes down what it does."""

    def __init__(self, books: Books, seed: int) -> None:
        self.down = False
        """While the bank has an outage. The warehouse has none."""
        self.refused = 0
        """Calls that came during it."""
        self._books = books
        self._seed = seed
        self._known: dict[str, str] = {}
        """What was done under each key that had an effect."""
        self._declined: dict[str, int] = {}
        self._charged: dict[str, int] = {}
        self._seen: set[str] = set()

    def answer(self, call: Call) -> tuple[Verdict, float]:
        """Do what is asked, once. Returns the answer, and how late it is."""
        if call.asked == "release":
            self._once("released", call.order, f"{call.key}:release")
            return "done", 0.0
        if self.down and call.asked != "reserve":
            self.refused += 1
            self._books.write("refused", call.order, call.key)
            return "down", 0.0
        luck = self._luck(call)
        if luck < FAILED:
            self._books.write("failed", call.order, call.key)
            return "failed", 0.0
        verdict = self._do(call)
        if luck < LOST:
            self._books.write("lost", call.order, call.key)
            return "lost", 0.0
        if luck < SLOW:
            self._books.write("slow", call.order, call.key)
            return verdict, LATE_S * (luck - LOST) / (SLOW - LOST)
        return verdict, 0.0

    def _do(self, call: Call) -> Verdict:
        order_id = call.order
        if call.asked == "confirm":
            declines = self._declined.get(order_id, 0) < call.declines
            return "done" if self._once("declined" if declines else "charged", order_id, call.key) else "declined"
        if call.asked == "cancel":
            if self._charged.get(order_id, 0) > 0:
                self._once("refunded", order_id, call.key)
        elif call.asked == "reserve":
            self._once("reserved", order_id, call.key)
        return "done"

    def _once(self, deed: str, order_id: str, key: str) -> bool:
        """Do it, unless something was done under this key before. Returns whether that was no decline."""
        if key not in self._known:
            self._books.write(deed, order_id, key)
            self._known[key] = deed
            if deed == "declined":
                self._declined[order_id] = self._declined.get(order_id, 0) + 1
            elif deed in {"charged", "refunded"}:
                self._charged[order_id] = self._charged.get(order_id, 0) + (1 if deed == "charged" else -1)
        return self._known[key] != "declined"

    def _luck(self, call: Call) -> float:
        """What happens to a call: only a first one has bad luck, a retry gets through."""
        if call.key in self._seen:
            return 1.0
        self._seen.add(call.key)
        digest = hashlib.blake2b(f"{self._seed}/{call.order}/{call.asked}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big") / 2**32


def home_in(folder: Path) -> str:
    """The address of the engine's home in the demo's folder."""
    return f"lanes://{folder / 'home'}"


def intent_of(order_id: str) -> str:
    """The payment intent of an order."""
    return f"pi-{order_id}"


def order_of(intent_id: str) -> str:
    """The order of a payment intent."""
    return intent_id.removeprefix("pi-")
