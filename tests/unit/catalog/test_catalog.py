"""The catalog: names at a home, written down durably and replaced as a whole."""

import errno
import os
from pathlib import Path

import pytest

from interlock.catalog.catalog import FILE, Catalog, Place
from interlock.errors import BadUsage, CorruptionError, UnusableFile

NO_HOMES = [
    "",
    "/var/shop",
    "lanes://",
    "lanes:///",
    "lanes:////",
    "lanes://host/shop",
    "lanes://[",
    "lanes:///shop?x=1",
    "lanes:///shop#x",
    "lanes:///shop/../other",
    "lanes:///a%00b",
    "lanes:///\ud800",
]


def home(path: Path) -> str:
    return f"lanes://{path}"


def test_a_new_name_lives_below_the_home_and_is_written_down(tmp_path: Path) -> None:
    catalog = Catalog(home(tmp_path))
    assert catalog.names() == {}
    assert catalog.locate("stock") == f"{home(tmp_path)}/stock"
    assert Catalog(home(tmp_path)).names() == {"stock": Place("")}


def test_a_name_with_spaces_is_quoted(tmp_path: Path) -> None:
    assert Catalog(home(tmp_path)).locate("my stock").endswith("/my%20stock")


def test_a_name_that_was_placed_elsewhere_is_found_there(tmp_path: Path) -> None:
    catalog = Catalog(home(tmp_path))
    catalog.place("stock", "lanes:///elsewhere/stock")
    assert catalog.locate("stock") == "lanes:///elsewhere/stock"
    catalog.place("stock", "")
    assert catalog.locate("stock") == f"{home(tmp_path)}/stock"


def test_names_are_listed_in_order(tmp_path: Path) -> None:
    catalog = Catalog(home(tmp_path))
    for name in ("b", "a", "c"):
        catalog.locate(name)
    assert list(catalog.names()) == ["a", "b", "c"]


def test_a_home_in_memory_keeps_nothing() -> None:
    catalog = Catalog("memory:")
    assert catalog.locate("stock") == "memory:"
    assert catalog.names() == {}


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".hidden", "x" * 101, "\U00020000" * 51, "a\x00b", "a\nb", "\ud800", 7]
)
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    for call in (lambda: Catalog(home(tmp_path)).locate(name), lambda: Catalog(home(tmp_path)).place(name, "")):
        with pytest.raises(BadUsage, match="not the name of a database"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_home_in_memory_places_nothing() -> None:
    with pytest.raises(BadUsage, match="home in memory"):
        Catalog("memory:").place("stock", "lanes:///elsewhere/stock")


@pytest.mark.parametrize("url", [*NO_HOMES, 7, None])
def test_what_is_no_home_is_refused(url: str) -> None:
    with pytest.raises(BadUsage):
        Catalog(url)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"format": 2, "databases": {}}'])
def test_a_catalog_that_cannot_be_read_is_an_error_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CorruptionError):
        Catalog(home(tmp_path)).locate("stock")
    assert (tmp_path / FILE).read_bytes() == content


def test_a_home_that_cannot_be_used_is_told_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for call in (Catalog(home(tmp_path / "file")).names, lambda: Catalog(home(tmp_path / "file")).place("stock", "")):
        with pytest.raises(UnusableFile, match=r"interlock-catalog\.json cannot be used") as caught:
            call()
        assert "home is a folder" in caught.value.fix


def test_a_disk_that_fails_leaves_the_old_catalog_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Catalog(home(tmp_path)).locate("stock")
    before = (tmp_path / FILE).read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UnusableFile, match="No space left on device"):
            Catalog(home(tmp_path)).locate("other")
    assert (tmp_path / FILE).read_bytes() == before
    assert Catalog(home(tmp_path)).locate("other") == f"{home(tmp_path)}/other"


def test_at_a_bucket_every_name_lives_below_the_home() -> None:
    catalog = Catalog("s3://bucket/shop/?endpoint=http://127.0.0.1:9")
    assert catalog.locate("stock room") == "s3://bucket/shop/stock%20room?endpoint=http://127.0.0.1:9"
    assert catalog.names() == {}
    with pytest.raises(BadUsage, match="cannot be placed"):
        catalog.place("stock", "lanes:///elsewhere/stock")
