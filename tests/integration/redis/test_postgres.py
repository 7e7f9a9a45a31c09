"""Two workers on one PostgreSQL, and a Redis that is killed: then the store is where they arrange things (C10)."""

import pytest

from interlock import LeaseHeld
from tests.integration.redis.living import cluster_of, engine, run, until
from tests.integration.redis.server import Server


def test_workers_of_one_database_keep_each_other_out_with_redis_and_without(server: Server, postgres_url: str) -> None:
    """C10, G4: they are one home, so that the store can take over."""

    async def scenario() -> None:
        async with engine(server.url, postgres_url) as one, engine(server.url, postgres_url) as two:
            tokens: list[int] = []
            for _ in range(2):
                for holder, other in ((one, two), (two, one)):
                    async with holder.lease("report", wait_s=60) as lease:
                        tokens.append(lease.token)
                        with pytest.raises(LeaseHeld):
                            await other.lease("report", wait_s=0).__aenter__()
                if server.process is not None:
                    server.kill()
                    await until(lambda: not cluster_of(one).up and not cluster_of(two).up)
            server.start()
            await until(lambda: cluster_of(one).up and cluster_of(two).up)
            async with two.lease("report", wait_s=60) as lease:
                tokens.append(lease.token)
            assert tokens == sorted(set(tokens))

    run(scenario)
