"""Places for a database that a benchmark compares: a local disk, a bucket of a given latency, a real server.

The bucket of a given latency is the one in memory, which waits before it answers: so the latency is the only thing that
differs between two of them. The wait burns no CPU. Reads of several objects wait once, as those of a real bucket
overlap. SeaweedFS is a real server on the same machine and the same cores, spoken to over HTTP, with whatever
latency it has; CPU figures are those of this process, without the server's.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import NamedTuple

from interlock.catalog.open_lane import Place as LanePlace
from interlock.clock import SystemClock
from interlock.database.database import Opening
from interlock.lanes.handover import Arrived
from interlock.lanes.lane import DurableLog
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Bucket, Environment, Found
from interlock.lanes.objectlog.log import open_log
from interlock.lanes.objectlog.remote_bucket import open_bucket
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import parse_bucket_url
from tests.integration.objects.servers import SeaweedFS

COPIES_AT_ONCE = 8


class SlowBucket:
    """A bucket that waits before it answers; implements `Bucket`."""

    def __init__(self, bucket: Bucket, *, get_s: float = 0.0, put_s: float = 0.0) -> None:
        self._bucket = bucket
        self._get_s = get_s
        self._put_s = put_s

    def get(self, key: str) -> Found | None:
        """The object, or None."""
        _wait(self._get_s)
        return self._bucket.get(key)

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        """Several objects, side by side."""
        _wait(self._get_s)
        return self._bucket.get_many(keys, bytes_max)

    def create(self, key: str, data: bytes) -> object:
        """Store it unless the key is taken."""
        _wait(self._put_s)
        return self._bucket.create(key, data)

    def replace(self, key: str, data: bytes, tag: object) -> object:
        """Store it if the object still has that tag."""
        _wait(self._put_s)
        return self._bucket.replace(key, data, tag)

    def put(self, key: str, data: bytes) -> None:
        """Store it."""
        _wait(self._put_s)
        self._bucket.put(key, data)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove the objects."""
        _wait(self._put_s)
        self._bucket.delete(keys)

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so."""
        _wait(self._get_s)
        return self._bucket.keys(prefix)


def _wait(seconds: float) -> None:
    if seconds:
        sleep(seconds)


Open = Callable[[str, Path, LaneSettings], Opening]


class Place(NamedTuple):
    """Where databases can be: opened by name, local folder and settings; `bucket` gives the bucket of one of them."""

    name: str
    open: Open
    bucket: Callable[[str], Bucket]


def opening(bucket: Bucket, folder: Path, settings: LaneSettings) -> Opening:
    """A database on any bucket, which has no address: its log is put in where a URL would have led to one."""

    def log(path: Path | None) -> DurableLog:
        assert path is not None
        return open_log(bucket, path, settings=settings, world=Environment())

    class OnBucket(Opening):
        def _place_of(self, url: str, permission: Arrived | None = None) -> LanePlace:
            return super()._place_of(url, permission)._replace(open_log=log)

    return OnBucket(f"lanes://{folder}/database", clock=SystemClock(), hand_off=None, cache=None, settings=settings)


def _addressed(url: str, settings: LaneSettings, cache: Path | None = None) -> Opening:
    return Opening(
        url, clock=SystemClock(), hand_off=None, cache=None if cache is None else str(cache), settings=settings
    )


def local() -> Place:
    """The local disk: no bucket at all."""

    def opened(name: str, folder: Path, settings: LaneSettings) -> Opening:
        return _addressed(f"lanes://{folder}/{name}", settings)

    return Place("local disk", opened, lambda _name: MemoryBucket())


def slow(name: str, *, get_s: float = 0.0, put_s: float = 0.0) -> Place:
    """A bucket in memory with these latencies."""
    memory = MemoryBucket()

    def bucket(database: str) -> Bucket:
        return SlowBucket(memory.below(database), get_s=get_s, put_s=put_s)

    def opened(database: str, folder: Path, settings: LaneSettings) -> Opening:
        return opening(bucket(database), folder / database, settings)

    return Place(name, opened, bucket)


@contextmanager
def seaweedfs() -> Iterator[Place]:
    """A real server, started here and gone at the end."""
    with SeaweedFS() as server:

        def bucket(database: str) -> Bucket:
            return open_bucket(parse_bucket_url(server.url(f"bench/{database}")), request_timeout_s=10)

        def opened(database: str, folder: Path, settings: LaneSettings) -> Opening:
            return _addressed(server.url(f"bench/{database}"), settings, folder / database)

        yield Place("SeaweedFS", opened, bucket)


def copy(source: Bucket, target: Bucket) -> None:
    """Every object of one bucket into another."""

    def copied(key: str) -> None:
        found = source.get(key)
        assert found is not None
        target.put(key, found.data)

    with ThreadPoolExecutor(COPIES_AT_ONCE) as threads:
        list(threads.map(copied, source.keys("")))
