"""Movers for tests: one in this process, and one in a process of its own that holds the seal until it is killed."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock import faultpoints
from interlock.clock import SystemClock
from interlock.errors import UnavailableError
from interlock.lanes.handover import Leaving

THERE = "postgresql://clerk:hidden@there/stock"
WAIT_S = 300.0


@contextmanager
def leaving(path: Path) -> Iterator[Leaving]:
    """A mover's connection to the lane."""
    mover = Leaving(path, clock=SystemClock(), prepare=lambda _connection, _now: None)
    try:
        yield mover
    finally:
        mover.close()


def leave(path: Path, *, epoch: int = 1) -> None:
    """A whole move, as far as the lane is concerned."""
    with leaving(path) as mover, mover.sealed(WAIT_S) as seal:
        seal.leave(THERE, epoch)


@contextmanager
def meeting() -> Iterator[threading.Event]:
    """Set when a writer has met the seal."""
    met = threading.Event()
    faultpoints.listen(lambda point: met.set() if point == faultpoints.SEAL_POINT else None)
    try:
        yield met
    finally:
        faultpoints.listen(None)


def hold(say: Callable[[str], None], path: str, point: str) -> None:
    """Seal the lane, and die: holding the seal, with a tombstone that is not committed, or behind its commit."""
    with leaving(Path(path)) as mover:
        mover.watch({"counter": ["id"]})
        with mover.sealed(WAIT_S) as seal:
            if point == "written":
                seal.connection.execute("CREATE TABLE interlock_moved (url, epoch, time_us)")
                seal.connection.execute("INSERT INTO interlock_moved VALUES ('nowhere', 1, 0)")
            elif point == "left":
                seal.leave(THERE, 1)
            say("sealed")
            threading.Event().wait()


def fork(say: Callable[[str], None], path: str) -> None:
    """Fork while a mover has the lane open: the child must keep away from it."""
    with leaving(Path(path)) as mover:
        child = os.fork()
        if not child:
            try:
                Leaving(Path(path), clock=SystemClock(), prepare=lambda _connection, _now: None)
            except UnavailableError as error:
                say(error.what)
            os._exit(0)
        os.waitpid(child, 0)
        say(str(mover.connection.execute("SELECT n FROM counter").get))
    child = os.fork()
    if not child:
        with leaving(Path(path)) as mover:
            say(str(mover.connection.execute("SELECT n FROM counter").get))
        os._exit(0)
    os.waitpid(child, 0)
