"""C13: whichever worker of a server is scraped tells the figures of all; one that hangs is left out, and counted."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from interlock.server import worker_metrics as module
from interlock.server.worker_metrics import SIBLINGS, Siblings, meeting_place


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers is heard, also when the machine stands still for a moment."""
    monkeypatch.setattr(module, "HEARD_S", 60.0)


def test_all_are_asked_and_whoever_is_not_there_is_left_out() -> None:
    async def scenario() -> None:
        with meeting_place() as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
            first, second = Siblings(folder, 0, 3), Siblings(folder, 1, 3)
            async with first.answering(lambda: b"first"), second.answering(lambda: b"second" * 100_000):
                assert await first.collect() == await second.collect() == [b"first", b"second" * 100_000]
            assert await first.collect() == []
        assert not folder.exists()

    asyncio.run(scenario())


def test_a_successor_takes_the_place_and_the_old_one_is_not_heard_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end does not take the name from the new one."""

    async def scenario() -> None:
        with meeting_place() as folder:
            place = Siblings(folder, 0, 1)
            old = place.answering(lambda: b"old")
            await old.__aenter__()
            monkeypatch.setattr(os, "getpid", lambda: -1)
            async with place.answering(lambda: b"new"):
                assert await place.collect() == [b"new"]
                await old.__aexit__(None, None, None)
                assert await place.collect() == [b"new"]

    asyncio.run(scenario())


@pytest.mark.slow
def test_one_that_hangs_or_fails_or_says_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARD_S", 3.0)
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 10)

    async def scenario() -> None:
        def fails() -> bytes:
            raise RuntimeError("nothing to tell")

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        with meeting_place() as folder:
            held: list[asyncio.StreamWriter] = []
            hung = await asyncio.start_unix_server(lambda reader, writer: held.append(writer), folder / "2")
            places = [Siblings(folder, place, 4) for place in range(4)]
            async with (
                places[0].answering(lambda: b"12345"),
                places[1].answering(fails),
                places[3].answering(lambda: b"12345678901"),
            ):
                assert await places[0].collect() == [b"12345"]
            hung.close()
            for writer in held:
                writer.close()

    asyncio.run(scenario())


def test_one_that_cannot_answer_serves_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        alone = Siblings(tmp_path / "gone", 0, 2)
        async with alone.answering(lambda: b"x"):
            assert await alone.collect() == []

    asyncio.run(scenario())
    assert "worker 0 cannot report its metrics" in caplog.text


def test_a_worker_is_told_once_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Siblings.from_environment() is None
    folder = tmp_path / "with a space"
    folder.mkdir()
    for name, value in Siblings(folder, 3, 8).for_environment().items():
        monkeypatch.setenv(name, value)
    found = Siblings.from_environment()
    assert found is not None
    assert (found.place, found.count) == (3, 8)
    assert SIBLINGS not in os.environ
    found.forget()
    assert not folder.exists()


def test_a_folder_whose_name_is_too_long_for_sockets_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 100)
    with meeting_place() as folder:
        assert len(str(folder)) < 60
