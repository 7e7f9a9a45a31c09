"""G9: a disk that fails or runs full: who is told what, who is not harmed, and what is there afterwards."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from interlock.clock import SystemChance
from interlock.errors import OutcomeUnknown, TransactionError, UnavailableError
from interlock.lanes.lane import Lane
from interlock.lanes.writer import Work
from interlock.testing.faults import FaultyDisk
from tests.unit.lanes.lanes import count, group, increment, make_counter, opened, run, sql

BIG = "INSERT INTO big SELECT randomblob(1000000) FROM (VALUES (1), (2), (3), (4), (5), (6))"


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    faulty = FaultyDisk("faulty-disk")
    yield faulty
    faulty.close()


def keyed(number: int) -> Work:
    return sql("UPDATE counter SET n = n + 1 WHERE id = 1", key=f"k{number}", digest=b"add")


async def repeat_by_key(lane: Lane) -> None:
    """What every client does that was told OutcomeUnknown."""
    answers = await group(lane, *(keyed(number) for number in range(3)))
    assert answers == [1, 1, 1]
    assert await count(lane) == 3


def test_after_a_failed_fsync_the_outcome_is_unknown_and_the_lane_is_dead(tmp_path: Path, disk: FaultyDisk) -> None:
    cuts = [tmp_path / f"cut{seed}" for seed in range(20)]

    async def scenario() -> None:
        with opened(tmp_path / "x", vfs=disk.name) as lane:
            await make_counter(lane)
            disk.fails_sync = lambda _number: True
            answers = await group(lane, *(keyed(number) for number in range(3)))
            assert [type(answer) for answer in answers] == [OutcomeUnknown] * 3
            assert "refuses to sync" in str(answers[0])
            for _ in range(2):
                with pytest.raises(UnavailableError) as caught:
                    await lane.run(increment())
                assert "this lane has stopped" in caught.value.what
                with pytest.raises(UnavailableError):
                    await lane.read(lambda connection: connection.execute("SELECT 1").get)
            # The power may fail now as well: whatever is left, the keys resolve it.
            for seed, folder in enumerate(cuts):
                disk.power_cut(folder, SystemChance(seed))
        disk.fails_sync = lambda _number: False
        for folder in (tmp_path, *cuts):
            with opened(folder / "x") as lane:
                await repeat_by_key(lane)

    run(scenario)


def test_a_failed_fsync_and_what_waits_behind_it(tmp_path: Path, disk: FaultyDisk) -> None:
    """The group that was being written is unknown; what waited behind it has not happened."""

    async def scenario() -> None:
        with opened(tmp_path / "x", vfs=disk.name, group_commit_max_batch=1) as lane:
            await make_counter(lane)
            disk.fails_sync = lambda _number: True
            first, *rest = await group(lane, *(increment() for _ in range(4)))
            assert isinstance(first, OutcomeUnknown)
            for answer in rest:
                assert isinstance(answer, UnavailableError)
                assert not isinstance(answer, OutcomeUnknown)
        with opened(tmp_path / "x") as lane:
            assert await count(lane) <= 1

    run(scenario)


def test_a_disk_that_is_full_in_a_statement_harms_only_that_statement(tmp_path: Path, disk: FaultyDisk) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", vfs=disk.name) as lane:
            await make_counter(lane)
            await lane.run(sql("CREATE TABLE big (data BLOB)"))
            disk.bytes_max = disk.bytes_used() + 3_000_000
            before, full, after = await group(lane, increment(), sql(BIG), increment())
            assert (before, after) == (1, 1)
            assert isinstance(full, TransactionError)
            assert "disk is full" in full.what
            assert await count(lane) == 2
            disk.bytes_max = None
            await lane.run(sql(BIG))

    run(scenario)


def test_a_disk_that_is_full_in_the_commit_is_an_unknown_outcome(tmp_path: Path, disk: FaultyDisk) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", vfs=disk.name) as lane:
            await make_counter(lane)
            disk.bytes_max = disk.bytes_used()
            answers = await group(lane, *(keyed(number) for number in range(3)))
            assert [type(answer) for answer in answers] == [OutcomeUnknown] * 3
            assert "full" in str(answers[0])
        disk.bytes_max = None
        with opened(tmp_path / "x", vfs=disk.name) as lane:
            await repeat_by_key(lane)

    run(scenario)


def test_a_disk_that_is_full_while_the_log_is_folded_harms_nobody(tmp_path: Path, disk: FaultyDisk) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", vfs=disk.name, wal_bytes_max=65_536) as lane:
            await make_counter(lane)
            disk.is_full = lambda path: not path.endswith("-wal")
            for _ in range(60):
                assert await lane.run(increment()) == 1
            failed = lane.stats().folds_failed
            assert failed > 0
            disk.is_full = lambda _path: False
            await lane.run(increment())
            grown = lane.stats().log_bytes
            assert grown > 65_536
            for _ in range(60):
                await lane.run(increment())
            assert lane.stats().log_bytes == grown, "the log is written over again"
            assert lane.stats().folds_failed == failed
            disk.is_full = lambda path: not path.endswith("-wal")
            await lane.run(increment())
        disk.is_full = lambda _path: False
        with opened(tmp_path / "x", vfs=disk.name) as lane:
            assert lane.stats().folds_failed == 0
            assert await count(lane) == 122

    run(scenario)


def test_a_file_that_cannot_be_opened_again_fails_the_group_and_not_the_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x") as lane:
            with monkeypatch.context() as patch:
                patch.setattr(lane, "_open_writer", _cannot_open)
                answers = await group(lane, increment(), increment())
                assert [type(answer) for answer in answers] == [UnavailableError] * 2
                assert "did not happen" in str(answers[0])
            await make_counter(lane)
            assert await count(lane) == 0

    run(scenario)


def _cannot_open() -> None:
    raise apsw.IOError("the disk is on fire")


@pytest.mark.parametrize("on_disk", [True, False], ids=["on disk", "in memory"])
def test_a_disk_that_fails_before_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on_disk: bool) -> None:
    """Nothing has happened; a file is opened again for the next group, a database in memory is gone."""

    async def scenario() -> None:
        with opened(tmp_path / "x" if on_disk else None) as lane:
            await make_counter(lane)
            with monkeypatch.context() as patch:
                patch.setattr("interlock.lanes.writer.Writer.execute", lambda _writer, _group: _cannot_open())
                [answer] = await group(lane, increment())
            assert isinstance(answer, UnavailableError)
            if on_disk:
                assert await lane.run(increment()) == 1
                assert await count(lane) == 1
            else:
                assert isinstance(answer, OutcomeUnknown)
                with pytest.raises(UnavailableError, match="this lane has stopped"):
                    await lane.run(increment())

    run(scenario)


def test_errors_of_a_dead_lane_do_not_pile_up(tmp_path: Path, disk: FaultyDisk) -> None:
    """One error object raised again and again would collect the frames of everybody who ever asked."""

    async def scenario() -> None:
        with opened(tmp_path / "x", vfs=disk.name) as lane:
            await make_counter(lane)
            disk.fails_sync = lambda _number: True
            await group(lane, increment())
            depths = []
            for _ in range(5):
                [answer] = await asyncio.gather(lane.run(increment()), return_exceptions=True)
                assert isinstance(answer, UnavailableError)
                depth, trace = 0, answer.__traceback__
                while trace is not None:
                    depth, trace = depth + 1, trace.tb_next
                depths.append(depth)
            assert len(set(depths)) == 1

    run(scenario)
