"""A whole run: one folder, the servers that are needed, the scenarios one after the other, and nothing left behind.

Everything that is started is ended by whoever started it, on the way out of a block; Ctrl-C and SIGTERM are a
cancellation there, which comes between two steps and never within one.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from interlock.chaos.scenario import POSTGRES, REDIS, Scenario, run, stage_for
from interlock.chaos.scenarios.all import SCENARIOS
from interlock.chaos.servers import OwnPostgres, OwnRedis
from interlock.chaos.stage import Load, Servers, Stage
from interlock.chaos.threads import in_thread
from interlock.chaos.verdicts import Report, Verdict
from interlock.testing.faults.processes import Processes

CONNECTIONS_MAX = 40
LOOK_S = 0.1

Watch = Callable[[Scenario, Stage | None, Verdict | None], None]
"""Told of the scenario that is run, with its stage while it is under way and with its verdict when it is over."""


async def run_all(names: Sequence[str], load: Load, watch: Watch, *, keep: bool = False) -> Report:
    """Run these scenarios."""
    missing = {
        name: reason
        for name, server in ((POSTGRES, OwnPostgres), (REDIS, OwnRedis))
        if (reason := server.installed()) is not None
    }
    chosen = [SCENARIOS[name]() for name in names]
    runnable = [each for each in chosen if not missing.keys() & set(each.needs)]
    verdicts: list[Verdict] = []
    folder = Path(tempfile.mkdtemp(prefix="interlock-chaos-"))
    try:
        async with contextlib.AsyncExitStack() as held:
            processes = held.enter_context(Processes())
            servers = await _started(folder, runnable, held)
            for scenario in chosen:
                if scenario in runnable:
                    verdict = await _watched(scenario, stage_for(scenario, folder, servers, load, processes), watch)
                else:
                    verdict = _not_run(scenario, missing)
                verdicts.append(verdict)
                watch(scenario, None, verdict)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return Report(seed=load.seed, verdicts=tuple(verdicts), folder=str(folder) if keep else None)


async def _started(folder: Path, scenarios: Sequence[Scenario], held: contextlib.AsyncExitStack) -> Servers:
    """The servers that somebody needs. They are ended when the block is left, in a thread: that takes a while.

    Their data goes with them, so they are killed: a shutdown in order may take longer than anybody waits, and what was
    found out would be lost for it.
    """
    needed = {need for scenario in scenarios for need in scenario.needs}
    postgres = OwnPostgres(folder, connections_max=CONNECTIONS_MAX) if POSTGRES in needed else None
    redis = OwnRedis(folder) if REDIS in needed else None
    for server in (postgres, redis):
        if server is not None:
            held.push_async_callback(in_thread, server.close)
            held.push_async_callback(in_thread, server.kill)
            await in_thread(server.start)
    return Servers(postgres, redis)


async def _watched(scenario: Scenario, stage: Stage, watch: Watch) -> Verdict:
    looking = asyncio.ensure_future(_look(scenario, stage, watch))
    try:
        return await run(scenario, stage)
    finally:
        looking.cancel()


async def _look(scenario: Scenario, stage: Stage, watch: Watch) -> None:
    while True:
        watch(scenario, stage, None)
        await asyncio.sleep(LOOK_S)


def _not_run(scenario: Scenario, missing: dict[str, str]) -> Verdict:
    reasons = "; ".join(missing[need] for need in scenario.needs if need in missing)
    return Verdict(
        scenario=scenario.name,
        promised=scenario.promise,
        happened=f"not run: {reasons} (pip install 'interlock[chaos]' has all of it)",
        outcome="not run",
    )
