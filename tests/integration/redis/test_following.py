"""An engine of a cluster whose workflows are moved stays in its cluster: the same leases, breakers and limits."""

from typing import cast

import pytest

from interlock import Admission, Breaker, Dependency, LeaseHeld
from tests.conformance.engine.shop import Order, OrderMachine
from tests.integration.redis.living import OwnClock, cluster_of, engine, outlet_of, run, until
from tests.integration.redis.server import Server
from tests.unit.engine.follow_moves.places import World


def test_leases_breakers_and_limits_of_the_cluster_go_along(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Dependency("gateway", breaker=Breaker(failures=1, reset_s=600))
    admission = Admission(rate_per_s=1_000)

    async def scenario() -> None:
        world, clock = World(monkeypatch), OwnClock()
        async with (
            engine(server.url, "a", clock=clock, dependencies=[gateway], admission=admission) as one,
            engine(server.url, "other", dependencies=[gateway], admission=admission) as two,
        ):
            await until(lambda: cluster_of(one).up and cluster_of(two).up)
            machine = cast("OrderMachine", next(iter(one._inside.machines.values())).machine)
            before = cluster_of(one)
            async with one.lease("report", wait_s=60) as lease:
                world.move("a", "b", 1)
                await one.start(machine, "o-1", Order())
                assert one._inside.store is world.place("b")
                assert cluster_of(one) is not before
                await until(lambda: cluster_of(one).up)
                assert await lease.held()
                with pytest.raises(LeaseHeld):
                    await two.lease("report", wait_s=0).__aenter__()
            async with two.lease("report", wait_s=60) as theirs:
                assert theirs.token > lease.token
            outlet = outlet_of(two)
            await until(lambda: outlet.ask("first") == "call")
            outlet.leave("first", "call", "failed")
            await until(lambda: outlet_of(one).phase == "open")
            assert one._inside.gate.admission == admission

    run(scenario)
