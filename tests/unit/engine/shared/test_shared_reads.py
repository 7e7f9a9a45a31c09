"""Reads of single workflows are gathered into few questions, and each is answered from after it was asked."""

import asyncio

import pytest

from interlock.engine.shared.shared_reads import Reads
from interlock.errors import UnavailableError
from tests.conformance.engine.places import turns
from tests.conformance.store.samples import begun, started
from tests.unit.engine.shared.stores import SharedMemory, play


def test_those_who_ask_at_once_are_one_question() -> None:
    async def scenario() -> None:
        store = SharedMemory()
        await begun(store, started("a"), started("b"))
        reads = Reads(store)
        found = await asyncio.gather(*(reads.row(each) for each in ("a", "b", "a", "none")))
        assert [None if row is None else row.id for row in found] == ["a", "b", "a", None]
        assert store.loads == [["a", "b", "none"]]

    play(scenario)


def test_whoever_asks_while_a_question_is_under_way_is_part_of_the_next_one() -> None:
    """Its answer is from after it asked."""

    async def scenario() -> None:
        store = SharedMemory()
        await begun(store, started("a"), started("b"))
        reads, gate = Reads(store), asyncio.Event()
        store.gates["load"] = gate
        first = asyncio.ensure_future(reads.row("a"))
        await turns()
        later = [asyncio.ensure_future(reads.row(each)) for each in ("a", "b", "a")]
        await turns()
        assert store.loads == [["a"]]
        gate.set()
        await asyncio.gather(first, *later)
        assert store.loads == [["a"], ["a", "b"]]

    play(scenario)


def test_a_question_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("interlock.engine.shared.shared_reads.BATCH_MAX", 2)
        store = SharedMemory()
        reads = Reads(store)
        await asyncio.gather(*(reads.row(each) for each in "abcde"))
        assert [len(each) for each in store.loads] == [2, 2, 1]

    play(scenario)


def test_an_error_is_told_to_those_who_asked_and_not_to_the_next() -> None:
    async def scenario() -> None:
        store = SharedMemory()
        await begun(store, started("a"))
        reads, store.down["load"] = Reads(store), UnavailableError("away.")
        gone = asyncio.ensure_future(reads.row("a"))
        asked = [asyncio.ensure_future(reads.row("a")) for _ in range(2)]
        await asyncio.sleep(0)
        gone.cancel()
        for each in asked:
            with pytest.raises(UnavailableError):
                await each
        del store.down["load"]
        row = await reads.row("a")
        assert row is not None

    play(scenario)


def test_the_end_of_the_event_loop_leaves_nobody_waiting() -> None:
    async def scenario() -> None:
        store = SharedMemory()
        reads, store.gates["load"] = Reads(store), asyncio.Event()
        asked = asyncio.ensure_future(reads.row("a"))
        await turns()
        assert reads._task is not None
        reads._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert reads._task is None

    play(scenario)
