"""What people see with SQL, and what the engine gets back: the same values, and the same letters (B1)."""

import json
import uuid

import pytest

from interlock.store.postgres.store import without_refused
from interlock.store.protocol import Stored
from tests.conformance.store.samples import MACHINE, begun, moved, run, started
from tests.integration.postgres.stores import opened, somebody

CONTEXTS = [
    b'{"z":1,"a":2,"mm":3}',
    b'{"a": 1,  "b" :2}',
    b'{"a":1e22,"b":-0.0,"c":1.50,"d":1E5}',
    b'{"text":"a: b, c: d"}',
    b'{"text":"a: b, c: d","other":[1,2,{"k":"v"}]}',
    b'{"a":1,"a":2}',
    b'{"control":"\\u0001\\n\\"\\\\","slash":"\\/","sign":"\\u2602"}',
    '{"☂":"é"}'.encode(),
    b"[]",
    b"null",
    b'""',
    b"12345678901234567890123456789",
]


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.decode()[:30])
def test_the_engine_gets_back_every_letter_that_it_wrote(postgres_url: str, context: bytes) -> None:
    """G2: JSONB orders keys anew, drops doubles, and knows neither 1e22 nor -0.0; a machine could tell."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as caller:
            (row,) = await begun(store, started(context=context))
            change = moved(row, context=context)
            await begun(store, change)
            assert await store.load(["w"]) == {"w": change.row}
            assert [each.context for each in await store.history("w")] == [context, context]
            seen = await caller.fetchval("SELECT context::text FROM workflows")
            assert json.loads(seen) == json.loads(context)

    run(scenario)


def test_the_tables_have_the_columns_that_are_promised(postgres_url: str) -> None:
    """B1."""
    wanted = {
        "workflows": ["id", "workflow_type", "state", "context", "version", "created_at", "updated_at"],
        "workflow_events": ["id", "workflow_id", "from_state", "to_state", "event", "context", "created_at"],
    }

    async def scenario() -> None:
        async with opened(postgres_url), somebody(postgres_url) as caller:
            for table, columns in wanted.items():
                rows = await caller.fetch(
                    "SELECT column_name, data_type FROM information_schema.columns"
                    " WHERE table_schema = current_schema() AND table_name = $1",
                    table,
                )
                kinds = {row["column_name"]: row["data_type"] for row in rows}
                assert set(columns) <= set(kinds)
                assert kinds["context"] == "jsonb"
                assert kinds["created_at"] == "timestamp with time zone"

    run(scenario)


def test_people_read_workflows_and_their_history_in_sql(postgres_url: str) -> None:
    """B1: values, times and counts, without knowing anything of the engine."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as caller:
            (row,) = await begun(store, started(at_us=1_700_000_000_123_456))
            await begun(store, moved(row, at_us=1_700_000_001_000_001), started("v"))
            assert await caller.fetchval("SELECT (context ->> 'n')::int FROM workflows WHERE id = 'w'") == 2
            assert await caller.fetchval("SELECT context @> '{\"n\": 2}' FROM workflows WHERE id = 'w'")
            [first, second] = await caller.fetch(
                "SELECT event, payload, created_at::text FROM workflow_events WHERE workflow_id = 'w' ORDER BY version"
            )
            assert first["payload"] is None
            assert second["payload"] == '{"cents": 9}'
            assert second["created_at"].startswith("2023-11-14 22:13:21.000001")
            counts = await caller.fetch("SELECT workflow_type, state, workflows FROM workflow_states ORDER BY state")
            assert [tuple(each) for each in counts] == [(MACHINE, "new", 1), (MACHINE, "paid", 1)]

    run(scenario)


def test_each_question_is_answered_by_its_index(postgres_url: str) -> None:
    """No read and no claim looks at all workflows; only the count of the living does."""
    asked = {
        "find": (("order", 0, 10), "workflows_by_type"),
        "find_in_state": (("order", "new", 0, 0, 10), "workflows_by_state"),
        "stalled": (("order", ["new"], [10], 10), "workflows_by_state"),
        "load": ((["w"],), "workflows_pkey"),
        "delivered": ((["w"], ["k"]), "workflow_events_by_key"),
        "history": (("w", 0, 10), "workflow_events_pkey"),
        "effects": ((0, "", 10), "workflow_effects_to_wake"),
        "letters": ((0, "", None, 10, None), "dead_letters_by_age"),
        "children": (("w", None, 1, 1, "", 10), "workflow_children_by_parent"),
        "newest_children": (("w", None, 1, 1, "", 10), "workflow_children_by_parent"),
    }

    async def scenario() -> None:
        async with opened(postgres_url) as store, store._pool.link() as link:
            for name, (values, index) in asked.items():
                plan = await link.driver.fetch(f"EXPLAIN {getattr(store._queries, name)}", *values)
                text = "\n".join(line[0] for line in plan)
                assert index in text, text
                assert "Seq Scan" not in text, text
            nobody = str(uuid.UUID(int=0))
            others: dict[str, tuple[tuple[object, ...], str]] = {
                store._claims.claim: (("order", "o", 10, 1.0), "workflows_to_wake"),
                store._claims.due: ((["order"],), "workflows_to_wake"),
                store._claims.claim_effects: (("o", 10, 1.0, ["order"]), "workflow_effects_to_wake"),
                store._settling._happened: ((["w"], [1], nobody), "workflow_events_pkey"),
                store._settling._fence: ((["w"], [1], [1]), "workflows_pkey"),
                store._claims.claim_timers: (("order", "o", 10, 1.0), "workflows_by_timer"),
            }
            for sql, (given, wanted) in others.items():
                for refused in ([], [Stored("order", 2, "new")]) if "{}" in sql else ([],):
                    statement, arguments = without_refused(refused, sql, given)
                    plan = await link.driver.fetch(f"EXPLAIN {statement}", *arguments)
                    text = "\n".join(line[0] for line in plan)
                    assert wanted in text, text
                    assert "Seq Scan" not in text, text

    run(scenario)
