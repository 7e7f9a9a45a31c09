"""What every bucket does: the real servers, and the one in memory that stands in for them."""

import threading

import pytest

from interlock.lanes.objectlog.bucket_protocol import Bucket, BucketError, ConditionFailed
from interlock.lanes.objectlog.remote_bucket import open_bucket
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import parse_bucket_url
from tests.integration.objects.servers import Server

CONTENDERS = 4  # SeaweedFS lets each of them wait a second for the others.


@pytest.fixture(params=["memory", "moto", "seaweedfs", "azurite"])
def bucket(request: pytest.FixtureRequest, folder: str) -> Bucket:
    if request.param == "memory":
        return MemoryBucket().below(folder)
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Server)
    return open_bucket(parse_bucket_url(server.url(f"{folder}/orders")), request_timeout_s=20)


def read(bucket: Bucket, key: str) -> bytes | None:
    found = bucket.get(key)
    return None if found is None else found.data


def test_what_is_created_can_be_read_and_not_created_again(bucket: Bucket) -> None:
    assert bucket.get("log/1") is None
    bucket.create("log/1", b"one")
    with pytest.raises(ConditionFailed):
        bucket.create("log/1", b"two")
    assert read(bucket, "log/1") == b"one"


def test_an_object_is_replaced_by_its_newest_tag_only(bucket: Bucket) -> None:
    first = bucket.create("manifest", b"one")
    found = bucket.get("manifest")
    assert found is not None
    second = bucket.replace("manifest", b"two", first)
    for stale in (first, found.tag):
        with pytest.raises(ConditionFailed):
            bucket.replace("manifest", b"three", stale)
    assert read(bucket, "manifest") == b"two"
    bucket.replace("manifest", b"four", second)
    assert read(bucket, "manifest") == b"four"


def test_the_tag_that_was_read_is_as_good_as_the_one_that_was_given(bucket: Bucket) -> None:
    bucket.create("manifest", b"one")
    found = bucket.get("manifest")
    assert found is not None
    bucket.replace("manifest", b"two", found.tag)
    assert read(bucket, "manifest") == b"two"


def test_an_object_that_is_gone_cannot_be_replaced(bucket: Bucket) -> None:
    tag = bucket.create("manifest", b"one")
    bucket.delete(["manifest"])
    with pytest.raises(ConditionFailed):
        bucket.replace("manifest", b"two", tag)
    assert bucket.get("manifest") is None


def test_many_are_read_in_the_order_asked_for(bucket: Bucket) -> None:
    keys = [f"log/{number:04}" for number in range(40)]
    for key in keys[::2]:
        bucket.put(key, key.encode())
    expected = [key.encode() if number % 2 == 0 else None for number, key in enumerate(keys)]
    assert bucket.get_many(keys) == expected
    assert bucket.get_many([]) == []
    assert bucket.get_many(["log/0001"]) == [None]


def test_first_bytes_are_enough_for_a_header(bucket: Bucket) -> None:
    bucket.put("long", b"0123456789")
    bucket.put("short", b"012")
    bucket.put("empty", b"")
    assert bucket.get_many(["long", "short", "empty", "absent"], bytes_max=4) == [b"0123", b"012", b"", None]
    assert bucket.get_many(["empty"], bytes_max=4) == [b""]


def test_a_large_object_is_stored_in_one_piece(bucket: Bucket) -> None:
    part = bytes(range(256)) * 36_000
    bucket.put("snapshot/part", part)
    assert read(bucket, "snapshot/part") == part
    bucket.put("snapshot/part", b"again")
    assert read(bucket, "snapshot/part") == b"again"


def test_deleting_what_is_not_there_is_no_error(bucket: Bucket) -> None:
    for key in ("a", "c", "kept"):
        bucket.put(key, b"x")
    bucket.delete(["a", "absent", "c"])
    bucket.delete(["a"])
    bucket.delete([])
    assert bucket.keys("") == ["kept"]


def test_keys_are_listed_by_how_they_begin(bucket: Bucket) -> None:
    for key in ("log/0002", "log/0001", "log/0010", "logs/1", "manifest"):
        bucket.put(key, b"x")
    assert bucket.keys("log/") == ["log/0001", "log/0002", "log/0010"]
    assert bucket.keys("log/000") == ["log/0001", "log/0002"]
    assert bucket.keys("log") == ["log/0001", "log/0002", "log/0010", "logs/1"]
    assert bucket.keys("") == ["log/0001", "log/0002", "log/0010", "logs/1", "manifest"]
    assert bucket.keys("nothing/") == []


def test_of_several_at_once_one_wins(bucket: Bucket) -> None:
    outcomes: list[tuple[bytes, BucketError | None]] = []

    def contend(body: bytes) -> None:
        try:
            bucket.create("log/1", body)
        except BucketError as error:
            outcomes.append((body, error))
        else:
            outcomes.append((body, None))

    threads = [threading.Thread(target=contend, args=(b"%d" % number,)) for number in range(CONTENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [body for body, error in outcomes if error is None]
    assert all(isinstance(error, ConditionFailed) for _, error in outcomes if error is not None)
    assert read(bucket, "log/1") == winner
