"""The probe accepts every server that keeps its promises, and refuses those that only say so."""

import asyncio
from pathlib import Path

import pytest

from interlock.database.database import Database
from interlock.errors import UnavailableError
from interlock.lanes.objectlog.bucket_protocol import Environment
from interlock.lanes.objectlog.probe import PromiseCheck, examine
from interlock.lanes.objectlog.remote_bucket import open_folder, open_proven
from interlock.urls import parse_bucket_url
from tests.integration.objects.careless import Care, CarelessServer
from tests.integration.objects.scripted import Eof, ScriptedServer, xml
from tests.integration.objects.servers import BUCKET, S3rver, Server


def examined(url: str) -> list[PromiseCheck]:
    return examine(open_folder(parse_bucket_url(url), request_timeout_s=30), Environment(pause=lambda _: None))


@pytest.mark.slow
def test_a_good_server_is_accepted_and_left_clean(server: Server, folder: str) -> None:
    address = parse_bucket_url(server.url(f"{folder}/stock"))
    bucket = open_proven(address, request_timeout_s=10, world=Environment())
    bucket.create("log/1", b"x")
    shared = open_folder(address, request_timeout_s=10)
    assert shared.keys("") == ["stock/log/1"]


def test_s3rver_is_refused(s3rver: S3rver, folder: str) -> None:
    with pytest.raises(UnavailableError, match="accepted a second object"):
        open_proven(parse_bucket_url(s3rver.url(f"{folder}/stock")), request_timeout_s=10, world=Environment())


def test_no_database_opens_on_a_server_that_ignores_conditions(s3rver: S3rver, folder: str, tmp_path: Path) -> None:
    url = s3rver.url(f"{folder}/stock")
    assert_refused(url, tmp_path, f"s3://{BUCKET}/{folder}?endpoint={s3rver.endpoint} cannot carry a log")


def test_no_database_opens_on_a_careless_server(tmp_path: Path) -> None:
    with CarelessServer("ignores all") as server:
        assert_refused(server.url("shop/stock"), tmp_path, "cannot carry a log")


def assert_refused(url: str, cache: Path, what: str) -> None:
    """As a user sees it: what is wrong with which bucket, why that matters, what to use; no secret, nothing left."""

    async def scenario() -> None:
        with pytest.raises(UnavailableError) as caught:
            await Database.open(url, cache=str(cache))
        assert what in caught.value.what
        assert "accepted a second object" in caught.value.what
        assert "acknowledged writes would be lost" in caught.value.why
        assert "Use a bucket with conditional writes" in caught.value.fix
        assert "secret" not in str(caught.value)

    asyncio.run(scenario())
    assert not list(cache.glob("*.lane"))


def test_a_careful_server_is_accepted() -> None:
    with CarelessServer("careful") as server:
        checks = examined(server.url("shop/stock"))
        assert {check.verdict for check in checks} == {"yes"}
        assert server.objects == {}


@pytest.mark.parametrize(
    ("care", "failing"),
    [("ignores all", "create-again"), ("ignores updates", "replace-stale"), ("stores and refuses", "create-again")],
)
def test_a_careless_server_is_refused(care: Care, failing: str) -> None:
    with CarelessServer(care) as server:
        address = parse_bucket_url(server.url("shop/stock"))
        [wrong] = [check for check in examined(server.url("shop/stock")) if check.verdict == "no"]
        assert wrong.code == failing
        with pytest.raises(UnavailableError) as caught:
            open_proven(address, request_timeout_s=30, world=Environment())
        assert wrong.promise in str(caught.value)
        assert wrong.fix in str(caught.value)
        assert "hidden" not in str(caught.value)
        assert server.objects == {}


def test_a_server_that_does_not_answer_cannot_be_reached() -> None:
    with ScriptedServer(Eof()) as server, pytest.raises(UnavailableError, match=r"the bucket s3://.*cannot be reached"):
        open_proven(
            parse_bucket_url(server.url("shop/stock")), request_timeout_s=1, world=Environment(pause=lambda _: None)
        )


def test_a_right_that_is_missing_is_named() -> None:
    with ScriptedServer(xml(403, "AccessDenied")) as server:
        first, *rest = examined(server.url("shop/stock"))
        assert (first.code, first.verdict) == ("absent", "unknown")
        assert "403" in first.evidence
        assert {check.verdict for check in rest} == {"unknown"}
