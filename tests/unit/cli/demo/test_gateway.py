"""The connection to the world outside: calls and answers, faults as what a step may retry, and an outage."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from interlock.cli.demo.bank import BOOKS, entries
from interlock.cli.demo.walk import Walk, Worker
from interlock.cli.demo.worker import ExternalServices, Parent
from interlock.errors import Retryable
from interlock.testing.faults.processes import Process


async def _nobody_waits(_order_id: str, _asked: str) -> None:
    return


async def _insist(calling: ExternalServices, number: int) -> bool:
    for _ in range(2):
        try:
            return await calling.confirm(f"pi-order-{number}", key=f"k-{number}")
        except Retryable:
            continue
    raise AssertionError("a retry has to get through")


@contextlib.asynccontextmanager
async def connected(walk: Walk, process: Process) -> AsyncGenerator[ExternalServices]:
    """A life of a shop in this process, with the walk at the other end."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    its_reader, its_writer = await asyncio.open_unix_connection(sock=theirs)
    parent = Parent(its_writer)
    tasks = [
        asyncio.ensure_future(walk._listen(Worker(process, reader, writer), lambda _: None)),
        asyncio.ensure_future(parent.listen(its_reader)),
    ]
    try:
        yield ExternalServices(parent.ask, lambda _order_id: 0, _nobody_waits)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.transport.abort()
        its_writer.transport.abort()


@pytest.fixture
def process() -> Process:
    return None  # type: ignore[return-value]  # Listening does not use it.


def test_a_line_that_is_cut_costs_nothing_twice(tmp_path: Path, process: Process) -> None:
    """The second life asks again under the same keys, and is told what was done for the first."""

    async def story(walk: Walk) -> None:
        for _life in range(2):
            async with connected(walk, process) as calling:
                assert all(await asyncio.gather(*(_insist(calling, number) for number in range(100))))

    with contextlib.closing(Walk(1, 1, tmp_path)) as walk:
        asyncio.run(story(walk))
    charged = [entry.key for entry in entries(tmp_path / BOOKS) if entry.deed == "charged"]
    assert sorted(charged) == sorted(f"k-{number}" for number in range(100))


def test_a_call_during_an_outage_may_be_retried(tmp_path: Path, process: Process) -> None:
    async def story(walk: Walk) -> None:
        async with connected(walk, process) as calling:
            walk._bank.down = True
            with pytest.raises(Retryable, match="503 Service Unavailable, when asked to create intent"):
                await calling.create_intent("order-1", key="k")
            assert walk._bank.refused == 1
            walk._bank.down = False
            assert await _insist(calling, 1)

    with contextlib.closing(Walk(1, 1, tmp_path)) as walk:
        asyncio.run(story(walk))
