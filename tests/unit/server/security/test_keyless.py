"""Without keys this machine is trusted, and nobody else: no foreign page, no foreign name."""

import asyncio
from collections.abc import Callable

import pytest

from interlock.errors import NotAuthenticated, NotPermitted
from interlock.server.security import guard as guards
from interlock.server.security.guard import LOCAL, MOUNTED, Guard
from interlock.server.security.keys import CreatedKey, Scope
from tests.unit.server.security.gates import HERE, Gate
from tests.unit.server.security.homes import NOW, StandingClock

Create = Callable[..., CreatedKey]


def test_without_keys_whoever_is_on_this_machine_may_do_everything() -> None:
    async def scenario() -> None:
        async with Gate() as gate:
            for host in (b"127.0.0.1:8000", b"localhost", b"[::1]:80", b"LOCALHOST:1"):
                assert gate.guard.check({b"host": host}, scope=Scope.ADMIN) is LOCAL
            page = {**HERE, b"origin": b"http://127.0.0.1:8000", b"sec-fetch-site": b"same-origin"}
            assert gate.guard.identify(page) is LOCAL
            assert not gate.guard.has_keys

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "headers",
    [
        {b"host": b"shop.example"},
        {b"host": b"127.0.0.1.evil.example:8000"},
        {},
        {**HERE, b"origin": b"http://evil.example"},
        {**HERE, b"origin": b"null"},
        {**HERE, b"origin": b"http://127.0.0.1:9999"},
        {**HERE, b"sec-fetch-site": b"cross-site"},
        {**HERE, b"sec-fetch-site": b"same-site"},
        {b"host": b"127.0.0.1:8000, evil.example"},
    ],
)
def test_without_keys_a_foreign_page_is_refused(headers: dict[bytes, bytes]) -> None:
    """A page in a browser of this machine reaches the server, and a name can be made to point here."""

    async def scenario() -> None:
        async with Gate() as gate:
            with pytest.raises(NotPermitted):
                gate.guard.identify(headers)

    asyncio.run(scenario())


def test_other_names_of_this_machine_can_be_allowed() -> None:
    guard = Guard(None, clock=StandingClock(), hosts=frozenset({"testserver"}))
    assert guard.identify({b"host": b"testserver"}) is LOCAL
    with pytest.raises(NotPermitted):
        guard.identify({b"host": b"other"})


def test_a_mounted_server_trusts_its_program() -> None:
    guard = Guard.trusting(StandingClock())
    assert guard.identify({b"host": b"shop.example"}) is MOUNTED
    asyncio.run(guard.fresh())


def test_with_the_first_key_everybody_needs_one_and_it_never_goes_back(create: Create) -> None:
    async def scenario() -> None:
        async with Gate() as gate:
            gate.guard.identify(HERE)
            await gate.store.add(create().record)
            await gate.after(guards.LATE_S)
            with pytest.raises(NotAuthenticated):
                gate.guard.identify(HERE)
            await gate.document.change(lambda _: b'{"format":1,"keys":[]}')
            await gate.after(guards.LATE_S)
            with pytest.raises(NotAuthenticated):
                gate.guard.identify(HERE)

    asyncio.run(scenario())


def test_a_home_whose_last_key_was_revoked_is_not_open(create: Create) -> None:
    async def scenario() -> None:
        created = create()
        async with Gate(created) as gate:
            await gate.store.revoke(created.record.id, NOW)
            again = Guard(gate.store, clock=gate.clock)
            await again.fresh()
            with pytest.raises(NotAuthenticated):
                again.identify(HERE)

    asyncio.run(scenario())
