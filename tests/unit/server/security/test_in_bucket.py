"""Keys in a bucket: no answer but success is believed, and somebody else's change is never lost."""

import asyncio
import uuid
from collections.abc import Callable

import pytest

from interlock.errors import UnavailableError
from interlock.lanes.objectlog.bucket_protocol import ConditionFailed, Denied, Unclear
from interlock.server.security.keys import CreatedKey, KeyStore
from interlock.server.security.stores import ATTEMPTS_MAX, BucketDocument
from tests.integration.objects.servers import Server
from tests.unit.lanes.objectlog.buckets import ScriptedBucket
from tests.unit.server.security.homes import NOW, OPERATOR, HomeForKeys

Create = Callable[..., CreatedKey]


def stored_and_unclear(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
    bucket.objects[key] = data
    raise Unclear("the answer was lost")


def not_stored_and_unclear(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
    raise Unclear("the request was lost")


def stored_and_exists(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
    bucket.objects[key] = data
    raise ConditionFailed("it exists already")


@pytest.mark.parametrize("fault", [stored_and_unclear, not_stored_and_unclear, stored_and_exists])
def test_a_key_is_added_once_whatever_the_answer_was(
    create: Create, fault: Callable[[ScriptedBucket, str, str, bytes], None]
) -> None:
    async def scenario() -> None:
        bucket = ScriptedBucket()
        store = KeyStore(BucketDocument(bucket), "s3://bucket/shop")
        first, second = create().record, create().record
        bucket.faults = [fault]
        await store.add(first)
        bucket.faults = [fault]
        await store.add(second)
        assert await store.load() == (first, second)

    asyncio.run(scenario())


def test_a_change_of_somebody_else_is_kept(create: Create) -> None:
    async def scenario() -> None:
        bucket = ScriptedBucket()
        mine, theirs = create().record, create().record
        other = KeyStore(BucketDocument(bucket), "s3://bucket/shop")
        changed: list[bytes] = []
        await other.add(theirs)
        changed.append(bucket.objects.pop("keys.json"))

        def meanwhile(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
            bucket.objects[key] = changed[0]
            raise ConditionFailed("somebody was faster")

        bucket.faults = [meanwhile]
        await KeyStore(BucketDocument(bucket), "s3://bucket/shop").add(mine)
        assert await other.load() == (theirs, mine)

    asyncio.run(scenario())


def test_who_is_never_first_gives_up_with_an_error(create: Create) -> None:
    async def scenario() -> None:
        bucket = ScriptedBucket()
        bucket.faults = [not_stored_and_unclear] * ATTEMPTS_MAX
        with pytest.raises(UnavailableError, match="in a row"):
            await KeyStore(BucketDocument(bucket), "s3://bucket/shop").add(create().record)
        assert not bucket.objects

    asyncio.run(scenario())


def test_a_bucket_that_refuses_is_unavailable() -> None:
    async def scenario() -> None:
        bucket = ScriptedBucket()
        bucket.unreadable = [Denied("no such bucket")]
        with pytest.raises(UnavailableError, match="read the API keys"):
            await KeyStore(BucketDocument(bucket), "s3://bucket/shop").load()

    asyncio.run(scenario())


def test_on_a_real_server_keys_and_audit_are_kept(seaweedfs: Server, create: Create) -> None:
    async def scenario() -> None:
        home = HomeForKeys("seaweedfs", seaweedfs.url(f"keys/{uuid.uuid4().hex}"))
        first, second = create().record, create().record
        async with home.opened() as server, home.opened() as command:
            assert await server.keys.load() == ()
            assert await server.audit.read() == []
            await asyncio.gather(command.keys.add(first), server.keys.add(second))
            _, revoked = await command.keys.revoke(first.id, NOW)
            assert set(await server.keys.load()) == {revoked, second}
            await command.audit.record(OPERATOR, "keys.revoke", first.id, None, None)
            assert [each.action for each in await server.audit.read()] == ["keys.revoke"]

    asyncio.run(scenario())
