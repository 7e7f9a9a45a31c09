"""D16: the environment first, then the file; a setting that nobody reads is refused."""

from pathlib import Path

import pytest

from interlock.errors import BadUsage
from interlock.settings import configured, configured_tool

KINDS: dict[str, type[float]] = {
    "group_commit_window": float,
    "group_commit_max_batch": int,
    "db_per_write_stream": bool,
}

FILE = """
[defaults]
group_commit_window = 0.002

[databases.stock]
group_commit_max_batch = 500
db_per_write_stream = true
"""


def settings(folder: Path, name: str | None = "stock", **environment: str) -> dict[str, float]:
    return configured(name, KINDS, environment=environment, folder=folder)


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
        ("[defaults]\ngroup_commit_window = true", "a number"),
        ("[defaults]\ngroup_commit_max_batch = 1.5", "a whole number"),
        ("[defaults]\ngroup_commit_max_batch = '7'", "a whole number"),
        ("[defaults]\ndb_per_write_stream = 'no'", "true or false"),
        ("[defaults]\ndb_per_write_stream = 1", "true or false"),
        ("[databases.another]\ngroup_comit_window = 1", "group_commit_window"),
        ("[database.stock]\ngroup_commit_window = 1", "Did you mean databases?"),
        ("[default]\ngroup_commit_window = 1", "Did you mean defaults?"),
        ("group_commit_window = 1", "stands outside a section"),
        ("group_comit_window = 1", "Did you mean group_commit_window?"),
        ("[nothing_like_it]", "Sections are [defaults], [databases.NAME], [tools.NAME] and [engine]"),
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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("1", True),
        ("Yes", True),
        ("ON", True),
        ("false", False),
        ("0", False),
        ("no", False),
        ("off", False),
    ],
)
def test_a_switch_in_the_environment_has_many_names(tmp_path: Path, text: str, value: bool) -> None:
    assert settings(tmp_path, INTERLOCK_DB_PER_WRITE_STREAM=text) == {"db_per_write_stream": value}


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("INTERLOCK_DB_PER_WRITE_STREAM", "maybe", "one of true, 1, yes, on, false, 0, no, off"),
        ("INTERLOCK_DB_PER_WRITE_STREAM", "", "one of true"),
        ("INTERLOCK_GROUP_COMMIT_MAX_BATCH", "1.5", "a whole number"),
        ("INTERLOCK_GROUP_COMMIT_MAX_BATCH", "", "a whole number"),
        ("INTERLOCK_GROUP_COMMIT_WINDOW", "--5", "a number"),
    ],
)
def test_a_value_of_another_kind_is_told_with_what_is_allowed(
    tmp_path: Path, variable: str, text: str, allowed: str
) -> None:
    with pytest.raises(BadUsage) as caught:
        settings(tmp_path, **{variable: text})
    assert caught.value.what.startswith(f"{variable} is {text!r}; it must be {allowed}")
    assert "MODULE:ATTR" not in str(caught.value)


def test_a_near_miss_in_the_environment_is_refused_and_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match=r"Did you mean INTERLOCK_GROUP_COMMIT_WINDOW\?"):
        settings(tmp_path, INTERLOCK_GROUP_COMIT_WINDOW="1")
    with pytest.raises(BadUsage, match=r"Did you mean INTERLOCK_GROUP_COMMIT_WINDOW\?"):
        settings(tmp_path, INTERLOCK_group_commit_window="1")
    assert settings(tmp_path, INTERLOCK_HOME="x", INTERLOCK_CRASHES="20", INTERLOCK_="", GROUP_COMMIT_WINDOW="1") == {}


def test_the_file_that_is_asked_for_must_be_there_and_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="which does not exist"):
        settings(tmp_path, INTERLOCK_CONFIG=str(tmp_path / "missing.toml"))
    with pytest.raises(BadUsage, match="Is a directory") as caught:
        settings(tmp_path, INTERLOCK_CONFIG=str(tmp_path))
    assert "INTERLOCK_CONFIG" in caught.value.fix
    assert settings(tmp_path, INTERLOCK_CONFIG="") == {}
    (tmp_path / "interlock.toml").mkdir()
    with pytest.raises(BadUsage, match="Is a directory"):
        settings(tmp_path)


