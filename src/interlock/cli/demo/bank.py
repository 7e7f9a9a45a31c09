"""The bank and the warehouse of the demo: external services with faults and books, which survive every kill.

They run in the process that kills, not in the one that is killed. Both honour idempotency keys as a payment provider
does: a second call with the same key returns the same answer and does nothing more. Some calls fail before anything
was done, some answers are lost, some are late. During an outage the bank refuses every call. The books are an
append-only file with one line per deed. The shop reaches both over one connection.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, cast

import msgspec

from interlock.errors import Retryable

# --- Bank and books --------------------------------------------------------------------------------------------------

FAILED, LOST, SLOW = 0.04, 0.08, 0.12
"""The share of first calls up to which the call fails, up to which the answer is lost, and up to which it is late."""

LATE_S = 0.4
"""The longest delay of an answer."""

BOOKS = "books"
"""The file of the books in the demo's folder."""

FAULTS = frozenset({"failed", "lost", "slow", "refused"})
"""Entries of the books that record a fault, not a deed."""

Operation = Literal["create_intent", "confirm", "cancel", "reserve", "release"]
Verdict = Literal["done", "declined", "failed", "lost", "down"]


class Entry(NamedTuple):
    """A line of the books: the deed, the order and the idempotency key."""

    deed: str
    order: str
    key: str


class Books:
    """An append-only file of entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def write(self, deed: str, order_id: str, key: str) -> None:
        """Append an entry with one write."""
        os.write(self._file, f"{deed} {order_id} {key}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def entries(path: Path) -> list[Entry]:
    """Read all entries of the books at a path."""
    with path.open(encoding="utf-8") as lines:
        return [Entry(*line.split()) for line in lines]


class Call(NamedTuple):
    """A request to the bank or the warehouse."""

    operation: Operation
    order: str
    key: str
    declines: int = 0
    """How often this customer's card is declined, as with the test cards of a real provider."""


class Bank:
    """A payment provider and a warehouse. It does nothing twice under one key, and writes every deed to the books."""

    def __init__(self, books: Books, seed: int) -> None:
        self.down = False
        """True during an outage of the bank. The warehouse never has one."""
        self.refused = 0
        """Calls during an outage."""
        self._books = books
        self._seed = seed
        self._known: dict[str, str] = {}
        """The deed of each key that had an effect."""
        self._declined: dict[str, int] = {}
        self._charged: dict[str, int] = {}
        self._called_keys: set[str] = set()

    def answer(self, call: Call) -> tuple[Verdict, float]:
        """Execute the call, once per key. Return the answer and its delay in seconds."""
        if call.operation == "release":
            self._once("released", call.order, f"{call.key}:release")
            return "done", 0.0
        if self.down and call.operation != "reserve":
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
            self._books.write(deed, order_id, key)
            self._known[key] = deed
            if deed == "declined":
                self._declined[order_id] = self._declined.get(order_id, 0) + 1
            elif deed in {"charged", "refunded"}:
                self._charged[order_id] = self._charged.get(order_id, 0) + (1 if deed == "charged" else -1)
        return self._known[key] != "declined"

    def _luck(self, call: Call) -> float:
        """Draw the fault of a call in [0, 1]. Only first calls have faults; a retry gets 1.0."""
        if call.key in self._called_keys:
            return 1.0
        self._called_keys.add(call.key)
        digest = hashlib.blake2b(f"{self._seed}/{call.order}/{call.operation}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big") / 2**32


def home_in(folder: Path) -> str:
    """Return the URL of the engine's home in the demo's folder."""
    return f"lanes://{folder / 'home'}"


def intent_of(order_id: str) -> str:
    """Return the payment intent of an order."""
    return f"pi-{order_id}"


def order_of(intent_id: str) -> str:
    """Return the order of a payment intent."""
    return intent_id.removeprefix("pi-")


# --- Connection between the shop and the bank ------------------------------------------------------------------------
# The bank's end is in the parent process, the shop's end in the worker: calls one way, answers the other, one JSON
# array per line. A kill cuts the connection; deeds that the bank has done stay done.

Waits = Callable[[str, str], Awaitable[None]]
"""Called with the order and the operation; returns when the customer has sent every event that comes first."""

