"""Scenarios in which PostgreSQL is restarted, killed, slow, or has no free connection.

An engine waits for an absent server and retries safe statements; customers retry the operations that it gives up on,
with the same key. No worker is restarted.
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
    """Say how often operations had to be repeated."""
    count = stage.world.customers.repeated.total()
    return f"operations were repeated {times(count)}" if count else "no operation had to be repeated"


async def _require_no_answers(stage: Stage) -> None:
    """Place orders while the server is away: otherwise the scenario would prove nothing."""
    stage.place(PLACED)
    await stage.hold()
    if stage.world.customers.answered_all:
        raise Broken("every operation was answered while PostgreSQL was away, which cannot have stored the orders")


class RestartPostgres(Flow):
    """Shut the server down in order, and start it again."""

    name = "restart-postgres"
    disturbance = "PostgreSQL is shut down"
    promise = "PostgreSQL shuts down and comes back: no worker is restarted, and nothing acknowledged is lost"

    async def disturb(self, stage: Stage) -> None:
        """Stop the server, which ends every session, and start it after a while."""
        await in_thread(stage.postgres.stop)
        await _require_no_answers(stage)
        await in_thread(stage.postgres.start)

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        return f"it was away for {stage.load.seconds:g} s; {repeated(stage)}"


class KillPostgres(Flow):
    """Kill every process of the server with SIGKILL."""

    name = "kill-postgres"
    disturbance = "PostgreSQL is killed"
    promise = "every process of PostgreSQL is killed: it recovers from its log, and all workers continue"

    async def disturb(self, stage: Stage) -> None:
        """Kill the server without a shutdown; the next start recovers."""
        await in_thread(stage.postgres.kill)
        await _require_no_answers(stage)
        await in_thread(stage.postgres.start)

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        return f"killed, and started again after {stage.load.seconds:g} s; {repeated(stage)}"


class ThrottlePostgres(Flow):
    """Make the wire to the server slow."""

    name = "throttle-postgres"
    disturbance = "the wire is slow"
    promise = f"every answer of PostgreSQL is {LATENCY_S * 1000:g} ms late and comes drop by drop: orders flow, slower"

    def __init__(self) -> None:
        self._wires: list[Wire] = []
        self._flowed = 0

    def lives(self, stage: Stage) -> list[Life]:
        """Give each worker a wire of its own."""
        self._wires = [stage.wire(), stage.wire()]
        return [
            stage.life(worker, stage.schema(wire.url(stage.postgres.url))) for worker, wire in enumerate(self._wires, 1)
        ]

    async def disturb(self, stage: Stage) -> None:
        """Throttle both directions until operations were acknowledged over the slow wires."""
        acknowledged = stage.world.customers.told
        for wire in self._wires:
            wire.throttle(bytes_per_s=BYTES_PER_S, latency_s=LATENCY_S)
        before, passed = len(acknowledged), [wire.traffic.bytes_back for wire in self._wires]
        stage.place(PLACED)
        await stage.hold()

        def flows() -> bool:
            used = [wire.traffic.bytes_back for wire in self._wires]
            return len(acknowledged) > before and all(now > then for now, then in zip(used, passed, strict=True))

        await stage.until("orders flow over a slow wire", flows)
        self._flowed = len(acknowledged) - before
        for wire in self._wires:
            wire.pass_on()

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        del stage
        return f"over the slow wire {counted(self._flowed, 'operation')} came through and back"


class ExhaustConnections(Flow):
    """Let a foreign application take every connection."""

    name = "exhaust-connections"
    disturbance = "no connection is left"
    promise = "a foreign application takes every connection: workers wait, and continue when there is room"

    def __init__(self) -> None:
        self._taken = 0

    async def disturb(self, stage: Stage) -> None:
        """Take all connections, also those that workers lose meanwhile."""
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
        """End the workers' connections until they have none: they reconnect immediately."""
        until_s = stage.world.now_s() + stage.load.deadline_s
        while stage.world.now_s() < until_s:
            await crowd.take()
            if not await crowd.push_out(stage.postgres.administrator, stage.postgres.USER):
                return
        raise Broken("the workers had a connection all the time: the crowd could not take every one")

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        return f"{self._taken} connections were taken for {stage.load.seconds:g} s; {repeated(stage)}"
