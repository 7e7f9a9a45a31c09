"""Redis is killed, and comes back empty.

It is an option: what the cluster shares through it (leases, limits, breakers) is had from the store and from each
process while it is gone.
"""

from collections.abc import Iterator

from interlock.chaos.flow import Flow
from interlock.chaos.messages import Life
from interlock.chaos.scenario import POSTGRES, REDIS
from interlock.chaos.stage import Stage
from interlock.chaos.threads import in_thread

WORKERS = 2


class KillRedis(Flow):
    """What the cluster shares is gone, and everybody goes on alone."""

    name = "kill-redis"
    disturbance = "Redis is killed"
    promise = (
        "Redis is killed: workers say so, orders flow on local limits, leases come from the store, and it is used again"
    )
    needs = (POSTGRES, REDIS)

    def __init__(self) -> None:
        self._flowed = self._leases = 0
        self._killed_s = 0.0

    def lives(self, stage: Stage) -> list[Life]:
        """Workers that share leases, limits and breakers."""
        return [stage.life(worker, stage.schema(), redis=stage.redis.url) for worker in (1, WORKERS)]

    async def disturb(self, stage: Stage) -> None:
        """Away until everybody has said so and gone on without it."""
        world = stage.world
        told = world.customers.told
        await stage.prepared("a lease is given by Redis", lambda: bool(world.told("lease")))
        self._killed_s = world.now_s()
        await in_thread(stage.redis.kill)
        await stage.until(
            "every worker says that Redis is gone",
            lambda: len(world.told("redis-gone", since_s=self._killed_s)) == WORKERS,
        )
        gone_s, before = world.now_s(), len(told)
        await stage.until(
            "leases are given by the store while Redis is gone", lambda: bool(world.told("lease", since_s=gone_s))
        )
        await stage.hold()
        stage.place(5)
        await stage.until("orders flow while Redis is gone", lambda: len(told) > before)
        self._flowed = len(told) - before
        self._leases = sum(news.what == "lease" and news.at_s >= gone_s for news in world.news)
        await in_thread(stage.redis.start)

    async def afterwards(self, stage: Stage) -> None:
        """It is used again, by everybody."""
        world = stage.world
        await stage.until(
            "every worker says that Redis is back",
            lambda: len(world.told("redis-back", since_s=self._killed_s)) == WORKERS,
        )
        back_s = world.now_s()
        await stage.until("a lease is given by Redis again", lambda: bool(world.told("lease", since_s=back_s)))

    def broken(self, stage: Stage) -> Iterator[str]:
        """The token of a lease is higher than that of anybody who had it before, whoever gave it."""
        highest = 0
        for news in sorted(stage.world.news, key=lambda each: each.at_s):
            if news.what == "lease":
                token = int(news.detail)
                if token <= highest:
                    yield f"the lease {news.subject!r} was given with token {token} after {highest}: a fence would fail"
                highest = max(highest, token)

    def happened(self, stage: Stage) -> str:
        """What happened."""
        del stage
        return (
            f"{WORKERS} workers told that it was gone and that it was back; meanwhile {self._flowed} operations were "
            f"acknowledged and {self._leases} leases given, tokens growing"
        )
