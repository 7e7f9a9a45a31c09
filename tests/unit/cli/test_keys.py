"""`interlock keys` and `interlock audit`: a key is shown once, works at once, and is gone at once."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from interlock import Engine
from interlock.clock import SystemClock
from interlock.errors import NotAuthenticated
from interlock.server.security.guard import Guard
from interlock.server.security.keys import Scope
from interlock.server.security.stores import security_at
from tests.unit.cli.running import Interlock
from tests.unit.cli.shop import order


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"lanes://{tmp_path}/home"
    monkeypatch.setenv("INTERLOCK_HOME", url)
    return url


def created(interlock: Interlock, *options: str) -> tuple[str, str]:
    done = interlock("keys", "create", *options, "-o", "json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert set(shown) == {"id", "key"}
    return shown["id"], shown["key"]


def listed(interlock: Interlock) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(interlock("keys", "list", "-o", "json").out)
    return rows


async def identified(home: str, key: str) -> str:
    """Who the guard of a server that starts now takes the key for."""
    security = security_at(home, clock=SystemClock())
    guard = Guard(security.keys, clock=SystemClock())
    await guard.fresh()
    try:
        identity = guard.check({b"authorization": f"Bearer {key}".encode()}, Scope.READ, "order", "o-1")
    finally:
        await guard.close()
    return identity.key


def test_a_created_key_is_printed_once_and_let_in(interlock: Interlock, home: str) -> None:
    key_id, key = created(interlock, "--scope", "read", "--machine", "order", "--prefix", "o-", "--name", "till")
    assert asyncio.run(identified(home, key)) == key_id
    [row] = listed(interlock)
    assert (row["id"], row["name"], row["state"], row["scopes"]) == (key_id, "till", "active", ["read"])
    assert (row["machines"], row["prefixes"]) == (["order"], ["o-"])


def test_the_secret_is_nowhere_but_on_stdout(interlock: Interlock, home: str, tmp_path: Path) -> None:
    done = interlock("keys", "create", "--scope", "admin", "--scope", "read")
    key = done.out.strip()
    secret = key.split("_")[2]
    assert key.startswith("ilk_")
    assert secret not in done.err
    assert "only time" in done.err
    for path in (tmp_path / "home").rglob("*"):
        assert secret.encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0, path
    for command in (("keys", "list"), ("keys", "list", "-o", "json"), ("audit",), ("audit", "-o", "json")):
        shown = interlock(*command)
        assert secret not in shown.out + shown.err
    stored = json.loads((tmp_path / "home/interlock-keys.json").read_text())["keys"][0]
    shown = interlock("keys", "list", "-o", "json")
    audited = interlock("audit", "-o", "json")
    assert stored["digest"] not in shown.out + audited.out
    assert stored["salt"] not in shown.out + audited.out


def test_keys_alone_lists_them(interlock: Interlock, home: str) -> None:
    assert interlock("keys", "create", "--scope", "read").code == 0
    listed = interlock("keys", "list", "-o", "json").out
    assert len(json.loads(listed)) == 1
    assert interlock("keys", "--home", home, "-o", "json").out == interlock("keys", "-o", "json").out == listed
    assert "revoke" in interlock("keys", "--help").out


def test_a_revoked_key_is_refused(interlock: Interlock, home: str) -> None:
    key_id, key = created(interlock, "--scope", "send")
    _, other = created(interlock, "--scope", "send")
    done = interlock("keys", "revoke", key_id)
    assert (done.code, done.out) == (0, f"{key_id} is revoked.\n")
    with pytest.raises(NotAuthenticated, match="was revoked"):
        asyncio.run(identified(home, key))
    asyncio.run(identified(home, other))
    assert [row["state"] for row in listed(interlock)] == ["revoked", "active"]
    assert interlock("keys", "revoke", key_id).code == 0


def test_keys_are_made_and_revoked_while_the_home_is_owned(interlock: Interlock, home: str) -> None:
    """A lane has one owner; its keys do not wait for it."""

    async def scenario() -> None:
        async with Engine.open(home, machines=[order], worker=False):
            key_id, _ = await asyncio.to_thread(created, interlock, "--scope", "read")
            assert (await asyncio.to_thread(interlock, "keys", "revoke", key_id)).code == 0

    asyncio.run(scenario())


def test_a_key_can_be_revoked_by_the_whole_of_it_and_only_its_id_is_shown(interlock: Interlock, home: str) -> None:
    key_id, key = created(interlock, "--scope", "read")
    done = interlock("keys", "revoke", key)
    assert done.out == f"{key_id} is revoked.\n"
    assert key.split("_")[2] not in interlock("audit", "-o", "json").out


def test_ids_are_read_from_stdin_and_an_unknown_one_is_told(
    interlock: Interlock, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [created(interlock, "--scope", "read")[0] for _ in range(2)]
    assert interlock("keys", "list", "-o", "ids").out.split() == ids
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*ids, "nobody", ""])))
    done = interlock("keys", "revoke", "-")
    assert done.code == 4
    assert "'nobody'" in done.err
    assert {row["state"] for row in listed(interlock)} == {"revoked"}


def test_a_key_may_end_by_itself(interlock: Interlock, home: str) -> None:
    created(interlock, "--scope", "read", "--expires", "90d")
    [row] = listed(interlock)
    assert row["expires_at"]
    assert row["state"] == "active"
    for wrong in ("soon", "0s", "9999d"):
        assert interlock("keys", "create", "--scope", "read", "--expires", wrong).code == 2


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--scope", "all"),
        ("--scope", "read", "--prefix", ""),
        ("--scope", "read", "--machine", "a/b"),
        ("--scope", "read", "--name", "a\nb"),
    ],
)
def test_a_key_that_cannot_be_meant_is_a_mistake_of_usage(interlock: Interlock, home: str, options: list[str]) -> None:
    assert interlock("keys", "create", *options).code == 2
    assert listed(interlock) == []


def test_what_operators_did_is_listed_with_who_and_what(interlock: Interlock, home: str) -> None:
    key_id, _ = created(interlock, "--scope", "operate", "--name", "desk")
    interlock("keys", "revoke", key_id)
    revoked, made = json.loads(interlock("audit", "-o", "json").out)
    assert (made["action"], made["target"], made["before"]) == ("keys.create", key_id, None)
    assert made["after"]["name"] == "desk"
    assert "(command line)" in made["who"]
    assert revoked["action"] == "keys.revoke"
    assert (revoked["before"]["state"], revoked["after"]["state"]) == ("active", "revoked")
    table = interlock("audit", "--limit", "1").out.splitlines()
    assert len(table) == 2
    assert "keys.revoke" in table[1]


def test_keys_in_memory_are_out_of_reach_and_no_secret_of_an_address_is_shown(interlock: Interlock) -> None:
    assert interlock("keys", "list", "--home", "memory:").code == 2
    done = interlock("keys", "list", "--home", "mysql://shop:hunter2secret@db/shop")
    assert done.code == 2
    assert "hunter2secret" not in done.err
