"""A key: its form, what of it is stored, and what proves it."""

import hashlib
import re
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.clock import SystemSecrets
from interlock.errors import BadUsage
from interlock.server.security import keys
from interlock.server.security.keys import (
    CreatedKey,
    KeyBounds,
    KeyRecord,
    Scope,
    digest_of,
    has_digest,
    make_key,
    parse_key,
)
from tests.unit.server.security.homes import NOW

Create = Callable[..., CreatedKey]


def test_a_key_has_its_id_and_at_least_128_random_bits(create: Create) -> None:
    created = create()
    text = created.key.reveal()
    assert re.fullmatch(r"ilk_[a-z2-7]{16}_[a-z2-7]{52}", text)
    assert text.split("_")[1] == created.record.id
    assert keys.SECRET_BYTES * 8 >= 128


def test_real_keys_never_repeat() -> None:
    made_keys = [
        make_key(SystemSecrets(), name="", scopes=(Scope.READ,), limits=KeyBounds(), now=NOW) for _ in range(200)
    ]
    assert len({each.key.reveal() for each in made_keys}) == len({each.record.salt for each in made_keys}) == 200


def test_the_secret_is_in_nothing_that_is_stored(create: Create) -> None:
    created = create()
    secret = created.key.reveal().split("_")[2]
    stored = msgspec.json.encode(created.record)
    assert secret.encode() not in stored
    assert secret not in repr(created.record) + repr(created) + str(created.key)
    assert hashlib.sha256(secret.encode()).digest() not in stored


def test_only_its_own_secret_proves_a_key(create: Create) -> None:
    created, other = create(), create()
    mine, foreign = parse_key(created.key.reveal()), parse_key(other.key.reveal())
    assert mine
    assert foreign
    assert has_digest(mine.secret, created.record.salt, created.record.digest)
    assert not has_digest(foreign.secret, created.record.salt, created.record.digest)


def test_the_same_secret_has_another_digest_with_another_salt() -> None:
    assert digest_of(b"secret", bytes(16)) != digest_of(b"secret", b"1" * 16)


def test_digests_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr("hmac.compare_digest", compare)
    assert not has_digest(b"s", bytes(16), bytes(32))
    assert compared == [(digest_of(b"s", bytes(16)), bytes(32))]


@given(st.text(max_size=300))
def test_any_text_is_taken_apart_or_refused_without_an_error(text: str) -> None:
    found = parse_key(text)
    assert found is None or text == f"ilk_{found.id}_{found.secret.decode()}"


@pytest.mark.parametrize(
    "change",
    [
        str.upper,
        lambda key: key + "a",
        lambda key: key[:-1],
        lambda key: " " + key,
        lambda key: key + "\n",
        lambda key: key.replace("ilk", "ghp"),
        lambda key: key.replace("_", "-"),
        lambda key: key * 100,
    ],
)
def test_another_form_is_no_key(create: Create, change: Callable[[str], str]) -> None:
    assert parse_key(change(create().key.reveal())) is None


def test_what_was_presented_does_not_show_itself(create: Create) -> None:
    assert repr(parse_key(create().key.reveal())) == "Presented(***)"


def test_scopes_are_kept_in_order_and_once(create: Create) -> None:
    assert create(Scope.SEND, Scope.READ, Scope.SEND).record.scopes == (Scope.READ, Scope.SEND)


@pytest.mark.parametrize("name", ["x" * 101, "a\nb", "\x1b[31m"])
def test_a_name_that_cannot_be_listed_is_refused(create: Create, name: str) -> None:
    with pytest.raises(BadUsage):
        create(name=name)


def test_a_key_that_is_over_before_it_begins_is_refused(create: Create) -> None:
    with pytest.raises(BadUsage):
        create(expires_at=NOW)
    with pytest.raises(BadUsage):
        make_key(SystemSecrets(), name="", scopes=(), limits=KeyBounds(), now=NOW)


def test_the_state_of_a_key(create: Create) -> None:
    record: KeyRecord = create(expires_at=NOW + timedelta(days=1)).record
    assert record.state(NOW) == "active"
    assert record.state(NOW + timedelta(days=1)) == "expired"
    assert msgspec.structs.replace(record, revoked_at=NOW).state(NOW + timedelta(days=1)) == "revoked"
