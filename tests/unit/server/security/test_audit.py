"""The audit log, the same on every kind of home: written before the action, without secrets, bounded."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from interlock.errors import UnavailableError, UnusableFile
from interlock.lanes.objectlog.bucket_protocol import Bucket
from interlock.server.security.guard import VALUE_BYTES_MAX, Audit, AuditEntry, Identity
from interlock.server.security.keys import Scope
from interlock.server.security.stores import BucketTrail, FileTrail, MemoryTrail
from interlock.testing.lane_simulation.bucket import MemoryBucket
from tests.unit.server.security.homes import NOW, OPERATOR, HomeForKeys, StandingClock

KEPT = pytest.mark.parametrize("home", ["local", "bucket", "postgres"], indirect=True)


def test_an_entry_says_who_what_when_before_and_after(home: HomeForKeys) -> None:
    async def scenario() -> None:
        async with home.opened() as security:
            assert await security.audit.read() == []
            await security.audit.record(OPERATOR, "breaker.force", "gateway", {"forced": None}, {"forced": "open"})
            [entry] = await security.audit.read()
            assert (entry.key, entry.who, entry.action, entry.target) == ("abc", "ann", "breaker.force", "gateway")
            assert entry.at == NOW
            assert msgspec.json.decode(entry.before) == {"forced": None}
            assert msgspec.json.decode(entry.after) == {"forced": "open"}
            assert not entry.failed

    asyncio.run(scenario())


@KEPT
def test_another_process_reads_what_was_written_the_newest_first(home: HomeForKeys) -> None:
    async def scenario() -> None:
        clock = StandingClock()
        async with home.opened(clock) as writer:
            for number in range(5):
                clock.passed_s += 1
                await writer.audit.record(OPERATOR, "letter.retry", f"l-{number}", None, None)
        async with home.opened() as reader:
            assert [each.target for each in await reader.audit.read(3)] == ["l-4", "l-3", "l-2"]

    asyncio.run(scenario())


@pytest.mark.parametrize("home", ["memory", "bucket", "postgres"], indirect=True)
def test_what_is_older_than_the_retention_goes(home: HomeForKeys) -> None:
    """Files are let go of whole: see below."""

    async def scenario() -> None:
        clock = StandingClock()
        async with home.opened(clock) as security:
            await security.audit.record(OPERATOR, "old", "x", None, None)
            clock.passed_s += timedelta(days=401).total_seconds()
            await security.audit.record(OPERATOR, "new", "x", None, None)
            assert [each.action for each in await security.audit.read()] == ["new"]

    asyncio.run(scenario())


def test_an_action_is_written_down_before_it_is_carried_out(home: HomeForKeys) -> None:
    async def scenario() -> None:
        async with home.opened() as security:
            async with security.audit.action(OPERATOR, "breaker.force", "gateway", before="auto", after="open"):
                assert len(await security.audit.read()) == 1
            assert len(await security.audit.read()) == 1

    asyncio.run(scenario())


def test_an_action_that_fails_is_written_down_as_failed() -> None:
    async def scenario() -> None:
        audit = Audit(MemoryTrail(), clock=StandingClock())
        for error, code in ((UnavailableError("away"), "unavailable"), (ValueError("bug"), "internal")):
            with pytest.raises(type(error)):
                async with audit.action(OPERATOR, "letter.retry", "l-1", before=None, after="retried"):
                    raise error
            failed, asked = (await audit.read())[:2]
            assert (asked.failed, failed.failed) == ("", code)
            assert msgspec.json.decode(asked.after) == "retried"

    asyncio.run(scenario())


def test_an_action_that_cannot_be_written_down_is_not_carried_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "home").write_text("not a folder")
        audit = Audit(FileTrail(tmp_path / "home"), clock=StandingClock())
        done = False
        with pytest.raises(UnusableFile):
            async with audit.action(OPERATOR, "letter.retry", "l-1", before=None, after=None):
                done = True
        assert not done

    asyncio.run(scenario())


def test_any_text_and_value_is_kept_verbatim(home: HomeForKeys) -> None:
    """SQL and HTML are data; NUL is data too, and no store may choke on it."""
    nasty = "'; DROP TABLE security_audit; -- <script>alert(1)</script> \x00 \u202e ü"

    async def scenario() -> None:
        async with home.opened() as security:
            who = Identity("", nasty, frozenset(Scope))
            await security.audit.record(who, nasty, nasty, {nasty: [nasty, 1.5, None, True]}, nasty)
            [entry] = await security.audit.read()
            assert (entry.who, entry.action, entry.target) == (nasty, nasty, nasty)
            assert msgspec.json.decode(entry.before) == {nasty: [nasty, 1.5, None, True]}

    asyncio.run(scenario())


def test_a_value_that_is_too_large_is_replaced_by_its_size_and_texts_are_cut() -> None:
    async def scenario() -> None:
        audit = Audit(MemoryTrail(), clock=StandingClock())
        await audit.record(OPERATOR, "a" * 1_000, "t", "x" * VALUE_BYTES_MAX, None)
        [entry] = await audit.read()
        assert b"left_out" in bytes(entry.before)
        assert len(entry.action) == 500

    asyncio.run(scenario())


def entry_at(number: int) -> AuditEntry:
    return AuditEntry(id=f"e-{number:03}", at=NOW + timedelta(days=number), key="", who="w", action="a", target="t")


def test_files_are_put_aside_when_full_and_bounded(tmp_path: Path) -> None:
    """G6."""

    async def scenario() -> None:
        trail = FileTrail(tmp_path, file_bytes_max=300, files_kept=2)
        for number in range(40):
            await trail.append(entry_at(number))
        kept = await trail.read(100)
        assert [each.id for each in kept] == [f"e-{number:03}" for number in range(39, 39 - len(kept), -1)]

    asyncio.run(scenario())
    assert len(sorted(tmp_path.glob("*.jsonl"))) == 3
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_a_file_that_was_put_aside_goes_when_all_of_it_is_old(tmp_path: Path) -> None:
    async def scenario() -> None:
        trail = FileTrail(tmp_path, file_bytes_max=300)
        for number in range(10):
            await trail.append(entry_at(number))
        await trail.prune(NOW + timedelta(days=6))
        kept = [each.at for each in await trail.read(100)]
        assert NOW + timedelta(days=6) in kept
        assert NOW not in kept

    asyncio.run(scenario())


def test_a_line_that_a_crash_cut_short_costs_nothing_but_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        trail = FileTrail(tmp_path)
        await trail.append(entry_at(1))
        with (tmp_path / "interlock-audit.jsonl").open("ab") as file:
            file.write(b'{"id":"torn","at":"20')
        await trail.append(entry_at(2))
        assert [each.id for each in await trail.read(10)] == ["e-002", "e-001"]

    asyncio.run(scenario())


def test_objects_of_the_audit_log_are_bounded() -> None:
    async def scenario() -> None:
        bucket: Bucket = MemoryBucket()
        trail = BucketTrail(bucket, entries_max=3)
        for number in range(6):
            await trail.append(entry_at(number))
        await trail.prune(NOW)
        assert [each.id for each in await trail.read(10)] == ["e-005", "e-004", "e-003"]

    asyncio.run(scenario())
