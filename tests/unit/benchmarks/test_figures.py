"""The page of figures says what was measured, and shows what was missed as missed."""

import datetime
import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from benchmarks import capacity, figures, routing
from benchmarks.figures import Report, Run, goals_of, page, plot

ORDERS = {
    "name": "orders",
    "unit": "transitions",
    "ratios": {"fast_enough": 13.0, "too_slow": 2.0, "free": 1.5},
    "goals": {"fast_enough": 12.0, "too_slow": 5.0, "late_ms": 10.0, "not_measured": 1.0},
    "at_most": ["late_ms"],
    "figures": {
        "late_ms": 12.5,
        "version, DBOS": "2.26.0",
        "postgres_version": "18.4",
        "Interlock, steps, 64": {"per_second": 12_345.6, "cpu_ms": 0.05, "p99_ms": 20.04},
        "Interlock, steps, 256": {"per_second": 20_000.0, "cpu_ms": 0.04},
        "load_average_before": [0.1, 0.2, 0.3],
    },
}
DAY = datetime.date(2026, 11, 18)


def run_of(**reports: object) -> Run:
    read = {name: msgspec.convert(text, Report) for name, text in reports.items()}
    return Run(quick=True, reports=read, absent={"growth": "it ended with exit code 1"}, seconds=61.0)


def test_a_goal_that_was_missed_is_on_the_page_as_missed() -> None:
    text = page(run_of(orders=ORDERS), {"Interlock": "0.1.0"}, DAY)
    assert "| `fast_enough` | 13.0 | at least 12.0 | met |" in text
    assert "| `too_slow` | 2.00 | at least 5.00 | **missed** |" in text
    assert "| `late_ms` | 12.5 | at most 10.0 | **missed** |" in text
    assert "| goals missed | 2 |" in text
    assert "not_measured" not in text


def test_the_page_names_the_command_the_machine_and_what_did_not_run() -> None:
    text = page(run_of(orders=ORDERS), figures.versions_of(run_of(orders=ORDERS)), DAY)
    assert 'Written by `make report ARGS="--quick"` on 2026-11-18.' in text
    assert "This was a quick run" in text
    assert "| DBOS | 2.26.0 |" in text
    assert "| PostgreSQL | 18.4 |" in text
    assert "| `python -m benchmarks.growth` | it ended with exit code 1 |" in text
    assert "| Interlock, steps, 64 | 12,346 | 50.0 | 20.0 |" in text


def test_a_move_has_its_goals_in_each_direction() -> None:
    way = dict.fromkeys(routing.GOALS, 1.5)
    found = {"there": way, "back": {**way, "seal_ms": 501.0}, "writes": 7}
    goals = goals_of(msgspec.json.decode(json.dumps(routing.report_of(found)), type=Report))
    assert len(goals) == 2 * len(routing.GOALS)
    assert all(goal.at_most for goal in goals)
    assert {goal.name for goal in goals if not goal.met} == {
        "back_seal_ms", "there_slowest_differs_from_printed", "back_slowest_differs_from_printed",
    }  # fmt: skip


def test_a_report_that_cannot_be_read_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        text = json.dumps(ORDERS) if "benchmarks.orders" in command else '{"goals": {"range": [0.8, 1.2]}}'
        Path(command[command.index("--json") + 1]).write_text(text, encoding="utf-8")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    run_of_both = figures.run_all(["orders", "routing"], quick=True)
    assert set(run_of_both.reports) == {"orders"}
    assert "its report cannot be read: Expected `float`" in run_of_both.absent["routing"]


def test_the_plot_has_a_line_for_each_contestant() -> None:
    drawn = plot(msgspec.convert(ORDERS, Report))
    assert drawn.startswith("<svg")
    assert "Interlock, steps" in drawn


def test_a_quick_run_is_quick_in_every_benchmark() -> None:
    for name in figures.TITLES:
        command = figures.command_of(name, figures.PAGE, quick=True)
        assert "--quick" in command or command[-2:] == ["--megabytes", "10"]


def test_the_table_of_the_readme_has_the_rates_of_the_run_and_how_it_was_measured() -> None:
    table = figures.readme_table(
        run_of(orders=ORDERS), {"PostgreSQL": "18.4", "Restate": "1.7.12, Python SDK 1.2.0"}, DAY
    )
    assert "| Interlock in a folder | 12,346 | 20,000 |" in table
    assert "| DBOS on PostgreSQL | — | — |" in table
    assert "A quick run on 2026-11-18" in table
    assert "PostgreSQL 18.4, Restate 1.7.12." in table


def test_every_rate_of_the_readme_is_on_the_page_of_figures() -> None:
    readme = figures.README.read_text(encoding="utf-8")
    table = readme.partition(capacity.BEGIN)[2].partition(capacity.END)[0]
    rates = re.findall(r"\| ([\d,]{3,})(?= \|)", table.partition("|---|---|---|")[2])
    page_text = figures.PAGE.read_text(encoding="utf-8")
    assert rates
    assert [rate for rate in rates if f"| {rate} |" not in page_text] == []
