"""A Redis that is there and says nothing, or that is gone: nobody waits for it for long, in whatever phase (C4, C10).

The bounds here are those after which something is called a hang, far above what it takes: a frozen Redis is noticed
after a second, and closing takes a few at most.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from interlock import Admission, Breaker, Dependency, Engine, InterlockError, UnavailableError
from interlock.engine.open_engine import EngineOpening
from interlock.errors import Overloaded
from tests.integration.redis.living import cluster_of, engine, outlet_of, run, until
from tests.integration.redis.server import Server

HANGS_S = 60.0

GATEWAY = [Dependency("gateway", rate_per_s=100, breaker=Breaker(failures=1, reset_s=0.05))]

pytestmark = pytest.mark.usefixtures("impatient")

Ends = Callable[[Server], None]
WAYS = pytest.mark.parametrize("ends", [Server.freeze, Server.kill], ids=["frozen", "killed"])


def opening(server: Server) -> EngineOpening[Engine]:
    return engine(server.url, dependencies=GATEWAY, admission=Admission(rate_per_s=100, burst=5))


@asynccontextmanager
async def busy(here: Engine) -> AsyncGenerator[None]:
    """Everything that asks Redis for something, as often as it can: leases, tokens, permits, and what a person says."""

    async def leases(name: str) -> None:
        while True:
            try:
                async with here.lease(name, wait_s=0.1, lease_s=1.0):
                    await asyncio.sleep(0)
            except InterlockError:
                await asyncio.sleep(0.01)

    async def calls() -> None:
        outlet, gate = outlet_of(here), here._inside.gate
        while True:
            verdict = outlet.ask("first")
            if verdict != "wait":
                outlet.leave("first", verdict, "failed")
            try:
                gate.enter()
                gate.leave()
            except Overloaded:
                here.force_breaker("gateway", "open")
                here.force_breaker("gateway", "auto")
            await asyncio.sleep(0.002)

    tasks = [asyncio.ensure_future(each) for each in (*map(leases, "aaabbbccc"), calls())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def closed(here: Engine) -> None:
    async with asyncio.timeout(HANGS_S):
        await here.close()


@WAYS
def test_closing_takes_a_moment_whatever_was_under_way_when_redis_went(server: Server, ends: Ends) -> None:
    """C4, C7, C10: at once, when it is noticed, and with leases that nobody has given up."""

    async def scenario() -> None:
        idle, working, holding, cancelled, noticing = [await opening(server) for _ in range(5)]
        await until(lambda: all(cluster_of(each).up for each in (idle, working, holding, cancelled, noticing)))
        held = await holding.lease("held", wait_s=60, lease_s=60).__aenter__()
        async with busy(working), busy(cancelled), busy(noticing):
            ends(server)
            asked = asyncio.ensure_future(holding.lease("another", wait_s=60).__aenter__())
            leaving = asyncio.ensure_future(closed(cancelled))
            await asyncio.sleep(0)
            leaving.cancel()  # Whoever loses patience leaves it to its end.
            await asyncio.gather(closed(idle), closed(working), closed(holding), closed(cancelled))
            await until(lambda: not cluster_of(noticing).up)
            await closed(noticing)
        asked.cancel()
        await asyncio.wait([asked, leaving])
        assert held.lost, "nobody renews it any more"

    run(scenario)


def test_an_engine_opens_beside_a_silent_redis_and_may_be_given_up_meanwhile(server: Server) -> None:
    """C10: it says so, and goes on by itself; an opening that is cancelled leaves nothing behind."""

    async def scenario() -> None:
        server.freeze()
        given_up = asyncio.ensure_future(opening(server).__aenter__())
        _, waiting = await asyncio.wait([given_up], timeout=0.1)
        assert waiting, "it waits for an answer"
        given_up.cancel()
        async with asyncio.timeout(HANGS_S):
            await asyncio.wait([given_up])
            async with opening(server) as here:
                assert not cluster_of(here).up
                assert re.search("not answered|Timeout", cluster_of(here)._link.reason)
                async with here.lease("report"):
                    here._inside.gate.enter()
                    here._inside.gate.leave()
                server.thaw()
                await until(lambda: cluster_of(here).up)

    run(scenario)


@WAYS
def test_everything_goes_on_within_a_moment(server: Server, ends: Ends) -> None:
    """C4, C7, C10: leases from the store, tokens and probes of the process; and all of it is shared again."""

    async def scenario() -> None:
        async with opening(server) as here, here.lease("mine", wait_s=60, lease_s=1.0) as mine:
            outlet, gate = outlet_of(here), here._inside.gate
            outlet.leave("first", outlet.ask("first"), "failed")
            ends(server)
            async with asyncio.timeout(HANGS_S):
                async with here.lease("new", wait_s=HANGS_S) as new:
                    assert new.token & 0xFFFF_FFFF == 0, "it comes from the store"
                await until(lambda: mine.lost)
                await until(lambda: outlet.ask("first") == "probe")
                outlet.leave("first", "probe", "done")
                await until(lambda: _enters(gate.enter))
            if server.process is None:
                server.start()
            server.thaw()
            await until(lambda: cluster_of(here).up)
            with pytest.raises(UnavailableError, match="is lost"):
                mine.check()

    run(scenario)


def _enters(enter: Callable[[], None]) -> bool:
    try:
        enter()
    except Overloaded:
        return False
    return True
