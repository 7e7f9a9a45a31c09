"""Reading distance: how many modules one call visits, and how often it goes from one module to another.

A reader who follows the call opens those files, in that order. The profiler is set before the threads of an engine
start and sees them all; it records only while a call is traced. Of several calls the shortest trace counts, because a
background task (a timer, a renewed lease) may run during any one of them.
"""

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType

from tests.tidy.source import PACKAGE

WARM_UP = 5
CALLS = 15


@dataclass(frozen=True, order=True)
class Distance:
    """The modules that one call visited, in their order within the package, and the switches between them."""

    count: int
    switches: int
    modules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.count} modules, {self.switches} switches: {' '.join(self.modules)}"


class Profiler:
    """Records the module of every function call in `package`, for each thread."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self._package = package
        self._names: dict[str, str | None] = {}
        self._recording = False
        self._visits: dict[int, list[str]] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Profile this thread, and all that start meanwhile."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls of one trace."""
        self._visits = {}
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    def distance(self) -> Distance:
        """Return the distance of the last trace. A switch is a call into another module than the call before it."""
        visits = list(self._visits.values())
        modules = tuple(sorted({module for visited in visits for module in visited}))
        switches = sum(before != after for visited in visits for before, after in pairwise(visited))
        return Distance(len(modules), switches, modules)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        del argument
        if self._recording and event == "call" and (name := self._name(frame.f_code.co_filename)) is not None:
            self._visits.setdefault(threading.get_ident(), []).append(name)

    def _name(self, file: str) -> str | None:
        if file not in self._names:
            path = Path(file)
            inside = path.is_relative_to(self._package)
            self._names[file] = path.relative_to(self._package).with_suffix("").as_posix() if inside else None
        return self._names[file]


async def shortest(profiler: Profiler, call: Callable[[], Awaitable[object]]) -> Distance:
    """Return the shortest trace of a call that is warm."""
    for _ in range(WARM_UP):
        await call()
    traces: list[Distance] = []
    for _ in range(CALLS):
        with profiler.recording():
            await call()
        traces.append(profiler.distance())
    return min(traces)
