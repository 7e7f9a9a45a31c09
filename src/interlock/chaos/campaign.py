"""Run of several scenarios in sequence, with one folder and the servers that they need.

Each block ends on exit what it has started. Ctrl-C and SIGTERM arrive as a cancellation between two steps, never
within one.
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
"""Callback with the running scenario, its stage while it runs, and its verdict when it has ended."""


async def run_all(names: Sequence[str], load: Load, watch: Watch, *, keep: bool = False) -> Report:
    """Run these scenarios in sequence. `keep` leaves the folder for inspection."""
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
        async with contextlib.AsyncExitStack() as resources:
            processes = resources.enter_context(Processes())
            servers = await _start_servers(folder, runnable, resources)
            for scenario in chosen:
                if scenario in runnable:
                    verdict = await _run_watched(scenario, stage_for(scenario, folder, servers, load, processes), watch)
                else:
                    verdict = _not_run(scenario, missing)
                verdicts.append(verdict)
                watch(scenario, None, verdict)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return Report(seed=load.seed, verdicts=tuple(verdicts), folder=str(folder) if keep else None)


async def _start_servers(folder: Path, scenarios: Sequence[Scenario], resources: contextlib.AsyncExitStack) -> Servers:
    """Start the servers that these scenarios need. They are ended in a thread when the block is left.

    They are killed, because their data is deleted with them and an orderly shutdown could delay the report.
    """
    needed = {need for scenario in scenarios for need in scenario.needs}
    postgres = OwnPostgres(folder, connections_max=CONNECTIONS_MAX) if POSTGRES in needed else None
    redis = OwnRedis(folder) if REDIS in needed else None
    for server in (postgres, redis):
        if server is not None:
            resources.push_async_callback(in_thread, server.close)
            resources.push_async_callback(in_thread, server.kill)
            await in_thread(server.start)
    return Servers(postgres, redis)


async def _run_watched(scenario: Scenario, stage: Stage, watch: Watch) -> Verdict:
    looking = asyncio.ensure_future(_report_progress(scenario, stage, watch))
    try:
        return await run(scenario, stage)
    finally:
        looking.cancel()


async def _report_progress(scenario: Scenario, stage: Stage, watch: Watch) -> None:
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
