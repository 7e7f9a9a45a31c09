"""C13: a real Prometheus scrapes a real server, and every query of the dashboard and of the alerts has a value.

An alert that has nothing to tell has no value by nature: there it is what the alert compares that must have one. That
each of them fires when it should is shown by the unit tests of the rules.
"""

import json
import math
import subprocess
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.ops.files import OPS, alerts, measured_by, queries, tool
from tests.integration.ports import HeldPorts
from tests.integration.redis.conftest import needed
from tests.integration.redis.server import Server
from tests.integration.server.running import END_S, server

PATIENCE_S = 90
ONCE_S = 0.5


@contextmanager
def prometheus(folder: Path, target: str) -> Generator[str]:
    """A Prometheus with our rules that scrapes the target every second; gives its address."""
    config = (OPS / "prometheus/prometheus.yml").read_text(encoding="utf-8")
    config = config.replace("127.0.0.1:8080", target).replace("_interval: 15s", "_interval: 1s")
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    (folder / "rules.yml").write_bytes((OPS / "prometheus/rules.yml").read_bytes())
    with HeldPorts() as held, (folder / "prometheus.log").open("wb") as log:
        [port] = held.numbers
        process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def has_value(url: str, query: str) -> bool:
    """Whether a query is answered with a number: a share of nothing is none."""
    return any(not math.isnan(float(each["value"][1])) for each in ask(url, "/api/v1/query", query=query))


def ask(url: str, path: str, **parameters: str) -> list[Any]:
    """What Prometheus answers; nothing while it starts."""
    data = answered(url, path, **parameters)
    return [] if data is None else list(data.get("result") or data.get("groups") or [])


def answered(url: str, path: str, **parameters: str) -> Any:  # noqa: ANN401 -- whatever it is.
    """The data of an answer; None while it starts."""
    try:
        with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(parameters)}", timeout=END_S) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def change(client: httpx.Client, sql: str) -> None:
    """One transaction on the database `stock` of the server."""
    body = {"statements": [{"sql": sql, "params": []}]}
    assert client.post("/v1/databases/stock/transactions", json=body).is_success


@pytest.mark.slow
def test_every_query_of_the_dashboard_and_of_the_alerts_is_answered_with_data(tmp_path: Path) -> None:
    tool("prometheus")
    everything = {*queries(), *map(measured_by, alerts())}
    needed()
    with (
        tempfile.TemporaryDirectory(prefix="redis-") as folder,
        Server(Path(folder)) as redis,
        server(f"lanes://{tmp_path}/home", "--redis", redis.url) as running,
        prometheus(tmp_path, running.url.removeprefix("http://")) as url,
    ):
        waiting = everything
        number, never = 0, threading.Event()
        with httpx.Client(base_url=running.url, timeout=END_S) as client, ThreadPoolExecutor(8) as writers:
            change(client, "CREATE TABLE stock (sku text PRIMARY KEY, n bigint NOT NULL)")
            change(client, "INSERT INTO stock VALUES ('a', 0)")
            while waiting and number < PATIENCE_S / ONCE_S:
                number += 1
                shop = client.post("/v1/machines/order/workflows", json={"id": f"o-{number}", "context": {}})
                assert shop.is_success
                events = f"/v1/workflows/o-{number}/events"
                assert client.post(events, json={"event": "CHARGED", "data": {}}).status_code == 409
                assert client.post(events, json={"event": "SUBMIT", "data": {"cents": 5}}).is_success
                list(writers.map(change, [client] * 32, ["UPDATE stock SET n = n + 1 WHERE sku = 'a'"] * 32))
                waiting = {query for query in waiting if not has_value(url, query)}
                never.wait(ONCE_S)  # Its next scrape: nobody tells when that was.
        assert not waiting, (tmp_path / "prometheus.log").read_text(encoding="utf-8")[-2_000:]
        while "unknown" in (healths := {rule["health"] for rule in ask(url, "/api/v1/rules")[0]["rules"]}):
            never.wait(ONCE_S)  # The rules are read once a second.
        assert healths == {"ok"}
        # What the variable of the dashboard is filled with.
        values = answered(url, "/api/v1/label/instance/values", **{"match[]": "calls_in_flight"})
        assert values == [running.url.removeprefix("http://")]
