"""`interlock serve` as a real program: signals, addresses, admission, keys (C7)."""

import signal
from pathlib import Path

import httpx
import msgspec
import pytest

from interlock.cli.program import main
from tests.integration.server.running import END_S, server
from tests.interrupts import Handler, interrupts
from tests.unit.server import shop


def home_in(folder: Path) -> str:
    return f"lanes://{folder}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "handler"),
    [(signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_IGN)],
    ids=["interrupt", "terminate", "terminate-in-background"],
)
def test_a_server_stops_cleanly_and_keeps_everything(tmp_path: Path, number: int, handler: Handler) -> None:
    """Also one that a shell has started in the background, where SIGINT is ignored."""
    with interrupts(handler), server(home_in(tmp_path)) as first:
        client = httpx.Client(base_url=first.url, timeout=END_S)
        with client:
            assert client.get("/readyz").json() == {"status": "ok"}
            assert client.post("/v1/machines/ticket/workflows", json={"id": "t-1"}).status_code == 201
            code, said = first.stop(number)
    assert code == 0
    assert "Traceback" not in said
    assert said.endswith("Stopped in order: nothing is lost, and the home is free.\n")
    with server(home_in(tmp_path)) as second:
        assert httpx.get(f"{second.url}/v1/workflows/t-1", timeout=END_S).json()["state"] == "open"


@pytest.mark.slow
def test_a_server_that_leaves_says_so_and_goes_on_answering(tmp_path: Path) -> None:
    """A balancer looks elsewhere while requests that come all the same are answered; a second signal does not wait."""
    with (
        server(home_in(tmp_path), "--leave-s", "300") as running,
        httpx.Client(base_url=running.url, timeout=END_S) as client,
        client.stream("GET", "/v1/stream") as response,
    ):
        pieces = response.iter_raw()
        assert next(pieces).startswith(b"retry:")
        running.process.send_signal(signal.SIGTERM)
        assert b"".join(pieces) == b"", "the stream ends when the server is told to leave"
        leaving = client.get("/readyz")
        assert (leaving.status_code, leaving.json()["reason"]) == (503, "the server is stopping.")
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/machines/ticket/workflows", json={"id": "t-1"}).status_code == 201
        assert running.stop()[0] == 0


@pytest.mark.slow
def test_a_stream_does_not_keep_a_server_from_stopping(tmp_path: Path) -> None:
    with (
        server(home_in(tmp_path)) as running,
        httpx.stream("GET", f"{running.url}/v1/stream", timeout=END_S) as response,
    ):
        pieces = response.iter_raw()
        assert next(pieces).startswith(b"retry:")
        code, _ = running.stop()
        assert code == 0
        assert b"".join(pieces) == b""


@pytest.mark.slow
def test_a_step_runs_and_its_outcome_is_seen(tmp_path: Path) -> None:
    with server(home_in(tmp_path)) as running, httpx.Client(base_url=running.url, timeout=END_S) as client:
        with client.stream("GET", "/v1/stream?workflow=o-1") as response:
            pieces = response.iter_text()
            next(pieces)
            client.post("/v1/machines/order/workflows", json={"id": "o-1"})
            client.post("/v1/workflows/o-1/events", json={"event": "SUBMIT", "data": {"cents": 5}})
            seen = ""
            while '"to_state":"done"' not in seen:
                seen += next(pieces)
        assert client.get("/v1/workflows/o-1").json()["state"] == "done"


@pytest.mark.slow
def test_a_home_has_one_server_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(home_in(tmp_path)):
        assert main(["serve", shop.NAME, "--home", home_in(tmp_path), "--port", "0"]) == 5
    assert "is owned by process" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_without_keys_no_other_address_is_listened_on(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", shop.NAME, "--home", "memory:", "--host", host, "--port", "0"]) == 2
    assert "keys create" in capsys.readouterr().err


@pytest.mark.slow
def test_with_a_key_everybody_may_reach_it_and_nobody_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "create", "--scope", "send", "--home", home_in(tmp_path), "-o", "json"]) == 0
    key = msgspec.json.decode(capsys.readouterr().out)["key"]
    with server(home_in(tmp_path), "--host", "0.0.0.0") as running:
        url = running.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/v1/workflows", timeout=END_S).status_code == 401
        assert httpx.get(f"{url}/readyz", timeout=END_S).status_code == 200
        assert (
            httpx.get(f"{url}/v1/workflows", timeout=END_S, headers={"Authorization": f"Bearer {key}"}).status_code
            == 200
        )


@pytest.mark.slow
def test_a_port_that_is_taken_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(home_in(tmp_path / "a")) as running:
        port = running.url.rpartition(":")[2]
        assert main(["serve", shop.NAME, "--home", home_in(tmp_path / "b"), "--port", port]) == 2
    assert port in capsys.readouterr().err


@pytest.mark.slow
def test_admission_comes_from_the_environment(tmp_path: Path) -> None:
    """C7: 10,000 and 15,000 unless something else is said."""
    with (
        server(home_in(tmp_path), INTERLOCK_RATE_PER_S="1", INTERLOCK_BURST="1") as running,
        httpx.Client(base_url=running.url, timeout=END_S) as client,
    ):
        # Whatever holds them up, not each of so many takes longer than the second after which there is another token.
        path = "/v1/machines/ticket/workflows"
        answers = [client.post(path, json={"id": f"t-{number}"}) for number in range(50)]
    assert answers[0].status_code == 201
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}


@pytest.mark.slow
def test_a_server_in_memory_is_fine_for_a_try() -> None:
    with server("memory:") as running:
        assert httpx.get(f"{running.url}/healthz", timeout=END_S).status_code == 200
