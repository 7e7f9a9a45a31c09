"""C14: the options, the verdicts and the exit codes of `interlock chaos`; what it does is in tests/chaos/command."""

import json

import msgspec
import pytest
from rich.console import Console

from interlock.chaos.database_servers import OwnPostgres, OwnRedis
from interlock.chaos.scenario import ChaosReport, Outcome, ScenarioVerdict
from interlock.chaos.scenarios import SCENARIOS
from interlock.cli.chaos_and_simulate import _exit_code, show_report
from interlock.cli.program import main


def verdict(outcome: Outcome, *problems: str) -> ScenarioVerdict:
    return ScenarioVerdict(
        scenario=f"{outcome}-one", promised="it lives", happened="it did", outcome=outcome, problems=problems
    )


def report(*outcomes: Outcome) -> ChaosReport:
    return ChaosReport(seed=7, verdicts=tuple(verdict(outcome) for outcome in outcomes))


def test_every_disturbance_of_the_row_has_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert listed == list(SCENARIOS) == [
        "kill-redis", "freeze-lock-holder", "restart-postgres", "kill-postgres", "throttle-postgres",
        "exhaust-connections", "gateway-latency", "gateway-outage", "freeze-worker", "cut-node", "fill-disk",
    ]  # fmt: skip


def test_a_scenario_that_does_not_exist_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", "--only", "kill-everything"]) == 2
    told = capsys.readouterr().err
    assert "there is no scenario 'kill-everything'" in told
    assert "kill-postgres" in told


@pytest.mark.parametrize("option", [("--orders", "3"), ("--seconds", "0"), ("--deadline", "0.5")])
def test_a_bound_that_is_no_bound_is_wrong_usage(option: tuple[str, str]) -> None:
    assert main(["chaos", *option]) == 2


def test_what_cannot_be_run_here_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for server in (OwnPostgres, OwnRedis):
        monkeypatch.setattr(server, "installed", classmethod(lambda cls: f"there is no {cls.name} here"))
    assert main(["chaos", "--only", "kill-redis", "-o", "json"]) == 5
    [told] = json.loads(capsys.readouterr().out)["verdicts"]
    assert told["outcome"] == "not run"
    assert "there is no PostgreSQL here; there is no Redis here" in told["happened"]
    assert "pip install 'interlock[chaos]'" in told["happened"]


@pytest.mark.parametrize(
    ("outcomes", "named", "code"),
    [
        (("kept", "kept"), True, 0),
        (("kept", "broken", "not run"), False, 1),
        (("kept", "not run"), False, 0),
        (("kept", "not run"), True, 5),
        (("not run",), False, 5),
    ],
)
def test_the_exit_code_tells_the_worst(outcomes: tuple[Outcome, ...], named: bool, code: int) -> None:
    assert _exit_code(report(*outcomes), named=named) == code


def shown(told: ChaosReport) -> list[str]:
    console = Console(width=80, record=True, file=None)
    with console.capture() as captured:
        show_report(console, told)
    return captured.get().splitlines()


def test_verdicts_are_one_line_each_and_the_last_line_sums_up() -> None:
    lines = shown(report("kept", "not run"))
    assert lines[0].split() == ["scenario", "promised", "happened", "verdict", "recovery"]
    assert lines[1].split("  ")[0] == "kept-one"
    assert lines[-1].startswith("Every promise was kept in 1 scenario (0 orders, 0 acknowledgements, seed 7).")
    assert "1 scenario could not be run: pip install 'interlock[chaos]'." in lines[-1]


def test_a_broken_promise_is_named_below_the_table() -> None:
    broken = ChaosReport(seed=1, verdicts=(verdict("broken", "order-7 is lost", "order-8 is lost"),), folder="/tmp/x")
    lines = shown(broken)
    assert "  order-7 is lost" in lines
    assert "broken-one: 2 broken promises" in lines
    assert lines[-2].startswith("1 scenario of 1 broke a promise")
    assert lines[-1] == "Everything that was left is in /tmp/x"


def test_nothing_that_ran_is_no_success() -> None:
    assert shown(report("not run"))[-1].startswith("Nothing was run.")


def test_a_report_is_the_same_behind_json() -> None:
    told = report("kept", "broken")
    assert msgspec.json.decode(msgspec.json.encode(told), type=ChaosReport) == told
