"""What the URL does not say comes from the environment, for each of the three providers."""

import os
from pathlib import Path
from urllib.parse import unquote

import pytest

from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.objectlog.bucket_protocol import ConditionFailed, Environment
from interlock.lanes.objectlog.remote_bucket import RemoteBucket, open_bucket, open_proven
from interlock.testing.faults import Processes
from interlock.urls import parse_bucket_url
from tests.integration.objects.careless import CarelessServer
from tests.integration.objects.scripted import Reply, ScriptedServer, xml

GENERATION = ('ETag: "tag"', "Last-Modified: Mon, 02 Mar 2026 10:00:00 GMT", "x-goog-generation: 7")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


def opened(url: str) -> RemoteBucket:
    return open_bucket(parse_bucket_url(url), request_timeout_s=20)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT", "AWS_ENDPOINT_URL"])
def test_s3_by_the_environment_alone(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(Reply(200, b"x")) as server:
        monkeypatch.setenv(variable, server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")  # A log without conditions is no log.
        bucket = opened("s3://shop/eu/stock")
        assert bucket.get("log/1") is not None
        bucket.create("log/1", b"mine")
        read, created = server.requests
    assert read.path == "/shop/eu/stock/log/1"
    assert "Credential=from-the-environment/" in read.headers["authorization"]
    assert "/eu-central-1/s3/" in read.headers["authorization"]
    assert created.headers["if-none-match"] == "*"


def test_the_url_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(Reply(200, b"x")) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        opened(server.url("stock") + "&region=us-west-2").get("log/1")
        [request] = server.requests
    assert "Credential=id/" in request.headers["authorization"]
    assert "/us-west-2/s3/" in request.headers["authorization"]


def test_google_knows_versions_by_their_generation(tmp_path: Path) -> None:
    account = tmp_path / "account.json"
    account.write_text('{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}')
    with ScriptedServer(Reply(200, b"x", GENERATION), xml(412, "PreconditionFailed")) as server:
        bucket = opened(f"gs://shop/eu/stock?endpoint={server.endpoint}&service_account={account}")
        tag = bucket.create("manifest", b"one")
        assert tag == {"e_tag": '"tag"', "version": "7"}
        with pytest.raises(ConditionFailed):
            bucket.replace("manifest", b"two", tag)
        with pytest.raises(ConditionFailed):
            bucket.create("manifest", b"three")
        created, replaced, _ = server.requests
    assert unquote(created.path) == "/shop/eu/stock/manifest"
    assert created.headers["x-goog-if-generation-match"] == "0"
    assert replaced.headers["x-goog-if-generation-match"] == "7"


def test_azure_has_its_account_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadUsage, match="Account must be specified"):
        opened("az://container/stock")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "shop")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "aGlkZGVu")
    with ScriptedServer(Reply(200, b"x")) as server:
        assert opened(f"az://container/stock?endpoint={server.endpoint}").get("log/1") is not None
        [request] = server.requests
    assert request.path == "/container/stock/log/1"
    assert request.headers["authorization"].startswith("SharedKey shop:")


def test_a_setting_that_cannot_be_right_is_told_without_the_secret() -> None:
    with pytest.raises(BadUsage) as caught:
        opened("az://container/stock?account=shop&access_key=%25hidden%25")
    assert "cannot be opened" in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None
    with pytest.raises(BadUsage, match="cannot be opened"):
        opened("gs://bucket/stock?service_account=no-such-file.json")


def test_a_server_that_the_environment_names_is_probed_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    address = parse_bucket_url("s3://bucket/probed-by-environment/stock")
    with CarelessServer("careful") as good, CarelessServer("ignores all") as bad:
        monkeypatch.setenv("AWS_ENDPOINT_URL", good.endpoint)
        open_proven(address, request_timeout_s=10, world=Environment())
        monkeypatch.setenv("AWS_ENDPOINT_URL", bad.endpoint)
        with pytest.raises(UnavailableError, match="cannot carry a log"):
            open_proven(address, request_timeout_s=10, world=Environment())


def test_a_child_of_a_fork_opens_no_bucket_after_its_parent_did() -> None:
    with Processes() as processes, ScriptedServer(Reply(200, b"x")) as server:
        process = processes.start("tests.integration.objects.forking:fork", server.url("stock"))
        assert list(process.lines()) == [
            "early child: read",
            "parent: read",
            *["late child: unavailable: Open databases in buckets after the fork"] * 3,
        ]
        assert process.end() == 0
