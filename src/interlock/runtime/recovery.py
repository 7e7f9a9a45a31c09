"""Taking up what the last life of a store has left owed (B6).

An attempt that was under way when the process died may have happened: it is tried again with the same key, and counts.
What was waiting for its time waits on.
"""

from interlock.runtime.bound import Bound
from interlock.runtime.pipeline import Pipeline
from interlock.runtime.reports import Crashed
from interlock.runtime.runner import Runner
from interlock.runtime.staging import Staged
from interlock.store.protocol import Store

EVERYTHING = 1_000_000_000


async def recover(store: Store, machines: dict[str, Bound], pipeline: Pipeline, runner: Runner) -> None:
    """Take up every workflow that has something to wake up for."""
    for row in await store.due(limit=EVERYTHING):
        bound = machines.get(row.machine)
        if bound is None:
            continue
        live = bound.live(row)
        run = live.owed.run or (live.owed.undos[0] if live.owed.undos else None)
        if run is not None and run.started:
            pipeline.add(Crashed(row.id, live.snapshot.visit, run.key))
        else:
            runner.act(Staged(live, row.revision))
    for effect in await store.effects(limit=EVERYTHING):
        found = (await store.load([effect.workflow])).get(effect.workflow)
        if found is not None and found.machine in machines:
            runner.begin_effect(machines[found.machine].live(found), effect)
