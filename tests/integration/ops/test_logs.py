"""C13: JSON logs of a running server, taken apart by the stages of `ops/loki/promtail.yml`."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.integration.ops.files import read_yaml
from tests.integration.ops.promtail import Entry, run
from tests.integration.server.running import END_S, Server, server

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def written(tmp_path: Path) -> list[str]:
    """What a server writes to its log: an event is refused, a step fails, and it stops."""
    with server(f"lanes://{tmp_path}/home", "--log-format", "json", OTEL_TRACES_EXPORTER="console") as running:
        headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        with httpx.Client(base_url=running.url, headers=headers, timeout=END_S) as client:
            assert client.post("/v1/machines/order/workflows", json={"id": "o-1", "context": {}}).is_success
            events = "/v1/workflows/o-1/events"
            assert client.post(events, json={"event": "CHARGED", "data": {}}).status_code == 409
            assert client.post(events, json={"event": "SUBMIT", "data": {"cents": 13}}).is_success
        first = _read_until(running, "attempt 1")
        code, rest = running.stop()
        assert code == 0
    return [*first, *rest.splitlines()]


def _read_until(running: Server, text: str) -> list[str]:
    assert running.process.stderr is not None
    lines: list[str] = []
    for line in running.process.stderr:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    raise AssertionError(lines)


@pytest.mark.slow
def test_the_lines_of_a_server_reach_loki_with_what_is_searched_for(tmp_path: Path) -> None:
    [scrape] = read_yaml("loki/promtail.yml")["scrape_configs"]
    stages = scrape["pipeline_stages"]
    assert [next(iter(stage)) for stage in stages] == ["json", "timestamp", "labels", "structured_metadata"]
    entries = [run(stages, line) for line in written(tmp_path)]
    structured = [entry for entry in entries if entry.extracted]
    assert structured == entries, "also what is said to people is an object: whoever reads the log reads all of it"
    for entry in structured:
        assert entry.at is not None
        assert abs(datetime.now(UTC) - entry.at) < timedelta(minutes=10)
        assert {"level", "logger"} <= set(entry.labels) <= {"level", "logger", "machine"}, "one stream per workflow"

    [refused] = [entry for entry in structured if "refused CHARGED" in entry.extracted["message"]]
    assert refused.labels == {"level": "INFO", "logger": "interlock.transitions", "machine": "order"}
    assert refused.metadata == {
        "order_id": "o-1", "state": "draft", "trace_id": TRACE, "span_id": "00f067aa0ba902b7",
    }  # fmt: skip

    [failed] = [entry for entry in structured if "attempt 1: non_retryable" in entry.extracted["message"]]
    assert (failed.metadata["order_id"], failed.metadata["state"]) == ("o-1", "charging")
    assert (failed.metadata["step"], failed.metadata["trace_id"]) == ("charge", TRACE)
    assert re.fullmatch(r"[0-9a-f]{16}", failed.metadata["span_id"])
    assert re.fullmatch(r"\d+(\.\d{1,3})?", failed.metadata["duration_ms"])

    [farewell] = [entry for entry in entries if "Stopped in order" in entry.line]
    assert farewell.labels == {"level": "INFO", "logger": "interlock.server"}
    # A line that somebody else has written goes through as it is.
    assert run(stages, "Killed") == Entry("Killed")


@pytest.mark.slow
def test_debug_has_a_line_for_every_transition(tmp_path: Path) -> None:
    """And nothing of what other libraries have to say at that level."""
    words = ("--log-format", "json", "--log-level", "debug")
    with server(f"lanes://{tmp_path}/home", *words) as running:
        with httpx.Client(base_url=running.url) as client:
            assert client.post("/v1/machines/order/workflows", json={"id": "o-1", "context": {}}).is_success
        lines = [json.loads(line) for line in _read_until(running, "o-1 moved")]
        running.stop()
    [moved] = [line for line in lines if line["level"] == "DEBUG"]
    assert (moved["logger"], moved["order_id"], moved["state"]) == ("interlock.transitions", "o-1", "draft")
    assert moved["duration_ms"] > 0
