"""Settings written into `interlock.toml`: exactly the change, comments and order kept, or nothing at all."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import UnusableFile
from interlock.settings import Setting, SettingsTable, change_settings, settings_file, settings_in, with_settings

VIEWS = SettingsTable("tools", "views")

WRITTEN = """\
# The shop.
home = "lanes://./data"  # beside this file

[tools.stock]
write_latency_budget = 0.02

  [ tools . "views" ]   # counts
  # how many
  counter_shard_count = 16  # a power of two
  write_latency_budget = 0.1

# What every database has.
[defaults]
queue_max = 5
"""

CHANGED = """\
# The shop.
home = "lanes://./data"  # beside this file

[tools.stock]
write_latency_budget = 0.02

  [ tools . "views" ]   # counts
  # how many
  counter_shard_count = 32  # a power of two
  write_latency_budget = 0.1
counter_kind = "sharded"

# What every database has.
[defaults]
queue_max = 5
"""


def test_a_value_is_changed_where_it_stands_and_a_new_one_is_added_below(tmp_path: Path) -> None:
    path = tmp_path / "interlock.toml"
    path.write_text(WRITTEN)
    path.chmod(0o640)
    change_settings(path, VIEWS, {"counter_shard_count": 32, "counter_kind": "sharded"})
    assert path.read_text() == CHANGED
    assert path.stat().st_mode & 0o777 == 0o640
    change_settings(path, VIEWS, {"counter_shard_count": 16, "counter_kind": None})
    assert path.read_text() == WRITTEN
    assert [each.name for each in tmp_path.iterdir()] == ["interlock.toml"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "home = 'memory:'\n", "[defaults]\nqueue_max = 5"])
def test_a_table_that_is_not_there_is_added_and_taken_out_again(text: str, tmp_path: Path) -> None:
    path = tmp_path / "interlock.toml"
    if text:
        path.write_text(text)
    change_settings(path, VIEWS, {"db_per_write_stream": True})
    assert path.read_text().endswith("[tools.views]\ndb_per_write_stream = true\n")
    assert settings_in(path, VIEWS) == {"db_per_write_stream": True}
    change_settings(path, VIEWS, {"db_per_write_stream": None})
    assert path.read_text().strip() == text.strip()


def test_a_file_from_windows_keeps_its_line_ends() -> None:
    text = "[tools.views]\r\ncounter_shard_count = 16\r\n"
    assert with_settings(text, VIEWS, {"counter_shard_count": 32}) == text.replace("16", "32")


@pytest.mark.parametrize(
    "text",
    [
        "tools = { views = { counter_shard_count = 16 } }\n",
        "[tools]\nviews.counter_shard_count = 16\n",
        '[defaults]\nwords = """\n[tools.views]\n"""\n',
        '[tools.views]\ncounter_shard_count = """\n5"""\n',
    ],
)
def test_what_is_written_in_another_way_is_left_alone_and_the_lines_are_said(text: str, tmp_path: Path) -> None:
    path = tmp_path / "interlock.toml"
    path.write_text(text)
    with pytest.raises(UnusableFile) as refused:
        change_settings(path, VIEWS, {"counter_shard_count": 32})
    assert "counter_shard_count = 32" in refused.value.fix
    assert path.read_text() == text


def test_what_is_no_toml_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "interlock.toml"
    path.write_text("[tools\n")
    with pytest.raises(UnusableFile, match="cannot be read"):
        change_settings(path, VIEWS, {"counter_shard_count": 32})


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.touch()
    link = tmp_path / "interlock.toml"
    link.symlink_to(real)
    change_settings(link, VIEWS, {"counter_shard_count": 32})
    assert link.is_symlink()
    assert "counter_shard_count = 32" in real.read_text()


def test_the_file_is_the_one_that_settings_are_read_from(tmp_path: Path) -> None:
    assert settings_file({}, tmp_path) == tmp_path / "interlock.toml"
    assert settings_file({"INTERLOCK_CONFIG": "/etc/shop.toml"}, tmp_path) == Path("/etc/shop.toml")


NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8)
VALUES: st.SearchStrategy[Setting] = (
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | NAMES
)


@given(
    name=NAMES,
    before=st.dictionaries(st.sampled_from("abc"), VALUES),
    after=st.dictionaries(st.sampled_from("abcd"), VALUES),
)
def test_a_reader_finds_exactly_the_change(name: str, before: dict[str, Setting], after: dict[str, Setting]) -> None:
    table = SettingsTable("tools", name)
    text = with_settings("# first\n[defaults]\nqueue_max = 5\n", table, before)
    changed = with_settings(text, table, {**after, "a": None})
    expected = {key: value for key, value in {**before, **after}.items() if key != "a"}
    found = tomllib.loads(changed)
    assert found.get("tools", {}).get(name, {}) == expected
    assert found["defaults"] == {"queue_max": 5}
    assert changed.startswith("# first\n")
