"""Databases lie beside each other, names may be of any language, and a real server keeps what it acknowledged."""

from collections.abc import Callable

import pytest

from interlock.lanes.objectlog.bucket_protocol import BucketError, Denied
from interlock.lanes.objectlog.remote_bucket import RemoteBucket, open_bucket
from interlock.urls import parse_bucket_url
from tests.integration.objects.servers import BUCKET, SeaweedFS, Server


def opened(server: Server, path: str) -> RemoteBucket:
    return open_bucket(parse_bucket_url(server.url(path)), request_timeout_s=20)


@pytest.mark.parametrize("name", ["café", "日本", "a b", "100%25", "%3F&x".replace("&", "%26"), "=digest", "a+b"])
def test_a_name_means_one_database(name: str, server: Server, folder: str) -> None:
    bucket = opened(server, f"{folder}/{name}")
    bucket.create("log/1", b"mine")
    assert bucket.keys("log/") == ["log/1"]
    assert opened(server, f"{folder}/other").keys("") == []
    assert bucket.get_many(["log/1", "log/2"]) == [b"mine", None]
    bucket.delete(["log/1"])
    assert bucket.get("log/1") is None


def test_a_name_that_another_begins_with_is_not_the_other(server: Server, folder: str) -> None:
    opened(server, f"{folder}/stock2").put("log/1", b"x")
    assert opened(server, f"{folder}/stock").keys("") == []


def test_a_bucket_that_does_not_exist_is_no_empty_bucket(server: Server) -> None:
    bucket = open_bucket(parse_bucket_url(server.url("f/n").replace(BUCKET, "no-such-bucket")), request_timeout_s=20)
    calls: list[Callable[[], object]] = [
        lambda: bucket.get("log/1"),
        lambda: bucket.get_many(["log/1", "log/2"]),
        lambda: bucket.keys(""),
        lambda: bucket.create("log/1", b"x"),
        lambda: bucket.put("log/1", b"x"),
        lambda: bucket.delete(["log/1"]),
    ]
    for call in calls:
        with pytest.raises(Denied):
            call()
    with pytest.raises(BucketError):
        bucket.replace("log/1", b"x", {"e_tag": '"x"'})


@pytest.mark.slow
def test_a_real_server_keeps_what_it_acknowledged(folder: str) -> None:
    with SeaweedFS() as server:
        bucket = opened(server, f"{folder}/orders")
        keys = [f"log/{number:04}" for number in range(50)]
        for key in keys:
            bucket.create(key, key.encode())
        server.kill()
        with pytest.raises(BucketError):
            bucket.create("log/9999", b"nobody hears it")
        server.start()
        assert bucket.get_many(keys) == [key.encode() for key in keys]
