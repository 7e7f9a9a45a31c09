"""C13: the files of `ops/` load, and name nothing that is not measured."""

import re
import subprocess

import pytest

from tests.integration.ops.files import OPS, SERIES, THEIRS, alerts, dashboard, queries, read_yaml, series_in, tool

ALERTS = alerts()


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_something_that_is_measured_and_has_a_runbook(rule: dict[str, dict[str, str]]) -> None:
    found = series_in(str(rule["expr"]))
    assert found
    assert found <= SERIES | THEIRS
    page, _, section = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^## (\S+)$", (OPS.parent / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert section in {heading.lower() for heading in headings}
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_every_alert_has_a_unit_test() -> None:
    tested = {
        each["alertname"]
        for test in read_yaml("prometheus/rules.test.yml")["tests"]
        for each in test.get("alert_rule_test", ())
        if each["exp_alerts"]
    }
    assert tested == {rule["alert"] for rule in ALERTS}


def test_promtool_finds_the_rules_right_and_their_tests_pass() -> None:
    promtool = tool("promtool")
    for arguments in (
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules.test.yml"],
        ["check", "config", "prometheus.yml"],
    ):
        done = subprocess.run(
            [promtool, *arguments], cwd=OPS / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_asks_only_for_what_is_measured() -> None:
    for query in queries():
        assert series_in(query), query
        assert series_in(query) <= SERIES | THEIRS, query


def test_the_dashboard_has_what_grafana_needs_to_import_it() -> None:
    board = dashboard()
    assert board["uid"] == "interlock"
    assert 36 <= board["schemaVersion"] <= 42
    source, instance = board["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert (instance["name"], instance["type"], instance["datasource"]["uid"]) == ("instance", "query", "${datasource}")
    assert "__inputs" not in board, "nothing has to be filled in by hand"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["description"]
        assert panel["type"] in {"timeseries", "state-timeline", "stat"}
        assert panel["fieldConfig"]["defaults"].get("unit", "none") in {"short", "s", "reqps", "bytes", "none"}
        assert panel["datasource"]["uid"] == "${datasource}"
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_no_panel_of_the_dashboard_covers_another() -> None:
    covered: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        x, y, width, height = (panel["gridPos"][side] for side in "xywh")
        assert x + width <= 24
        here = {(column, row) for column in range(x, x + width) for row in range(y, y + height)}
        assert covered.isdisjoint(here), panel["title"]
        covered |= here


COLLECTOR = {
    "receivers": {"otlp": {"protocols"}, "prometheus": {"config"}},
    "processors": {
        "memory_limiter": {"check_interval", "limit_mib", "spike_limit_mib"},
        "batch": {"send_batch_size", "timeout", "send_batch_max_size"},
    },
    "exporters": {"otlp": {"endpoint", "tls"}, "prometheusremotewrite": {"endpoint", "tls", "add_metric_suffixes"}},
}
"""Of what each part is documented to take, what we may use."""


def test_every_pipeline_of_the_collector_is_made_of_what_is_configured_and_keeps_the_names() -> None:
    collector = read_yaml("opentelemetry/collector.yml")
    assert set(collector) == {*COLLECTOR, "service"}
    for part, known in COLLECTOR.items():
        for name, options in collector[part].items():
            assert set(options) <= known[name], name
    assert set(collector["service"]["pipelines"]) == {"traces", "metrics"}
    for pipeline in collector["service"]["pipelines"].values():
        assert pipeline["processors"][0] == "memory_limiter", "first, so that it can refuse"
        for part in COLLECTOR:
            assert set(pipeline[part]) <= set(collector[part])
    used = {each for pipeline in collector["service"]["pipelines"].values() for each in pipeline["exporters"]}
    assert used == set(collector["exporters"])
    assert collector["exporters"]["prometheusremotewrite"]["add_metric_suffixes"] is False, "no unit in any name"
    memory = collector["processors"]["memory_limiter"]
    assert memory["spike_limit_mib"] < memory["limit_mib"]
    scrape = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert [each["job_name"] for each in scrape] == ["interlock"], "as the alerts have it"
