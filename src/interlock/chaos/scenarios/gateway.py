"""Scenarios with a slow payment gateway, and with one that is down.

The promises are about slots and breakers: hanging charges do not block refunds, and open breakers protect a gateway
that is down.
"""

from collections import Counter
from collections.abc import Iterator

from interlock.chaos.flow import Flow
from interlock.chaos.gateway import DECLINED_EVERY
from interlock.chaos.messages import DONE, FAILED, Call
from interlock.chaos.orders import GATEWAY, PLACES, RESET_S
from interlock.chaos.stage import Stage
from interlock.chaos.words import counted, times
from interlock.chaos.world import Broken

WORKERS = 2
DECLINED = 2
"""Orders that are compensated while every slot for charges is taken."""


class GatewayLatency(Flow):
    """Charges hang until every slot at the gateway is taken; refunds have slots of their own."""

    name = "gateway-latency"
    disturbance = "charges hang"
    promise = "charges hang until every place at the gateway is taken: refunds go through all the same"

    def __init__(self) -> None:
        self._refunds = 0

    async def disturb(self, stage: Stage) -> None:
        """Let the carrier decline charged orders while all other charges hang."""
        gateway, customers = stage.world.gateway, stage.world.customers

        def declined(call: Call, _worker: int) -> bool:
            return call.deed == "collect" and customers.orders[call.workflow] % DECLINED_EVERY == 0

        def charges(call: Call, _worker: int) -> bool:
            return call.deed == "charge"

        with gateway.holding(declined) as shipped:
            stage.place(DECLINED * DECLINED_EVERY)
            await stage.prepared("orders are charged", lambda: len(shipped.waiting) >= DECLINED)
            with gateway.holding(charges) as charging:
                stage.place(4 * WORKERS * PLACES)
                # A cancelled charge would free its slot: no customer cancels from here on.
                await stage.prepared(
                    "customers have said what they want", lambda: stage.placed and customers.answered_all
                )
                await stage.prepared(
                    "every place at the gateway is taken",
                    lambda: min(_by_worker(charging.waiting, WORKERS)) >= PLACES,
                )
                before, since = gateway.count(DONE, "refund"), len(gateway.lines)
                taken_back = {call.workflow for call, _ in shipped.waiting}
                gateway.let_go(shipped)
                try:
                    await stage.until(
                        "refunds go through while every place at the gateway is taken",
                        lambda: taken_back <= gateway.workflows(DONE, "refund", since=since),
                    )
                except Broken as broken:
                    raise Broken(f"compensation waits for charges that hang: {broken}") from None
                self._refunds = gateway.count(DONE, "refund") - before

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        hung = f"{WORKERS * PLACES} charges hung for {stage.load.seconds:g} s"
        return f"{hung}; meanwhile the gateway did {counted(self._refunds, 'refund')}"


def _by_worker(waiting: list[tuple[Call, int]], workers: int) -> list[int]:
    counts = Counter(worker for _, worker in waiting)
    return [counts[worker] for worker in range(1, workers + 1)]


class GatewayOutage(Flow):
    """The gateway refuses everything for a while."""

    name = "gateway-outage"
    disturbance = "the gateway is down"
    promise = "the gateway is down: breakers open, orders wait and burn no attempts; then breakers close, refunds drain"

    def __init__(self) -> None:
        self._in_vain = 0
        self._probes_max = 0

    async def disturb(self, stage: Stage) -> None:
        """Keep the gateway down until every breaker has opened, and for the load's seconds after that."""
        world, gateway = stage.world, stage.world.gateway
        before, begun_s = gateway.count(FAILED, "charge"), world.now_s()
        gateway.down = True
        try:
            stage.place(4 * WORKERS * DECLINED_EVERY)
            await stage.until(
                "every worker's breaker opens",
                lambda: len(world.workers_reporting("breaker-open", GATEWAY, since_s=begun_s)) == WORKERS,
            )
            await stage.hold()
        finally:
            gateway.down = False
        self._in_vain = gateway.count(FAILED, "charge") - before
        self._probes_max = int((world.now_s() - begun_s) / RESET_S) + 1

    async def afterwards(self, stage: Stage) -> None:
        """Wait until the breakers have closed by themselves."""
        await stage.until(
            "every breaker closes again",
            lambda: all(state == "closed" for state in stage.breakers().values()),
        )

    def broken(self, stage: Stage) -> Iterator[str]:
        """Yield a problem when an open breaker let more than its probes through."""
        del stage
        # Besides the failures that open it: calls that were running then, and failures that open it again.
        allowed = WORKERS * (2 * PLACES + self._probes_max)
        if self._in_vain > allowed:
            yield f"the gateway was asked {self._in_vain} times while it was down; an open breaker allows {allowed}"

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        undone = stage.world.gateway.count(DONE, "refund")
        return (
            f"the breakers of {WORKERS} workers opened and closed; charges were tried in vain {times(self._in_vain)}, "
            f"the refunds drained ({undone} in all)"
        )
