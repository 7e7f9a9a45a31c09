"""The server that `benchmarks.http` asks: what `interlock serve` runs, with one route more that does nothing.

The route reads the body, decodes it and answers a small JSON. It goes through the same app, the same guard and the same
server process as an event does, so what an event costs beyond it is what Interlock does.

    python -m benchmarks.serving.server HOME WORKFLOWS

prints its port once it listens, and ends when its standard input does.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from enum import Enum

import msgspec

from interlock import Engine, Event, Machine
from interlock.clock import SystemClock
from interlock.server.asgi import AsgiApp
from interlock.server.http_messages import HttpAnswer, Request
from interlock.server.lifecycle import admission_from, bound_socket, run_until_stopped, server_maker, stop_on_signals
from interlock.server.router import Endpoint
from interlock.server.security.guard import Guard
from interlock.server.security.keys import Scope
from interlock.server.security.stores import security_at
from interlock.server.service import Service
from interlock.wire import EventBody, encode

NOOP = "/v1/noop"
AT_ONCE = 1_000


class State(Enum):
    """A parcel is on its way for as long as the benchmark lasts."""

    MOVING = "moving"
    DELIVERED = "delivered"


@dataclass(frozen=True)
class Parcel:
    """Where it was seen last, and how often."""

    place: str = ""
    scans: int = 0


class ParcelEvent(Event):
    """What happens to parcels."""


@dataclass(frozen=True)
class Scan(ParcelEvent):
    """It was seen somewhere."""

    place: str


@dataclass(frozen=True)
class Deliver(ParcelEvent):
    """It has arrived."""


parcels = Machine(
    "parcel",
    states=State,
    context=Parcel,
    events=ParcelEvent,
    initial=State.MOVING,
    final={State.DELIVERED},
)
parcels.on(Deliver, State.MOVING, to=State.DELIVERED)


@parcels.on(Scan, State.MOVING)
def scanned(parcel: Parcel, event: Scan) -> Parcel:
    """Write down where."""
    return replace(parcel, place=event.place, scans=parcel.scans + 1)


class Told(msgspec.Struct):
    """The answer of the route that does nothing."""

    event: str
    ok: bool = True


_body = msgspec.json.Decoder(EventBody)


async def nothing(service: Service, request: Request) -> HttpAnswer:
    """Read and decode the body, and say so."""
    del service
    body = await request.json(_body)
    return HttpAnswer(200, encode(Told(body.event)))


ROUTES = (Endpoint(method="POST", path=NOOP, handler=nothing, scope=Scope.SEND, summary="Nothing", tag="Benchmark"),)


def name(number: int) -> str:
    """The id of a workflow."""
    return f"parcel-{number}"


async def run(home: str, workflows: int) -> None:
    """Serve so many workflows until nobody holds the other end of the standard input any more."""
    clock, stop = SystemClock(), asyncio.Event()
    async with AsyncExitStack() as held:
        security = security_at(home, clock=clock)
        guard = Guard(security.keys, clock=clock)
        held.push_async_callback(security.audit.close)
        held.push_async_callback(guard.close)
        await guard.fresh()
        listening = held.enter_context(closing(bound_socket("127.0.0.1", 0)))
        engine = await held.enter_async_context(Engine.open(home, machines=[parcels]))
        for start in range(0, workflows, AT_ONCE):
            some = range(start, min(workflows, start + AT_ONCE))
            await asyncio.gather(*(engine.start(parcels, name(each), Parcel()) for each in some))
        engine.set_admission(admission_from())
        app = AsgiApp(Service(engine, guard=guard, audit=security.audit, home=home), ROUTES)
        held.push_async_callback(app.close)
        server = server_maker()(app)
        held.enter_context(stop_on_signals(app, server, stop, 0.0))
        asyncio.get_running_loop().add_reader(sys.stdin, _ended, stop)
        print(listening.getsockname()[1], flush=True)
        await server.serve(sockets=[listening])


def _ended(stop: asyncio.Event) -> None:
    asyncio.get_running_loop().remove_reader(sys.stdin)
    stop.set()


def main(given: Sequence[str]) -> None:
    """As the command line says."""
    run_until_stopped(run(given[0], int(given[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
