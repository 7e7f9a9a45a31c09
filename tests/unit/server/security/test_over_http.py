"""Keys over HTTP: refusals tell nothing, and changes are known within a second."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from interlock.server.security import guard as guards
from interlock.server.security.guard import Audit, Guard
from interlock.server.security.keys import CreatedKey, KeyStore, Scope
from interlock.server.security.stores import MemoryTrail
from tests.unit.server import shop
from tests.unit.server.security.gates import Broken
from tests.unit.server.security.homes import NOW, StandingClock
from tests.unit.server.serving import Served, serving

Create = Callable[..., CreatedKey]


class House:
    """A served engine with keys."""

    def __init__(self) -> None:
        self.clock = StandingClock()
        self.document = Broken()
        self.store = KeyStore(self.document, "memory:")
        self.audit = Audit(MemoryTrail(), clock=self.clock)
        self.guard = Guard(self.store, clock=self.clock)

    @asynccontextmanager
    async def open(self, *created: CreatedKey) -> AsyncGenerator[Served]:
        for each in created:
            await self.store.add(each.record)
        async with serving(guard=self.guard, audit=self.audit) as served:
            yield served
        await self.guard.close()


def sent(created: CreatedKey) -> dict[str, str]:
    return {"authorization": f"Bearer {created.key.reveal()}"}


def test_a_refusal_is_a_problem_document_with_a_challenge_and_without_the_key(create: Create) -> None:
    async def scenario() -> None:
        key, unknown = create(Scope.READ), create(Scope.ADMIN)
        async with House().open(key) as served:
            none = await served.get("/v1/workflows")
            wrong = await served.get("/v1/workflows", headers=sent(unknown))
            short = await served.put("/v1/breakers/gateway", json={"state": "open"}, headers=sent(key))
            assert [each.status_code for each in (none, wrong, short)] == [401, 401, 403]
            assert [each.headers["www-authenticate"] for each in (none, wrong, short)] == [
                'Bearer realm="interlock"',
                'Bearer realm="interlock", error="invalid_token"',
                'Bearer realm="interlock", error="insufficient_scope"',
            ]
            assert [each.json()["code"] for each in (none, wrong, short)] == [
                "not-authenticated",
                "not-authenticated",
                "not-permitted",
            ]
            secret = unknown.key.reveal().split("_")[2]
            assert not any(secret in each.text for each in (none, wrong, short))

    asyncio.run(scenario())


def test_a_limited_key_sees_and_moves_only_its_own(create: Create) -> None:
    async def scenario() -> None:
        admin = create(Scope.ADMIN)
        mine = create(Scope.SEND, machines=("order",), prefixes=("o-",))
        async with House().open(admin, mine) as served:
            served.client.headers.update(sent(admin))
            for machine, workflow in (("order", "o-1"), ("order", "p-1"), ("ticket", "o-2")):
                assert (await served.start(workflow, machine)).status_code == 201
            served.client.headers.update(sent(mine))
            seen = (await served.get("/v1/workflows")).json()["items"]
            assert [each["id"] for each in seen] == ["o-1"]
            statuses = {each: (await served.get(f"/v1/workflows/{each}")).status_code for each in ("o-1", "p-1", "o-2")}
            assert statuses == {"o-1": 200, "p-1": 403, "o-2": 403}
            assert (await served.start("o-3")).status_code == 201
            assert (await served.start("p-3")).status_code == 403
            assert (await served.start("o-4", "ticket")).status_code == 403
            machines = (await served.get("/v1/machines")).json()["items"]
            assert [each["name"] for each in machines] == ["order"]

    asyncio.run(scenario())


def test_a_revoked_key_is_refused_a_second_later(create: Create) -> None:
    async def scenario() -> None:
        key, house = create(Scope.READ), House()
        async with house.open(key) as served:
            assert (await served.get("/v1/workflows", headers=sent(key))).status_code == 200
            await house.store.revoke(key.record.id, NOW)
            house.clock.passed_s += guards.LATE_S
            assert (await served.get("/v1/workflows", headers=sent(key))).status_code == 401

    asyncio.run(scenario())


def test_while_keys_cannot_be_read_the_answer_is_503_and_probes_go_on(create: Create) -> None:
    async def scenario() -> None:
        key, house = create(Scope.READ), House()
        async with house.open(key) as served:
            house.document.broken = True
            answer = await served.get("/v1/workflows", headers=sent(key))
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert (await served.get("/healthz")).status_code == 200

    asyncio.run(scenario())


def test_every_answer_has_the_headers_and_none_is_open_to_other_origins(create: Create) -> None:
    async def scenario() -> None:
        key = create(Scope.READ)
        async with House().open(key) as served:
            for path, headers in (("/v1/workflows", sent(key)), ("/v1/workflows", {}), ("/nowhere", {}), ("/docs", {})):
                answer = await served.get(path, headers={**headers, "origin": "http://shop.test"})
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["x-frame-options"] == "DENY"
                assert not [name for name in answer.headers if name.startswith("access-control-")]
            page = await served.get("/docs")
            assert "unsafe-inline" not in page.headers["content-security-policy"]

    asyncio.run(scenario())


def test_a_limited_key_reads_no_error_of_another_customer(create: Create) -> None:
    """Everything that it can read while a breaker is open because of a workflow that it may not see."""
    iban = "DE89370400440532013000"

    async def scenario() -> None:
        house = House()
        limited = create(Scope.OPERATE, prefixes=("mine-",))
        async with house.open(limited) as app:
            engine, headers = app.engine, sent(limited)
            await engine.start(shop.order, "mine-1", shop.Order())
            await engine.send("mine-1", shop.Submit(5))
            [line] = engine._inside.places.lines.values()
            for _ in range(line.outlet.breaker.failures):
                assert line.outlet.ask("first") == "call"
                line.outlet.leave("first", "call", "failed", 0.0, f"OSError: no account {iban}")
            assert iban in engine.breakers()["gateway"].reason
            view = await app.get("/v1/workflows/mine-1", headers=headers)
            assert "the breaker of 'gateway' is open (5 failures in a row, the last: OSError)" in view.json()["waiting"]
            told = view.text
            for path in ("workflows", "stalled", "dead-letters", "compensations", "breakers", "contention", "machines"):
                told += (await app.get(f"/v1/{path}", headers=headers)).text
            for path in ("history", "allowed", "stats"):
                told += (await app.get(f"/v1/workflows/mine-1/{path}", headers=headers)).text
            told += (await app.get("/metrics", headers=headers)).text
            assert iban not in told

    asyncio.run(scenario())
