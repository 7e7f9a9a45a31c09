"""F1: the actor of a request is its key, with the person whom it names; history and the audit log have both."""

import asyncio

import pytest

from interlock.engine.schedules import PREFIX, Schedule
from interlock.server.router import Endpoint
from interlock.server.routes import ROUTES
from interlock.server.security.keys import Scope
from tests.unit.server import shop
from tests.unit.server.asking import asked
from tests.unit.server.serving import Served, problem, served
from tests.unit.server.test_scopes import Keyed, keyed
from tests.unit.server.test_webhooks import HOW, deliver


async def actors(app: Served, workflow: str, headers: dict[str, str] | None = None) -> list[str | None]:
    """The actors of a workflow's history, as it is shown."""
    rows = (await app.get(f"/v1/workflows/{workflow}/history", headers=headers)).json()["items"]
    return [each["by"] for each in rows]


def test_history_has_the_key_and_the_person_whom_it_names() -> None:
    async def test(home: Keyed) -> None:
        headers = await home.key(Scope.OPERATE)
        key = f"the key {headers['Authorization'].split('_')[1]}"
        ask = home.app.client
        await ask.post("/v1/machines/order/workflows?by=ada", json={"id": "o-2"}, headers=headers)
        remark = {"event": "REMARK", "data": {"note": "x"}}
        await ask.post("/v1/workflows/o-2/events", json=remark, headers=headers)
        await ask.post("/v1/workflows/o-2/events?by=Gr%C3%A4ce", json=remark, headers=headers)
        line = b'{"id": "o-2", "event": "REMARK", "data": {"note": "y"}}\n'
        await ask.post("/v1/events:batch?by=linus", content=line, headers=headers)
        wanted = [f"ada with {key}", key, f"Gräce with {key}", f"linus with {key}"]
        assert await actors(home.app, "o-2", headers=headers) == wanted
        put = {"machine": "order", "cron": "0 3 * * *"}
        await ask.put("/v1/schedules/nightly?by=ada", json=put, headers=headers)
        await ask.post("/v1/schedules/nightly/pause", headers=headers)
        await ask.delete("/v1/schedules/nightly?by=grace", headers=headers)
        rows = await home.app.engine.history(f"{PREFIX}nightly")
        assert [each.by for each in rows] == [f"ada with {key}", f"ada with {key}", key, f"grace with {key}"]
        entries = [(each.action, each.who) for each in reversed(await home.audit.read())]
        assert entries == [
            ("schedule.put", f"ada with {key}"),
            ("schedule.pause", ""),
            ("schedule.delete", f"grace with {key}"),
        ]
        paused = await ask.post("/v1/pauses", json={"machine": "order", "by": "ken"}, headers=headers)
        assert paused.json()["by"] == f"ken with {key}"
        assert (await home.audit.read())[0].who == f"ken with {key}"

    async def run() -> None:
        async with keyed() as home:
            await test(home)

    asyncio.run(run())


def test_a_person_is_one_printable_line_and_no_reading_route_takes_one() -> None:
    async def test(app: Served) -> None:
        await app.start()
        problem(await app.send("REMARK", query="?by=a%0Ab", note="x"), 400, "invalid-payload")
        problem(await app.get("/v1/workflows/o-1?by=ada"), 400, "invalid-payload")
        long = await app.send("REMARK", query=f"?by={'x' * 300}", note="x")
        assert long.status_code == 200
        assert [len(each or "") for each in await actors(app, "o-1")] == [len("mounted"), 200]

    served(test)


def test_what_operators_change_in_a_process_names_them() -> None:
    async def test(app: Served) -> None:
        held = (await app.put("/v1/breakers/gateway?by=ada", json={"state": "open"})).json()
        assert held["reason"] == "held open by ada with mounted"
        assert (await app.put("/v1/limits/gateway?by=ada", json={"concurrency_max": 5})).status_code == 200
        assert (await app.put("/v1/admission?by=ada", json={"rate_per_s": 50})).status_code == 200
        assert (await app.post("/v1/prune?by=ada", json={"older_than_s": 5})).status_code == 200

    served(test)


def test_a_delivery_of_a_webhook_names_its_source() -> None:
    async def test(app: Served) -> None:
        await app.start()
        await deliver(app, b'{"order": "o-1", "cents": 5}')
        assert await actors(app, "o-1") == ["mounted", "the webhook shop"]

    served(test, **HOW)


CHANGING = [route for route in ROUTES if route.method != "GET" and route.scope is not None]
READS_BY_POST: frozenset[str] = frozenset()
"""Routes of another method than GET that change nothing."""

BODIES: dict[str, object] = {
    "/v1/prune": {"older_than_s": 0, "dry_run": False},
    "/v1/workflows/{id}/fork": {"at_version": 1, "id": "o-8"},
    "/v1/machines/{machine}/workflows": {"id": "o-9", "context": {}},
    "/v1/schedules/{name}": {"machine": "order", "cron": "0 3 * * *"},
    "/v1/workflows/{id}/rewind": {"to_version": 1},
    "/v1/pauses": {"machine": "order"},
    "/v1/pauses/resume": {"machine": "order"},
}
"""Where the example of the document would change nothing in the home of the tests."""


async def prepared(home: Keyed) -> str:
    """Something of everything that a route changes; returns the id of a dead letter."""
    engine = home.app.engine
    await engine.start(shop.order, "o-7", shop.Order())
    await engine.send("o-7", shop.Submit(cents=13))
    while not (letters := await engine.dead_letters()):  # noqa: ASYNC110 -- a step in memory needs only turns.
        await asyncio.sleep(0)
    await engine.schedules.put(Schedule("gateway", shop.order, cron="0 4 * * *", context=shop.Order()))
    return letters[0].id


async def traces(home: Keyed) -> list[str]:
    """Every actor in the audit log, and in the history of every workflow, schedule and pause."""
    found = [each.who for each in await home.audit.read()]
    store = home.app.engine._inside.store
    for machine in home.app.engine._inside.machines:
        for row in (await store.find(machine, None, after=None, limit=100)).rows:
            found += [each.by or "" for each in await store.history(row.id)]
    return found


@pytest.mark.parametrize("route", CHANGING, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_that_changes_something_records_the_person(route: Endpoint) -> None:
    """New routes fall under it by themselves. A schedule and an order are there to be changed."""

    async def scenario() -> None:
        async with keyed(worker=True) as home:
            letter = await prepared(home)
            headers = await home.key(Scope.ADMIN)
            if route.path == "/v1/pauses/resume":
                await home.app.engine.pause(machine=shop.order)
            if route.path == "/v1/bulk/{name}":
                _ = await home.app.engine.bulk(shop.order, state=shop.State.DRAFT).pause(by="grace", name="other")
                if route.method == "DELETE":
                    _ = await home.app.engine.bulk(shop.order, state=shop.State.DRAFT).pause(by="grace", name="gateway")
            request = asked(route, BODIES.get(route.path), letter=letter)
            answer = await home.app.client.request(
                request.method,
                f"{request.path}?by=ada",
                content=request.content,
                headers={**request.headers, **headers},
            )
            assert answer.status_code < 300, answer.text
            recorded = [each for each in await traces(home) if each.startswith("ada with the key ")]
            assert bool(recorded) == (route.path not in READS_BY_POST)
            if route.scope is not Scope.SEND and "/fork" not in route.path:
                assert any(each.who.startswith("ada with ") for each in await home.audit.read())

    asyncio.run(scenario())
