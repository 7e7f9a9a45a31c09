"""Every route with every scope and with limits: the matrix of who may what, through the app itself."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx
import msgspec
import pytest

from interlock.clock import SystemClock, SystemSecrets
from interlock.server.handlers import workflows
from interlock.server.router import Endpoint
from interlock.server.routes import ROUTES
from interlock.server.security.guard import Audit, Guard
from interlock.server.security.keys import LADDER, KeyBounds, KeyStore, Scope, make_key
from interlock.server.security.stores import MemoryDocument, MemoryTrail
from tests.unit.server import shop
from tests.unit.server.serving import Served, problem, serving

CLOCK = SystemClock()
GUARDED = [route for route in ROUTES if route.scope is not None]
OPEN = [route for route in ROUTES if route.scope is None]
VALUES = {
    "{machine}": "order",
    "{id}": "o-1",
    "{letter}": "l-1",
    "{task}": "o-1@1",
    "{name}": "gateway",
    "{source}": "shop",
}
BODIES = {
    "/v1/machines/{machine}/workflows": {"id": "o-9", "context": {}},
    "/v1/workflows/{id}/events": {"event": "REMARK", "data": {"note": "x"}},
    "/v1/dead-letters/{letter}/resolve": {"note": "x"},
    "/v1/breakers/{name}": {"state": "auto"},
    "/v1/limits/{name}": {"rate_per_s": 50},
    "/v1/admission": {"rate_per_s": 1000},
    "/v1/prune": {"older_than_s": 0},
    "/v1/databases/{name}/transactions": {"statements": [{"sql": "SELECT 1"}]},
}


class Keyed:
    """An app that asks for keys, and its keys."""

    def __init__(self, app: Served, store: KeyStore, audit: Audit, guard: Guard) -> None:
        self.app, self.audit = app, audit
        self._store, self._guard = store, guard

    async def key(
        self, scope: Scope, *, machines: tuple[str, ...] = (), prefixes: tuple[str, ...] = ()
    ) -> dict[str, str]:
        limits = KeyBounds(machines, prefixes)
        created = make_key(SystemSecrets(), name="", scopes=(scope,), limits=limits, now=datetime.now(UTC))
        await self._store.add(created.record)
        self._guard._read_s = self._guard._tried_s = float("-inf")
        return {"Authorization": f"Bearer {created.key.reveal()}"}

    async def ask(self, route: Endpoint, headers: dict[str, str], **values: str) -> httpx.Response:
        path = route.path
        for name, value in {**VALUES, **{f"{{{name}}}": value for name, value in values.items()}}.items():
            path = path.replace(name, value)
        if route.path == "/v1/stream":
            path += "?kind=none"  # Nobody would end the stream; whoever may see it is told of the mistake.
        if route.path == "/v1/workflows/{id}/wait":
            path += "?timeout_s=0"
        return await self.app.client.request(route.method, path, json=BODIES.get(route.path), headers=headers)


@asynccontextmanager
async def keyed(*, worker: bool = False) -> AsyncGenerator[Keyed]:
    store = KeyStore(MemoryDocument(), "memory:")
    guard = Guard(store, clock=CLOCK)
    audit = Audit(MemoryTrail(), clock=CLOCK)
    async with serving(guard=guard, audit=audit, worker=worker) as app:
        await app.engine.start(shop.order, "o-1", shop.Order())
        yield Keyed(app, store, audit, guard)
    await guard.close()


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_a_scope_is_needed_and_enough(route: Endpoint) -> None:
    async def run() -> None:
        async with keyed() as home:
            keys = {scope: await home.key(scope) for scope in LADDER}
            nobody = await home.ask(route, {})
            problem(nobody, 401, "not-authenticated")
            assert nobody.headers["www-authenticate"].startswith("Bearer")
            problem(await home.ask(route, {"Authorization": "Bearer ilk_wrong"}), 401, "not-authenticated")
            for scope, headers in keys.items():
                response = await home.ask(route, headers)
                assert route.scope is not None
                may = LADDER.index(scope) >= LADDER.index(route.scope)
                assert (response.status_code not in {401, 403}) == may, (scope, response.text)
                assert response.status_code < 500 or route.path == "/metrics"  # Nothing counts here: 501.

    asyncio.run(run())


@pytest.mark.parametrize("route", OPEN, ids=lambda route: f"{route.method} {route.path}")
def test_these_need_no_key(route: Endpoint) -> None:
    async def run() -> None:
        async with keyed() as home:
            await home.key(Scope.READ)
            assert (await home.ask(route, {})).status_code in {200, 404}

    asyncio.run(run())


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_a_key_with_other_limits_sees_and_changes_nothing(route: Endpoint) -> None:
    async def run() -> None:
        async with keyed() as home:
            for limits in ({"machines": ("ticket",)}, {"prefixes": ("x-",)}):
                response = await home.ask(route, await home.key(Scope.ADMIN, **limits))
                assert response.status_code < 500
                if route.about == "items":
                    assert "o-1" not in response.text
                    assert '"order"' not in response.text or "prefixes" in limits
                elif not (route.path == "/v1/machines/{machine}" and "prefixes" in limits):
                    assert response.status_code == 403, response.text
            assert (await home.app.engine.get("o-1")).version == 1

    asyncio.run(run())


def test_a_key_within_its_limits_may() -> None:
    async def run() -> None:
        async with keyed() as home:
            headers = await home.key(Scope.SEND, machines=("order",), prefixes=("o-",))
            client = home.app.client
            assert (await client.get("/v1/workflows/o-1", headers=headers)).status_code == 200
            path = "/v1/machines/order/workflows"
            assert (await client.post(path, json={"id": "o-2"}, headers=headers)).status_code == 201
            problem(await client.post(path, json={"id": "x-2"}, headers=headers), 403, "not-permitted")
            found = (await client.get("/v1/workflows", headers=headers)).json()["items"]
            assert [each["id"] for each in found] == ["o-1", "o-2"]
            lines = b'{"id": "o-1", "event": "REMARK"}\n{"id": "x-1", "event": "REMARK"}'
            answers = (await client.post("/v1/events:batch", content=lines, headers=headers)).text.splitlines()
            assert '"version":2' in answers[0]
            assert '"code":"not-permitted"' in answers[1], "whether there is a workflow of that id is not told"

    asyncio.run(run())


def test_a_limited_key_forks_within_its_limits() -> None:
    """Both ids are checked: that of the workflow, and that of the new one (F6)."""

    async def run() -> None:
        async with keyed() as home:
            headers = await home.key(Scope.OPERATE, prefixes=("o-",))
            path, client = "/v1/workflows/o-1/fork", home.app.client
            assert (await client.post(path, json={"at_version": 1, "id": "o-9"}, headers=headers)).status_code == 201
            problem(await client.post(path, json={"at_version": 1, "id": "x-9"}, headers=headers), 403, "not-permitted")

    asyncio.run(run())


def test_what_a_limited_key_may_see_is_not_hidden_behind_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on a page is one on what is shown; and however little that is, a page is found in bounded time (G6)."""
    monkeypatch.setattr(workflows, "PAGES_MAX", 2)

    async def run() -> None:
        async with keyed(worker=True) as home:
            engine = home.app.engine
            for workflow in ("x-1", "x-2", "x-3", "x-4", "x-5", "y-1"):
                await engine.start(shop.order, workflow, shop.Order())
                await engine.send(workflow, shop.Submit(cents=13))
            for prefix, machines in (("y-", ()), ("", ("order",))):
                headers = await home.key(Scope.READ, machines=machines, prefixes=(prefix,) if prefix else ())
                found: list[str] = []
                cursor, pages = "", 0
                while cursor is not None:
                    path = f"/v1/workflows?limit=1{'&cursor=' + cursor if cursor else ''}"
                    page = (await home.app.get(path, headers=headers)).json()
                    found += [each["id"] for each in page["items"]]
                    cursor, pages = page["cursor"], pages + 1
                assert found[-1] == "y-1"
                assert pages > 1
            headers = await home.key(Scope.READ, prefixes=("y-",))
            stalled = (await home.app.get("/v1/stalled?older_than_s=0&limit=1", headers=headers)).json()["items"]
            assert [each["id"] for each in stalled] == ["y-1"]
            while len(await engine.dead_letters()) < 6:  # noqa: ASYNC110 -- a step in memory needs only turns.
                await asyncio.sleep(0)
            letters = (await home.app.get("/v1/dead-letters?limit=1", headers=headers)).json()["items"]
            assert [each["workflow"] for each in letters] == ["y-1"]

    asyncio.run(run())


