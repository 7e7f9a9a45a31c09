"""Keys at a home, the same on every kind of home: added, revoked, bounded, seen by the other processes."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from interlock.errors import CorruptionError, LimitReached, TargetNotFound, UnusableFile
from interlock.server.security import keys
from interlock.server.security.keys import CreatedKey, KeyStore, Scope
from interlock.server.security.stores import FileDocument, MemoryDocument
from tests.unit.server.security.homes import NOW, HomeForKeys

Create = Callable[..., CreatedKey]
KEPT = pytest.mark.parametrize("home", ["local", "bucket", "postgres"], indirect=True)


def test_a_home_where_nobody_made_a_key_has_none(home: HomeForKeys) -> None:
    async def scenario() -> None:
        async with home.opened() as security:
            assert await security.keys.load() == ()

    asyncio.run(scenario())


def test_what_was_added_is_read_back_whole(home: HomeForKeys, create: Create) -> None:
    async def scenario() -> None:
        full = create(Scope.SEND, machines=("order",), prefixes=("o-", "ü"), expires_at=NOW + timedelta(days=1))
        plain = create(Scope.ADMIN, name="")
        async with home.opened() as security:
            await security.keys.add(full.record)
            await security.keys.add(plain.record)
            assert await security.keys.load() == (full.record, plain.record)

    asyncio.run(scenario())


@KEPT
def test_another_process_sees_a_revocation(home: HomeForKeys, create: Create) -> None:
    async def scenario() -> None:
        created = create()
        async with home.opened() as server, home.opened() as command:
            await command.keys.add(created.record)
            [seen] = await server.keys.load()
            assert seen.revoked_at is None
            before, after = await command.keys.revoke(created.record.id, NOW)
            assert before == created.record
            assert after == msgspec.structs.replace(created.record, revoked_at=NOW)
            assert await server.keys.load() == (after,)

    asyncio.run(scenario())


@KEPT
def test_a_home_that_is_opened_again_has_its_keys(home: HomeForKeys, create: Create) -> None:
    async def scenario() -> None:
        created = create()
        async with home.opened() as security:
            await security.keys.add(created.record)
        async with home.opened() as security:
            assert await security.keys.load() == (created.record,)

    asyncio.run(scenario())


def test_revoking_again_keeps_the_first_time(home: HomeForKeys, create: Create) -> None:
    async def scenario() -> None:
        created = create()
        async with home.opened() as security:
            await security.keys.add(created.record)
            _, first = await security.keys.revoke(created.record.id, NOW)
            before, again = await security.keys.revoke(created.record.id, NOW + timedelta(days=1))
            assert before == again == first

    asyncio.run(scenario())


def test_an_unknown_key_is_not_revoked_and_a_whole_key_is_not_shown(home: HomeForKeys, create: Create) -> None:
    async def scenario() -> None:
        async with home.opened() as security:
            await security.keys.add(create().record)
            with pytest.raises(TargetNotFound) as caught:
                await security.keys.revoke("nobody", NOW)
            assert "'nobody'" in str(caught.value)
            whole = create().key.reveal()
            with pytest.raises(TargetNotFound) as caught:
                await security.keys.revoke(whole, NOW)
            assert whole[-40:] not in str(caught.value)
            assert len(await security.keys.load()) == 1

    asyncio.run(scenario())


def test_nothing_is_lost_when_many_add_at_once(home: HomeForKeys, create: Create) -> None:
    async def scenario() -> None:
        records = [create().record for _ in range(6)]
        async with home.opened() as security:
            await asyncio.gather(*(security.keys.add(record) for record in records))
            assert {each.id for each in await security.keys.load()} == {each.id for each in records}

    asyncio.run(scenario())


def test_uses_are_noted_and_never_go_back(home: HomeForKeys, create: Create) -> None:
    async def scenario() -> None:
        created = create()
        async with home.opened() as security:
            await security.keys.add(created.record)
            await security.keys.note_uses({created.record.id: NOW, "nobody": NOW})
            await security.keys.note_uses({created.record.id: NOW - timedelta(hours=1)})
            assert [each.last_used for each in await security.keys.load()] == [NOW]

    asyncio.run(scenario())


def test_while_nothing_changes_the_same_keys_are_returned(home: HomeForKeys, create: Create) -> None:
    """The guard builds its table again only for another tuple."""

    async def scenario() -> None:
        async with home.opened() as security:
            await security.keys.add(create().record)
            assert await security.keys.load() is await security.keys.load()

    asyncio.run(scenario())


def test_the_number_of_keys_is_bounded_and_old_revoked_ones_make_room(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6."""
    monkeypatch.setattr(keys, "KEYS_MAX", 2)

    async def scenario() -> None:
        store = KeyStore(MemoryDocument(), "lanes:///var/shop")
        first, second, third = (create().record for _ in range(3))
        await store.add(first)
        await store.add(second)
        with pytest.raises(LimitReached):
            await store.add(third)
        await store.revoke(first.id, NOW)
        with pytest.raises(LimitReached):
            await store.add(third)
        later = msgspec.structs.replace(third, created_at=NOW + keys.REVOKED_KEPT)
        await store.add(later)
        assert await store.load() == (second, later)

    asyncio.run(scenario())


def test_a_second_attempt_of_an_addition_adds_nothing(create: Create) -> None:
    async def scenario() -> None:
        store = KeyStore(MemoryDocument(), "memory:")
        record = create().record
        await store.add(record)
        await store.add(record)
        assert await store.load() == (record,)

    asyncio.run(scenario())


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"format":1,"keys":[{"id":"s3cret"}]}', b"[]"])
def test_damaged_keys_let_nobody_in_and_are_not_shown(content: bytes) -> None:
    async def scenario() -> None:
        document = MemoryDocument()
        await document.change(lambda _: content)
        with pytest.raises(CorruptionError) as caught:
            await KeyStore(document, "lanes:///var/shop").load()
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None

    asyncio.run(scenario())


def test_keys_of_a_later_version_are_refused() -> None:
    async def scenario() -> None:
        document = MemoryDocument()
        await document.change(lambda _: b'{"format":2,"keys":[]}')
        with pytest.raises(CorruptionError, match="format 2"):
            await KeyStore(document, "lanes:///var/shop").load()

    asyncio.run(scenario())


def test_the_file_is_private(tmp_path: Path, create: Create) -> None:
    async def scenario() -> None:
        path = tmp_path / "home" / "keys.json"
        await KeyStore(FileDocument(path), "here").add(create().record)
        assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
            "keys.json": 0o600,
            "keys.json.lock": 0o600,
        }

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, create: Create, mode: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "keys.json"
        store = KeyStore(FileDocument(path), "here")
        await store.add(create().record)
        path.chmod(mode)
        with pytest.raises(UnusableFile, match="chmod 600"):
            await store.load()

    asyncio.run(scenario())


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever can write the folder must not make a server read another file."""

    async def scenario() -> None:
        (tmp_path / "else").write_bytes(b"{}")
        (tmp_path / "keys.json").symlink_to(tmp_path / "else")
        with pytest.raises(UnusableFile):
            await FileDocument(tmp_path / "keys.json").read()

    asyncio.run(scenario())


def test_what_a_crash_left_half_written_is_replaced(tmp_path: Path, create: Create) -> None:
    async def scenario() -> None:
        (tmp_path / "keys.json.new").write_bytes(b"half")
        store = KeyStore(FileDocument(tmp_path / "keys.json"), "here")
        record = create().record
        await store.add(record)
        assert await store.load() == (record,)

    asyncio.run(scenario())
