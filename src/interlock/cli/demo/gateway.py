"""The connection between the shop and the bank: calls one way, answers the other, one JSON array per line.

The bank's end is in the parent process, the shop's end in the worker. A kill cuts the connection; deeds that the bank
has done stay done. A retry under the same key gets the same answer.
"""

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import cast

import msgspec

from interlock.cli.demo.bank import Bank, Call, Operation, Verdict, intent_of, order_of
from interlock.errors import Retryable

Waits = Callable[[str, str], Awaitable[None]]
"""Called with the order and the operation; returns when the customer has sent every event that comes first."""

_call = msgspec.json.Decoder(tuple[int, Call])
_answer = msgspec.json.Decoder(tuple[int, Verdict])
_COMPLAINTS: dict[Verdict, str] = {
    "failed": "the bank does not answer the call to {operation}.",
    "lost": "the answer was lost on its way.",
    "down": "503 Service Unavailable, when asked to {operation}.",
}


class Lines(asyncio.Protocol, ABC):
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


class Answering(Lines):
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


class Calling(Lines):
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
            end = Answering(self._bank)
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


async def call_at(descriptor: int, calling: Calling) -> None:
    """Connect the shop's end to the socket with this descriptor."""
    line = socket.socket(fileno=descriptor)
    await asyncio.get_running_loop().create_unix_connection(lambda: calling, sock=line)
