"""PostgreSQL is restarted, killed, slow, or has no connection left for anybody.

An engine waits for a server that is away and repeats what may be repeated; what it gives up on is repeated by its
customers, with the same key. Nobody is restarted.
"""

import asyncio

from interlock.chaos.crowd import Crowd
from interlock.chaos.flow import Flow
from interlock.chaos.messages import Life
from interlock.chaos.stage import Stage
from interlock.chaos.threads import in_thread
from interlock.chaos.wire import Wire
from interlock.chaos.words import counted, times
from interlock.chaos.world import Broken

BYTES_PER_S, LATENCY_S = 60_000, 0.03
AGAIN_S = 0.05
PLACED = 5


def repeated(stage: Stage) -> str:
    """How often operations had to be repeated, for people."""
    count = stage.world.customers.repeated.total()
    return f"operations were repeated {times(count)}" if count else "no operation had to be repeated"


async def _nobody_answers(stage: Stage) -> None:
    """Let customers want something of a server that is away: otherwise nothing would be shown."""
    stage.place(PLACED)
    await stage.hold()
    if stage.world.customers.answered_all:
        raise Broken("everybody had an answer while PostgreSQL was away: orders were acknowledged that it cannot have")


class RestartPostgres(Flow):
    """The server is shut down in order, and started again."""

    name = "restart-postgres"
    disturbance = "PostgreSQL is shut down"
    promise = "PostgreSQL shuts down and comes back: nobody is restarted for it, and nothing acknowledged is lost"

    async def disturb(self, stage: Stage) -> None:
        """Every session is ended; for a moment there is nobody to ask."""
        await in_thread(stage.postgres.stop)
        await _nobody_answers(stage)
        await in_thread(stage.postgres.start)

    def happened(self, stage: Stage) -> str:
        """What happened."""
        return f"it was away for {stage.load.seconds:g} s; {repeated(stage)}"


class KillPostgres(Flow):
    """Kill -9 of every process of the server."""

    name = "kill-postgres"
    disturbance = "PostgreSQL is killed"
    promise = "every process of PostgreSQL is killed at once: it recovers from its log, and everybody goes on"

    async def disturb(self, stage: Stage) -> None:
        """Nothing is said to anybody; the next start recovers."""
        await in_thread(stage.postgres.kill)
        await _nobody_answers(stage)
        await in_thread(stage.postgres.start)

    def happened(self, stage: Stage) -> str:
        """What happened."""
        return f"killed, and started again after {stage.load.seconds:g} s; {repeated(stage)}"


class ThrottlePostgres(Flow):
    """The wire to the server is slow."""

    name = "throttle-postgres"
    disturbance = "the wire is slow"
    promise = f"every answer of PostgreSQL is {LATENCY_S * 1000:g} ms late and comes drop by drop: orders flow, slower"

    def __init__(self) -> None:
        self._wires: list[Wire] = []
        self._flowed = 0

    def lives(self, stage: Stage) -> list[Life]:
        """Each worker has a wire of its own."""
        self._wires = [stage.wire(), stage.wire()]
        return [
            stage.life(worker, stage.schema(wire.url(stage.postgres.url))) for worker, wire in enumerate(self._wires, 1)
        ]

    async def disturb(self, stage: Stage) -> None:
        """Slow, in both directions."""
        told = stage.world.customers.told
        for wire in self._wires:
            wire.throttle(bytes_per_s=BYTES_PER_S, latency_s=LATENCY_S)
        before, passed = len(told), [wire.traffic.bytes_back for wire in self._wires]
        stage.place(PLACED)
        await stage.hold()

        def flows() -> bool:
            used = [wire.traffic.bytes_back for wire in self._wires]
            return len(told) > before and all(now > then for now, then in zip(used, passed, strict=True))

        await stage.until("orders flow over a slow wire", flows)
        self._flowed = len(told) - before
        for wire in self._wires:
            wire.pass_on()

    def happened(self, stage: Stage) -> str:
        """What happened."""
        del stage
        return f"over the slow wire {counted(self._flowed, 'operation')} came through and back"


class ExhaustConnections(Flow):
    """Somebody else takes every connection there is."""

    name = "exhaust-connections"
    disturbance = "no connection is left"
    promise = "somebody else takes every connection of the server: everybody waits, and all goes on when there is room"

    def __init__(self) -> None:
        self._taken = 0

    async def disturb(self, stage: Stage) -> None:
        """Take them all, also those that ours lose meanwhile."""
        crowd = Crowd(stage.postgres.url)
        try:
            await crowd.take()
            if not await crowd.push_out(stage.postgres.administrator, stage.postgres.USER):
                raise Broken("the workers had no connection to lose")
            await self._all_taken(stage, crowd)
            stage.place(PLACED)
            until_s = stage.world.now_s() + stage.load.seconds
            while stage.world.now_s() < until_s:
                await crowd.take()
                await asyncio.sleep(AGAIN_S)
            self._taken = len(crowd)
        finally:
            crowd.leave()

    @staticmethod
    async def _all_taken(stage: Stage, crowd: Crowd) -> None:
        """Workers come back at once and take some again: they are pushed out until they have none."""
        until_s = stage.world.now_s() + stage.load.deadline_s
        while stage.world.now_s() < until_s:
            await crowd.take()
            if not await crowd.push_out(stage.postgres.administrator, stage.postgres.USER):
                return
        raise Broken("the workers had a connection all the time: nobody could take every one")

    def happened(self, stage: Stage) -> str:
        """What happened."""
        return f"{self._taken} connections were taken for {stage.load.seconds:g} s; {repeated(stage)}"
