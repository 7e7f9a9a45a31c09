"""What is done to the server and to the processes, and when it is over.

Each of these ends with everything as it was before, as far as an operator could see: the server runs, there are four
workers. Nothing else is done for the processes: whatever comes back comes back by itself.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

from interlock.chaos.database_servers import OwnPostgres
from interlock.chaos.scenarios import Crowd
from tests.chaos.postgres.scene import HOLD_S, Scene

LOCKED = 6
REPEATED = 6
REFUSALS_MAX = 2_000
"""How often five processes and the foreign client may ask in vain while all connections are taken. It is about 200; who
asks again at once, without a pause that grows, comes to tens of thousands."""

OURS = f"SELECT pid FROM pg_stat_activity WHERE usename = '{OwnPostgres.USER}'"


async def server_restarted(scene: Scene) -> None:
    """Every session is ended, the server is away for a moment."""
    await scene.away(scene.server.stop)


async def server_crashed(scene: Scene) -> None:
    """Kill -9 of all its processes: nothing is said to anybody, the next start has to recover."""
    await scene.away(scene.server.kill)


async def backend_killed(scene: Scene) -> None:
    """Kill -9 of one backend: the server ends all others, too, and recovers as after a crash."""
    async with scene.administrator() as connection:
        while True:
            pids = [row[0] for row in await connection.fetch(OURS)]
            with suppress(ProcessLookupError):  # It has gone by itself: another one.
                if pids:
                    os.kill(pids[scene.choice(len(pids))], signal.SIGKILL)
                    return


async def backends_terminated(scene: Scene) -> None:
    """All connections of all processes at once."""
    async with scene.administrator() as connection:
        await connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({OURS}) ours")


async def backends_terminated_repeatedly(scene: Scene) -> None:
    """A few connections, again and again, wherever they are in their work."""
    async with scene.administrator() as connection:
        for _ in range(REPEATED):
            pids = [row[0] for row in await connection.fetch(OURS)]
            chosen = {pids[scene.choice(len(pids))] for _ in range(3)} if pids else set[int]()
            await connection.execute("SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid", list(chosen))
            await connection.execute("SELECT pg_sleep($1)", HOLD_S / REPEATED * scene.chance.fraction())


async def worker_killed(scene: Scene) -> None:
    """Kill -9 in the middle of some calls, and another one in its place."""
    life = await scene.busy_worker()
    left, since = scene.left_by(life), len(scene.world.gateway.lines)
    scene.kill(life)
    killed_s = scene.now_s()
    await scene.start_worker()
    await scene.taken_over(life, left, since)
    scene.note("worker_killed: its orders move", scene.now_s() - killed_s)


async def worker_replaced_while_the_server_is_away(scene: Scene) -> None:
    """Nobody is there whom the new one could ask when it starts."""
    life = await scene.busy_worker()
    await asyncio.to_thread(scene.server.stop)
    left, since = scene.left_by(life), len(scene.world.gateway.lines)
    scene.kill(life)
    await scene.start_worker()
    await asyncio.to_thread(scene.server.start)
    started_s = scene.now_s()
    await scene.taken_over(life, left, since)
    scene.note("worker_replaced_while_the_server_is_away: its orders move", scene.now_s() - started_s)


async def worker_frozen(scene: Scene) -> None:
    """A worker stands still for longer than its leases, and goes on as if nothing had happened."""
    life = await scene.busy_worker()
    left, since = scene.left_by(life), len(scene.world.gateway.lines)
    os.kill(scene.lives[life].number, signal.SIGSTOP)
    frozen_s = scene.now_s()
    try:
        await scene.taken_over(life, left, since)
        scene.note("worker_frozen: its orders move", scene.now_s() - frozen_s)
        await scene.held(frozen_s)
    finally:
        os.kill(scene.lives[life].number, signal.SIGCONT)


async def connections_exhausted(scene: Scene) -> None:
    """A foreign client takes every connection there is, also those that ours lose meanwhile."""
    crowd = Crowd(scene.server.url)
    begun_s, refusals = scene.now_s(), _refusals(scene)
    try:
        await crowd.take()
        await crowd.push_out(scene.server.administrator, scene.server.USER)
        while scene.now_s() - begun_s < HOLD_S:
            await crowd.take()
            await asyncio.sleep(0.02)
    finally:
        crowd.leave()
    refusals = _refusals(scene) - refusals
    scene.seen["connections refused"] += refusals
    assert 0 < refusals <= REFUSALS_MAX, f"{refusals} connections were asked for in vain"


def _refusals(scene: Scene) -> int:
    """How often somebody was told that there is no connection left, ever."""
    said = scene.server._log.read_text(errors="replace")
    return said.count("too many clients already") + said.count("remaining connection slots are reserved")


async def idle_in_transaction(scene: Scene) -> None:
    """A session locks rows of some workflows and does nothing; everybody else goes on meanwhile."""
    async with scene.administrator() as connection:
        await connection.execute("BEGIN")
        await connection.execute(
            f"SELECT id FROM workflows WHERE active ORDER BY random() LIMIT {LOCKED} FOR UPDATE SKIP LOCKED"
        )
        await connection.execute(f"SELECT id FROM workflow_effects LIMIT {LOCKED} FOR UPDATE SKIP LOCKED")
        begun_s = scene.now_s()
        await scene.flowing("while somebody holds locks")
        await scene.held(begun_s)
        await connection.execute("ROLLBACK")


DISTURBANCES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        server_restarted,
        server_crashed,
        backend_killed,
        backends_terminated,
        backends_terminated_repeatedly,
        worker_killed,
        worker_replaced_while_the_server_is_away,
        worker_frozen,
        connections_exhausted,
        idle_in_transaction,
    )
}
