"""The catalog of a home on a disk: a file that is replaced as a whole, and says at once where a name lives."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from interlock.catalog.catalog import FILE, FolderCatalog
from interlock.catalog.catalog_entries import FORMAT, CatalogEntry
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
    catalog = FolderCatalog(home(tmp_path))
    assert catalog.names() == {}
    assert catalog.locate("stock") == f"{home(tmp_path)}/stock"
    assert FolderCatalog(home(tmp_path)).names() == {"stock": CatalogEntry()}


def test_a_name_with_spaces_is_quoted(tmp_path: Path) -> None:
    assert FolderCatalog(home(tmp_path)).locate("my stock").endswith("/my%20stock")


def test_a_name_that_was_placed_elsewhere_is_found_there(tmp_path: Path) -> None:
    catalog = FolderCatalog(home(tmp_path))
    catalog.enter("stock", CatalogEntry("lanes:///elsewhere/stock", 1))
    assert catalog.locate("stock") == "lanes:///elsewhere/stock"
    catalog.enter("stock", CatalogEntry("", 2))
    assert catalog.locate("stock") == f"{home(tmp_path)}/stock"


def test_names_are_listed_in_order(tmp_path: Path) -> None:
    catalog = FolderCatalog(home(tmp_path))
    for name in ("b", "a", "c"):
        catalog.locate(name)
    assert list(catalog.names()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".hidden", "x" * 101, "\U00020000" * 51, "a\x00b", "a\nb", "\ud800", 7]
)
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    catalog = FolderCatalog(home(tmp_path))
    for call in (
        lambda: catalog.locate(name),
        lambda: catalog.enter(name, CatalogEntry()),
        lambda: catalog.entry(name),
    ):
        with pytest.raises(BadUsage, match="not the name of a database"):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [*NO_HOMES, 7, None])
def test_what_is_no_home_is_refused(url: str) -> None:
    with pytest.raises(BadUsage):
        FolderCatalog(url)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"format": 3, "databases": {}}', b'{"format":2,"databases":{"a":{"epoch":-1}}}'],
)
def test_a_catalog_that_cannot_be_read_is_an_error_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    for call in (lambda: FolderCatalog(home(tmp_path)).locate("stock"), FolderCatalog(home(tmp_path)).names):
        with pytest.raises(CorruptionError):
            call()
    assert (tmp_path / FILE).read_bytes() == content


def test_a_catalog_of_the_first_format_is_read_and_written_anew_with_the_next_entry(tmp_path: Path) -> None:
    first = {"format": 1, "databases": {"stock": {"url": ""}, "far": {"url": "s3://bucket/far"}}}
    (tmp_path / FILE).write_bytes(msgspec.json.encode(first))
    catalog = FolderCatalog(home(tmp_path))
    assert catalog.names() == {"far": CatalogEntry("s3://bucket/far"), "stock": CatalogEntry()}
    assert catalog.locate("far") == "s3://bucket/far"
    assert msgspec.json.decode((tmp_path / FILE).read_bytes())["format"] == 1, "looking changes nothing"
    catalog.enter("stock", CatalogEntry("lanes:///elsewhere/stock", 1))
    assert msgspec.json.decode((tmp_path / FILE).read_bytes())["format"] == FORMAT
    assert catalog.names() == {
        "far": CatalogEntry("s3://bucket/far"),
        "stock": CatalogEntry("lanes:///elsewhere/stock", 1),
    }


def test_a_home_that_cannot_be_used_is_told_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    catalog = FolderCatalog(home(tmp_path / "file"))
    for call in (catalog.names, lambda: catalog.enter("stock", CatalogEntry())):
        with pytest.raises(UnusableFile, match=r"interlock-catalog\.json cannot be used") as caught:
            call()
        assert "home is a folder" in caught.value.fix


def test_a_disk_that_fails_leaves_the_old_catalog_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FolderCatalog(home(tmp_path)).locate("stock")
    before = (tmp_path / FILE).read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UnusableFile, match="No space left on device"):
            FolderCatalog(home(tmp_path)).locate("other")
    assert (tmp_path / FILE).read_bytes() == before
    assert FolderCatalog(home(tmp_path)).locate("other") == f"{home(tmp_path)}/other"
