"""All benchmarks in one run, the page of figures with its plot, and the table of the README: `make report`.

Each benchmark runs in a process of its own, one after the other, and reports JSON. The page has every contestant and
every goal, and the goals that were missed are on it as missed. A benchmark that did not run is named with the reason.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.capacity import replaced
from benchmarks.report import machine
from interlock.bench.plots import Axis, ChartLine, Panel, draw

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "figures.md"
PLOT = ROOT / "docs" / "images" / "figures.svg"
README = ROOT / "README.md"
TIMEOUT_S = 3_600.0
TITLES = {
    "orders": "Durable orders, beside SQL by hand, DBOS and Restate",
    "core": "Deciding in memory, beside transitions and python-statemachine",
    "lanes": "SQL on a lane, beside SQLite and PostgreSQL",
    "storm": "A bad day, beside a naive chain of calls",
    "http": "Over HTTP",
    "overload": "More load than the server takes",
    "growth": "With a million workflows stored",
    "search": "Search: the price per move, and pages",
    "objects": "Lanes in a bucket",
    "observing": "The price of metrics and traces",
    "coordination": "Redis: leases and limits",
    "dialect": "Translating PostgreSQL's SQL for a lane",
    "routing": "Moving a database while it is used",
}
PLOTTED = (
    "Interlock, events",
    "Interlock, steps",
    "Interlock on PostgreSQL, steps",
    "by hand, one statement",
    "by hand, transactions",
    "Restate",
    "DBOS",
)
"""The contestants in the plot; the table of the page has all of them."""
IN_README = {
    "Interlock, steps": "Interlock in a folder",
    "Interlock on PostgreSQL, steps": "Interlock on PostgreSQL",
    "by hand, transactions": "SQL by hand on PostgreSQL, in transactions",
    "by hand, one statement": "SQL by hand on PostgreSQL, one statement each",
    "DBOS": "DBOS on PostgreSQL",
    "Restate": "Restate",
}
IN_FLIGHT = re.compile(r"^(?P<contestant>.+), (?P<in_flight>\d+)$")


class Report(msgspec.Struct):
    """What a benchmark writes with `--json`."""

    name: str = ""
    unit: str = ""
    ratios: dict[str, float] = {}
    goals: dict[str, float] = {}
    figures: dict[str, object] = {}
    at_most: list[str] = []


@dataclass
class Run:
    """The whole run: what was reported, and why some did not."""

    quick: bool
    reports: dict[str, Report] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    load: tuple[float, float, float] = (0.0, 0.0, 0.0)


def command_of(name: str, file: Path, *, quick: bool) -> list[str]:
    """The command that runs a benchmark."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file)]
    if name == "routing":
        return [*command, "--megabytes", "10" if quick else "100"]
    return [*command, "--quick"] if quick else command


