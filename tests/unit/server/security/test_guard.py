"""The guard: who is let in, what they may do, and how soon a change is known."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import NotAuthenticated, NotPermitted, UnavailableError
from interlock.server.http_messages import challenge, headers_of
from interlock.server.security import guard as guards
from interlock.server.security import keys
from interlock.server.security.guard import LOCAL
from interlock.server.security.keys import CreatedKey, KeyBounds, Scope
from tests.unit.server.security.gates import HERE, Gate
from tests.unit.server.security.homes import NOW, authorized, bearer, key_factory

Create = Callable[..., CreatedKey]


def test_the_right_key_is_let_in_with_its_name_and_what_it_may_do(create: Create) -> None:
    async def scenario() -> None:
        created = create(Scope.SEND, machines=("order",))
        async with Gate(created) as gate:
            identity = gate.guard.check(bearer(created), scope=Scope.READ)
            assert (identity.key, identity.name) == (created.record.id, "till")
            assert identity.scopes == {Scope.READ, Scope.SEND}
            assert identity.limits == KeyBounds(("order",))
            assert gate.guard.has_keys

    asyncio.run(scenario())


def test_the_scheme_is_read_in_any_case(create: Create) -> None:
    async def scenario() -> None:
        created = create()
        async with Gate(created) as gate:
            for scheme in ("bearer", "BEARER", "Bearer  "):
                gate.guard.identify(authorized(f"{scheme} {created.key.reveal()}"))

    asyncio.run(scenario())


def test_no_key_and_a_wrong_key_are_refused_and_never_shown(create: Create) -> None:
    async def scenario() -> None:
        created, foreign = create(), create()
        text = created.key.reveal()
        wrong = text[:-1] + ("a" if text[-1] != "a" else "b")
        async with Gate(created) as gate:
            for value in (
                *(f"Bearer {each}" for each in (foreign.key.reveal(), wrong, "hunter2", text.upper())),
                f"Basic {text}",
                f"Bearer {text}, Bearer {text}",
                f"Bearer {text} x",
                text,
                "Bearer",
                "Bearer ",
                "",
            ):
                with pytest.raises(NotAuthenticated) as caught:
                    gate.guard.check(authorized(value), scope=Scope.READ)
                shown = f"{caught.value}{caught.value!r}{caught.value.__dict__}"
                assert not any(word in shown for word in value.split() if word not in {"Bearer", "Basic", "x"})
            with pytest.raises(NotAuthenticated) as caught:
                gate.guard.check({}, scope=Scope.READ)
            assert not caught.value.presented

    asyncio.run(scenario())


def test_an_unknown_id_is_hashed_like_a_wrong_secret(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an answer does not tell which ids there are."""
    hashed: list[int] = []
    real = keys.has_digest

    def counted(secret: bytes, salt: bytes, digest: bytes) -> bool:
        hashed.append(len(secret))
        return real(secret, salt, digest)

    monkeypatch.setattr(guards, "has_digest", counted)

    async def scenario() -> None:
        created, unknown = create(), create()
        async with Gate(created) as gate:
            wrong = f"ilk_{created.record.id}_{unknown.key.reveal().split('_')[2]}"
            for text in (unknown.key.reveal(), wrong):
                with pytest.raises(NotAuthenticated) as caught:
                    gate.guard.identify(authorized(f"Bearer {text}"))
                assert "not known" in caught.value.what
        assert hashed == [52, 52]

    asyncio.run(scenario())


def test_a_revoked_key_is_refused_within_a_second(create: Create) -> None:
    async def scenario() -> None:
        created = create()
        async with Gate(created) as gate:
            gate.guard.identify(bearer(created))
            await gate.store.revoke(created.record.id, NOW)
            await gate.after(guards.LATE_S)
            with pytest.raises(NotAuthenticated, match="was revoked"):
                gate.guard.identify(bearer(created))

    asyncio.run(scenario())


def test_a_new_key_is_let_in_within_a_second(create: Create) -> None:
    async def scenario() -> None:
        first, second = create(), create()
        async with Gate(first) as gate:
            await gate.store.add(second.record)
            await gate.after(guards.LATE_S)
            gate.guard.identify(bearer(second))

    asyncio.run(scenario())


def test_within_half_a_second_nothing_is_read_and_then_one_reads_for_all(create: Create) -> None:
    async def scenario() -> None:
        async with Gate(create()) as gate:
            reads = gate.document.reads
            await gate.after(guards.FRESH_S / 2)
            assert gate.document.reads == reads
            gate.clock.passed_s += guards.LATE_S
            await asyncio.gather(*(gate.guard.fresh() for _ in range(100)))
            assert gate.document.reads == reads + 1

    asyncio.run(scenario())


