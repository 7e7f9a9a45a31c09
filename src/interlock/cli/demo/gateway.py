"""The line between the shop and the world outside: calls one way, answers the other, a JSON array per line.

The bank's end is in the process that watches, the shop's end in the one that is killed. A kill cuts the line like any
other connection: what the bank has done by then is done, and whoever asks again under the same key is told so.
"""

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import cast

import msgspec

from interlock.cli.demo.bank import Asked, Bank, Call, Verdict, intent_of, order_of
from interlock.errors import Retryable

Waits = Callable[[str, str], Awaitable[None]]
"""Given the order and what is asked; returns when the customer has nothing to say to it any more."""

_call = msgspec.json.Decoder(tuple[int, Call])
_answer = msgspec.json.Decoder(tuple[int, Verdict])
_COMPLAINTS: dict[Verdict, str] = {
    "failed": "nobody answers when asked to {asked}.",
    "lost": "the answer was lost on its way.",
    "down": "503 Service Unavailable, when asked to {asked}.",
}


class Lines(asyncio.Protocol, ABC):
    """One end of the line: whole lines in, whole lines out."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The line stands."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes of the other end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.hear(line)

    @abstractmethod
    def hear(self, line: bytes) -> None:
        """One line of the other end."""

    def say(self, value: object) -> None:
        """Send one line. Where nobody listens any more, nobody is told."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(msgspec.json.encode(value) + b"\n")

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


class Answering(Lines):
    """The bank's end."""

    def __init__(self, bank: Bank) -> None:
        super().__init__()
        self._bank = bank

    def hear(self, line: bytes) -> None:
        """Answer a call, now or a little late."""
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
        self._asked: dict[int, asyncio.Future[Verdict]] = {}

    def hear(self, line: bytes) -> None:
        """An answer; to a call that was given up meanwhile it comes too late."""
        number, verdict = _answer.decode(line)
        waiting = self._asked.pop(number, None)
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

    async def _ask(self, asked: Asked, order_id: str, key: str) -> Verdict:
        if asked != "release":
            await self._waits(order_id, asked)
        self._numbers += 1
        number = self._numbers
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        declines = self._declines(order_id) if asked == "confirm" else 0
        self.say((number, Call(asked, order_id, key, declines)))
        try:
            verdict = await answer
        finally:
            self._asked.pop(number, None)
        complaint = _COMPLAINTS.get(verdict)
        if complaint is not None:
            raise Retryable(complaint.format(asked=asked.replace("_", " ")))
        return verdict


class Gateway:
    """The bank as something that can be connected to, and that can have an outage."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._ending: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncGenerator[socket.socket, None]:
        """A line for as long as it takes: the end of whoever is going to call."""
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
        """Calls that came during it."""
        return self._bank.refused

    def fail(self) -> None:
        """Begin an outage."""
        self._bank.down = True

    def recover_in(self, seconds: float, back: Callable[[], None]) -> None:
        """End the outage then, and say so."""

        def recovered() -> None:
            self._bank.down = False
            back()

        if self._bank.down and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(seconds, recovered)


async def call_at(descriptor: int, calling: Calling) -> None:
    """Connect the shop's end to the line with this descriptor."""
    line = socket.socket(fileno=descriptor)
    await asyncio.get_running_loop().create_unix_connection(lambda: calling, sock=line)
