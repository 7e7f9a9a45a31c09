"""Forks: nothing that belongs to a lane may be used in the child of a fork.

A child inherits the open files of its parent. All processes that have a lane's lock file open share its lock: a child
that kept it would own the lane for as long as it lives. A SQLite connection that is used, or even closed, in a child
damages the parent's database. So the child closes the lock without unlocking it, and never touches the rest: it is
leaked on purpose. A lane that came through a fork refuses all work.
"""

import contextlib
import ctypes
import os
import threading
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from interlock.errors import UnavailableError


class Inherited(Protocol):
    """Something that a child must not use."""

    def forked(self) -> None:
        """Disable it. Called in the child, in its only thread; locks may be held by threads that no longer exist."""
        ...


no_fork = threading.Lock()
"""Held between opening something that a child must close, and `watch`: no fork happens meanwhile."""

_watched: WeakSet[Inherited] = WeakSet()
_inherited: set[str] = set()


def watch(thing: Inherited) -> None:
    """Call its `forked` in every child from now on."""
    _watched.add(thing)


def leak(*things: object) -> None:
    """Never destroy these, not even at the end of the process: destroying a connection would close it."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def inherit(path: Path) -> None:
    """Record in a child that its parent had this lane open."""
    _inherited.add(os.path.realpath(path))


def refuse_inherited(path: Path) -> None:
    """Raise UnavailableError for a lane that was open when this process was forked."""
    # SQLite keeps locks and shared memory per process and file; in the child they are the parent's, and wrong.
    if os.path.realpath(path) in _inherited:
        raise forked_error(path)


def forked_error(path: Path | None) -> UnavailableError:
    """The error for using, in a child, a lane that its parent has opened."""
    return UnavailableError(
        f"lane {path or 'in memory'} was open when this process was forked, and belongs to its parent.",
        why="A lane has one writer, whose thread and locks do not come through a fork.",
        fix="Open databases after the fork, or start processes afresh (multiprocessing's spawn).",
    )


def _in_child() -> None:
    no_fork.release()
    for thing in list(_watched):
        with contextlib.suppress(Exception):  # The others come first.
            thing.forked()


os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_in_child)
