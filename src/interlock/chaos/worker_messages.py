"""Messages between the experiment and its workers: one JSON document per line, over one socket per worker.

A worker calls the external services, answers operations, and reports signals. An unfinished line does not count, so
the messages that a worker sent before a kill are known exactly.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

import msgspec

DONE, DECLINED, FAILED = "done", "declined", "failed"


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Start parameters of a worker."""

    worker: int
    home: str
    redis: str = ""
    """The address of a Redis; empty without one."""
    disk: str = ""
    """The folder of a small disk below the home; empty without one."""
    disk_kind: Literal["tmpfs", "simulated"] = "tmpfs"
    shop: str = "interlock.chaos.shop:SHOP"
    """The shop that the worker serves, as `module:attribute`."""
    runs_steps: bool = True
    """Whether it runs steps; without, it only takes events."""
    sabotage: str = ""
    """A function, as `module:function`, that is called first. With it tests break a worker on purpose."""


# --- Messages from a worker ------------------------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker's engine is open."""


class ServiceCall(msgspec.Struct, frozen=True, tag="call"):
    """A step or an undo calls an external service for a deed."""

    number: int
    deed: str
    workflow: str
    key: str
    undoes: str = ""
    visit: int = 0


class GaveUp(msgspec.Struct, frozen=True, tag="gave-up"):
    """The worker has cancelled a call and ignores its answer."""

    number: int


class Acknowledged(msgspec.Struct, frozen=True, tag="acknowledged"):
    """An operation was answered."""

    number: int
    version: int
    state: str
    ignored: bool = False
    duplicate: bool = False


class Repeated(msgspec.Struct, frozen=True, tag="repeated"):
    """An operation has to be repeated, with the same key."""

    number: int
    code: str


class OperationRefused(msgspec.Struct, frozen=True, tag="refused"):
    """An operation was refused for good."""

    number: int
    code: str


class News(msgspec.Struct, frozen=True, tag="news"):
    """A signal for operators: a breaker, a Redis, a late result."""

    worker: int
    at_s: float
    """Seconds of the machine's monotonic clock: lines of two workers may arrive in another order."""
    what: str
    """ended, reopened, breaker-{open,half_open,closed}, redis-gone, redis-back, late, lease, no-lease."""
    subject: str
    detail: str = ""


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """The worker's engine is closed."""


FromWorker = Ready | ServiceCall | GaveUp | Acknowledged | Repeated | OperationRefused | News | Closed


# --- Messages to a worker --------------------------------------------------------------------------------------------


class Operation(msgspec.Struct, frozen=True, tag="operation"):
    """A customer's operation: start, submit or cancel."""

    number: int
    what: str
    workflow: str
    order: int
    key: str


class CallAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """The answer to a call."""

    number: int
    result: str


class StopWorker(msgspec.Struct, frozen=True, tag="stop"):
    """Close the engine and end."""


ToWorker = Operation | CallAnswer | StopWorker

_encoder = msgspec.json.Encoder()
_from_worker_decoder: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_to_worker_decoder: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)


def line_of(message: FromWorker | ToWorker) -> bytes:
    """Encode a message as a line."""
    return _encoder.encode(message) + b"\n"


async def next_from_worker(reader: asyncio.StreamReader) -> FromWorker | None:
    """Read the next message of a worker; None at the end of its stream."""
    line = await reader.readline()
    return _from_worker_decoder.decode(line) if line.endswith(b"\n") else None


async def next_to_worker(reader: asyncio.StreamReader) -> ToWorker | None:
    """Read the next message to this worker; None at the end of the stream."""
    line = await reader.readline()
    return _to_worker_decoder.decode(line) if line.endswith(b"\n") else None


AnswerT = TypeVar("AnswerT")


class PendingCalls(Generic[AnswerT]):
    """Calls from one process to another that are not answered yet, by number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._futures: dict[int, asyncio.Future[AnswerT]] = {}

    async def ask(self, send: Callable[[int], None], give_up: Callable[[int], None] = lambda _number: None) -> AnswerT:
        """Send a call with its number, and return the answer. `give_up` is called when the caller is cancelled."""
        number = next(self._numbers)
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._futures[number] = future
        send(number)
        try:
            return await future
        except asyncio.CancelledError:
            give_up(number)
            raise
        finally:
            del self._futures[number]

    def resolve(self, number: int, answer: AnswerT) -> None:
        """Answer a call. The answer to a cancelled call is dropped."""
        future = self._futures.get(number)
        if future is not None and not future.done():
            future.set_result(answer)
