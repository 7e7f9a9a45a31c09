"""What the processes do that are killed around a move: one moves a database or workflows, another one writes to it."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from interlock import Database
from interlock.clock import SystemClock
from interlock.errors import InterlockError
from interlock.relocate.mover import move_database
from interlock.relocate.stages import At, Moved
from interlock.relocate.workflow_move import move_workflows

POINTS = (
    "watch/before", "watch", "draft/before", "draft", "copy", "copy/index", "catch up", "compare", "seal/0/before",
    "seal/0", "verify", "leave/before", "leave", "arrive/before", "arrive", "done",
)  # fmt: skip
INCREMENT = "UPDATE counter SET n = n + 1 WHERE id = 1"
WORKFLOW_POINTS = (
    "watch", "copy/aside", "copy", "catch up", "seal/0/before", "seal/0", "verify", "leave/before", "leave",
    "arrive/before", "arrive", "done",
)  # fmt: skip
REPEATED = ("copy", "catch up", "compare")
"""Stages whose points have a number."""

Say = Callable[[str], None]
ResultT = TypeVar("ResultT")


def make(say: Say, url: str) -> None:
    """A database with a counter, and rows that take a while to copy."""

    async def main() -> None:
        async with Database.open(url) as db:
            await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n bigint NOT NULL)")
            await db.execute("CREATE TABLE thing (id bigserial PRIMARY KEY, name text UNIQUE)")
            await db.execute("INSERT INTO counter VALUES (1, 0)")
            for number in range(20):
                await db.execute("INSERT INTO thing (name) VALUES ($1)", f"thing {number}")
        say("made")

    asyncio.run(main())


def write(say: Say, url: str, life: int, stop: str, lease_s: float | None = None) -> None:
    """Count with keys until there is a file that says stop; each is asked for until it is acknowledged."""

    async def main() -> None:
        number = 0
        db = await _again(say, (Database.open(url) if lease_s is None else Database.open(url, lease_s=lease_s)).opened)
        while not os.access(stop, os.F_OK):
            number += 1
            say(f"ask {life}/{number}")
            await _again(say, partial(db.execute, INCREMENT, key=f"{life}/{number}"))
            say(f"ack {life}/{number}")
        await db.close()

    asyncio.run(main())


async def _again(say: Say, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Until it was done; nothing but what may be repeated is repeated."""
    while True:
        try:
            return await call()
        except InterlockError as error:
            if error.retry == "never":
                say(f"never: {error.what}")
                raise


def move(say: Say, source: str, target: str, point: str, how: str, go: str) -> None:
    """Move a database; at the point the mover kills itself, or waits until the test opens the pipe."""
    _run_mover(say, lambda at: move_database(source, target, name="shop", clock=SystemClock(), at=at), point, how, go)


def move_home(say: Say, source: str, target: str, epoch: int, point: str) -> None:
    """Move the workflows of a home; at the point the mover kills itself."""

    def watch(_what: str, _done: int, _total: int) -> None:
        """Ignore the progress."""

    def run(at: At) -> Awaitable[Moved]:
        return move_workflows(source, target, epoch=epoch, clock=SystemClock(), watch=watch, at=at)

    _run_mover(say, run, point, "mover", "")


def _run_mover(say: Say, run: Callable[[At], Awaitable[Moved]], point: str, how: str, go: str) -> None:
    struck = False

    def at(here: str) -> None:
        nonlocal struck
        if struck or not (here == point or (point in REPEATED and here.startswith(f"{point}/"))):
            return
        struck = True
        say(f"at {here}")
        if how == "mover":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            Path(go).read_bytes()

    async def main() -> None:
        try:
            done = await run(at)
        except InterlockError as error:
            say(f"failed {error.retry} {error.what}")
        else:
            say(f"moved {done.epoch} {done.resumed}")

    asyncio.run(main())
