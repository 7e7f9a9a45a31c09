"""What verdicts say: figures as people read them, commands that can be pasted, names that cannot break them."""

import json
import shlex
import tomllib

import msgspec
import pytest

from interlock.hotrow.placement_advice import Evidence, advise
from interlock.hotrow.tool_declarations import Tool, undeclared
from interlock.lanes.hot_rows import HotRow
from tests.unit.hotrow.placement_advice.windows import a_tool, row, window

CRITICAL = a_tool(critical=True)
SLOW = window(row(400), p99_s=0.030)
FAR = window(row(400), p99_s=0.030, engine="object")
THERE = "postgresql://db/shop?schema=stock"


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
        (
            "What one row can do in PostgreSQL was not measured (`interlock bench contention` does, read by --bench); "
            "it is taken for 1,500 per second."
        ),
        "Whether its rows can be spread is not declared. If they are only added to, set `shardable = true`.",
        (
            "Name where it would go, and the command is printed: --to URL, or --postgres URL for every database, which "
            "may also be in interlock.toml (postgres = …) or in INTERLOCK_POSTGRES."
        ),
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
    assert any("often slower there than in a lane" in line for line in advise(CRITICAL, SLOW).evidence)
    measured = advise(CRITICAL, window(row(400), p99_s=0.030, coupled=900)).evidence
    assert "In that PostgreSQL one row was measured to do 900 per second." in measured


def test_a_budget_below_the_log_itself_is_told() -> None:
    found = advise(a_tool(), window(distinct=300, p99_s=0.060, floor_s=0.025, engine="object"))
    assert found.evidence[-1] == "Even alone a commit takes 25 ms: the budget cannot be met here."


@pytest.mark.parametrize(
    ("evidence", "command", "undo"),
    [
        (FAR, "", ""),
        (msgspec.structs.replace(FAR, url="s3://shop/stock"), "", ""),
        (msgspec.structs.replace(FAR, to=THERE), "", ""),
        (
            msgspec.structs.replace(FAR, url="s3://shop/stock?region=eu", to=THERE),
            f"interlock route 's3://shop/stock?region=eu' --to '{THERE}'",
            f"interlock route '{THERE}' --to 's3://shop/stock?region=eu'",
        ),
        (
            msgspec.structs.replace(FAR, url="s3://shop/stock", to=THERE, home="s3://shop"),
            f"interlock route stock --home s3://shop --to '{THERE}'",
            "interlock route stock --home s3://shop --to s3://shop/stock",
        ),
        (
            msgspec.structs.replace(window(engine="postgres"), url=THERE, to="lanes:///var/shop/stock"),
            f"interlock route '{THERE}' --to lanes:///var/shop/stock",
            f"interlock route lanes:///var/shop/stock --to '{THERE}'",
        ),
    ],
)
def test_a_move_is_one_command_and_so_is_its_undo(evidence: Evidence, command: str, undo: str) -> None:
    verdict = advise(CRITICAL, evidence)
    assert verdict.action in {"couple", "uncouple"}
    assert (verdict.command, verdict.undo) == (command, undo)


def test_a_helper_is_a_line_of_python() -> None:
    count = a_tool(shardable=True)

    def slow(hot: HotRow, *, shards: int = 1) -> Evidence:
        return window(hot, shards=shards, engine="postgres", p99_s=0.030)

    verdict = advise(count, slow(row(400, key="video:42")))
    assert (verdict.command, verdict.undo) == (
        'db.counter("video:42", kind="sharded")',
        'db.counter("video:42", kind="exact")',
    )
    assert advise(count, slow(row(400, key=7))).command == 'db.counter("NAME", kind="sharded")'
    shard = row(400, writes=31, table="hotrow_counter_shard", key=("likes", 3))
    assert advise(a_tool(), slow(shard)).command == "[tools.stock]\ncounter_shard_count = 32"
    most = slow(row(60, writes=3), shards=200)
    assert advise(count, most).command == "[tools.stock]\ncounter_shard_count = 256", "no database has more"
    crooked = row(400, table="hotrow_counter_shard", key=("likes", 3))
    assert advise(a_tool(), slow(crooked)).command == 'db.counter("likes", kind="event_log")'
    skewed = advise(count, slow(row(400), shards=16))
    assert (skewed.command, skewed.undo) == ('db.counter("A-1", kind="event_log")', 'db.counter("A-1", kind="sharded")')


@pytest.mark.parametrize("name", ["stock", "Stock-2_b", "two words", 'a "quoted".name', "ключ", "\\"])
def test_knobs_are_toml_and_commands_are_words_whatever_the_name(name: str) -> None:
    behind = window(row(70, writes=80), plateau=400, writes=80)
    tuned = tomllib.loads(advise(a_tool(), msgspec.structs.replace(behind, database=name)).command)
    assert tuned == {"tools": {name: {"group_commit_max_batch": 1_000, "group_commit_window": 0.002}}}
    more = window(row(60, writes=31), shards=16, engine="postgres", p99_s=0.030)
    crowded = advise(a_tool(shardable=True), msgspec.structs.replace(more, database=name))
    assert tomllib.loads(crowded.command) == {"tools": {name: {"counter_shard_count": 32}}}
    assert tomllib.loads(crowded.undo) == {"tools": {name: {"counter_shard_count": 16}}}
    placed = msgspec.structs.replace(FAR, database=name, url="s3://shop/it", home="s3://shop", to=THERE)
    words = shlex.split(advise(CRITICAL, placed).command)
    assert words == ["interlock", "route", name, "--home", "s3://shop", "--to", THERE]


def test_knobs_that_are_set_already_are_never_lowered() -> None:
    tool = Tool(
        "stock",
        write_latency_budget=0.02,
        aggregate_write_rate=500,
        group_commit_window=0.5,
        group_commit_max_batch=9_000,
    )
    behind = window(row(70, writes=80), plateau=400, writes=80)
    tuned = tomllib.loads(advise(tool, behind).command)["tools"]["stock"]
    assert tuned == {"group_commit_max_batch": 9_000, "group_commit_window": 0.5}
    full = window(row(400), p99_s=0.030, groups=500)
    for batch, larger in ((1, 1_000), (900, 1_800)):
        queued = msgspec.structs.replace(full, writes_per_s=500.0 * batch, rows=(row(400, writes=500.0 * batch),))
        tuned = tomllib.loads(advise(a_tool(batch=batch), queued).command)["tools"]["stock"]
        assert tuned["group_commit_max_batch"] == larger


def test_why_a_count_is_not_spread_is_told() -> None:
    told = advise(a_tool(shardable=True), window(row(400), p99_s=0.030, groups=10)).evidence
    assert any(line.startswith("The groups of its lane have room (5% is taken)") for line in told)


def test_streams_are_a_knob_and_a_line_of_python() -> None:
    verdict = advise(CRITICAL, window(distinct=300, p99_s=0.030))
    knob, _, code = verdict.command.partition("\n\n")
    assert tomllib.loads(knob) == {"tools": {"stock": {"db_per_write_stream": True}}}
    assert code.startswith("stream = await db.stream(key)")
    assert "Copy the rows" in verdict.undo


def test_a_verdict_is_plain_json() -> None:
    told = json.loads(msgspec.json.encode(advise(CRITICAL, FAR)))
    assert (told["action"], told["target"], told["engine"]) == ("couple", "postgres", "object")