def test_a_key_that_sees_some_ids_is_not_told_how_many_others_there_are() -> None:
    async def run() -> None:
        async with keyed() as home:
            path = "/v1/machines/order?counts=true"
            whole = await home.app.get(path, headers=await home.key(Scope.READ, machines=("order",)))
            assert whole.json()["counts"]["draft"] == 1
            some = await home.app.get(path, headers=await home.key(Scope.READ, prefixes=("x-",)))
            assert (some.status_code, "counts" in some.json()) == (200, False)

    asyncio.run(run())


def test_what_an_operator_does_is_written_down() -> None:
    async def run() -> None:
        async with keyed() as home:
            headers = await home.key(Scope.OPERATE)
            await home.app.client.put("/v1/breakers/gateway", json={"state": "open"}, headers=headers)
            await home.app.client.post("/v1/dead-letters/none/retry", headers=headers)
            failed, tried, held = await home.audit.read()
            assert (held.action, held.target, held.failed) == ("breaker.force", "gateway", "")
            assert (tried.action, failed.failed) == ("dead_letter.retry", "workflow-not-found")
            assert held.key

    asyncio.run(run())


def test_two_keys_at_once_are_no_key() -> None:
    async def run() -> None:
        async with keyed() as home:
            good = await home.key(Scope.ADMIN)
            headers = [("Authorization", "Bearer ilk_wrong"), ("Authorization", good["Authorization"])]
            problem(await home.app.client.get("/v1/workflows", headers=headers), 401, "not-authenticated")

    asyncio.run(run())


