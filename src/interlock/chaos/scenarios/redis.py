"""Scenario in which Redis is killed, and comes back empty.

Redis is optional: while it is gone, leases come from the store, and limits and breakers are local to each process.
"""

from collections.abc import Iterator

from interlock.chaos.flow import Flow
from interlock.chaos.messages import Life
from interlock.chaos.scenario import POSTGRES, REDIS
from interlock.chaos.stage import Stage
from interlock.chaos.threads import in_thread

WORKERS = 2


class KillRedis(Flow):
    """Kill Redis, and require that every worker continues with the store and local limits."""

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
        """Return workers that share leases, limits and breakers."""
        return [stage.life(worker, stage.schema(), redis=stage.redis.url) for worker in (1, WORKERS)]

    async def disturb(self, stage: Stage) -> None:
        """Keep Redis away until every worker has reported it and work has continued without it."""
        world = stage.world
        acknowledged = world.customers.told
        await stage.prepared("a lease is given by Redis", lambda: bool(world.workers_reporting("lease")))
        self._killed_s = world.now_s()
        await in_thread(stage.redis.kill)
        await stage.until(
            "every worker says that Redis is gone",
            lambda: len(world.workers_reporting("redis-gone", since_s=self._killed_s)) == WORKERS,
        )
        gone_s, before = world.now_s(), len(acknowledged)
        await stage.until(
            "leases are given by the store while Redis is gone",
            lambda: bool(world.workers_reporting("lease", since_s=gone_s)),
        )
        await stage.hold()
        stage.place(5)
        await stage.until("orders flow while Redis is gone", lambda: len(acknowledged) > before)
        self._flowed = len(acknowledged) - before
        self._leases = sum(news.what == "lease" and news.at_s >= gone_s for news in world.news)
        await in_thread(stage.redis.start)

    async def afterwards(self, stage: Stage) -> None:
        """Wait until every worker uses Redis again."""
        world = stage.world
        await stage.until(
            "every worker says that Redis is back",
            lambda: len(world.workers_reporting("redis-back", since_s=self._killed_s)) == WORKERS,
        )
        back_s = world.now_s()
        await stage.until(
            "a lease is given by Redis again", lambda: bool(world.workers_reporting("lease", since_s=back_s))
        )

    def broken(self, stage: Stage) -> Iterator[str]:
        """Yield each lease whose token is not higher than all before, from Redis or from the store."""
        highest = 0
        for news in sorted(stage.world.news, key=lambda each: each.at_s):
            if news.what == "lease":
                token = int(news.detail)
                if token <= highest:
                    yield f"the lease {news.subject!r} was given with token {token} after {highest}: a fence would fail"
                highest = max(highest, token)

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        del stage
        return (
            f"{WORKERS} workers reported that it was gone and that it was back; meanwhile {self._flowed} operations "
            f"were acknowledged and {self._leases} leases given, tokens growing"
        )
