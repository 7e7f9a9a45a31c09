"""What verdicts say: figures as people read them, commands that can be pasted, names that cannot break them."""

import json
import shlex
import tomllib

import msgspec
import pytest

from interlock.hotrow.placement import Evidence, advise
from interlock.hotrow.tools import Tool, undeclared
from tests.unit.hotrow.placement.windows import a_tool, row, window

CRITICAL = a_tool(critical=True)
SLOW = window(row(400), p99_s=0.030)


def test_a_verdict_tells_what_was_measured_beside_what_was_declared() -> None:
    evidence = window(row(412.3, writes=420, wait_s=0.0091), p99_s=0.0413, plateau=2_400, engine="object")
    assert advise(CRITICAL, evidence).evidence == (
        "It lives in a lane whose log is in object storage; 500 writes per second to 1 row.",
        (
            "stock 'A-1' is handed from writer to writer 412 times per second (hot above 50), each after 9.1 ms; "
            "it has 84% of all writes."
        ),
        "99 of 100 commits take at most 41.3 ms; the budget is 20 ms.",
        "500 writes per second are needed, 420 of them to that row; one row can do 2,400 here.",
        "What one row can do in that PostgreSQL was not measured (`interlock bench contention` does).",
        "Whether its rows can be spread is not declared. If they are only added to, set `shardable = true`.",
    )


def test_what_was_not_measured_is_told() -> None:
    bare = msgspec.structs.replace(window(p99_s=None, plateau=None), distinct_rows=0)
    assert advise(undeclared("stock"), bare).evidence == (
        "It lives in a lane on a local disk; 500 writes per second.",
        "No row is handed from one writer to another.",
        "How long commits take was not measured; no budget is declared.",
    )
    waited = advise(CRITICAL, window(row(0.25, wait_s=2.5), p99_s=None, plateau=None, streams=3)).evidence
    assert waited[0].endswith("to 1 row, in 3 databases.")
    assert "0.25 times per second" in waited[1]
    assert waited[2] == "How long commits take was not measured, at least 2.5 s; the budget is 20 ms."
    assert "the plateau was not measured" in waited[3]


def test_a_row_whose_key_nobody_knows_is_one_of_its_table() -> None:
    line = advise(CRITICAL, window(row(400, key=None, table="shop.stock"), engine="postgres")).evidence[1]
    assert line.startswith("A row of shop.stock is handed")


def test_conflicts_are_told_beside_handoffs() -> None:
    assert (
        "each after 5 ms, and 12 writes are done again; it has"
        in advise(CRITICAL, window(row(1, conflicts=12))).evidence[1]
    )


def test_a_long_key_is_cut() -> None:
    line = advise(CRITICAL, window(row(400, key="k" * 500))).evidence[1]
    assert "k…" in line
    assert len(line) < 250


def test_coupling_from_a_local_disk_is_to_be_measured_first() -> None:
    assert any("often faster in a lane on a local disk" in line for line in advise(CRITICAL, SLOW).evidence)
    measured = advise(CRITICAL, window(row(400), p99_s=0.030, coupled=900)).evidence
    assert "In that PostgreSQL one row was measured to do 900 per second." in measured


def test_a_budget_below_the_log_itself_is_told() -> None:
    found = advise(a_tool(), window(distinct=300, p99_s=0.060, floor_s=0.025, engine="object"))
    assert found.evidence[-1] == "Even alone a commit takes 25 ms: the budget cannot be met here."


