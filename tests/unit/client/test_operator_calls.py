"""History, listings and what an operator does, as a server tells them (B3, B7, B8)."""

from typing import Any

import msgspec
import pytest

import interlock
from interlock import Admission, errors
from interlock.client import workflow_requests
from interlock.engine.operators.retention import Pruned
from interlock.errors import InvalidPayload, WorkflowNotFound
from tests.unit.client.server import NOW
from tests.unit.client.shop import Note, Order, State, Submit, order
from tests.unit.client.test_retries import begun
from tests.unit.client.wires import WiredClient, run


def row(version: int, event: str, payload: object) -> dict[str, Any]:
    state = "draft" if version == 1 else "charging"
    told = {"from_state": "draft", "to_state": state, "context": {"cents": version, "note": ""}, "key": None}
    return {"version": version, "event": event, "payload": payload, "created_at": NOW, **told}


def test_history_is_read_to_its_end_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server, client = await begun()
        failure = {"step": "charge", "error": "timeout", "message": "", "attempts": 3, "unknown": True}
        server.rows["o-1"] = [
            row(1, "STARTED", None),
            row(2, "SUBMIT", {"cents": 2}),
            *(row(version, "NOTE", {"text": f"{version}"}) for version in range(3, 8)),
            row(8, "STEP_FAILED", failure),
        ]
        rows = await client.of(order).history("o-1")
        assert [each.version for each in rows] == [*range(1, 9)]
        assert [each.payload for each in rows[:3]] == [None, Submit(2), Note("3")]
        assert rows[7].payload == interlock.StepFailure(step="charge", error="timeout", attempts=3)
        assert (rows[1].from_state, rows[1].to_state, rows[1].context) == (State.DRAFT, State.CHARGING, Order(2))
        client = WiredClient(server.net)
        plain = await client.history("o-1", after=1, limit=4)
        assert [each.version for each in plain] == [2, 3, 4, 5]
        assert msgspec.to_builtins(plain[0].payload) == {"cents": 2}
        assert plain[0].context == {"cents": 2, "note": ""}
        assert [each.version for each in await client.history("o-1", limit=3)] == [1, 2, 3]

    monkeypatch.setattr(workflow_requests, "PAGE_MAX", 3)
    run(test)


def test_workflows_are_found_page_by_page_and_those_that_stall_by_state() -> None:
    async def test() -> None:
        server, client = await begun()
        for at in range(2, 5):
            await client.start(order, f"o-{at}", Order())
        server.move("o-3", Submit(5))
        first = await client.find(order, limit=3)
        rest = await client.find(order, limit=3, cursor=first.cursor)
        assert [each.id for each in (*first.items, *rest.items)] == ["o-1", "o-2", "o-3", "o-4"]
        assert rest.cursor is None
        late = await client.stalled(order, older_than_s=7200, states=[State.CHARGING, State.DONE])
        assert [(each.id, each.state) for each in late] == [("o-3", State.CHARGING)]
        assert [got.query.get("state") for got in server.net.got[-2:]] == ["charging", "done"]
        assert len(await client.of("order").stalled()) == 4
        assert "older_than_s" not in server.net.got[-1].query

    run(test)


def test_the_guard_of_one_event_is_asked_at_the_server() -> None:
    async def test() -> None:
        server, client = await begun()
        await client.allowed("o-1", Submit(5))
        await client.of(order).allowed("o-1")
        assert server.asked == [{"event": "SUBMIT", "data": '{"cents":5}'}, {}]

    run(test)


def test_what_an_operator_sees_and_does() -> None:
    async def test() -> None:
        server, client = await begun()
        letter = {"id": "l-1", "kind": "undo", "workflow": "o-1", "name": "charge", "attempts": 3, "error": "x"}
        owed = {"workflow": "o-1", "machine": "order", "step": "charge", "key": "a", "undoes": "b", "attempts": 1}
        hot = {"table": "order", "key": "o-1", "handoffs_per_s": 9.5, "writes_per_s": 10.0, "wait_s": 0.1}
        server.listings = {
            "dead-letters": [{**letter, "since": NOW, "key": "a", "version": 4}],
            "compensations": [{**owed, "state": "retrying"}],
            "breakers": [{"name": "gateway", "state": "open", "since": NOW, "forced": "open"}],
            "contention": [{**hot, "flagged": True, "source": "workflow"}],
        }
        server.applied.clear()
        assert [each.id for each in await client.dead_letters("undo")] == ["l-1"]
        assert server.net.got[-1].query == {"kind": "undo", "limit": "1000"}
        assert [each.state for each in await client.compensations()] == ["retrying"]
        assert (await client.breakers())["gateway"].forced == "open"
        assert [each.key for each in await client.contention()] == ["o-1"]
        await client.retry_dead_letter("l-1")
        await client.resolve_dead_letter("l-1", note="refunded by hand")
        await client.force_breaker("gateway", "auto")
        await client.set_limit("gateway", rate_per_s=None)
        await client.set_limit("gateway", concurrency_max=5)
        await client.set_admission(Admission(rate_per_s=5))
        assert server.applied == [
            ("l-1", ""),
            ("l-1", '{"note":"refunded by hand"}'),
            ("gateway", '{"state":"auto"}'),
            ("gateway", '{"rate_per_s":null}'),
            ("gateway", '{"concurrency_max":5}'),
            ("admission", '{"rate_per_s":5,"burst":null,"in_flight_max":100000}'),
        ]
        assert [got.path for got in server.net.got[-2:]] == ["/v1/limits/gateway", "/v1/admission"]
        assert await client.stats("o-1") == interlock.Counts(applied=0, duplicate=0, ignored=0, refused=0)
        with pytest.raises(WorkflowNotFound):
            await client.retry_dead_letter("nobody")
        with pytest.raises(InvalidPayload):
            await client.dead_letters("letters")

    run(test)


