"""A new project installs the Interlock that made it: from an index, or from the clone where it was made (B13)."""

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from interlock.cli.new import source_requirement

Note = Callable[[str | None], None]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Note:
    """Says what pip has noted about where Interlock came from."""

    class Distribution:
        text: str | None = None

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.text

    found = Distribution()

    def distribution(name: str) -> Distribution:
        return found

    monkeypatch.setattr(metadata, "distribution", distribution)

    def note(text: str | None) -> None:
        found.text = text

    return note


def test_a_package_from_an_index_is_named(noted: Note) -> None:
    noted(None)
    assert source_requirement() == "interlock[server]"


def test_a_clone_is_named_by_its_folder(noted: Note, tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    noted(f'{{"dir_info": {{"editable": true}}, "url": "{clone.as_uri()}"}}')
    assert source_requirement() == f"{clone}[server]"
    clone.rmdir()
    assert source_requirement() == "interlock[server]"


def test_a_commit_is_named_with_its_repository(noted: Note) -> None:
    noted('{"url": "https://example.org/interlock.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}}')
    assert source_requirement() == "interlock[server] @ git+https://example.org/interlock.git@0a1b"


def test_a_package_from_elsewhere_is_named(noted: Note) -> None:
    noted('{"url": "https://example.org/interlock.whl", "archive_info": {}}')
    assert source_requirement() == "interlock[server]"


def test_sources_that_were_never_installed_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", none)
    assert source_requirement() == "interlock[server]"