_call = msgspec.json.Decoder(tuple[int, Call])
_answer = msgspec.json.Decoder(tuple[int, Verdict])
_COMPLAINTS: dict[Verdict, str] = {
    "failed": "the bank does not answer the call to {operation}.",
    "lost": "the answer was lost on its way.",
    "down": "503 Service Unavailable, when asked to {operation}.",
}


class LineProtocol(asyncio.Protocol, ABC):
    """One end of the connection: a protocol that reads and writes whole lines."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Split the received bytes into lines, and handle each."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.hear(line)

    @abstractmethod
    def hear(self, line: bytes) -> None:
        """Handle one line of the other end."""

    def say(self, value: object) -> None:
        """Send one line; do nothing when the connection is closed."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(msgspec.json.encode(value) + b"\n")

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


class BankEnd(LineProtocol):
    """The bank's end."""

    def __init__(self, bank: Bank) -> None:
        super().__init__()
        self._bank = bank

    def hear(self, line: bytes) -> None:
        """Answer a call, immediately or with its delay."""
        number, call = _call.decode(line)
        verdict, late_s = self._bank.answer(call)
        if late_s:
            asyncio.get_running_loop().call_later(late_s, self.say, (number, verdict))
        else:
            self.say((number, verdict))


class ShopEnd(LineProtocol):
    """The shop's end: the payments and the warehouse that the steps of the example call."""

    def __init__(self, declines: Callable[[str], int], waits: Waits) -> None:
        super().__init__()
        self._declines = declines
        self._waits = waits
        self._numbers = 0
        self._pending: dict[int, asyncio.Future[Verdict]] = {}

    def hear(self, line: bytes) -> None:
        """Resolve the call that the answer belongs to. An answer to a cancelled call is dropped."""
        number, verdict = _answer.decode(line)
        waiting = self._pending.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(verdict)

    async def create_intent(self, order_id: str, *, key: str) -> str:
        """Announce a payment. The intent follows from the order, so a repeated call gets the same one."""
        await self._ask("create_intent", order_id, key)
        return intent_of(order_id)

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        """Charge, once per key. False when the bank declines."""
        return await self._ask("confirm", order_of(intent_id), key) == "done"

    async def cancel(self, intent_id: str, *, key: str) -> None:
        """Void the intent, or give back what was taken."""
        await self._ask("cancel", order_of(intent_id), key)

    async def reserve(self, order_id: str, items: Mapping[str, int], *, key: str) -> None:
        """Put the goods aside."""
        del items
        await self._ask("reserve", order_id, key)

    async def release(self, order_id: str, *, key: str) -> None:
        """Put the goods back; nothing reserved is fine."""
        await self._ask("release", order_id, key)

    async def _ask(self, operation: Operation, order_id: str, key: str) -> Verdict:
        if operation != "release":
            await self._waits(order_id, operation)
        self._numbers += 1
        number = self._numbers
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        declines = self._declines(order_id) if operation == "confirm" else 0
        self.say((number, Call(operation, order_id, key, declines)))
        try:
            verdict = await answer
        finally:
            self._pending.pop(number, None)
        complaint = _COMPLAINTS.get(verdict)
        if complaint is not None:
            raise Retryable(complaint.format(operation=operation.replace("_", " ")))
        return verdict


class Gateway:
    """The bank with its connections and its outage."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._ending: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncGenerator[socket.socket, None]:
        """Open a connection to the bank, and yield the worker's end. It is closed after the block."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            end = BankEnd(self._bank)
            await asyncio.get_running_loop().create_unix_connection(lambda: end, sock=ours)
            try:
                yield theirs
            finally:
                end.close()

    @property
    def is_down(self) -> bool:
        """Whether there is an outage."""
        return self._bank.down

    @property
    def refused(self) -> int:
        """Calls during the outage."""
        return self._bank.refused

    def fail(self) -> None:
        """Begin an outage."""
        self._bank.down = True

    def recover_in(self, seconds: float, back: Callable[[], None]) -> None:
        """End the outage after this time, and call `back`."""

        def recovered() -> None:
            self._bank.down = False
            back()

        if self._bank.down and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(seconds, recovered)


async def call_at(descriptor: int, calling: ShopEnd) -> None:
    """Connect the shop's end to the socket with this descriptor."""
    line = socket.socket(fileno=descriptor)
    await asyncio.get_running_loop().create_unix_connection(lambda: calling, sock=line)
