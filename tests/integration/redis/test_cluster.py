"""A real Redis Cluster of three nodes: every script touches one slot, wherever that is (C4, C7, C10)."""

from pathlib import Path

import pytest

from interlock import Admission, Breaker, Dependency
from tests.integration.redis.conftest import needed
from tests.integration.redis.living import cluster_of, engine, outlet_of, run, until
from tests.integration.redis.nodes import cluster
from tests.integration.redis.server import Server


@pytest.mark.slow
def test_everything_is_shared_through_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    """The names are spread over the nodes; a request that goes astray is led to the right one."""
    needed()

    async def scenario(url: str, servers: list[Server]) -> None:
        gateways = [
            Dependency(f"gateway {{{number}}}", rate_per_s=1_000, breaker=Breaker(failures=1, reset_s=600))
            for number in range(6)
        ]
        admission = Admission(rate_per_s=1_000)
        async with (
            engine(url, dependencies=gateways, admission=admission) as one,
            engine(url, dependencies=gateways, admission=admission) as two,
        ):
            await until(lambda: cluster_of(one).up and cluster_of(two).up)
            await until(lambda: one._inside.gate._tokens.wait_s() == 0)  # type: ignore[union-attr]
            one._inside.gate.enter()
            async with one.lease("report", wait_s=60) as lease:
                first = lease.token
            async with two.lease("report", wait_s=60) as lease:
                assert lease.token > first
            for gateway in gateways:
                outlet = outlet_of(one, gateway.name)
                await until(lambda outlet=outlet: outlet.ask("first") == "call")  # type: ignore[misc]
                outlet.leave("first", "call", "failed")
            await until(lambda: all(outlet_of(two, each.name).phase == "open" for each in gateways))
            for server in servers:
                server.kill()
            await until(lambda: not cluster_of(one).up and not cluster_of(two).up)
            for server in servers:
                server.start()
            await until(lambda: cluster_of(one).up and cluster_of(two).up)
            async with two.lease("report", wait_s=60) as lease:
                assert lease.token > first, "the nodes have forgotten everything but that they are a cluster"

    with cluster(tmp_path) as (url, servers):
        run(lambda: scenario(url, servers))
