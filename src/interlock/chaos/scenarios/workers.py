"""Scenarios with a worker that is frozen past its leases, and with one that cannot reach its store.

Other workers take both for dead. Both come back with old results, which the fence refuses.
"""

from collections.abc import Iterator

from interlock.chaos.flow import Flow
from interlock.chaos.gateway import ASKED
from interlock.chaos.messages import Call, Life
from interlock.chaos.stage import Stage
from interlock.chaos.wire import Wire
from interlock.chaos.words import times
from interlock.chaos.world import Broken

VICTIM, OTHER = 1, 2
PLACED = 10


class FreezeWorker(Flow):
    """Freeze a worker during a call, let others take over its orders, and wake it with an old result."""

    name = "freeze-worker"
    disturbance = "a worker is frozen"
    promise = "a worker stands still past its lease: others take over, and what it says when it wakes up is refused"

    def __init__(self) -> None:
        self._late = 0
        self._orders: set[str] = set()

    async def disturb(self, stage: Stage) -> None:
        """Answer the frozen worker's call before it wakes, when the order is already in a later visit."""
        world, gateway, crew = stage.world, stage.world.gateway, stage.crew

        def collecting(call: Call, worker: int) -> bool:
            return call.deed == "collect" and worker == VICTIM and world.customers.orders[call.workflow] % 5 != 0

        def delivering(call: Call, _worker: int) -> bool:
            return call.deed == "deliver" and call.workflow in self._orders

        with gateway.holding(delivering) as delivered:
            with gateway.holding(collecting) as collected:
                stage.place(PLACED)
                await stage.prepared("the worker is in the middle of a call", lambda: bool(collected.waiting))
                crew.freeze(VICTIM)
                self._orders = {call.workflow for call, _ in collected.waiting}
            try:
                await stage.until(
                    "another worker takes over what the frozen one has left",
                    lambda: self._orders <= {call.workflow for call, _ in delivered.waiting},
                )
                await stage.hold()
            finally:
                crew.wake(VICTIM)
            woken_s = world.now_s()
            await stage.until(
                "the worker that was frozen reports its old result, and is refused",
                lambda: self._refused(stage, woken_s) or self._applied_twice(stage),
            )

    def _refused(self, stage: Stage, since_s: float) -> bool:
        late = {news.subject for news in stage.world.news if news.what == "late" and news.at_s >= since_s}
        self._late = len(late & self._orders)
        return self._late == len(self._orders)

    def _applied_twice(self, stage: Stage) -> bool:
        """Return whether an order was delivered under two keys, because an old result moved it."""
        keys = {
            (line.workflow, line.key)
            for line in stage.world.gateway.lines
            if line.what == ASKED and line.deed == "deliver" and line.workflow in self._orders
        }
        return len(keys) > len(self._orders)

    def broken(self, stage: Stage) -> Iterator[str]:
        """Yield a problem unless every old result of the frozen worker was reported as late."""
        del stage
        if self._late < len(self._orders):
            missing = len(self._orders) - self._late
            yield f"the frozen worker was not refused {times(missing)}: it moved orders that others had taken over"

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        return (
            f"frozen for more than {stage.load.seconds:g} s; its orders were taken over, and its old results "
            f"were refused {times(self._late)}"
        )


class CutNode(Flow):
    """Silence the wire between one worker and the store."""

    name = "cut-node"
    disturbance = "a worker hears nothing"
    promise = "a worker hears nothing from its store any more: others take over its orders, and it comes back by itself"

    def __init__(self) -> None:
        self._wire: Wire | None = None
        self._calls = 0

    def lives(self, stage: Stage) -> list[Life]:
        """Give the first worker a wire of its own."""
        self._wire = stage.wire()
        return [
            stage.life(VICTIM, stage.schema(self._wire.url(stage.postgres.url))),
            stage.life(OTHER, stage.schema()),
        ]

    async def disturb(self, stage: Stage) -> None:
        """Keep the wire silent until other workers have finished the orders of this one."""
        assert self._wire is not None
        world, gateway = stage.world, stage.world.gateway

        def of_victim(call: Call, worker: int) -> bool:
            return call.deed == "collect" and worker == VICTIM

        with gateway.holding(of_victim) as collected:
            stage.place(PLACED)
            await stage.prepared("the worker is in the middle of a call", lambda: bool(collected.waiting))
            self._wire.silence()
            left, since = {call.workflow for call, _ in collected.waiting}, len(gateway.lines)
        try:
            await stage.until("others take over what it had begun", lambda: left <= set(world.customers.ended))
            await stage.hold()
        finally:
            self._wire.pass_on()
        by_others = {line.workflow for line in gateway.lines[since:] if line.worker == OTHER}
        if own := sorted(left - by_others):
            raise Broken(f"{own[0]} was finished by the worker that was cut off: its wire was not silent")
        self._calls = len(gateway.lines)

    async def afterwards(self, stage: Stage) -> None:
        """Wait until the worker works again."""
        stage.place(PLACED)
        await stage.until(
            "the worker that was cut off works again", lambda: self._has_called(stage, self._calls, VICTIM)
        )
        await stage.until("every order ends", lambda: stage.world.customers.quiet)

    @staticmethod
    def _has_called(stage: Stage, since: int, worker: int) -> bool:
        return any(line.worker == worker and line.what == ASKED for line in stage.world.gateway.lines[since:])

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        late = len([news for news in stage.world.news if news.what == "late"])
        back = f"it came back by itself, and was refused {times(late)} with old results"
        return f"its orders were finished by the other one; {back}"