def run_all(names: Sequence[str], *, quick: bool) -> Run:
    """Run the benchmarks one after the other."""
    run = Run(quick, load=os.getloadavg())
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="interlock-figures-") as folder:
        for name in names:
            file = Path(folder) / f"{name}.json"
            print(f"{name} …", file=sys.stderr, flush=True)
            try:
                done = subprocess.run(  # noqa: S603 -- a command of ours, without a shell.
                    command_of(name, file, quick=quick), cwd=ROOT, timeout=TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired:
                run.absent[name] = f"it took longer than {TIMEOUT_S:,.0f} s"
                continue
            if done.returncode != 0 or not file.exists():
                run.absent[name] = f"it ended with exit code {done.returncode}"
                continue
            try:
                run.reports[name] = msgspec.json.decode(file.read_bytes(), type=Report)
            except msgspec.DecodeError as error:  # The other benchmarks took an hour: their figures are kept.
                run.absent[name] = f"its report cannot be read: {error}"
    run.absent |= {name: "it was left out of this run" for name in TITLES if name not in names}
    run.seconds = time.monotonic() - begun
    return run


def page(run: Run, versions: Mapping[str, str], day: datetime.date) -> str:
    """The page, whole."""
    ran_on = machine()
    command = "make report" + (' ARGS="--quick"' if run.quick else "")
    missed = [row for name, report in run.reports.items() for row in goals_of(report) if not row.met]
    lines = [
        "# Figures: throughput and latency, measured",
        "",
        f"Written by `{command}` on {day.isoformat()}. Every figure on this page is from that one run; a faster or",
        "quieter machine gives other ones. Ratios compare contestants that took turns in the same run.",
        "",
        "| | |",
        "|---|---|",
        f"| processor | {ran_on['cores']} cores, {ran_on['processor']} |",
        f"| system | {ran_on['system']}, Python {ran_on['python']} |",
        *(f"| {what} | {version} |" for what, version in versions.items()),
        f"| load average before the run | {', '.join(f'{each:.2f}' for each in run.load)} |",
        f"| duration | {run.seconds:,.0f} s |",
        f"| goals missed | {len(missed)} |",
        "",
    ]
    if run.quick:
        lines += [
            "This was a quick run: few and short rounds. Its ratios show the direction, and its absolute figures vary.",
            "",
        ]
    if _is_busy(run):
        lines += ["The machine was busy with other work during the run, so the absolute figures are too low.", ""]
    if "orders" in run.reports:
        lines += ["![Transitions per second over orders in flight](../images/figures.svg)", ""]
    for name, report in run.reports.items():
        lines += section(name, report)
    if run.absent:
        lines += ["## Not in this run", "", "| benchmark | why |", "|---|---|"]
        lines += [f"| `python -m benchmarks.{name}` | {why} |" for name, why in run.absent.items()]
        lines += [""]
    return "\n".join(lines)


@dataclass(frozen=True)
class Goal:
    """One goal and its figure."""

    name: str
    value: float
    goal: float
    at_most: bool

    @property
    def met(self) -> bool:
        """Whether the figure reaches the goal."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def goals_of(report: Report) -> list[Goal]:
    """The goals of a report that have a figure."""
    numbers = {key: value for key, value in report.figures.items() if isinstance(value, int | float)}
    values: dict[str, float] = {**numbers, **report.ratios}
    return [
        Goal(name, values[name], goal, name in report.at_most) for name, goal in report.goals.items() if name in values
    ]


def section(name: str, report: Report) -> list[str]:
    """The tables of one benchmark."""
    lines = [f"## {TITLES[name]}", "", f"`python -m benchmarks.{name}`", ""]
    goals = goals_of(report)
    if goals:
        lines += ["| goal | figure | wanted | |", "|---|---|---|---|"]
        lines += [
            f"| `{each.name}` | {number(each.value)} | {'at most' if each.at_most else 'at least'} {number(each.goal)} "
            f"| {'met' if each.met else '**missed**'} |"
            for each in goals
        ]
        lines += [""]
    others = {key: value for key, value in report.ratios.items() if key not in report.goals}
    if others:
        lines += ["| ratio without a goal | figure |", "|---|---|"]
        lines += [f"| `{key}` | {number(value)} |" for key, value in others.items()]
        lines += [""]
    rows = {key: value for key, value in report.figures.items() if isinstance(value, dict) and "per_second" in value}
    if rows:
        lines += [f"| contestant | {report.unit}/s | CPU µs each | P99 ms |", "|---|---|---|---|"]
        for key, value in rows.items():
            figure = msgspec.convert(value, dict[str, object])
            late = figure.get("p99_ms")
            cpu = msgspec.convert(figure.get("cpu_ms", 0.0), float)
            lines.append(
                f"| {key} | {number(msgspec.convert(figure['per_second'], float))} | {number(1e3 * cpu)} "
                f"| {'' if late is None else number(msgspec.convert(late, float))} |"
            )
        lines += [""]
    return lines


def number(value: float) -> str:
    """A figure with three digits that mean something, and thousands apart."""
    for least, digits in ((100.0, 0), (10.0, 1), (1.0, 2)):
        if abs(value) >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3g}"


def readme_table(run: Run, versions: Mapping[str, str], day: datetime.date) -> str:
    """The rates of orders for the README, with a footnote on how they were measured."""
    figures = run.reports["orders"].figures
    lines = ["| durable transitions per second | 64 orders in flight | 256 |", "|---|---|---|"]
    for contestant, shown in IN_README.items():
        rates = [_rate(figures.get(f"{contestant}, {in_flight}")) for in_flight in (64, 256)]
        lines.append(f"| {shown} | {' | '.join('—' if rate is None else number(rate) for rate in rates)} |")
    peers = [
        f"{name} {versions[name].partition(',')[0]}" for name in ("PostgreSQL", "DBOS", "Restate") if name in versions
    ]
    ran_on = machine()
    how = "A quick run" if run.quick else "A whole run"
    busy = ", busy with other work" if _is_busy(run) else ""
    lines += [
        "",
        f"{how} on {day.isoformat()}, {ran_on['cores']} cores ({ran_on['processor']}){busy}; {', '.join(peers)}.",
        "An order has four steps that do nothing. All contestants wait for the disk before they acknowledge.",
        "A dash was not measured.",
    ]
    return "\n".join(lines)


def _rate(figure: object) -> float | None:
    if not isinstance(figure, dict):
        return None
    return msgspec.convert(msgspec.convert(figure, dict[str, object])["per_second"], float)


def _is_busy(run: Run) -> bool:
    return run.load[0] > (os.cpu_count() or 1) / 2


def plot(report: Report) -> str:
    """Transitions per second over orders in flight, a line for each contestant (SVG)."""
    points: dict[str, list[tuple[float, float]]] = {}
    for key, value in report.figures.items():
        found = IN_FLIGHT.match(key)
        if found and isinstance(value, dict) and "per_second" in value:
            rate = _rate(value) or 0.0
            points.setdefault(found["contestant"], []).append((float(found["in_flight"]), rate))
    lines = [ChartLine(name, sorted(points[name])) for name in PLOTTED if name in points]
    return draw(
        "Durable orders: transitions per second",
        "Medians of one run on one machine; every contestant waits for the disk before it acknowledges.",
        [Panel("Rate", Axis("orders in flight", logarithmic=True), Axis("transitions/s", logarithmic=True), lines)],
    )


def versions_of(run: Run) -> dict[str, str]:
    """The versions of what was measured; the notes of the orders name those of the peers."""
    found = {"Interlock": importlib.metadata.version("interlock"), "SQLite": sqlite3.sqlite_version}
    orders = run.reports.get("orders")
    notes = {} if orders is None else orders.figures
    return found | {
        "PostgreSQL" if key == "postgres_version" else key.removeprefix("version, "): value
        for key, value in notes.items()
        if isinstance(value, str) and any(map(str.isdigit, value))
    }


def main() -> None:
    """Run the benchmarks, and write the page and its plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short rounds: about ten minutes on 2 cores")
    parser.add_argument("--only", choices=list(TITLES), action="append", help="run only this; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all reports as one JSON object")
    options = parser.parse_args()
    run = run_all(options.only or list(TITLES), quick=options.quick)
    if not run.reports:
        sys.exit("no benchmark ended with a report")
    if options.json is not None:
        options.json.write_text(json.dumps(msgspec.to_builtins(run.reports), indent=2) + "\n")
    versions, day = versions_of(run), datetime.datetime.now(datetime.UTC).date()
    if "orders" in run.reports:
        PLOT.write_text(plot(run.reports["orders"]), encoding="utf-8")
        text = replaced(README.read_text(encoding="utf-8"), readme_table(run, versions, day))
        README.write_text(text, encoding="utf-8")
    PAGE.write_text(page(run, versions, day), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
