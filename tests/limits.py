"""How long a test may take, and what is shown of one that takes longer. Loaded by the conftest of all tests.

pytest-timeout raises in the main thread when the limit of `pyproject.toml` has passed: the test fails by its name, with
the stacks of all threads, and this module adds those of all tasks. A test that does not react to that is ended with
its process, after a grace, by the watchdog of faulthandler. The watchdog needs no lock of the interpreter, so it also
ends C code that keeps the lock, a teardown that hangs after a failure, and code that catches every exception.
pytest-xdist reports such a test as failed, starts another process and goes on.

Neither relies on SIGINT, which a shell ignores for what it runs in the background. Campaigns get more time by the
variables that make them longer.
"""

import asyncio
import faulthandler
import gc
import os
import signal
from collections.abc import Generator, Mapping
from types import FrameType
from typing import TextIO

import pytest

PROOF_FACTOR = 20
"""How many times as much the larger model and the profile `proof` try."""

SIZES = {"INTERLOCK_CRASHES": 1, "INTERLOCK_FLEETS": 200, "INTERLOCK_LEAK_STEPS": 100_000, "INTERLOCK_SEEDS": 60}
"""The variables that make a campaign longer, and what `make test` runs it with."""

LIMIT = pytest.StashKey[float]()
STDERR = pytest.StashKey[TextIO]()


def campaign_factor(environment: Mapping[str, str]) -> float:
    """How many times as much a campaign does as in `make test`."""
    factors = [1.0]
    factors += [float(environment[name]) / size for name, size in SIZES.items() if environment.get(name)]
    if environment.get("INTERLOCK_MODEL") == "large" or environment.get("HYPOTHESIS_PROFILE") == "proof":
        factors.append(PROOF_FACTOR)
    return max(factors)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("timeout_grace", "Seconds from the failure of a test that takes too long to the end of its process.")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the standard error of the process, which is captured while tests run."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        config.stash[STDERR] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    faulthandler.cancel_dump_traceback_later()
    config.stash[STDERR].close()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give the tests of a long campaign more time, unless the command line or the test sets a limit."""
    factor = campaign_factor(os.environ)
    if factor > 1 and item.config.getoption("timeout") is None and item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(float(item.config.getini("timeout")) * factor))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: "Settings") -> Generator[None, object, object]:
    """Start the watchdog beside the timer of pytest-timeout, and have that show the tasks as well."""
    result = yield
    item.stash[LIMIT] = settings.timeout
    _start_watchdog(item)
    fail = signal.getsignal(signal.SIGALRM)
    if settings.method == "signal" and callable(fail):

        def show_tasks_and_fail(number: int, frame: FrameType | None) -> None:
            __tracebackhide__ = True
            _show_tasks(item.config)
            fail(number, frame)

        signal.signal(signal.SIGALRM, show_tasks_and_fail)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Start the watchdog again for the teardown: pytest stops it after a failure, for a debugger that may follow."""
    if LIMIT in node.stash and not node.config.getoption("usepdb"):
        _start_watchdog(node)


def pytest_enter_pdb() -> None:
    faulthandler.cancel_dump_traceback_later()


def _start_watchdog(node: pytest.Item | pytest.Collector) -> None:
    limit_s = node.stash[LIMIT] + float(node.config.getini("timeout_grace"))
    faulthandler.dump_traceback_later(limit_s, exit=True, file=node.config.stash[STDERR])


def _show_tasks(config: pytest.Config) -> None:
    """Where each task of this process waits. Every loop of every thread is found this way, and no private name."""
    terminal = config.get_terminal_writer()
    for task in [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]:
        terminal.sep("~", title=f"Stack of task {task.get_name()}")
        awaited: object = task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            code = frame.f_code
            terminal.line(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}')
            awaited = getattr(awaited, "cr_await", None)


class Settings:
    """What pytest-timeout tells about the limit of a test; it has no types."""

    timeout: float
    method: str
