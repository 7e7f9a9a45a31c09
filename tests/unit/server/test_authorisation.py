"""Who may what, over HTTP: every route that is served, every kind of key, limits to machines and beginnings of ids.

What is expected comes from `security.expected`, and what is asked from the table of what is served: a route that the
former lacks fails here. Whoever is refused has changed nothing, and has learned nothing of others.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import httpx
import msgspec
import pytest

from interlock import Webhook
from interlock.server.router import Endpoint
from interlock.server.security.guard import LATE_S, Audit, Guard
from interlock.server.security.keys import LADDER, CreatedKey, KeyStore, Scope
from interlock.server.security.stores import MemoryDocument, MemoryTrail
from tests.unit.server import shop
from tests.unit.server.asking import EVERY, asked, named
from tests.unit.server.security.expected import permission
from tests.unit.server.security.homes import NOW, StandingClock, key_factory
from tests.unit.server.serving import Served, problem, serving

WORKFLOWS = {"o-1": "order", "x-1": "order", "o-t": "ticket"}
"""One within all limits, one outside the prefix, one outside the machine."""

BEARERS = 7 + 4 * len(LADDER)

LIMITS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((), ()),
    (("order",), ()),
    ((), ("o-",)),
    (("order",), ("o-",)),
)


@dataclass(frozen=True)
class Bearer:
    """Somebody who asks."""

    name: str
    header: str | None
    scope: Scope | None = None
    """None: nobody who is known here."""
    machines: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.header is None else {"authorization": self.header}

    def sees(self, workflow: str, *, machine: str | None = None) -> bool:
        machine = machine or WORKFLOWS[workflow]
        return (not self.machines or machine in self.machines) and (
            not self.prefixes or workflow.startswith(self.prefixes)
        )


class Home:
    """A served engine with something of everything, and everybody who may ask it."""

    def __init__(self, app: Served, audit: Audit, bearers: list[Bearer]) -> None:
        self.app, self.audit, self.bearers = app, audit, bearers
        self.letters: dict[str, str] = {}

    async def ask(self, route: Endpoint, bearer: Bearer, workflow: str) -> httpx.Response:
        body: object = None
        if route.path == "/v1/machines/{machine}/workflows":
            body = {"id": workflow}
        elif route.path == "/v1/events:batch":
            lines = [{"id": each, "event": "REMARK", "data": {"note": "y"}} for each in WORKFLOWS]
            body = msgspec.json.Encoder().encode_lines(lines).decode()
        letter = self.letters.get(workflow, "none")
        request = asked(route, body, machine=WORKFLOWS[workflow], id=workflow, letter=letter, task=f"{workflow}@1")
        return await self.app.client.request(
            request.method, request.target, content=request.content, headers={**request.headers, **bearer.headers}
        )

    async def everything(self) -> object:
        """Whatever a request could change."""
        engine, service = self.app.engine, self.app.app.service
        found = [(await engine.find(shop.order)).items, (await engine.find(shop.ticket)).items]
        return (
            found,
            (await engine.tasks()).items,
            [await engine.stats(each) for each in WORKFLOWS],
            await engine.dead_letters(),
            list(engine.breakers()),
            service.admission,
            list(service.databases.open_now()),
            await self.audit.read(),
        )


@asynccontextmanager
async def home() -> AsyncGenerator[Home]:
    clock = StandingClock()
    store = KeyStore(MemoryDocument(), "memory:")
    guard, audit = Guard(store, clock=clock), Audit(MemoryTrail(), clock=clock)
    bearers = await _bearers(store, clock)
    hooks = [Webhook("shop", secret="whsec_AAAA", map=lambda payload, delivery: None)]
    async with serving(guard=guard, audit=audit, webhooks=hooks, worker=True, observers=["prometheus"]) as app:
        found = Home(app, audit, bearers)
        for workflow, machine in WORKFLOWS.items():
            is_order = machine == "order"
            await app.engine.start(
                *((shop.order, workflow, shop.Order()) if is_order else (shop.ticket, workflow, shop.Ticket()))
            )
        for workflow in ("o-2", "x-2"):
            await app.engine.start(shop.order, workflow, shop.Order())
            await app.engine.send(workflow, shop.Submit(cents=13))
        while len(letters := await app.engine.dead_letters()) < 2:  # noqa: ASYNC110 -- a step in memory needs only turns.
            await asyncio.sleep(0)
        by_workflow = {letter.workflow: letter.id for letter in letters}
        found.letters = {"o-1": by_workflow["o-2"], "x-1": by_workflow["x-2"]}
        yield found
    await guard.close()


async def _bearers(store: KeyStore, clock: StandingClock) -> list[Bearer]:
    create = key_factory()

    def header(created: CreatedKey) -> str:
        return f"Bearer {created.key.reveal()}"

    unknown, revoked = create(Scope.ADMIN), create(Scope.ADMIN)
    expired = create(Scope.ADMIN, expires_at=NOW + timedelta(seconds=1))
    found = [
        Bearer("nobody", None),
        Bearer("unknown", header(unknown)),
        Bearer("wrong", header(revoked)[:-4] + "0000"),
        Bearer("revoked", header(revoked)),
        Bearer("expired", header(expired)),
        Bearer("empty", "Bearer "),
        Bearer("basic", "Basic " + header(expired).partition(" ")[2]),
    ]
    for scope in LADDER:
        for machines, prefixes in LIMITS:
            created = create(scope, machines=machines, prefixes=prefixes)
            await store.add(created.record)
            found.append(Bearer(f"{scope} {machines} {prefixes}", header(created), scope, machines, prefixes))
    for created in (revoked, expired):
        await store.add(created.record)
    await store.revoke(revoked.record.id, NOW)
    assert len(found) == BEARERS
    clock.passed_s += 2 * LATE_S  # Now the one that ends has ended.
    return found


def may(route: Endpoint, bearer: Bearer, workflow: str) -> bool:
    """What the table says about a key and a target."""
    scope, subject = permission(route)
    assert scope is not None
    assert bearer.scope is not None
    if LADDER.index(bearer.scope) < LADDER.index(scope):
        return False
    limited = bool(bearer.machines or bearer.prefixes)
    allowed = True
    if subject == "home" or (subject == "letter" and workflow == "o-t"):
        allowed = not limited  # There is no letter of that one, which only those may learn who see all of them.
    elif subject == "machine" and route.method == "GET":
        allowed = not bearer.machines or WORKFLOWS[workflow] in bearer.machines
    elif subject in {"machine", "workflow", "letter", "task"}:
        allowed = bearer.sees(workflow)
    return allowed


GUARDED = [route for route in EVERY if route.scope is not None]
OPEN = [route for route in EVERY if route.scope is None]


@pytest.mark.parametrize("route", GUARDED, ids=named)
def test_whoever_may_not_is_refused_and_has_changed_nothing(route: Endpoint) -> None:
    """The matrix: 401 for whoever is unknown, 403 for whoever is not allowed to, and nothing was done."""

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            refused = 0
            for bearer in it.bearers:
                for workflow in WORKFLOWS:
                    if bearer.scope is None:
                        problem(await it.ask(route, bearer, workflow), 401, "not-authenticated")
                    elif not may(route, bearer, workflow):
                        problem(await it.ask(route, bearer, workflow), 403, "not-permitted")
                        refused += 1
            assert refused or route.scope is Scope.READ
            assert await it.everything() == before

    asyncio.run(scenario())


@pytest.mark.parametrize("route", GUARDED, ids=named)
def test_whoever_may_is_let_in_and_sees_nothing_of_others(route: Endpoint) -> None:
    async def scenario() -> None:
        if "{letter}" not in route.path:
            async with home() as it:
                for bearer in it.bearers:
                    await _let_in(it, route, bearer)
            return
        for at in range(BEARERS):  # A letter is dealt with once: each has letters of its own.
            async with home() as it:
                await _let_in(it, route, it.bearers[at])

    asyncio.run(scenario())


async def _let_in(it: Home, route: Endpoint, bearer: Bearer) -> None:
    for workflow in WORKFLOWS:
        if bearer.scope is None or not may(route, bearer, workflow):
            continue
        others = await _others(it, bearer)
        answer = await it.ask(route, bearer, workflow)
        assert answer.status_code not in {401, 403}, (bearer.name, answer.text)
        assert answer.status_code < 500, (bearer.name, answer.text)
        assert await _others(it, bearer) == others, bearer.name
        if permission(route).subject == "items" and route.path != "/v1/events:batch":
            for other in (*WORKFLOWS, "x-2"):
                seen = bearer.sees(other, machine=WORKFLOWS.get(other, "order"))
                assert f'"{other}"' not in answer.text or seen, (bearer.name, other)


async def _others(it: Home, bearer: Bearer) -> list[int]:
    """The versions of what somebody may not see."""
    return [(await it.app.engine.get(each)).version for each in WORKFLOWS if not bearer.sees(each)]


def test_each_line_of_a_batch_is_judged_by_itself() -> None:
    async def scenario() -> None:
        async with home() as it:
            [route] = [route for route in GUARDED if route.path == "/v1/events:batch"]
            for bearer in it.bearers:
                if bearer.scope is None or not may(route, bearer, "o-1"):
                    continue
                answer = await it.ask(route, bearer, "o-1")
                lines = [msgspec.json.decode(line) for line in answer.text.splitlines()]
                for workflow, line in zip(WORKFLOWS, lines, strict=True):
                    assert (line.get("code") == "not-permitted") != bearer.sees(workflow), (bearer.name, line)

    asyncio.run(scenario())


@pytest.mark.parametrize("route", OPEN, ids=named)
def test_what_needs_no_key_is_the_same_for_everybody(route: Endpoint) -> None:
    """Pages and probes hold nothing of a workflow; a webhook is proved by its signature, whatever key comes along."""

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            for bearer in it.bearers:
                answer = await it.ask(route, bearer, "o-1")
                if route.path.startswith("/v1/webhooks/"):
                    problem(answer, 401, "bad-signature")
                else:
                    assert answer.status_code in {200, 404}, answer.text
                assert not any(each in answer.text for each in ("x-1", "o-t"))
            assert await it.everything() == before

    asyncio.run(scenario())


def test_a_method_or_a_path_that_is_not_there_tells_nobody_more() -> None:
    """404 and 405 come before the key, and are the same with and without one."""

    async def scenario() -> None:
        async with home() as it:
            for bearer in it.bearers:
                headers = bearer.headers
                problem(
                    await it.app.client.request("DELETE", "/v1/workflows/o-1", headers=headers),
                    405,
                    "method-not-allowed",
                )
                problem(await it.app.get("/v1/nowhere", headers=headers), 404, "not-found")

    asyncio.run(scenario())
