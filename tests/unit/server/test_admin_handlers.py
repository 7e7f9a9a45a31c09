"""What makes a client as complete as an engine: waiting, counts, limits, admission, retention (B5, C7, C8, G6)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from interlock import Admission
from interlock.clock import SystemClock
from interlock.server.handlers import operator_routes
from interlock.server.security.guard import Audit
from interlock.server.security.stores import MemoryTrail
from tests.unit.server import shop
from tests.unit.server.serving import Served, problem, served


def test_the_counts_of_a_workflow_tell_what_became_of_its_events() -> None:
    """B5: applied, duplicate, ignored, refused."""

    async def test(app: Served) -> None:
        await app.start()
        for _ in range(2):
            await app.send("REMARK", headers={"Idempotency-Key": "k"}, note="x")
        await app.send("CHARGED", query="?if_allowed=true")
        await app.send("CHARGED")
        told = await app.get("/v1/workflows/o-1/stats")
        assert told.json() == {"applied": 1, "duplicate": 1, "ignored": 1, "refused": 1}
        problem(await app.get("/v1/workflows/nobody/stats"), 404, "workflow-not-found")
        problem(await app.get("/v1/workflows/a%2Fb/stats"), 400, "invalid-payload")
        problem(await app.get("/v1/workflows/o-1/stats?x=1"), 400, "invalid-payload")

    served(test)


# --- waiting ---------------------------------------------------------------------------------------------------------


def begun(app: Served) -> asyncio.Event:
    """Set as soon as the engine knows of a wait."""
    told = asyncio.Event()
    app.engine._inside.waiters.added = lambda _: told.set()
    return told


async def waiting(app: Served, query: str) -> "asyncio.Task[httpx.Response]":
    """A wait that has begun."""
    known = begun(app)
    task = asyncio.get_running_loop().create_task(app.get(f"/v1/workflows/o-1/wait{query}"))
    await known.wait()
    return task


@pytest.mark.parametrize("query", ["", "?state=cancelled", "?state=done,CANCELLED&timeout_s=20"])
def test_a_wait_is_answered_when_the_workflow_is_there(query: str) -> None:
    async def test(app: Served) -> None:
        await app.start()
        task = await waiting(app, query)
        await app.send("CANCEL")
        told = await task
        assert (told.status_code, told.json()["state"], told.headers["etag"]) == (200, "cancelled", '"3"')
        assert (await app.get(f"/v1/workflows/o-1/wait{query}")).json() == told.json()
        assert not len(app.engine._inside.waiters)

    served(test, worker=True)


def test_a_wait_that_can_never_end_well_says_so_at_once() -> None:
    async def test(app: Served) -> None:
        await app.start()
        task = await waiting(app, "?state=done")
        await app.send("CANCEL")
        assert "ended in state 'cancelled', not in 'done'" in problem(await task, 409, "wait-failed")["what"]
        problem(await app.get("/v1/workflows/o-1/wait?state=shipped"), 400, "invalid-payload")
        problem(await app.get("/v1/workflows/o-1/wait?state=done,,"), 400, "invalid-payload")
        problem(await app.get("/v1/workflows/nobody/wait"), 404, "workflow-not-found")
        problem(await app.get("/v1/workflows/o-1/wait?timeout_s=soon"), 400, "invalid-payload")
        problem(await app.get("/v1/workflows/o-1/wait?states=done"), 400, "invalid-payload")

    served(test, worker=True)


@pytest.mark.parametrize("query", ["?timeout_s=0", "?timeout_s=0.02", "?timeout_s=9000000", ""])
def test_a_wait_has_an_end(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: the time that was asked for, or the server's own bound."""
    monkeypatch.setattr(operator_routes, "WAIT_S_MAX", 0.05)

    async def test(app: Served) -> None:
        await app.start()
        told = problem(await app.get(f"/v1/workflows/o-1/wait{query}"), 408, "wait-timeout")
        assert "it is in state 'draft' at version 1" in told["what"]
        assert not len(app.engine._inside.waiters)

    served(test)


