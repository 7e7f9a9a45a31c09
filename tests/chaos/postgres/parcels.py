"""The smallest machine with a step, for tests of one thing each, and the program of a worker that its step kills."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.engine.engine import Engine
from interlock.engine.open_engine import EngineOpening

ATTEMPTS = 3
LEASE_S = 0.4
POLL_S = 0.05


class State(Enum):
    SENDING = "sending"
    SENT = "sent"
    LOST = "lost"


@dataclass(frozen=True)
class Parcel:
    """Nothing is known of it."""


class ParcelEvent(Event): ...


@dataclass(frozen=True)
class Sent(ParcelEvent): ...


parcel = Machine(
    "parcel",
    states=State,
    context=Parcel,
    events=ParcelEvent,
    initial=State.SENDING,
    final={State.SENT, State.LOST},
)
parcel.on(Sent, State.SENDING, to=State.SENT)

Deed = Callable[[StepContext], Awaitable[None]]
deeds: list[Deed] = []
"""What sending is, at the end."""


@parcel.step(State.SENDING, timeout_s=30, retry=Retry(attempts=ATTEMPTS, first_s=0.01, max_s=0.05), failed=State.LOST)
async def send(order: Parcel, ctx: StepContext) -> Sent:
    await deeds[-1](ctx)
    return Sent()


def opened(url: str, *, worker: bool = True, lease_s: float = LEASE_S) -> EngineOpening[Engine]:
    """An engine whose leases are short, unless it is said how long."""
    url = f"{url}&connections_max=5"  # The server has a hundred for all.
    return Engine.open(url, machines=[parcel], worker=worker, drain_s=0, lease_s=lease_s, poll_s=POLL_S)


def poisoned(say: Callable[[str], None], url: str) -> None:
    """A worker that every attempt kills, until nobody attempts it any more."""

    async def die(ctx: StepContext) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def main() -> None:
        async with opened(url) as engine:
            view = await engine.wait("poison", timeout_s=300)
            say(str(view.state.value))

    deeds.append(die)
    asyncio.run(main())
