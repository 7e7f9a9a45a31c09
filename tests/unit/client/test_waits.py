"""Waiting at a server: answered when the workflow is there, in the caller's time, and never in the way of others."""

import asyncio

import pytest

from interlock import errors
from interlock.client.workflow_requests import GRACE_S
from interlock.errors import InvalidPayload, WaitFailed, WaitTimeout, WorkflowNotFound
from tests.unit.client.server import Server
from tests.unit.client.shop import Cancel, Charged, Order, Park, State, Submit, order
from tests.unit.client.test_retries import begun
from tests.unit.client.wires import WiredClient, passed, run


def test_a_wait_ends_where_the_workflow_ends_or_rests() -> None:
    async def test() -> None:
        server, client = await begun()
        tasks = [
            asyncio.ensure_future(client.wait("o-1")),
            asyncio.ensure_future(client.wait("o-1", State.DONE, "parked")),
        ]
        typed = asyncio.ensure_future(client.of(order).wait("o-1", State.DONE))
        asyncio.get_running_loop().call_later(2.5, server.move, "o-1", Submit(5))
        asyncio.get_running_loop().call_later(5.0, server.move, "o-1", Charged())
        found = await asyncio.gather(*tasks)
        assert [(each.version, each.state) for each in found] == [(3, State.DONE)] * 2
        assert (await typed).state is State.DONE
        waits = [got for got in server.net.got if got.path.endswith("/wait")]
        assert [got.query.get("state") for got in waits] == [None, "done,parked", "done"]
        await client.start(order, "o-2", Order())
        server.move("o-2", Park())
        assert (await client.wait("o-2")).state is State.PARKED

    assert run(test) == 5.0


def test_a_wait_that_can_never_end_well_says_so_at_once() -> None:
    async def test() -> None:
        server, client = await begun()
        with pytest.raises(InvalidPayload, match="has no state 'shipped'"):
            await client.wait("o-1", "shipped")
        server.move("o-1", Cancel())
        for wait in (client.wait("o-1", State.DONE), client.of(order).wait("o-1", State.DONE)):
            with pytest.raises(WaitFailed, match="ended in state 'cancelled', not in 'done'"):
                await wait
        with pytest.raises(WorkflowNotFound):
            await client.wait("nobody", timeout_s=60)
        with pytest.raises(WorkflowNotFound):
            await client.of("invoice").wait("o-1")

    assert run(test) == 0.0


@pytest.mark.parametrize(("server_s", "asked"), [(30.0, 8), (7.0, 9)])
def test_a_wait_is_asked_again_until_the_time_is_over(server_s: float, asked: int) -> None:
    """Whatever bound the server has of its own, the caller is told of the time that was theirs."""

    async def test() -> None:
        server, client = await begun()
        server.wait_s_max = server_s
        with pytest.raises(WaitTimeout) as told:
            await client.wait("o-1", timeout_s=60)
        expected = "workflow 'o-1' did not get there within 60 s; it is in state 'draft' at version 1."
        assert (told.value.what, str(told.value)) == (expected, f"{told.value}")
        assert len([got for got in server.net.got if got.path.endswith("/wait")]) == asked

    assert run(test) == 60.0


def test_a_wait_survives_a_server_that_goes_and_comes_back() -> None:
    async def test() -> None:
        server, client = await begun("cut before", "moving", "busy", "half")
        asyncio.get_running_loop().call_later(1.0, server.move, "o-1", Cancel())
        assert (await client.wait("o-1", timeout_s=60)).state is State.CANCELLED

    run(test)


def test_a_server_that_leaves_sends_its_waits_elsewhere() -> None:
    async def test() -> None:
        server, client = await begun()

        def leave() -> None:
            server.leaving = True
            server.tell()

        def back() -> None:
            server.leaving = False
            server.move("o-1", Cancel())

        asyncio.get_running_loop().call_later(1.0, leave)
        asyncio.get_running_loop().call_later(1.5, back)
        assert (await client.wait("o-1", timeout_s=60)).state is State.CANCELLED
        assert len([got for got in server.net.got if got.path.endswith("/wait")]) > 1

    assert run(test) < 5.0


def test_a_wait_that_is_over_is_told_in_time_by_a_server_that_hangs() -> None:
    async def test() -> None:
        server, client = await begun("fine", *["silent"] * 9)
        server.wait_s_max = 1.0
        with pytest.raises(WaitTimeout, match=r"within 4 s, as far as is known"):
            await client.wait("o-1", timeout_s=4)

    assert run(test) == pytest.approx(4.0 + GRACE_S)


def test_a_server_that_cannot_be_asked_at_all_is_no_time_that_is_over() -> None:
    async def test() -> None:
        server = Server()
        server.net.refused = 99
        with pytest.raises(errors.UnavailableError, match="was not reached"):
            await WiredClient(server.net).wait("o-1", timeout_s=0.5)

    run(test)


@pytest.mark.parametrize("connections_max", [1, 4, 8])
def test_however_many_wait_an_event_finds_a_connection(connections_max: int) -> None:
    """G6: waits have half of the connections; those beyond look."""

    async def test() -> None:
        server, _ = await begun()
        client = WiredClient(server.net, connections_max=connections_max, machines=[order])
        waits = [asyncio.ensure_future(client.wait("o-1", State.DONE, timeout_s=60)) for _ in range(30)]
        await passed(5)
        before_s = asyncio.get_running_loop().time()
        await client.send("o-1", Submit(5), key="a")
        await client.send("o-1", Charged(), key="b")
        assert asyncio.get_running_loop().time() == before_s
        assert {view.state for view in await asyncio.gather(*waits)} == {State.DONE}
        assert client.open_count <= connections_max

    assert run(test) <= 6.1


def test_a_cancelled_wait_gives_its_place_back() -> None:
    async def test() -> None:
        server, _ = await begun()
        client = WiredClient(server.net, connections_max=2)
        for _ in range(3):
            wait = asyncio.ensure_future(client.wait("o-1"))
            await passed(1)
            wait.cancel()
            await asyncio.wait({wait})
        assert client._remote.waits._places == 1
        assert {got.query["timeout_s"] for got in server.net.got if got.path.endswith("/wait")} == {"8.0"}

    run(test)
