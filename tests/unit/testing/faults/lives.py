"""Workloads for the tests of the process harness."""

import os
import threading
from collections.abc import Callable

from interlock import faultpoints

Say = Callable[[str], None]


def greet(say: Say, name: str, times: int) -> None:
    for _ in range(times):
        say(f"hello {name}")


def number(say: Say) -> None:
    say(str(os.getpid()))
    threading.Event().wait()


def walk(say: Say) -> None:
    for turn in range(10):
        say(f"turn {turn}")
        faultpoints.reach("group.begun")
        faultpoints.reach("group.committed")


def fail(say: Say) -> None:
    say("before")
    raise KeyError("no such shelf")


def talk_too_much(say: Say) -> None:
    say("x" * 5_000)
