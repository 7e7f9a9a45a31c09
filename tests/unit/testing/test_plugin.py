"""The pytest plugin, run by pytest within pytest."""

import tomllib
from pathlib import Path

import pytest

import interlock

pytest_plugins = ["pytester"]

SOURCE = Path(interlock.__file__).resolve().parents[1]

MACHINE = """
    from dataclasses import dataclass
    from enum import Enum
    from interlock import Event, Machine

    class State(Enum):
        OFF, ON, GONE = "off", "on", "gone"

    @dataclass(frozen=True)
    class Light: ...

    class LightEvent(Event): ...
    @dataclass(frozen=True)
    class Press(LightEvent): ...
    @dataclass(frozen=True)
    class Drop(LightEvent): ...

    light = Machine("light", states=State, context=Light, events=LightEvent, initial=State.OFF, final={State.GONE})
    light.on(Press, State.OFF, to=State.ON)
    light.on(Press, State.ON, to=State.OFF)
    light.on(Drop, light.any, to=State.GONE)

    other = Machine("other", states=State, context=Light, events=LightEvent, initial=State.OFF, final={State.GONE})
    other.on(Press, State.OFF, to=State.ON)
    other.on(Drop, other.any, to=State.GONE)
    nothing = 42
"""

TESTS = """
    import pytest
    from lights import Drop, Light, Press, State, light

    def test_on():
        assert light.apply(light.begin(Light()), Press()).state is State.ON

    def test_off():
        assert light.apply(light.at(State.ON, Light()), Press()).state is State.OFF

    @pytest.mark.parametrize("state", [State.ON])
    def test_drop(state):
        assert light.apply(light.at(state, Light()), Drop()).state is State.GONE
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a machine and tests that take three of its four transitions."""
    # The plugin is named on the command line, so that the test is the same whether Interlock is installed or not.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    pytester.makepyfile(lights=MACHINE, test_lights=TESTS)
    pytester.makeini("[pytest]\npythonpath = .\n")
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "interlock.testing.plugin", *options)


def test_it_is_silent_without_its_option(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_quiet="""
        from interlock.core import decide

        def test_the_core_is_untouched():
            assert decide._move.__module__ == "interlock.core.decide"
        """
    )
    result = run(project)
    result.assert_outcomes(passed=4)
    result.stdout.no_fnmatch_line("*transition*")


def test_the_report_names_the_transitions_never_taken(project: pytest.Pytester) -> None:
    result = run(project, "--transition-coverage")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "*= transition coverage =*",
            "light: 3 of 4 transitions taken, 75.0 %",
            "  never taken: off --DROP--> gone",
        ]
    )
    result.stdout.no_fnmatch_line("other*")


@pytest.mark.parametrize(("percent", "code"), [("75", pytest.ExitCode.OK), ("75.1", pytest.ExitCode.TESTS_FAILED)])
def test_too_little_coverage_fails_the_run(project: pytest.Pytester, percent: str, code: pytest.ExitCode) -> None:
    result = run(project, "--transition-coverage-fail-under", percent)
    result.assert_outcomes(passed=3)
    assert result.ret == code
    if code:
        result.stdout.fnmatch_lines(["FAIL: 75.0 % of the transitions were taken; 75.1 % are required"])
    else:
        result.stdout.no_fnmatch_line("FAIL*")


def test_no_machine_at_all_is_too_little(project: pytest.Pytester) -> None:
    project.makepyfile(test_nothing="def test_nothing(): pass")
    result = run(project, "--transition-coverage-fail-under=1", "test_nothing.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["no machine was used", "FAIL: no machine was used; 1 % *"])


def test_a_failing_test_is_still_a_failing_test(project: pytest.Pytester) -> None:
    project.makepyfile(test_broken="def test_broken(): assert 0")
    result = run(project, "--transition-coverage-fail-under=1")
    result.assert_outcomes(passed=3, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.no_fnmatch_line("FAIL:*")


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["load", "each"])
def test_workers_of_xdist_are_merged(project: pytest.Pytester, distribution: str) -> None:
    result = run(project, "-p", "xdist", "-n", "2", "--dist", distribution, "--transition-coverage-fail-under=80")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "light: 3 of 4 transitions taken, 75.0 %",
            "  never taken: off --DROP--> gone",
            "FAIL: 75.0 % *; 80 % are required",
        ]
    )
    assert result.stdout.str().count("= transition coverage =") == 1


@pytest.mark.slow
def test_a_worker_that_crashed_is_mentioned(project: pytest.Pytester) -> None:
    project.makepyfile(test_crash="import os\ndef test_crash(): os._exit(1)")
    result = run(project, "-p", "xdist", "-n", "1", "--max-worker-restart=0", "--transition-coverage", "test_crash.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*1 crashed workers sent nothing*"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")])
def test_named_machines_are_reported_alone_and_even_if_unused(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    result = run(project, *workers, "--transition-coverage-machine", "lights:other")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["other: 0 of 3 transitions taken, 0.0 %"])
    result.stdout.no_fnmatch_line("light:*")


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("lights:missing", "*lights:missing: module 'lights' has no attribute 'missing'. Give MODULE:ATTR*"),
        ("darkness:light", "*darkness:light: No module named 'darkness'. Give MODULE:ATTR*"),
        ("lights", "*lights: *. Give MODULE:ATTR*"),
        ("lights:nothing", "*lights:nothing: that is a int, not a machine."),
    ],
)
def test_a_machine_that_cannot_be_loaded_is_a_usage_error(project: pytest.Pytester, reference: str, told: str) -> None:
    result = run(project, "--transition-coverage-machine", reference)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([told])


def test_it_is_harmless_without_hypothesis(project: pytest.Pytester) -> None:
    project.makepyfile(hypothesis="raise ModuleNotFoundError('not installed')")
    result = run(project, "--transition-coverage")
    result.assert_outcomes(passed=3)
    assert result.ret == pytest.ExitCode.OK


def test_every_test_begins_with_all_breakers_closed(project: pytest.Pytester) -> None:
    """C4: breakers belong to the process, and tests must not hold each other up."""
    project.makepyfile(
        test_breakers="""
            import pytest
            from interlock.core.policies import Breaker
            from interlock.core.policies import Dependency
            from interlock.engine.dependencies.outlet import outlet_of
            from interlock.clock import SystemClock

            @pytest.mark.parametrize("turn", [1, 2])
            def test_one_failure_opens_it(turn):
                outlet = outlet_of("gateway", SystemClock(), Dependency("gateway", breaker=Breaker(failures=1)))
                assert outlet.phase == "closed"
                outlet.leave("first", outlet.ask("first"), "failed")
                assert outlet.phase == "open"
        """
    )
    assert run(project, "test_breakers.py").parseoutcomes() == {"passed": 2}


def test_no_engine_is_loaded_for_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_loaded="""
            import sys

            def test_loaded():
                assert "interlock.engine.dependencies.outlet" not in sys.modules
        """
    )
    run(project, "test_loaded.py").assert_outcomes(passed=1)


def test_the_entry_point_is_declared() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"interlock": "interlock.testing.plugin"}
