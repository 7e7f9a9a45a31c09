"""D16: a tool declares what it needs, has five knobs, and refuses what cannot be meant."""

import math
from pathlib import Path

import pytest

import interlock
from interlock.errors import BadUsage, DefinitionError
from interlock.hotrow.tool_declarations import Tool, declared_tool, tool_settings, undeclared
from interlock.settings import DECLARATIONS, KNOBS


def test_a_tool_is_declared_with_three_words() -> None:
    tool = interlock.Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500, latency_critical=True)
    assert isinstance(tool, Tool)
    assert (tool.name, tool.write_latency_budget, tool.aggregate_write_rate) == ("stock", 0.02, 500)
    assert tool.latency_critical
    assert tool.shardable is None


def test_a_tool_is_a_value() -> None:
    tool = Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500)
    assert tool == Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500)
    with pytest.raises(AttributeError):
        tool.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Tool("stock", 0.02, 500)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Tool("stock")  # type: ignore[call-arg]


def test_every_declaration_and_knob_of_the_file_is_one_of_the_tool() -> None:
    assert set(Tool.__struct_fields__) == {"name", *DECLARATIONS, *KNOBS}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "x" * 101),
        ("name", "a\nb"),
        ("name", 3),
        ("write_latency_budget", 0),
        ("write_latency_budget", -1),
        ("write_latency_budget", math.nan),
        ("write_latency_budget", math.inf),
        ("write_latency_budget", "20ms"),
        ("write_latency_budget", True),
        ("write_latency_budget", 3_601),
        ("aggregate_write_rate", -1),
        ("aggregate_write_rate", math.nan),
        ("aggregate_write_rate", math.inf),
        ("aggregate_write_rate", None),
        ("latency_critical", 1),
        ("latency_critical", None),
        ("shardable", "yes"),
        ("counter_shard_count", 0),
        ("counter_shard_count", 1.5),
        ("counter_shard_count", 257),
        ("counter_shard_count", True),
        ("group_commit_window", -0.1),
        ("group_commit_window", math.nan),
        ("group_commit_max_batch", 0),
        ("group_commit_max_batch", 2.5),
        ("contention_flag_threshold", -1),
        ("db_per_write_stream", 1),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_is_allowed(field: str, value: object) -> None:
    given = {"name": "stock", "write_latency_budget": 0.02, "aggregate_write_rate": 500, field: value}
    with pytest.raises(DefinitionError) as caught:
        Tool(**given)  # type: ignore[arg-type]
    assert f"{field} is {value!r}; it must be" in caught.value.what
    assert caught.value.why
    assert caught.value.fix.startswith(f"Give {field}")
    assert caught.value.rule == "value-out-of-range"


def test_the_knobs_of_a_tool_are_settings_of_its_database() -> None:
    tool = Tool(
        "stock",
        write_latency_budget=0.02,
        aggregate_write_rate=500,
        group_commit_window=0.002,
        group_commit_max_batch=500,
        contention_flag_threshold=0,
        db_per_write_stream=False,
    )
    assert tool_settings(tool) == {
        "group_commit_window": 0.002,
        "group_commit_max_batch": 500,
        "contention_flag_threshold": 0,
        "db_per_write_stream": False,
    }
    assert tool_settings(undeclared("stock")) == {}


FILE = """
[defaults]
contention_flag_threshold = 80

[tools.stock]
write_latency_budget = 0.02
aggregate_write_rate = 500
latency_critical = true
shardable = false
group_commit_window = 0.002

[tools.views]
counter_shard_count = 32

[tools.half]
aggregate_write_rate = 500

[tools.wrong]
write_latency_budget = 0
aggregate_write_rate = 500
"""


def test_a_tool_may_be_declared_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(FILE)
    assert declared_tool("stock", environment={}, folder=tmp_path) == Tool(
        "stock",
        write_latency_budget=0.02,
        aggregate_write_rate=500,
        latency_critical=True,
        shardable=False,
        group_commit_window=0.002,
        contention_flag_threshold=80,
    )
    environment = {"INTERLOCK_WRITE_LATENCY_BUDGET": "0.5"}
    found = declared_tool("stock", environment=environment, folder=tmp_path)
    assert found is not None
    assert found.write_latency_budget == 0.5


def test_a_tool_with_knobs_alone_declares_nothing(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(FILE)
    assert declared_tool("views", environment={}, folder=tmp_path) is None
    assert declared_tool("unheard-of", environment={}, folder=tmp_path) is None


def test_half_a_declaration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(FILE)
    with pytest.raises(BadUsage, match="'half' declares no write_latency_budget") as caught:
        declared_tool("half", environment={}, folder=tmp_path)
    assert "[tools.half]" in caught.value.fix
    with pytest.raises(BadUsage, match=r"interlock\.toml: Tool\.write_latency_budget is 0"):
        declared_tool("wrong", environment={}, folder=tmp_path)


def test_nothing_is_asked_of_a_tool_that_nobody_declared() -> None:
    tool = undeclared("stock")
    assert tool.aggregate_write_rate == 0
    assert not tool.latency_critical
