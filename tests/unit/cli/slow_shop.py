"""A machine whose step says that it runs, and goes on until it is let go, or for ever."""

import asyncio
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from interlock import App, Dependency, Event, Machine, StepContext

NAME = "tests.unit.cli.slow_shop:app"
FOLDER = "SLOW_SHOP"


class State(Enum):
    WAITING = "waiting"
    DONE = "done"


@dataclass(frozen=True)
class Job:
    pass


class JobEvent(Event):
    pass


@dataclass(frozen=True)
class Finished(JobEvent):
    pass


job = Machine("job", states=State, context=Job, events=JobEvent, initial=State.WAITING, final={State.DONE})
job.on(Finished, State.WAITING, to=State.DONE)


@job.step(State.WAITING, timeout_s=300, dependency="slow")
async def work(job: Job, ctx: StepContext) -> Finished:
    folder = os.environ[FOLDER]
    # Opening a pipe waits for its reader: the event loop must not wait with it.
    await asyncio.to_thread(Path(folder, "running").write_text, ctx.key, encoding="utf-8")
    if Path(folder, "endless").exists():  # noqa: ASYNC240 -- as above.
        await asyncio.Event().wait()
    await asyncio.to_thread(Path(folder, "go").read_text)
    return Finished()


app = App(machines=[job], dependencies=[Dependency("slow", concurrency_max=1)])
