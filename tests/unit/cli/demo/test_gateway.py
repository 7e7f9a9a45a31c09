"""The connection to the world outside: calls and answers, faults as what a step may retry, and an outage."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from interlock.cli.demo.kill_and_resume import OrdersWalk, WorkerProcess
from interlock.cli.demo.killed_worker import OutsideServices, ParentConnection
from interlock.errors import Retryable
from interlock.testing.faults import Process, Processes


async def _nobody_waits(_order_id: str, _asked: str) -> None:
    return


async def _insist(calling: OutsideServices, number: int) -> bool:
    for _ in range(2):
        try:
            return await calling.confirm(f"pi-order-{number}", key=f"k-{number}")
        except Retryable:
            continue
    raise AssertionError("a retry has to get through")


@contextlib.asynccontextmanager
async def connected(walk: OrdersWalk, process: Process) -> AsyncGenerator[OutsideServices]:
    """A life of a shop in this process, with the walk at the other end."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    its_reader, its_writer = await asyncio.open_unix_connection(sock=theirs)
    parent = ParentConnection(its_writer)
    tasks = [
        asyncio.ensure_future(walk._listen(WorkerProcess(process, reader, writer), lambda _: None)),
        asyncio.ensure_future(parent.listen(its_reader)),
    ]
    try:
        yield OutsideServices(parent.ask, lambda _order_id: 0, _nobody_waits)
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

    async def story(walk: OrdersWalk) -> None:
        for _life in range(2):
            async with connected(walk, process) as calling:
                assert all(await asyncio.gather(*(_insist(calling, number) for number in range(100))))

    walk = OrdersWalk(1, 1, tmp_path, Processes())
    asyncio.run(story(walk))
    charged = [entry.key for entry in walk.bank.books if entry.deed == "charged"]
    assert sorted(charged) == sorted(f"k-{number}" for number in range(100))


def test_a_call_during_an_outage_may_be_retried(tmp_path: Path, process: Process) -> None:
    async def story(walk: OrdersWalk) -> None:
        async with connected(walk, process) as calling:
            walk.bank.down = True
            with pytest.raises(Retryable, match="503 Service Unavailable, when asked to create intent"):
                await calling.create_intent("order-1", key="k")
            assert walk.bank.refused == 1
            walk.bank.down = False
            assert await _insist(calling, 1)

    asyncio.run(story(OrdersWalk(1, 1, tmp_path, Processes())))
