"""The walk: a worker moves the orders, is killed in the middle, and another one takes up where it was.

The parent owns nothing that the orders need. It listens to what the worker says, notes every acknowledgement, kills the
worker with SIGKILL when about half of them are there, starts the next one, and in the end compares what was
acknowledged with what is stored. The odd choice is a pipe instead of anything cleverer: what was written into it before
a kill can be read after it, so the parent knows exactly what had been acknowledged.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import msgspec

from interlock.cli.demo.observers import Tally
from interlock.errors import InternalError
from interlock.examples.order import Order, State, order
from interlock.runtime.views import HistoryRow

WORKER = "interlock.cli.demo.worker"
NEWS_PER_LOOK = 64
STATES = {state.value: number for number, state in enumerate(State)}

OrderHistory = list[HistoryRow[State, Order]]


@dataclass(slots=True)
class Kill:
    """What there was when the worker was killed, and how the next one came back."""

    acknowledged: int = 0
    on_their_way: int = 0
    recovery_s: float = 0.0
    """From opening the store to having taken up everything that was owed."""
    gap_s: float = 0.0
    """From the kill to the first news of the next worker, Python's own start included."""


@dataclass(slots=True)
class Outcome:
    """Everything that a walk has to tell, complete when the walk is over and verified."""

    orders: int
    seed: int
    tally: Tally
    done: int = 0
    acknowledged: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    observer_failures: int = 0
    kill: Kill | None = None
    walking_s: float = 0.0
    verifying_s: float = 0.0
    books: Counter[str] = field(default_factory=Counter[str])
    """The entries of the world's books, by what was done."""
    keys: int = 0
    """The idempotency keys under which the world was asked for something."""
    fingerprint: str = ""
    examples: dict[str, tuple[str, str, str]] = field(default_factory=dict[str, tuple[str, str, str]])
    """What, why and fix of the first refusal of each code."""
    longest: tuple[str, OrderHistory] = ("", [])
    """The order with the longest history."""
    problems: list[str] = field(default_factory=list[str])


class Watcher(Protocol):
    """Anything that shows how far the walk is. Called often; it has to be quick."""

    def __call__(self, outcome: Outcome, /) -> None:
        """Look at the walk so far."""
        ...


class Walk:
    """All orders of one seed, with one kill in the middle."""

    def __init__(self, orders: int, seed: int, folder: Path) -> None:
        self.outcome = Outcome(orders, seed, Tally(order.describe()))
        self.folder = folder
        self.acknowledged: dict[str, bytearray] = {}
        """By order: pairs of a version and the number of its state, as they were acknowledged."""
        self._rejections: set[tuple[str, str]] = set()
        self._done: set[str] = set()
        self._opened_in_s = 0.0

    def run(self, watch: Watcher) -> Outcome:
        """Walk every order to its end, through a kill."""
        began_s = time.perf_counter()
        with self._worker(stays=True) as (worker, news):
            self._listen(news, watch, until=2 * self.outcome.orders)
            worker.kill()
            self._listen(news, watch)  # What it had said before it died.
        killed_s = time.perf_counter()
        outcome = self.outcome
        on_their_way = len(self.acknowledged) - outcome.done
        kill = outcome.kill = Kill(outcome.acknowledged, on_their_way)
        watch(outcome)
        with self._worker(stays=False) as (worker, news):
            self._listen(news, watch, until_open=True)
            kill.gap_s = time.perf_counter() - killed_s
            kill.recovery_s = self._opened_in_s
            watch(outcome)
            self._listen(news, watch)
            self._demand_good_end(worker.wait())
        outcome.walking_s = time.perf_counter() - began_s
        watch(outcome)
        return outcome

    @contextlib.contextmanager
    def _worker(self, *, stays: bool) -> "Generator[tuple[subprocess.Popen[str], IO[str]], None, None]":
        """A worker and what it says. It is killed on the way out, if it lives, whatever happens."""
        words = [str(self.folder), str(self.outcome.orders), str(self.outcome.seed), "stays" if stays else "ends"]
        # Ctrl-C waits while the worker is being made: nobody would know of one that is made and not yet noted.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            worker = subprocess.Popen(  # noqa: S603 -- our own module, our own interpreter.
                [sys.executable, "-m", WORKER, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        assert worker.stdin is not None
        assert worker.stdout is not None
        with worker.stdin, worker.stdout:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                yield worker, worker.stdout
            finally:
                worker.kill()
                worker.wait()

    @staticmethod
    def _demand_good_end(code: int) -> None:
        if code != 0:
            raise InternalError(f"the demo's worker ended with {code}; its complaint is above.")

    def _listen(self, news: IO[str], watch: Watcher, *, until: int | None = None, until_open: bool = False) -> None:
        """Hear news to the end, or until so many acknowledgements are there, or until the worker is open."""
        for heard, line in enumerate(news):
            if not line.endswith("\n"):  # Half a line was not said.
                return
            self._heard(line)
            if heard % NEWS_PER_LOOK == 0:
                watch(self.outcome)
            if (until is not None and self.outcome.acknowledged >= until) or (until_open and line[0] == "O"):
                return

    def _heard(self, line: str) -> None:
        outcome = self.outcome
        kind, *words = line.rstrip("\n").split("\t")
        match kind:
            case "T":
                outcome.tally.moved(words[0], words[3], words[2])
            case "A":
                outcome.acknowledged += 1
                self.acknowledged.setdefault(words[0], bytearray()).extend((int(words[1]), STATES[words[2]]))
            case "D" if words[0] not in self._done:
                self._done.add(words[0])
                outcome.done += 1
                outcome.tally.forget(words[0])
            case "R" if (words[0], words[1]) not in self._rejections:
                self._rejections.add((words[0], words[1]))
                outcome.rejected[words[1]] += 1
            case "X":
                outcome.examples.setdefault(words[0], msgspec.json.decode(words[1], type=tuple[str, str, str]))
            case "F":
                outcome.observer_failures += 1
            case "!":
                outcome.problems.append(f"{words[0]}: {words[1]}")
            case "O":
                self._opened_in_s = float(words[0])
            case _:
                pass
