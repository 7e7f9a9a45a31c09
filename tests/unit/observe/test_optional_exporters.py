"""C13: a server has what is installed, and serves without it too."""

import importlib
import sys

import httpx
import pytest

from interlock import DefinitionError, Engine, MissingExtra
from interlock.observe.metrics import installed
from tests.integration.server.running import in_thread
from tests.unit.observe.tickets import tickets


def test_everything_is_installed_here() -> None:
    assert installed() == ("prometheus", "otel")


def test_what_is_missing_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert installed() == (), "the API alone speaks to nobody"
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert installed() == ()


def test_a_server_without_the_extra_serves_and_says_how_to_have_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.server.lifecycle.installed", tuple)
    with in_thread() as url, httpx.Client(base_url=url, timeout=60) as client:
        assert client.post("/v1/machines/ticket/workflows", json={"id": "t-1"}).status_code == 201
        answer = client.get("/metrics")
    assert (answer.status_code, answer.json()["code"]) == (501, "no-metrics")
    assert "pip install 'interlock[otel]'" in answer.json()["fix"]


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("prometheus", "interlock.observe.prometheus", "prometheus_client"),
        ("otel", "interlock.observe.otel", "opentelemetry"),
    ],
)
def test_an_engine_that_asks_for_what_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra) as missing:
        _ = Engine.open("memory:", machines=[tickets()], observers=[name])
    assert "interlock[otel]" in missing.value.fix
    monkeypatch.undo()
    importlib.import_module(module)


@pytest.mark.parametrize("wrong", [[3], [None]])
def test_what_is_no_observer_is_refused(wrong: list[str]) -> None:
    with pytest.raises(DefinitionError, match="observer"):
        _ = Engine.open("memory:", machines=[tickets()], observers=wrong)
