"""The bank and the warehouse of the demo: the world outside, which has faults and books, and survives every kill.

Both honour idempotency keys as a payment provider does: asked again with the same key, they answer the same and do
nothing more. Now and then a call fails before anything was done, or its answer is lost afterwards. The books are a file
that is only appended to, a line per deed; whoever is killed, what is in there has happened.

For some orders the customer is quicker: then the world waits until they have said what they want to say.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from interlock.errors import Retryable

FAILED, LOST = 0.04, 0.08
"""The share of first calls up to which nobody answers, and up to which the answer is lost."""

BOOKS = "books"
"""The file of the books in the demo's folder."""

Waits = Callable[[str, str], Awaitable[None]]
"""Given the order and what is asked; returns when the customer has nothing to say to it any more."""


class Entry(NamedTuple):
    """A line of the books: what was done for which order, under which idempotency key."""

    deed: str
    order: str
    key: str


class Books:
    """A file of entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)

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


class World:
    """A payment provider and a warehouse, as the steps of the examples call them."""

    def __init__(self, books: Books, declines: Callable[[str], int], waits: Waits, seed: int) -> None:
        self._books = books
        self._declines = declines
        self._waits = waits
        self._seed = seed
        self._known: dict[str, str] = {}
        """What was answered to each key that had an effect."""
        self._declined: dict[str, int] = {}
        self._charged: dict[str, int] = {}
        self._seen: set[str] = set()
        for entry in entries(books.path):
            self._note(entry)

    async def create_intent(self, order_id: str, *, key: str) -> str:
        """Announce a payment. The intent follows from the order, so a repeated call gets the same one."""
        await self._waits(order_id, "create_intent")
        self._fault(order_id, "create_intent", key)
        return intent_of(order_id)

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        """Charge once per key, unless it is to be declined."""
        order_id = order_of(intent_id)
        await self._waits(order_id, "confirm")
        lost = self._fault(order_id, "confirm", key)
        if key not in self._known:
            declines = self._declined.get(order_id, 0) < self._declines(order_id)
            self._do("declined" if declines else "charged", order_id, key)
        _lose(lost)
        return self._known[key] == "charged"

    async def cancel(self, intent_id: str, *, key: str) -> None:
        """Void the intent, or give back what was taken."""
        order_id = order_of(intent_id)
        await self._waits(order_id, "cancel")
        lost = self._fault(order_id, "cancel", key)
        if key not in self._known and self._charged.get(order_id, 0) > 0:
            self._do("refunded", order_id, key)
        _lose(lost)

    async def reserve(self, order_id: str, items: dict[str, int], *, key: str) -> None:
        """Put the goods aside."""
        del items
        await self._waits(order_id, "reserve")
        lost = self._fault(order_id, "reserve", key)
        if key not in self._known:
            self._do("reserved", order_id, key)
        _lose(lost)

    async def release(self, order_id: str, *, key: str) -> None:
        """Put the goods back; nothing reserved is fine."""
        release = f"{key}:release"
        if release not in self._known:
            self._do("released", order_id, release)

    def _do(self, deed: str, order_id: str, key: str) -> None:
        self._books.write(deed, order_id, key)
        self._note(Entry(deed, order_id, key))

    def _note(self, entry: Entry) -> None:
        deed, order_id, key = entry
        if deed in FAULTS:
            return
        self._known[key] = deed
        if deed == "declined":
            self._declined[order_id] = self._declined.get(order_id, 0) + 1
        elif deed in {"charged", "refunded"}:
            self._charged[order_id] = self._charged.get(order_id, 0) + (1 if deed == "charged" else -1)

    def _fault(self, order_id: str, asked: str, key: str) -> bool:
        """Fail now, or say that the answer will be lost. Only a first call has bad luck: a retry gets through."""
        if key in self._seen:
            return False
        self._seen.add(key)
        digest = hashlib.blake2b(f"{self._seed}/{order_id}/{asked}".encode(), digest_size=4).digest()
        luck = int.from_bytes(digest, "big") / 2**32
        if luck < FAILED:
            self._books.write("failed", order_id, key)
            raise Retryable(f"nobody answers when asked to {asked.replace('_', ' ')}.")
        if luck < LOST:
            self._books.write("lost", order_id, key)
            return True
        return False


FAULTS = frozenset({"failed", "lost"})


def _lose(lost: bool) -> None:  # noqa: FBT001 -- as the fault said.
    if lost:
        raise Retryable("the answer was lost on its way.")


def home_in(folder: Path) -> str:
    """The address of the engine's home in the demo's folder."""
    return f"lanes://{folder / 'home'}"


def intent_of(order_id: str) -> str:
    """The payment intent of an order."""
    return f"pi-{order_id}"


def order_of(intent_id: str) -> str:
    """The order of a payment intent."""
    return intent_id.removeprefix("pi-")