def test_keys_are_read_ahead_while_requests_go_on(create: Create) -> None:
    async def scenario() -> None:
        async with Gate(create()) as gate:
            reads = gate.document.reads
            await gate.after((guards.FRESH_S + guards.LATE_S) / 2)
            assert gate.document.reads == reads, "the request has not waited for it"
            await asyncio.sleep(0)
            assert gate.document.reads == reads + 1

    asyncio.run(scenario())


def test_a_key_ends_when_its_time_is_over(create: Create) -> None:
    async def scenario() -> None:
        created = create(expires_at=NOW + timedelta(seconds=60))
        async with Gate(created) as gate:
            await gate.after(59)
            gate.guard.identify(bearer(created))
            await gate.after(1)
            with pytest.raises(NotAuthenticated, match="expired"):
                gate.guard.identify(bearer(created))

    asyncio.run(scenario())


def test_while_keys_cannot_be_read_the_last_ones_count_for_a_while_only(create: Create) -> None:
    async def scenario() -> None:
        created = create()
        async with Gate(created) as gate:
            gate.document.broken = True
            await gate.after(guards.STALE_S_MAX)
            gate.guard.identify(bearer(created))
            gate.clock.passed_s += 1
            with pytest.raises(UnavailableError, match="the disk is away"):
                await gate.guard.fresh()
            with pytest.raises(UnavailableError):
                gate.guard.identify(bearer(created))
            gate.document.broken = False
            await gate.after(1)
            gate.guard.identify(bearer(created))

    asyncio.run(scenario())


def test_before_the_first_reading_nobody_is_let_in() -> None:
    async def scenario() -> None:
        gate = Gate()
        with pytest.raises(UnavailableError):
            gate.guard.identify(HERE)
        gate.document.broken = True
        with pytest.raises(UnavailableError):
            await gate.guard.fresh()

    asyncio.run(scenario())


def test_uses_are_noted_to_the_hour_and_not_while_a_request_waits(create: Create) -> None:
    async def scenario() -> None:
        created, idle = create(), create()
        async with Gate(created, idle) as gate:
            gate.guard.identify(bearer(created))
            await gate.after(guards.LATE_S)
            assert [each.last_used for each in await gate.store.load()] == [None, None]
            await gate.after(guards.USES_EVERY_S)
            hour = NOW.replace(minute=0)
            assert [each.last_used for each in await gate.store.load()] == [hour, None]

    asyncio.run(scenario())


def test_uses_are_noted_at_the_end_and_a_failure_there_harms_nobody(create: Create) -> None:
    async def scenario(*, broken: bool) -> None:
        created = create()
        gate = Gate(created)
        async with gate:
            gate.guard.identify(bearer(created))
            gate.document.broken = broken
        gate.document.broken = False
        [seen] = await gate.store.load()
        assert (seen.last_used is None) is broken

    asyncio.run(scenario(broken=False))
    asyncio.run(scenario(broken=True))


@given(st.dictionaries(st.sampled_from([b"authorization", b"host", b"origin", b"sec-fetch-site"]), st.binary()))
def test_no_headers_at_all_make_the_guard_fail_otherwise_than_by_refusing(headers: dict[bytes, bytes]) -> None:
    async def scenario() -> None:
        for gate in (Gate(), Gate(key_factory()())):
            async with gate:
                with contextlib.suppress(NotAuthenticated, NotPermitted):
                    assert gate.guard.check(headers, scope=Scope.ADMIN) is LOCAL

    asyncio.run(scenario())


def test_the_headers_of_asgi_are_read_and_a_double_one_fits_nothing() -> None:
    raw = [(b"authorization", b"Bearer a"), (b"x-other", b"1"), (b"host", b"h"), (b"authorization", b"Bearer b")]
    assert headers_of(raw) == {b"authorization": b"Bearer a, Bearer b", b"x-other": b"1", b"host": b"h"}


def test_the_challenge_says_what_is_wrong_with_the_key() -> None:
    told = [
        challenge(error)[1].decode()
        for error in (NotAuthenticated("no key"), NotAuthenticated("bad", presented=True), NotPermitted("no"))
    ]
    assert told == [
        'Bearer realm="interlock"',
        'Bearer realm="interlock", error="invalid_token"',
        'Bearer realm="interlock", error="insufficient_scope"',
    ]
