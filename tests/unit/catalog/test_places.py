"""Where the local file of a database in a bucket is: as told, in the home, or without one in a safe place."""

import os
import stat
from pathlib import Path

import pytest

from interlock.catalog.open_lane import CACHE_VARIABLE, cache_path
from interlock.database.database import Database
from interlock.errors import BadUsage, UnavailableError
from interlock.urls import parse_bucket_url

URL = "s3://bucket/shop/stock"


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user without a home: no HOME, and an id that the system does not know."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    return tmp_path / f"interlock-{os.getuid()}"


def folder() -> Path:
    return cache_path(parse_bucket_url(URL)).parent


def test_it_is_in_the_home_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder() == tmp_path / "home" / ".cache" / "interlock"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert folder() == tmp_path / "caches" / "interlock"
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "told"))
    assert folder() == tmp_path / "told"


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "~/told")
    assert folder() == tmp_path / "home" / "told"


@pytest.mark.usefixtures("own")
def test_a_tilde_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "~/told")
    with pytest.raises(BadUsage, match="home directory of ~ is unknown"):
        folder()


def test_without_a_home_it_is_a_folder_that_only_this_user_enters(own: Path) -> None:
    for _ in range(2):
        assert folder() == own
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
    _ = Database.open(URL)


def test_a_folder_that_others_enter_is_not_used(own: Path) -> None:
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(UnavailableError, match="others can write or read there") as caught:
        folder()
    assert CACHE_VARIABLE in caught.value.fix


def test_a_link_that_somebody_has_laid_is_not_followed(own: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    own.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnavailableError, match="cannot be used"):
        folder()


def test_a_file_in_its_place_is_told(own: Path) -> None:
    own.write_text("")
    with pytest.raises(UnavailableError, match="cannot be used"):
        folder()
