"""The pytest plugin: `--transition-coverage` reports the transitions that no test has taken.

pytest loads it by its entry point in every project that has Interlock installed, so it does nothing at all until one
of its options is given, but for one thing: breakers belong to the process, so every test begins with all of them
closed. A test that opened one would otherwise hold up the next that calls a dependency of the same name.

Under pytest-xdist every worker measures for itself and sends its measurement to the controller with its last message;
the controller merges them and prints the report.
"""

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from importlib import import_module
from typing import Protocol, cast

from interlock.core.machine import Machine
from interlock.testing.campaigns import missing_extra
from interlock.testing.coverage import Compiled, TransitionCoverage, coverage_from_json, measure, shown_percent

try:
    import pytest
except ModuleNotFoundError as error:
    raise missing_extra(__name__, "pytest") from error

OUTLETS = "interlock.engine.dependencies.outlet"

WORKER_OUTPUT = "interlock_transition_coverage"


class _Worker(Protocol):
    """What pytest-xdist's controller knows of a worker that has ended."""

    workeroutput: dict[str, object]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("interlock", "Interlock")
    group.addoption(
        "--transition-coverage",
        action="store_true",
        help="report which transitions of the state machines were taken by the tests",
    )
    group.addoption(
        "--transition-coverage-fail-under",
        type=float,
        metavar="PERCENT",
        help="fail the run when fewer transitions were taken; switches the measurement on",
    )
    group.addoption(
        "--transition-coverage-machine",
        action="append",
        default=[],
        metavar="MODULE:ATTR",
        help="report this machine alone, used or not (may be repeated); switches the measurement on",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start the measurement if an option requests it."""
    fail_under: float | None = config.getoption("--transition-coverage-fail-under")
    machines: list[str] = config.getoption("--transition-coverage-machine") or []
    if config.getoption("--transition-coverage") or fail_under is not None or machines:
        config.pluginmanager.register(_Measurement(fail_under, machines), "interlock-transition-coverage")


@pytest.fixture(autouse=True)
def _interlock_breakers_closed() -> None:  # pyright: ignore[reportUnusedFunction]
    """Close all breakers before every test. The module is not imported for it: without an engine no breaker exists."""
    outlets = sys.modules.get(OUTLETS)
    if outlets is not None:
        outlets.forget_outlets()


class _Measurement:
    """One run of pytest: in a single process, in a worker, or in the controller of workers."""

    def __init__(self, fail_under: float | None, references: list[str]) -> None:
        self._fail_under = fail_under
        self._references = references
        self._machines: list[Compiled] = []
        self._measuring = ExitStack()
        self._coverage: TransitionCoverage = self._measuring.enter_context(measure())
        self._silent_workers = 0
        self._failure = ""

    def pytest_sessionstart(self) -> None:
        for reference in self._references:
            self._machines += _load(reference)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: _Worker) -> None:
        data = getattr(node, "workeroutput", {}).get(WORKER_OUTPUT)
        if isinstance(data, bytes):
            self._coverage.merge(coverage_from_json(data))
        else:
            self._silent_workers += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._measuring.close()
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[WORKER_OUTPUT] = self._coverage.to_json()
            return
        if self._machines:
            self._coverage = self._coverage.only(*self._machines)
        self._failure = self._shortfall()
        if self._failure and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("transition coverage")
        terminalreporter.write_line(self._coverage.text() if self._coverage.machines else "no machine was used")
        if self._silent_workers:
            terminalreporter.write_line(f"{self._silent_workers} crashed workers sent nothing: there may be more")
        if self._failure:
            terminalreporter.write_line(f"FAIL: {self._failure}", red=True, bold=True)

    def pytest_unconfigure(self) -> None:
        # Once more, for a run that was interrupted before it could finish.
        self._measuring.close()

    def _shortfall(self) -> str:
        if self._fail_under is None:
            return ""
        if not self._coverage.machines:
            return f"no machine was used; {self._fail_under:g} % of the transitions are required"
        percent = self._coverage.percent
        if percent >= self._fail_under:
            return ""
        return f"{shown_percent(percent)} of the transitions were taken; {self._fail_under:g} % are required"


def _load(reference: str) -> list[Compiled]:
    name, _, attribute = reference.partition(":")
    try:
        found: object = import_module(name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(
            f"--transition-coverage-machine {reference}: {error}. Give MODULE:ATTR, as in shop.orders:order."
        ) from error
    machines: list[Compiled] = []
    for each in cast("Iterable[object]", found) if isinstance(found, list | tuple | set | frozenset) else [found]:
        if not isinstance(each, Machine):
            raise pytest.UsageError(
                f"--transition-coverage-machine {reference}: that is a {type(each).__name__}, not a machine."
            )
        machines.append(cast("Compiled", each))
    return machines