@pytest.mark.parametrize(
    ("evidence", "command", "undo"),
    [
        (
            SLOW,
            "interlock route stock --to 'postgresql://HOST/DATABASE?schema=stock'",
            "interlock route stock --to lanes:///FOLDER/stock",
        ),
        (
            msgspec.structs.replace(SLOW, engine="object"),
            "interlock route stock --to 'postgresql://HOST/DATABASE?schema=stock'",
            "interlock route stock --to s3://BUCKET/stock",
        ),
        (
            msgspec.structs.replace(SLOW, url="s3://shop/stock?region=eu"),
            "interlock route stock --to 'postgresql://HOST/DATABASE?schema=stock'",
            "interlock route stock --to 's3://shop/stock?region=eu'",
        ),
        (
            window(engine="postgres"),
            "interlock route stock --to lanes:///FOLDER/stock",
            "interlock route stock --to 'postgresql://HOST/DATABASE?schema=stock'",
        ),
    ],
)
def test_a_move_is_one_command_and_so_is_its_undo(evidence: Evidence, command: str, undo: str) -> None:
    verdict = advise(CRITICAL, evidence)
    assert (verdict.command, verdict.undo) == (command, undo)


def test_a_helper_is_a_line_of_python() -> None:
    count = a_tool(shardable=True)
    verdict = advise(count, window(row(400, key="video:42")))
    assert (verdict.command, verdict.undo) == (
        'db.counter("video:42", kind="sharded")',
        'db.counter("video:42", kind="exact")',
    )
    assert advise(count, window(row(400, key=7))).command == 'db.counter("NAME", kind="sharded")'
    shard = row(400, writes=31, table="hotrow_counter_shard", key=("likes", 3))
    assert advise(a_tool(), window(shard)).command == "[tools.stock]\ncounter_shard_count = 32"
    most = window(row(60, writes=3), shards=200)
    assert advise(count, most).command == "[tools.stock]\ncounter_shard_count = 256", "no database has more"
    crooked = row(400, table="hotrow_counter_shard", key=("likes", 3))
    assert advise(a_tool(), window(crooked)).command == 'db.counter("likes", kind="event_log")'
    skewed = advise(count, window(row(400), shards=16))
    assert (skewed.command, skewed.undo) == ('db.counter("A-1", kind="event_log")', 'db.counter("A-1", kind="sharded")')


@pytest.mark.parametrize("name", ["stock", "Stock-2_b", "two words", 'a "quoted".name', "ключ", "\\"])
def test_knobs_are_toml_and_commands_are_words_whatever_the_name(name: str) -> None:
    evidence = msgspec.structs.replace(SLOW, database=name)
    tuned = tomllib.loads(advise(a_tool(), evidence).command)
    assert tuned == {"tools": {name: {"group_commit_max_batch": 1_000, "group_commit_window": 0.002}}}
    more = window(row(60, writes=31), shards=16)
    crowded = advise(a_tool(shardable=True), msgspec.structs.replace(more, database=name))
    assert tomllib.loads(crowded.command) == {"tools": {name: {"counter_shard_count": 32}}}
    assert tomllib.loads(crowded.undo) == {"tools": {name: {"counter_shard_count": 16}}}
    words = shlex.split(advise(CRITICAL, evidence).command)
    assert words[:4] == ["interlock", "route", name, "--to"]
    assert len(words) == 5


def test_knobs_that_are_set_already_are_never_lowered() -> None:
    tool = Tool(
        "stock",
        write_latency_budget=0.02,
        aggregate_write_rate=500,
        group_commit_window=0.5,
        group_commit_max_batch=9_000,
    )
    tuned = tomllib.loads(advise(tool, SLOW).command)["tools"]["stock"]
    assert tuned == {"group_commit_max_batch": 9_000, "group_commit_window": 0.5}


def test_streams_are_a_knob_and_a_line_of_python() -> None:
    verdict = advise(CRITICAL, window(distinct=300, p99_s=0.030))
    knob, _, code = verdict.command.partition("\n\n")
    assert tomllib.loads(knob) == {"tools": {"stock": {"db_per_write_stream": True}}}
    assert code.startswith("stream = await db.stream(key)")
    assert "Copy the rows" in verdict.undo


def test_a_verdict_is_plain_json() -> None:
    told = json.loads(msgspec.json.encode(advise(CRITICAL, SLOW)))
    assert (told["action"], told["target"], told["engine"]) == ("couple", "postgres", "lane")
