"""The files of `ops/`, read as their programs would."""

import importlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from interlock.observe.metrics import METRICS

OPS = Path(__file__).resolve().parents[3] / "ops"

SERIES = {
    name
    for metric in METRICS
    for name in (
        {f"{metric.flat}_{part}" for part in ("bucket", "count", "sum")}
        if metric.kind == "histogram"
        else {f"{metric.flat}_total" if metric.kind == "counter" else metric.flat}
    )
}
THEIRS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
"""What Prometheus and its library add."""

WORDS = {"sum", "max", "min", "by", "rate", "histogram_quantile", "le", "bool"}
NAME = re.compile(r"[a-z_]{2,}")


def read_yaml(name: str) -> Any:  # noqa: ANN401 -- whatever is in it.
    """A file of YAML."""
    return importlib.import_module("yaml").safe_load((OPS / name).read_text(encoding="utf-8"))


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    found: dict[str, Any] = json.loads((OPS / "grafana/dashboard.json").read_text(encoding="utf-8"))
    return found


def queries() -> list[str]:
    """Every expression of the dashboard, with its variables filled in."""
    found = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return [each.replace("$__rate_interval", "30s").replace("$instance", ".*") for each in found]


def alerts() -> list[dict[str, Any]]:
    """Every rule."""
    return [rule for group in read_yaml("prometheus/rules.yml")["groups"] for rule in group["rules"]]


def measured_by(rule: dict[str, Any]) -> str:
    """What a rule compares with a number: it has a value whether there is something to tell or not."""
    found = re.fullmatch(r"(.*\S)\s*(?:==|>|<)\s*[\d.]+\s*", rule["expr"], re.DOTALL)
    assert found, rule["expr"]
    return found[1]


def series_in(expression: str) -> set[str]:
    """The names of series in an expression."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)", "", expression)
    return set(NAME.findall(bare)) - WORDS


def tool(name: str) -> str:
    """The path of a program of Prometheus. Skipped, or failed where everything has to run, without it."""
    found = shutil.which(name, path=f"{os.environ.get('INTERLOCK_PROMETHEUS', '')}:{os.environ.get('PATH', '')}")
    if found is None:
        reason = f"{name} is not installed: apt-get install prometheus, or INTERLOCK_PROMETHEUS=its folder"
        if os.environ.get("INTERLOCK_CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
