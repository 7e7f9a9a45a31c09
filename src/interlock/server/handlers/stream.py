"""The stream of the engine's signals as server-sent events; a client that reconnects catches up.

The latest signals are kept in a ring, each with a number. `Last-Event-ID` requests the signals after it. If they are no
longer in the ring, or the server was restarted, the stream begins with an event `reset`: the client has to load
everything again. The ring subscribes to the engine with the first stream, and costs nothing before.

The stream reports the signals of this process. On a shared store each process reports its own. A client that reconnects
to another process finds another life there, and gets `reset`: it never misses signals unnoticed.
"""

import asyncio
import math
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncGenerator, Callable

from interlock.errors import InterlockError, InvalidPayload
from interlock.server.http_messages import EVENTS, Request, StreamedAnswer
from interlock.server.problems import HttpProblem
from interlock.server.service import Ring, Service
from interlock.signals import AlertRaised, Signal
from interlock.wire import KINDS, encode, kind_of

RETRY_MS = 1_000
"""How long a browser waits before it reconnects."""


async def stream(service: Service, request: Request) -> StreamedAnswer:
    """Stream signals from now on, or after the event that the request names."""
    ring = service.ring
    query = request.query
    kinds = None if "kind" not in query else _kinds(query["kind"])
    await service.permit(request, query.get("machine"), None)
    if "machine" in query:
        service.machine(query["machine"])
    if ring.streams >= request.limits.streams_max:
        raise HttpProblem(
            "overloaded",
            f"{ring.streams} streams are open already (streams_max).",
            why="Each of them receives every signal.",
            fix="Retry after Retry-After, or share one stream.",
            retry_s=5,
        )
    ring.listen()
    wanted = _wanted(service, request, kinds, query.get("machine"), query.get("workflow"))
    begun, known = _position(ring, request.header(b"last-event-id") or query.get("last_event_id"))
    return StreamedAnswer(200, _pieces(service, request, wanted, begun, known=known), EVENTS)


async def _pieces(
    service: Service, request: Request, wanted: Callable[[Signal], bool], number: int, *, known: bool
) -> AsyncGenerator[bytes, None]:
    ring = service.ring
    ring.streams += 1
    loop = asyncio.get_running_loop()
    ends = {loop.create_task(request.disconnected()), loop.create_task(service.until_stop())}
    end_s = math.inf if service.announces_stop else loop.time() + service.limits.stream_s
    sent, quiet_s = number, min(loop.time() + service.limits.stream_alive_s, end_s)
    try:
        # The tasks start before the first piece: they would otherwise miss a stop signal that comes right after it.
        await asyncio.sleep(0)
        # The id of the first position: a client that disconnects before the first event then misses nothing.
        yield b"retry: %d\nid: %b-%d\n" % (RETRY_MS, ring.life.encode(), number) + (
            b": interlock\n\n" if known else b"event: reset\ndata: {}\n\n"
        )
        while not any(task.done() for task in ends):
            if not ring.has(number):
                number = ring.last
                yield b"event: reset\nid: %b-%d\ndata: {}\n\n" % (ring.life.encode(), number)
            found = ring.after(number)
            if found:
                number = found[-1][0]
            elif loop.time() < quiet_s:
                await asyncio.wait({ring.more(), *ends}, timeout=quiet_s - loop.time(), return_when=FIRST_COMPLETED)
                continue
            piece = b"".join(_encode_event(ring, place, signal) for place, signal in found if wanted(signal))
            if not piece and loop.time() < quiet_s:
                continue
            try:
                await service.guard.revalidate(request.identity)
            except InterlockError:
                return  # The key was revoked or has expired; a reconnect is answered with 401.
            # Advance the cursor of a filtered client past signals that did not match, so that a reconnect does not
            # rescan them.
            place = b"id: %b-%d\n" % (ring.life.encode(), number) if number > sent else b""
            yield piece or place + b": alive\n\n"
            if loop.time() >= end_s:
                return  # The client reconnects. A server that stops without a signal waits no longer than this.
            sent, quiet_s = number, min(loop.time() + service.limits.stream_alive_s, end_s)
    finally:
        ring.streams -= 1
        for task in ends:
            task.cancel()


def _encode_event(ring: Ring, number: int, signal: Signal) -> bytes:
    return b"id: %b-%d\nevent: %b\ndata: %b\n\n" % (
        ring.life.encode(),
        number,
        kind_of(type(signal)).encode(),
        encode(signal),
    )


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(text.split(","))
    if not kinds <= set(KINDS):
        raise InvalidPayload(
            f"kind is {text!r:.100}; kinds are {', '.join(KINDS)}.",
            why="A stream of an unknown kind would stay silent.",
            fix="Name some of them, separated by commas.",
        )
    return kinds


def _wanted(
    service: Service, request: Request, kinds: frozenset[str] | None, machine: str | None, workflow: str | None
) -> Callable[[Signal], bool]:
    identity = request.identity

    def wanted(signal: Signal) -> bool:
        if kinds is not None and kind_of(type(signal)) not in kinds:
            return False
        its_machine, its_workflow = _about(service, signal)
        if (machine is not None and its_machine != machine) or (workflow is not None and its_workflow != workflow):
            return False
        return identity.covers(its_machine, its_workflow)

    return wanted


def _about(service: Service, signal: Signal) -> tuple[str | None, str | None]:
    """Return the machine and workflow of a signal; None where it concerns several, or is unknown."""
    machine: str | None = getattr(signal, "machine", None)
    workflow: str | None = getattr(signal, "workflow", None)
    if isinstance(signal, AlertRaised) and signal.kind in {"stalled", "dead_letter"}:
        workflow = signal.subject
    if machine is None and workflow is not None:
        machine = service.known_machine(workflow)
    return machine, workflow


def _position(ring: Ring, event_id: str | None) -> tuple[int, bool]:
    """Return the position where a stream begins, and whether it misses nothing there."""
    if not event_id:
        return ring.last, True
    life, _, number = event_id.partition("-")
    if life == ring.life and number.isascii() and number.isdigit() and len(number) <= 18 and ring.has(int(number)):  # noqa: PLR2004 -- 64 bits.
        return int(number), True
    return ring.last, False
