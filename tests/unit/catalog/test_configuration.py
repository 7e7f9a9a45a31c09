"""D16: the environment first, then the file; a setting that nobody reads is refused."""

from pathlib import Path

import pytest

from interlock.catalog.configuration import configured
from interlock.errors import BadUsage

NAMES = ("group_commit_window", "group_commit_max_batch", "db_per_write_stream")

FILE = """
[defaults]
group_commit_window = 0.002

[databases.stock]
group_commit_max_batch = 500
db_per_write_stream = true
"""


def settings(folder: Path, name: str | None = "stock", **environment: str) -> dict[str, float]:
    return configured(name, NAMES, environment=environment, folder=folder)


def test_without_a_file_nothing_is_configured(tmp_path: Path) -> None:
    assert settings(tmp_path) == {}


def test_the_file_has_defaults_and_settings_of_one_database(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(FILE)
    assert settings(tmp_path) == {
        "group_commit_window": 0.002,
        "group_commit_max_batch": 500,
        "db_per_write_stream": True,
    }
    assert settings(tmp_path, "other") == {"group_commit_window": 0.002}
    assert settings(tmp_path, None) == {"group_commit_window": 0.002}


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(FILE)
    found = settings(tmp_path, INTERLOCK_GROUP_COMMIT_WINDOW="0.5", INTERLOCK_GROUP_COMMIT_MAX_BATCH="7")
    assert found["group_commit_window"] == 0.5
    assert found["group_commit_max_batch"] == 7


def test_the_file_may_be_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "other.toml"
    elsewhere.write_text(FILE)
    assert settings(tmp_path, INTERLOCK_CONFIG=str(elsewhere))["group_commit_max_batch"] == 500


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("[defaults]\ngroup_comit_window = 1", "group_commit_window"),
        ("[databases.stock]\nnothing_like_it = 1", "Settings are"),
        ("defaults = 3", "not a table"),
        ("[databases]\nstock = 3", "not a table"),
        ("[defaults]\ngroup_commit_window = 'soon'", "a number"),
        ("[defaults]\ngroup_commit_window = [1]", "a number"),
        ("[defaults", "cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "interlock.toml").write_text(content)
    with pytest.raises(BadUsage) as caught:
        settings(tmp_path)
    assert "interlock.toml" in caught.value.what
    assert word in str(caught.value)


def test_a_mistake_in_the_environment_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadUsage) as caught:
        settings(tmp_path, INTERLOCK_GROUP_COMMIT_WINDOW="soon")
    assert "INTERLOCK_GROUP_COMMIT_WINDOW" in caught.value.what
    with pytest.raises(BadUsage):
        settings(tmp_path, INTERLOCK_CONFIG=str(tmp_path / "missing.toml"))
