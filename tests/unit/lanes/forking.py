"""A process that forks while its lane is in use, and tells what both of them saw."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from interlock.errors import InterlockError
from interlock.lanes.lane import Lane
from tests.unit.lanes.lanes import count, increment, make_counter, opened

LIFETIME_S_MAX = 60


def fork(say: Callable[[str], None], path: str) -> None:
    """The parent goes on, gives the lane up and takes it again, while its child lives."""
    hearing, speaking = os.pipe()
    waiting, ending = os.pipe()
    with opened(Path(path), idle_s=60.0) as lane:
        asyncio.run(make_counter(lane))
        asyncio.run(_read(lane))
        child = os.fork()
        if child == 0:
            os.close(ending)
            _child(lane, Path(path), speaking, waiting)
        os.close(speaking)
        with os.fdopen(hearing) as words:
            for line in words:
                say(f"child: {line.strip()}")
        asyncio.run(lane.run(increment()))
        say(f"parent: counted {asyncio.run(count(lane))}")
    with opened(Path(path)) as lane:
        say(f"parent: took it again, counted {asyncio.run(count(lane))}")
    os.close(ending)
    _, status = os.waitpid(child, 0)
    say(f"child: ended {os.waitstatus_to_exitcode(status)}")


def _child(lane: Lane, path: Path, speaking: int, waiting: int) -> None:
    code = 1
    try:
        signal.alarm(LIFETIME_S_MAX)
        for use in (partial(_add, lane), partial(_read, lane), partial(_open, path)):
            try:
                asyncio.run(use())
            except InterlockError as error:
                os.write(speaking, f"{error.code}: {error.what.partition(' was ')[2]}\n".encode())
        lane.close()
        del lane, use
        gc.collect()
        with opened(path.with_name("own")) as own:
            asyncio.run(make_counter(own))
            os.write(speaking, f"its own lane says {asyncio.run(_read(own))}\n".encode())
        os.close(speaking)
        os.read(waiting, 1)  # Until the parent closes its end.
        code = 0
    finally:
        os._exit(code)


async def _open(path: Path) -> None:
    with opened(path):
        pass


async def _add(lane: Lane) -> object:
    return await lane.run(increment())


async def _read(lane: Lane) -> object:
    return await lane.read(lambda connection: connection.execute("SELECT n FROM counter").get)