def test_the_file_is_utf_8(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_bytes('[databases."Käse"]\ngroup_commit_max_batch = 5'.encode())
    assert settings(tmp_path, "Käse") == {"group_commit_max_batch": 5}
    (tmp_path / "interlock.toml").write_bytes(b"# \xff")
    with pytest.raises(BadUsage, match="cannot be read"):
        settings(tmp_path)


def test_without_a_folder_it_is_the_current_one_which_may_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "interlock.toml").write_text(FILE)
    assert configured("stock", KINDS)["group_commit_max_batch"] == 500
    (tmp_path / "here" / "interlock.toml").unlink()
    (tmp_path / "here").rmdir()
    assert configured("stock", KINDS) == {}


TOOLS = """
[defaults]
group_commit_window = 0.001
contention_flag_threshold = 80
latency_critical = true

[databases.stock]
group_commit_max_batch = 500

[tools.stock]
write_latency_budget = 0.02
aggregate_write_rate = 500
group_commit_window = 0.002
group_commit_max_batch = 100
counter_shard_count = 32
"""


def test_a_database_has_the_knobs_of_the_tool_of_its_name_below_its_own(tmp_path: Path) -> None:
    """D16: code, environment, [databases.NAME], [tools.NAME], [defaults]; what a tool declares is no setting."""
    (tmp_path / "interlock.toml").write_text(TOOLS)
    assert settings(tmp_path) == {"group_commit_window": 0.002, "group_commit_max_batch": 500}
    assert settings(tmp_path, "other") == {"group_commit_window": 0.001}
    assert settings(tmp_path, INTERLOCK_GROUP_COMMIT_WINDOW="0.5")["group_commit_window"] == 0.5


def test_a_database_may_belong_to_a_tool_of_another_name(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(TOOLS)
    found = configured("other", KINDS, tool="stock", environment={}, folder=tmp_path)
    assert found == {"group_commit_window": 0.002, "group_commit_max_batch": 100}


def test_a_tool_has_its_declarations_and_its_knobs(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(TOOLS)
    assert configured_tool("stock", environment={"INTERLOCK_COUNTER_SHARD_COUNT": "8"}, folder=tmp_path) == {
        "write_latency_budget": 0.02,
        "aggregate_write_rate": 500,
        "latency_critical": True,
        "group_commit_window": 0.002,
        "group_commit_max_batch": 100,
        "contention_flag_threshold": 80,
        "counter_shard_count": 8,
    }


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("[tools.stock]\nqueue_max = 5", "stand below [databases.NAME]"),
        ("[tools.stock]\nlatency_criticl = true", "Did you mean latency_critical?"),
        ("[tools.stock]\nlatency_critical = 1", "true or false"),
        ("[tools.stock]\nwrite_latency_budget = 'soon'", "a number"),
        ("[tools.stock]\ncounter_shard_count = 1.5", "a whole number"),
        ("[databases.stock]\nwrite_latency_budget = 1", "has no setting 'write_latency_budget'"),
        ("[tools]\nstock = 3", "not a table"),
        ("[tool.stock]", "Did you mean tools?"),
        ("write_latency_budget = 1", "stands outside a section"),
    ],
)
def test_a_mistake_in_the_table_of_a_tool_is_told_with_its_place(tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "interlock.toml").write_text(content)

    def of_database() -> object:
        return settings(tmp_path, "other")

    def of_tool() -> object:
        return configured_tool("other", environment={}, folder=tmp_path)

    for ask in (of_database, of_tool):
        with pytest.raises(BadUsage) as caught:
            ask()
        assert "interlock.toml" in caught.value.what
        assert word in str(caught.value)
