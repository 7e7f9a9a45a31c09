"""C7: what is refused by its head alone is what the route would refuse, in the same words; all else is the route's."""

import asyncio

import pytest

from interlock import Admission
from interlock.server.app_declaration import Limits
from interlock.server.security.guard import FRESH_S, Guard
from interlock.server.security.keys import KeyStore, Scope
from interlock.server.security.stores import MemoryDocument
from tests.conformance.engine.places import SetClock
from tests.unit.server.security.homes import StandingClock, key_factory
from tests.unit.server.serving import BASE, Served, served, serving

EVENTS = "/v1/workflows/o-1/events"
STARTS = "/v1/machines/order/workflows"
ONE = Admission(rate_per_s=1, burst=1)


def scope(path: str = EVENTS, *, method: str = "POST", query: bytes = b"", **headers: str) -> dict[str, object]:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": sent,
    }


@pytest.mark.parametrize("path", [EVENTS, STARTS])
def test_a_refusal_at_the_door_is_the_one_of_the_route(path: str) -> None:
    async def test(app: Served) -> None:
        assert app.app.refusal(scope(path)) is None, "there is room"
        await app.start("o-1")
        told = await app.post(path, json={"id": "o-2", "event": "REMARK"})
        answer = app.app.refusal(scope(path))
        assert answer is not None
        assert (answer.status, answer.body) == (told.status_code, told.content)
        assert {name.decode(): value.decode() for name, value in answer.headers}.items() <= told.headers.items()

    served(test, admission=ONE, clock=SetClock())


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (scope("/v1/workflows/o-1"), 405),
        (scope("/v1/workflows/o-1", method="GET"), 200),
        (scope("/v1/nothing"), 404),
        (scope("/v1/machines/ordr/workflows"), 404),
        (scope(query=b"x=1"), 400),
        (scope("/v1/events:batch"), 200),
    ],
)
def test_what_is_not_refused_by_its_head_is_left_to_the_route(given: dict[str, object], status: int) -> None:
    async def test(app: Served) -> None:
        await app.start("o-1")
        assert app.app.refusal(scope()) is not None
        assert app.app.refusal(given) is None
        query = given["query_string"]
        assert isinstance(query, bytes)
        answer = await app.client.request(str(given["method"]), f"{BASE}{given['path']}?{query.decode()}")
        assert answer.status_code == status

    served(test, admission=ONE, clock=SetClock())


def test_calls_under_way_fill_the_door_too() -> None:
    async def test(app: Served) -> None:
        gate = app.engine._inside.gate
        assert app.app.refusal(scope()) is None
        await asyncio.sleep(0)
        gate.enter()
        before, answer = gate.refused, app.app.refusal(scope())
        assert answer is not None
        assert b"in_flight_max" in answer.body
        assert gate.refused == before + 1
        gate.leave()
        assert app.app.refusal(scope()) is None

    served(test, admission=Admission(in_flight_max=1))


def test_nobody_learns_that_it_is_full_without_a_key() -> None:
    """401 and 403 come before 429, and keys that have to be read again are not guessed at."""

    async def test() -> None:
        clock, create = StandingClock(), key_factory()
        store = KeyStore(MemoryDocument(), "memory:")
        sender, reader, other = create(Scope.SEND), create(Scope.READ), create(Scope.SEND, prefixes=("x-",))
        for each in (sender, reader, other):
            await store.add(each.record)
        guard = Guard(store, clock=clock)
        async with serving(guard=guard, admission=Admission(in_flight_max=1)) as app:
            app.engine._inside.gate.enter()
            refusal, allowed = app.app.refusal, f"Bearer {sender.key.reveal()}"
            assert refusal(scope(authorization=allowed)) is None, "keys were never read"
            await guard.fresh()
            assert refusal(scope(authorization=allowed)) is not None
            for bearer in ("nonsense", f"Bearer {reader.key.reveal()}", f"Bearer {other.key.reveal()}"):
                assert refusal(scope(authorization=bearer)) is None
            assert refusal(scope()) is None
            clock.passed_s += FRESH_S
            assert refusal(scope(authorization=allowed)) is None
        await guard.close()

    asyncio.run(test())


def test_beyond_the_bound_of_requests_the_app_tells_that() -> None:
    async def test(app: Served) -> None:
        app.app.service.under_way = 1
        app.engine._inside.gate.enter()
        assert app.app.refusal(scope()) is None

    served(test, admission=Admission(in_flight_max=1), limits=Limits(requests_max=1))


def test_those_who_come_together_are_let_in_as_far_as_there_is_room() -> None:
    """None of them has taken its token before all heads are read."""

    async def test(app: Served) -> None:
        refusal = app.app.refusal
        assert [refusal(scope()) is None for _ in range(5)] == [True, True, True, False, False]
        assert refusal(scope("/v1/workflows/o-1", method="GET")) is None
        await asyncio.sleep(0)
        assert [refusal(scope(STARTS)) is None for _ in range(4)] == [True, True, True, False], "none took a token"

    served(test, admission=Admission(rate_per_s=1, burst=3), clock=SetClock())
    served(test, admission=Admission(in_flight_max=3))