def test_every_call_that_changes_something_may_name_a_person() -> None:
    """F1: the server records the person with the key."""

    async def test() -> None:
        server, client = await begun()
        server.pruned = [{"workflows": 1, "events": 2, "more": False}]
        before = len(server.net.got)
        await client.start(order, "o-2", Order(), by="ada")
        await client.send("o-2", Note("a"), by="Gräce")
        await client.of(order).send("o-2", Note("b"), if_allowed=True, by="ada")
        await client.send_many([("o-2", Note("c"))], by="ada")
        await client.retry_dead_letter("l-1", by="ada")
        await client.resolve_dead_letter("l-1", note="x", by="ada")
        await client.force_breaker("gateway", "auto", by="ada")
        await client.set_limit("gateway", concurrency_max=5, by="ada")
        await client.set_admission(Admission(), by="ada")
        await client.prune(older_than_s=5, by="ada")
        got = [each for each in server.net.got[before:] if each.method != "GET"]
        assert len(got) == 10
        assert [each.query.get("by") for each in got] == ["ada", "Gräce", *["ada"] * 8]
        assert got[2].query["if_allowed"] == "true"

    run(test)


def test_what_cannot_be_meant_is_refused_as_an_engine_refuses_it() -> None:
    async def test() -> None:
        server, client = await begun()
        before = len(server.net.got)
        with pytest.raises(errors.BadUsage, match="cannot be forced to be 'ajar'"):
            await client.force_breaker("gateway", "ajar")  # type: ignore[arg-type]
        with pytest.raises(errors.DefinitionError, match=r"Dependency\.concurrency_max is 0"):
            await client.set_limit("gateway", concurrency_max=0)
        with pytest.raises(errors.DefinitionError, match=r"TokenRate\.rate_per_s is 0"):
            await client.set_admission(Admission(rate_per_s=0))
        with pytest.raises(errors.DefinitionError, match="Admission"):
            await client.set_admission(5)  # type: ignore[arg-type]
        assert len(server.net.got) == before
        with pytest.raises(errors.BadUsage, match="nothing here calls a dependency 'nobody'"):
            await client.force_breaker("nobody", "open")

    run(test)


def test_pruning_goes_on_until_there_is_no_more() -> None:
    async def test() -> None:
        server, client = await begun()
        server.pruned = [{"workflows": 3, "events": 9, "more": True}, {"workflows": 1, "events": 2, "more": False}] * 2
        assert await client.prune(older_than_s=60, batch=3, pause_s=10) == Pruned(workflows=4, events=11)
        assert await client.prune(older_than_s=60, history_only=True, with_owed=True) == Pruned(workflows=4, events=11)
        bodies = [msgspec.json.decode(got.body) for got in server.net.got[1:]]
        assert [body.get("limit") for body in bodies] == [3, 3, None, None]
        assert bodies[2] == {
            "older_than_s": 60,
            "history_only": True,
            "with_owed": True,
            "dry_run": False,
            "batch": 1000,
        }
        server.pruned = [{"workflows": 3, "events": 9, "more": True}]
        with pytest.raises(errors.UnavailableError, match="the server counted 3 workflows"):
            await client.prune(older_than_s=60, dry_run=True)

    assert run(test) == 10.0


def test_pruning_is_not_repeated() -> None:
    async def test() -> None:
        server, client = await begun("cut before")
        with pytest.raises(errors.OutcomeUnknown):
            await client.prune(older_than_s=60)
        assert len(server.net.got) == 2

    run(test)


def test_a_ruling_is_not_repeated_and_holding_a_breaker_is() -> None:
    async def test() -> None:
        server, client = await begun("cut after", "cut after")
        with pytest.raises(errors.OutcomeUnknown):
            await client.retry_dead_letter("l-1")
        assert len(server.net.got) == 2
        await client.force_breaker("gateway", "open")
        assert len(server.net.got) == 4

    run(test)
