"""The catalog, wherever it is kept: one contract for a folder and a bucket; PostgreSQL is in tests/integration."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.catalog.catalog import FILE, Catalog
from interlock.catalog.catalog_entries import CatalogEntry
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.objectlog.bucket_protocol import Bucket, ConditionFailed, Denied, Unclear
from tests.unit.catalog.contract import Contract
from tests.unit.lanes.objectlog.buckets import Fault, ScriptedBucket

HOME = "s3://bucket/shop?endpoint=http://127.0.0.1:9&secret_access_key=SECRET"


class Buckets:
    """Opens the scripted bucket in the place of a real one, and notes whether it was asked to show its promises."""

    def __init__(self) -> None:
        self.bucket = ScriptedBucket()
        self.proven: list[bool] = []

    def __call__(self, _home: str) -> Callable[..., Bucket]:
        return self._opened

    def _opened(self, *, writing: bool) -> Bucket:
        self.proven.append(writing)
        return self.bucket


@pytest.fixture
def buckets(monkeypatch: pytest.MonkeyPatch) -> Buckets:
    found = Buckets()
    monkeypatch.setattr("interlock.catalog.catalog.folder_opener", found)
    return found


class TestInFolder(Contract):
    @pytest.fixture
    def home(self, tmp_path: Path) -> str:
        return f"lanes://{tmp_path}"

    @pytest.fixture
    def spoil(self, tmp_path: Path) -> Callable[[], object]:
        return lambda: (tmp_path / FILE).write_bytes(b'{"format": 2, "databases": 7}')


class TestInBucket(Contract):
    @pytest.fixture
    def home(self, buckets: Buckets) -> str:
        del buckets
        return HOME

    @pytest.fixture
    def spoil(self, buckets: Buckets) -> Callable[[], object]:
        return lambda: buckets.bucket.objects.update({FILE: b"{"})


def lost(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
    """It is stored, and the answer is lost."""
    del call
    bucket.objects[key] = data
    raise Unclear("no answer")


def never(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
    """It is not stored."""
    del bucket, call, key, data
    raise Unclear("no answer")


def other(name: str) -> Fault:
    """Somebody else is faster."""

    def meet(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
        del call, data
        faults, bucket.faults = bucket.faults, []
        asyncio.run(Catalog(HOME).enter(name, f"lanes:///{name}", 1))
        bucket.faults = faults
        raise ConditionFailed(f"{key} has changed")

    return meet


@pytest.mark.parametrize(
    ("faults", "others"),
    [
        ([lost], ""),
        ([never], ""),
        ([never, lost], ""),
        ([other("b")], "b"),
        ([other("b"), never, other("c"), lost], "bc"),
    ],
)
def test_an_entry_in_a_bucket_is_written_once_whatever_its_answers_are(
    buckets: Buckets, faults: list[Fault | None], others: str
) -> None:
    buckets.bucket.faults = list(faults)
    entry = asyncio.run(Catalog(HOME).enter("a", "lanes:///a", 1))
    assert entry == CatalogEntry("lanes:///a", 1)
    known = asyncio.run(Catalog(HOME).names())
    assert known == {"a": entry, **{name: CatalogEntry(f"lanes:///{name}", 1) for name in others}}


def test_a_bucket_that_changes_all_the_time_is_given_up(buckets: Buckets) -> None:
    buckets.bucket.faults = [never] * 100
    with pytest.raises(UnavailableError, match="20 times in a row"):
        asyncio.run(Catalog(HOME).enter("a", "lanes:///a", 1))


def test_only_who_writes_asks_a_bucket_for_its_promises(buckets: Buckets) -> None:
    asyncio.run(Catalog(HOME).names())
    assert buckets.proven == [False]
    asyncio.run(Catalog(HOME).enter("a", "lanes:///a", 1))
    assert buckets.proven == [False, True]


def test_a_name_is_found_by_those_who_may_only_read_there(buckets: Buckets) -> None:
    def refused(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
        raise Denied("read only")

    buckets.bucket.faults = [refused]
    assert asyncio.run(Catalog(HOME).locate("stock")).startswith("s3://bucket/shop/stock?")
    assert buckets.bucket.objects == {}


def test_a_bucket_that_does_not_answer_is_told_and_nothing_is_guessed(buckets: Buckets) -> None:
    buckets.bucket.unreadable = [Unclear("away")]
    with pytest.raises(UnavailableError, match="read the catalog"):
        asyncio.run(Catalog(HOME).locate("stock"))


def test_at_a_bucket_no_database_has_the_name_of_the_catalog(buckets: Buckets) -> None:
    del buckets
    with pytest.raises(BadUsage, match="catalog of the home has that name"):
        asyncio.run(Catalog(HOME).locate(FILE))
    with pytest.raises(BadUsage, match="catalog of the home has that name"):
        Catalog(HOME).at_once(FILE)


def test_at_once_is_known_what_needs_no_network(tmp_path: Path) -> None:
    folder = Catalog(f"lanes://{tmp_path}")
    asyncio.run(folder.enter("stock", "lanes:///elsewhere/stock", 1))
    assert folder.at_once("stock") == "lanes:///elsewhere/stock"
    assert Catalog("s3://bucket/shop").at_once("stock") == "s3://bucket/shop/stock"
    assert Catalog("postgresql://host/shop").at_once("stock") == "postgresql://host/shop?schema=stock"
    assert Catalog("memory:").at_once("stock") == "memory:"


def test_a_home_in_memory_keeps_nothing() -> None:
    catalog = Catalog("memory:")
    assert asyncio.run(catalog.locate("stock")) == "memory:"
    assert asyncio.run(catalog.names()) == {}
    with pytest.raises(BadUsage, match="home in memory"):
        asyncio.run(catalog.enter("stock", "lanes:///elsewhere/stock", 1))


@pytest.mark.parametrize("home", ["", "/var/shop", "lanes://", "lanes:///shop?x=1", "http://host/shop", 7, None])
def test_what_is_no_home_is_refused(home: str) -> None:
    with pytest.raises(BadUsage):
        Catalog(home)