def test_sql_is_written_down_before_it_runs_without_its_parameters() -> None:
    """Who, what and when; a statement that fails is told as one, and what it was given is nobody's business."""

    async def run() -> None:
        async with keyed() as home:
            headers = await home.key(Scope.ADMIN)
            path = "/v1/databases/stock/transactions"
            make = {"statements": [{"sql": "CREATE TABLE people (name text, hash text)"}]}
            assert (await home.app.post(path, json=make, headers=headers)).status_code == 200
            insert = {"sql": "INSERT INTO people VALUES ($1, $2)", "params": ["ann", "hunter2"]}
            body = {"statements": [insert], "key": "k-1"}
            assert (await home.app.post(path, json=body, headers=headers)).status_code == 200
            wrong = {"statements": [{"sql": "SELECT 1 / $1", "params": [0]}]}
            assert (await home.app.post(path, json=wrong, headers=headers)).status_code == 422
            failed, tried, inserted, made = await home.audit.read()
            assert {each.action for each in (failed, tried, inserted, made)} == {"database.transact"}
            assert {each.target for each in (failed, tried, inserted, made)} == {"stock"}
            assert inserted.key == headers["Authorization"].split("_")[1]
            told = msgspec.json.decode(inserted.after)
            assert told == {"statements": ["INSERT INTO people VALUES ($1, $2)"], "key": "k-1"}
            assert (inserted.failed, failed.failed) == ("", "transaction")
            assert not any(b"hunter2" in msgspec.json.encode(each) for each in await home.audit.read())

    asyncio.run(run())


def test_charts_show_a_key_the_machines_that_it_may_see() -> None:
    async def run() -> None:
        async with keyed() as home:
            for limits, names in (
                ({}, ["order", "ticket"]),
                ({"machines": ("ticket",)}, ["ticket"]),
                ({"prefixes": ("o-",)}, []),  # The sums are those of all ids.
            ):
                headers = await home.key(Scope.READ, **limits)
                found = (await home.app.get("/v1/charts", headers=headers)).json()
                assert [each["machine"] for each in found["machines"]] == names
                one = (await home.app.get("/v1/charts?machine=order", headers=headers)).json()
                assert [each["machine"] for each in one["machines"]] == (["order"] if "order" in names else [])
            headers = await home.key(Scope.READ)
            found = (await home.app.get("/v1/charts?machine=order&step=60", headers=headers)).json()
            assert (found["step_s"], sum(found["machines"][0]["started"])) == (60, 1)
            assert len(found["machines"][0]["moves"]) in {180, 181}
            problem(await home.app.get("/v1/charts?machine=nothing", headers=headers), 404, "machine-not-found")
            problem(await home.app.get("/v1/charts?since=tomorrow", headers=headers), 400, "invalid-payload")
            problem(await home.app.get("/v1/charts?step=61", headers=headers), 400, "invalid-payload")

    asyncio.run(run())
