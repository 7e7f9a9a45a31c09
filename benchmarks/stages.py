"""What a transition does in each stage of the data path: calls of functions, and its share of the CPU time.

The stages are those of the code tour. A profiler counts the calls of all threads and times what lies between them; the
shares of the stages are then applied to the CPU time of a round without it. Calls repeat exactly but for the sizes of
groups, so they are what a test bounds (`tests/tidy/test_work_per_event.py`).
"""

import asyncio
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Self

from rich.console import Console
from rich.table import Table

from benchmarks.embedded import MACHINES, Embedded
from interlock import Engine

STAGES = ("admit", "load", "decide", "stage", "encode", "write", "acknowledge", "dispatch", "attempt", "loop", "client")

MODULES = {
    "interlock/engine/path/admission": "admit",
    "interlock/engine/engine": "admit",
    "interlock/engine/path/caller_commands": "decide",
    "interlock/engine/path/engine_commands": "decide",
    "interlock/engine/path/commit_pipeline": "acknowledge",
    "interlock/engine/path/staged_group": "stage",
    "interlock/engine/bound_machine": "stage",
    "interlock/core/codec": "encode",
    "interlock/core/": "decide",
    "interlock/store/": "write",
    "interlock/lanes/": "write",
    "interlock/engine/steps/": "attempt",
    "interlock/engine/dependencies/": "attempt",
    "interlock/engine/": "dispatch",
    "interlock/": "stage",
    "/asyncio/": "loop",
}
"""The stage of a module: that of the first entry which its path contains."""

FUNCTIONS = {
    "admit": "admit", "add": "admit", "_begin": "admit", "_run": "admit", "_gather": "admit", "_share": "admit",
    "_load": "load", "_look_up": "load", "_read_into": "load", "_decide": "decide", "_commit_to_owned": "write",
    "act": "dispatch", "change": "write", "_keep": "dispatch",
}  # fmt: skip
"""The stage of a function of the engine, where it is not that of its module."""


def stage_of(path: str, function: str) -> str:
    """The stage in which a function runs."""
    if "interlock/engine/path/" in path or function == "act":
        named = FUNCTIONS.get(function)
        if named is not None:
            return named
    return next((stage for part, stage in MODULES.items() if part in path), "client")


class Stages:
    """Counts the calls of each stage in all threads, and the time between them."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.times_s: dict[str, float] = {}
        self._known: dict[object, str] = {}
        self._last = threading.local()

    def __enter__(self) -> Self:
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _record(self, frame: FrameType, event: str, _argument: object) -> None:
        now_s = time.thread_time()
        last: tuple[str, float] | None = getattr(self._last, "call", None)
        if last is not None:
            self.times_s[last[0]] = self.times_s.get(last[0], 0.0) + now_s - last[1]
        code = frame.f_back.f_code if event == "return" and frame.f_back is not None else frame.f_code
        stage = self._known.get(code)
        if stage is None:
            stage = self._known[code] = stage_of(code.co_filename, code.co_name)
        if event in {"call", "c_call"}:
            self.calls[stage] += 1
        self._last.call = (stage, time.thread_time())


async def profiled(folder: Path, *, steps: bool, in_flight: int = 256, seconds: float = 1.0) -> Table:
    """A table of the stages of one form of the order, on a lane."""
    stages = Stages()
    with stages:
        stages.calls.clear()
        async with Engine.open(f"lanes://{folder}/stages-{steps}", machines=list(MACHINES)) as engine:
            embedded = Embedded(engine)
            await embedded.round(steps=steps, in_flight=in_flight, seconds=seconds / 4)
            stages.calls.clear()
            stages.times_s.clear()
            counted = await embedded.round(steps=steps, in_flight=in_flight, seconds=seconds)
            calls, times_s = dict(stages.calls), dict(stages.times_s)
    async with Engine.open(f"lanes://{folder}/plain-{steps}", machines=list(MACHINES)) as engine:
        plain = await Embedded(engine).round(steps=steps, in_flight=in_flight, seconds=seconds)
    cpu_us = 1e6 * plain.cpu_seconds / plain.operations
    whole_s = sum(times_s.values())
    form = "steps" if steps else "events"
    table = Table(title=f"{form}, {in_flight} in flight: {cpu_us:.1f} µs of CPU each", min_width=44)
    for heading in ("stage", "calls", "µs", "share"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for stage in STAGES:
        share = times_s.get(stage, 0.0) / whole_s
        each = calls.get(stage, 0) / counted.operations
        table.add_row(stage, f"{each:.1f}", f"{share * cpu_us:.2f}", f"{share:.0%}")
    return table


def show(folder: Path) -> None:
    """Print the tables of both forms."""
    for steps in (True, False):
        Console().print(asyncio.run(profiled(folder, steps=steps)))