def test_a_server_that_leaves_ends_its_waits() -> None:
    """Whoever waits asks elsewhere."""

    async def test(app: Served) -> None:
        await app.start()
        task = await waiting(app, "")
        app.app.leave()
        told = await task
        assert problem(told, 503, "unavailable")["retry"] == "later"
        assert told.headers["retry-after"] == "1"
        assert not len(app.engine._inside.waiters)

    served(test)


def test_nobody_waits_for_a_client_that_has_gone() -> None:
    """G6: no leak."""

    async def test(app: Served) -> None:
        await app.start()
        gone = asyncio.Event()
        first = True

        async def receive() -> dict[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request"}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:  # noqa: ANN401 -- ASGI.
            raise AssertionError(message)

        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/v1/workflows/o-1/wait", "headers": []}
        known = begun(app)
        answering = asyncio.get_running_loop().create_task(app.app(scope, receive, send))
        await known.wait()
        gone.set()
        await answering
        await asyncio.sleep(0)
        assert not len(app.engine._inside.waiters)

    served(test)


# --- operating -------------------------------------------------------------------------------------------------------


def audited(test: Callable[[Served, Audit], Awaitable[None]], **how: Any) -> None:  # noqa: ANN401 -- as `serving` has them.
    audit = Audit(MemoryTrail(), clock=SystemClock())

    async def run(app: Served) -> None:
        await test(app, audit)

    served(run, audit=audit, **how)


def test_the_limits_of_a_dependency_are_changed_while_everything_runs() -> None:
    """C8."""

    async def test(app: Served, audit: Audit) -> None:
        told = await app.put("/v1/limits/gateway", json={"rate_per_s": 50, "concurrency_max": 3})
        assert (told.json()["rate_per_s"], told.json()["concurrency_max"]) == (50.0, 3)
        assert (await app.put("/v1/limits/gateway", json={"rate_per_s": None})).json()["rate_per_s"] is None
        assert app.engine.breakers()["gateway"].concurrency_max == 3
        missing = problem(await app.put("/v1/limits/gatewy", json={"rate_per_s": 5}), 404, "usage")
        assert "Did you mean 'gateway'?" in missing["what"]
        entries = [(each.action, each.target, each.failed) for each in await audit.read()]
        assert entries[-1] == ("limit.set", "gateway", "")
        assert entries[0] == ("limit.set", "gatewy", "usage")

    audited(test)


@pytest.mark.parametrize(
    "body",
    ["", "{}", "[]", '{"rate_per_s": 0}', '{"rate_per_s": "x"}', '{"rate": 1}', '{"concurrency_max": 0}',
     '{"concurrency_max": 1.5}', '{"rate_per_s": 1e999}', '{"concurrency_max": null}'],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused(body: str) -> None:
    async def test(app: Served) -> None:
        problem(await app.put("/v1/limits/gateway", content=body), 400, "invalid-payload")
        assert app.engine.breakers()["gateway"].rate_per_s is None

    served(test)


def test_admission_is_shown_and_changed() -> None:
    """C7."""

    async def test(app: Served, audit: Audit) -> None:
        assert (await app.get("/v1/admission")).json() == {"rate_per_s": 7.0, "burst": 9.0, "in_flight_max": 100_000}
        told = await app.put("/v1/admission", json={"rate_per_s": 0.001, "burst": 1, "in_flight_max": 5})
        assert told.json() == {"rate_per_s": 0.001, "burst": 1.0, "in_flight_max": 5}
        assert (await app.start()).status_code == 201
        problem(await app.start("o-2"), 429, "overloaded")
        assert (await app.put("/v1/admission", json={})).json()["rate_per_s"] is None
        assert (await app.start("o-2")).status_code == 201
        [second, first] = await audit.read()
        assert (first.action, b'"rate_per_s":7' in bytes(first.before)) == ("admission.set", True)
        assert b'"in_flight_max":5' in bytes(second.before)
        problem(await app.get("/v1/admission?x=1"), 400, "invalid-payload")

    audited(test, admission=Admission(rate_per_s=7, burst=9))


@pytest.mark.parametrize(
    ("body", "code"),
    [("", "invalid-payload"), ("[]", "invalid-payload"), ('{"rate_per_s": 0}', "invalid-payload"),
     ('{"burst": 0.5, "rate_per_s": 1}', "invalid-payload"), ('{"in_flight_max": 0}', "invalid-payload"),
     ('{"rate": 1}', "invalid-payload"), ('{"burst": 5}', "definition")],
)  # fmt: skip
def test_an_admission_that_cannot_be_meant_is_refused(body: str, code: str) -> None:
    async def test(app: Served) -> None:
        problem(await app.put("/v1/admission", content=body), 400, code)
        assert (await app.get("/v1/admission")).json()["rate_per_s"] is None

    served(test)


# --- retention -------------------------------------------------------------------------------------------------------


async def ended(app: Served, count: int) -> None:
    for number in range(count):
        await app.start(f"t-{number}", "ticket")
        await app.send("CLOSE", f"t-{number}")
    await app.start("t-open", "ticket")


def test_what_ended_is_removed_piece_by_piece() -> None:
    """G6: one request does a bounded piece of it, and says that there is more."""

    async def test(app: Served, audit: Audit) -> None:
        await ended(app, 5)
        every = {"older_than_s": 0}
        tried = await app.post("/v1/prune", json={**every, "dry_run": True, "batch": 2, "limit": 2})
        assert tried.json() == {"workflows": 5, "events": 10, "more": False}
        assert not await audit.read()
        first = await app.post("/v1/prune", json={**every, "batch": 2, "limit": 3})
        assert first.json() == {"workflows": 4, "events": 8, "more": True}
        rest = await app.post("/v1/prune", json=every)
        assert rest.json() == {"workflows": 1, "events": 2, "more": False}
        problem(await app.get("/v1/workflows/t-0"), 404, "workflow-not-found")
        assert (await app.get("/v1/workflows/t-open")).status_code == 200
        assert [each.action for each in await audit.read()] == ["workflows.prune"] * 2

    audited(test)


def test_only_the_history_goes_when_that_is_asked() -> None:
    async def test(app: Served) -> None:
        await ended(app, 1)
        told = await app.post("/v1/prune", json={"older_than_s": 0, "history_only": True, "with_owed": True})
        assert (told.json()["workflows"], told.json()["more"]) == (1, False)
        assert (await app.get("/v1/workflows/t-0")).json()["state"] == shop.TicketState.CLOSED.value

    served(test)


def test_a_request_prunes_no_longer_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: also a dry run says that it has not seen everything."""
    monkeypatch.setattr(operator_routes, "PRUNE_S", 0.0)

    async def test(app: Served) -> None:
        await ended(app, 3)
        for dry_run in (True, False):
            told = await app.post("/v1/prune", json={"older_than_s": 0, "batch": 1, "dry_run": dry_run})
            assert told.json()["more"] is True
            assert told.json()["workflows"] <= 1

    served(test)


@pytest.mark.parametrize(
    ("body", "code"),
    [("", "invalid-payload"), ("{}", "invalid-payload"), ('{"older_than_s": "x"}', "invalid-payload"),
     ('{"older_than_s": 1e999}', "invalid-payload"), ('{"older_than_s": 1e308}', "invalid-payload"),
     ('{"older_than_s": 0, "dry": true}', "invalid-payload"),
     ('{"older_than_s": 0, "limit": 0}', "invalid-payload"), ('{"older_than_s": -1}', "usage"),
     ('{"older_than_s": 0, "batch": 0}', "usage"), ('{"older_than_s": 0, "batch": 1000000}', "usage")],
)  # fmt: skip
def test_a_retention_that_cannot_be_meant_is_refused(body: str, code: str) -> None:
    async def test(app: Served) -> None:
        await ended(app, 1)
        problem(await app.post("/v1/prune", content=body), 400, code)
        assert (await app.get("/v1/workflows/t-0")).status_code == 200

    served(test)
