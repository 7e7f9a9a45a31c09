"""What the process that watches and its workers say to each other: one JSON document per line, over one socket each.

The worker asks the world outside, answers operations, and tells what it noticed. A line that was not finished was not
said, so what was said before a kill is known exactly.
"""

import asyncio
from typing import Literal

import msgspec

DONE, DECLINED, FAILED = "done", "declined", "failed"


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker is told when it starts."""

    worker: int
    socket: str
    """Where the world outside is."""
    home: str
    redis: str = ""
    """The address of a Redis; empty without one."""
    lease_s: float
    """How long it holds what it runs, on a store that it shares."""
    disk: str = ""
    """The folder of a small disk below the home; empty without one."""
    disk_kind: Literal["tmpfs", "simulated"] = "tmpfs"
    customers: int = 4


# --- a worker says --------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Who it is."""

    worker: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Its engine is open."""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A step or an undo asks the world outside for a deed."""

    number: int
    deed: str
    workflow: str
    key: str
    undoes: str = ""


class GaveUp(msgspec.Struct, frozen=True, tag="gave-up"):
    """Nobody waits for the answer to a call any more."""

    number: int


class Acknowledged(msgspec.Struct, frozen=True, tag="acknowledged"):
    """An operation was answered."""

    number: int
    version: int
    state: str
    ignored: bool = False


class Repeated(msgspec.Struct, frozen=True, tag="repeated"):
    """An operation has to be repeated, with the same key."""

    number: int
    code: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An operation was refused for good."""

    number: int
    code: str


class Noticed(msgspec.Struct, frozen=True, tag="noticed"):
    """Something that operators are told: a breaker, a Redis, a late result."""

    what: str
    """ended, breaker-open, breaker-half_open, breaker-closed, redis-gone, redis-back, late, lease, no-lease."""
    subject: str
    detail: str = ""
    at_s: float = 0.0
    """When, by the monotonic clock of the machine: lines of two workers may be read in another order."""


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """Its engine is closed."""


Said = Hello | Ready | Call | GaveUp | Acknowledged | Repeated | Refused | Noticed | Closed


# --- a worker is told -----------------------------------------------------------------------------------------------


class Operation(msgspec.Struct, frozen=True, tag="operation"):
    """Something a customer wants: start, submit or cancel."""

    number: int
    what: str
    workflow: str
    order: int
    key: str


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What became of a call."""

    number: int
    said: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Close the engine and end."""


Told = Operation | Answer | Stop

_encoder = msgspec.json.Encoder()
_said: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)
_told: msgspec.json.Decoder[Told] = msgspec.json.Decoder(Told)


def line_of(message: Said | Told) -> bytes:
    """As it is written."""
    return _encoder.encode(message) + b"\n"


async def next_said(reader: asyncio.StreamReader) -> Said | None:
    """The next thing that a worker says; None when it says no more."""
    line = await reader.readline()
    return _said.decode(line) if line.endswith(b"\n") else None


async def next_told(reader: asyncio.StreamReader) -> Told | None:
    """The next thing that a worker is told; None when nobody tells it any more."""
    line = await reader.readline()
    return _told.decode(line) if line.endswith(b"\n") else None
