"""The connections of a node: a cap, a reserve for those who undo, and nobody gets one that is in doubt (C16)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from interlock.clock import SystemChance
from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.postgres.pool import ATTEMPTS_MAX, IDLE_S_MAX, Link, Pool, PostgresRow, Prepared
from interlock.postgres.translate_errors import Away, LostConnection, NotNow
from interlock.testing.virtual_time import VirtualLoop
from interlock.urls import PostgresAddress


class Wire:
    """A connection that goes nowhere."""

    def __init__(self) -> None:
        self.ended = False

    async def prepare(self, sql: str, /, *, name: str, timeout: float | None = None) -> Prepared:  # noqa: ASYNC109
        raise AssertionError(sql, name, timeout)

    async def fetch(self, sql: str, /, *values: object, timeout: float | None = None) -> list[PostgresRow]:  # noqa: ASYNC109
        raise AssertionError(sql)

    async def execute(self, sql: str, /, *, timeout: float | None = None) -> str:  # noqa: ASYNC109 -- the driver's.
        raise AssertionError(sql)

    def is_closed(self) -> bool:
        return self.ended

    def terminate(self) -> None:
        self.ended = True

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- the driver's.
        self.ended = True


class Server:
    """Opens connections, and answers or fails as it is told."""

    def __init__(self) -> None:
        self.opened: list[Link] = []
        self.failures: list[Exception] = []
        self.reachable = True

    async def connect(self, address: PostgresAddress) -> Link:
        await asyncio.sleep(0)
        if not self.reachable:
            raise UnavailableError("nobody is there.")
        link = Link(Wire(), address)

        async def answer(_sql: str, _values: Sequence[object]) -> list[PostgresRow]:
            await asyncio.sleep(0)
            if self.failures:
                raise self.failures.pop()
            return []

        link.read = link.write = answer  # type: ignore[method-assign, assignment]
        self.opened.append(link)
        return link


async def ended(pool: Pool) -> None:
    """Wait until connections that were left in the middle are gone."""
    while pool._ending:
        await asyncio.wait(pool._ending)
    await asyncio.sleep(0)


def tried(connections_max: int, scenario: Callable[[Server, Pool], Coroutine[Any, Any, None]]) -> None:
    server = Server()
    address = PostgresAddress("postgresql://h/d", "postgresql://h/d", connections_max=connections_max)
    asyncio.run(scenario(server, Pool(address, server.connect)))


def test_connections_are_used_again_and_never_more_than_the_cap() -> None:
    """C16: those who come when all are taken wait for one."""

    async def scenario(server: Server, pool: Pool) -> None:
        await pool.read("a")
        await pool.read("b")
        assert len(server.opened) == 1
        await asyncio.gather(*(pool.write("c", ()) for _ in range(30)))
        assert len(server.opened) == pool.open == 3
        await pool.close()
        assert pool.open == 0
        assert all(not link.usable for link in server.opened)

    tried(3, scenario)


def test_the_last_connections_are_for_those_who_undo() -> None:
    """C16: ordinary work takes nine of ten, however much of it there is."""

    async def scenario(server: Server, pool: Pool) -> None:
        async with asyncio.TaskGroup() as group:
            leave = asyncio.Event()
            taken = 0

            async def hold(*, reserve: bool) -> None:
                nonlocal taken
                async with pool.link(reserve=reserve):
                    taken += 1
                    await leave.wait()

            for _ in range(20):
                group.create_task(hold(reserve=False))
            for _ in range(50):
                await asyncio.sleep(0)
            assert taken == len(server.opened) == 9
            await pool.write("undo", (), reserve=True)
            assert len(server.opened) == 10
            leave.set()
        assert taken == 20
        await pool.close()

    tried(10, scenario)


def test_a_read_goes_to_another_connection_when_its_own_was_lost() -> None:
    """A few times; the idle ones went to the same server and are thrown away too."""

    async def scenario(server: Server, pool: Pool) -> None:
        await asyncio.gather(*(pool.read("a") for _ in range(5)))
        server.failures = [LostConnection("gone.") for _ in range(ATTEMPTS_MAX - 1)]
        assert await pool.read("b") == []
        await ended(pool)
        assert sum(link.usable for link in server.opened) == pool.open == 1
        server.failures = [LostConnection("gone.") for _ in range(ATTEMPTS_MAX)]
        with pytest.raises(LostConnection):
            await pool.read("c")
        assert not server.failures
        await ended(pool)
        assert pool.open == 0

    tried(5, scenario)


def test_a_write_that_may_have_happened_is_never_repeated() -> None:
    """G9: its connection is ended, because nobody knows what it is in the middle of."""

    async def scenario(server: Server, pool: Pool) -> None:
        server.failures = [OutcomeUnknown("gone.")]
        with pytest.raises(OutcomeUnknown):
            await pool.write("a", ())
        assert not server.opened[0].usable
        await ended(pool)
        assert pool.open == 0
        await pool.write("b", ())

    tried(5, scenario)


def test_a_server_that_is_away_is_told_to_everybody_and_found_again() -> None:
    async def scenario(server: Server, pool: Pool) -> None:
        server.reachable = False
        told = await asyncio.gather(*(pool.read("a") for _ in range(9)), return_exceptions=True)
        assert all(isinstance(each, UnavailableError) for each in told)
        assert pool.open == 0
        server.reachable = True
        assert await asyncio.gather(*(pool.read("a") for _ in range(9))) == [[]] * 9

    tried(2, scenario)


def test_whoever_is_cancelled_while_waiting_takes_nothing_along() -> None:
    """The next one in the row gets the connection."""

    async def scenario(_server: Server, pool: Pool) -> None:
        async with pool.link():
            first, second = asyncio.ensure_future(pool.read("a")), asyncio.ensure_future(pool.read("b"))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
        assert await second == []
        async with pool.link():
            third, fourth = asyncio.ensure_future(pool.read("c")), asyncio.ensure_future(pool.read("d"))
            await asyncio.sleep(0)
        third.cancel()  # It was its turn already.
        assert await fourth == []
        assert pool.open <= 1

    tried(1, scenario)


def test_whoever_is_cancelled_in_the_middle_ends_only_its_own_connection() -> None:
    """A request that was given up is no reason to connect everybody anew."""

    async def scenario(server: Server, pool: Pool) -> None:
        await asyncio.gather(*(pool.read("a") for _ in range(3)))
        given_up = asyncio.ensure_future(pool.read("b"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await ended(pool)
        assert sum(link.usable for link in server.opened) == pool.open == 2

    tried(3, scenario)


def test_a_pool_that_was_closed_refuses_everybody_who_waits() -> None:
    async def scenario(_server: Server, pool: Pool) -> None:
        async with pool.link() as link:
            waiting = asyncio.ensure_future(pool.read("a"))
            await asyncio.sleep(0)
            await pool.close()
            with pytest.raises(UnavailableError, match="closed"):
                await waiting
        assert not link.usable
        assert pool.open == 0
        with pytest.raises(UnavailableError, match="closed"):
            await pool.read("a")

    tried(1, scenario)


def test_a_write_that_never_left_goes_to_another_connection() -> None:
    """G9: nothing can have happened."""

    async def scenario(server: Server, pool: Pool) -> None:
        server.failures = [LostConnection("gone.") for _ in range(ATTEMPTS_MAX - 1)]
        assert await pool.write("a", ()) == []
        assert len(server.opened) == ATTEMPTS_MAX
        await pool.close()

    tried(5, scenario)


class Full(Server):
    """Takes so many connections, and refuses the others as told."""

    def __init__(self, room: int, refusal: type[NotNow] = NotNow) -> None:
        super().__init__()
        self.room = room
        self.refusal = refusal
        self.refused = 0
        self.coming = 0

    async def connect(self, address: PostgresAddress) -> Link:
        if sum(not link.driver.is_closed() for link in self.opened) + self.coming >= self.room:
            await asyncio.sleep(0)
            self.refused += 1
            raise self.refusal("too many clients already.", why="It is full.")
        self.coming += 1
        try:
            return await super().connect(address)
        finally:
            self.coming -= 1


async def passed(seconds: float) -> None:
    """Wait on the virtual clock."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


def in_virtual_time(server: Server, scenario: Callable[[Pool, VirtualLoop], Coroutine[Any, Any, None]]) -> None:
    """Nobody really waits."""
    loop = VirtualLoop()
    address = PostgresAddress("postgresql://h/d", "postgresql://h/d", connections_max=50, connect_timeout_s=10)
    try:
        loop.run(scenario(Pool(address, server.connect, chance=SystemChance(1)), loop))
    finally:
        loop.leave()


def test_whoever_is_refused_waits_for_a_connection_that_this_node_has() -> None:
    """C16: however long that takes, and the server is not asked by all of them."""
    server = Full(2)

    async def scenario(pool: Pool, loop: VirtualLoop) -> None:
        async with pool.link(), pool.link():
            waiting = [asyncio.ensure_future(pool.read("a")) for _ in range(40)]
            await passed(100)
            assert not any(each.done() for each in waiting)
        assert await asyncio.gather(*waiting) == [[]] * 40
        assert len(server.opened) == pool.open == 2
        assert server.refused < 40 + 2 * loop.time()
        await pool.close()

    in_virtual_time(server, scenario)


@pytest.mark.parametrize("room_s", [0.0, 0.3, 3.0, 9.0])
def test_a_node_without_connections_tries_again_until_there_is_room(room_s: float) -> None:
    """One at a time, less and less often; and everybody goes on within a second of it."""
    server = Full(0)

    async def scenario(pool: Pool, loop: VirtualLoop) -> None:
        waiting = [asyncio.ensure_future(pool.read("a")) for _ in range(100)]
        await passed(room_s)
        server.room = 7
        assert await asyncio.gather(*waiting) == [[]] * 100
        assert loop.time() <= room_s + 1.0
        assert 1 <= len(server.opened) <= 7
        await pool.close()

    in_virtual_time(server, scenario)
    assert server.refused < 300


def test_a_node_without_connections_gives_up_after_its_time() -> None:
    """And says for how long it has tried; whoever comes later has a time of their own."""
    server = Full(0)

    async def scenario(pool: Pool, loop: VirtualLoop) -> None:
        for begin_s in (0.0, 10.0):
            told = await asyncio.gather(*(pool.write("a", ()) for _ in range(60)), return_exceptions=True)
            assert all("again and again for 10 s" in str(each) for each in told)
            assert 10.0 <= loop.time() - begin_s <= 12.0
        assert pool.open == 0
        await pool.close()

    in_virtual_time(server, scenario)
    assert server.refused < 160


def test_a_server_that_was_never_there_is_not_waited_for_and_one_that_was_is() -> None:
    """A wrong address is told at once; a restart is survived."""
    server = Full(0, Away)

    async def scenario(pool: Pool, loop: VirtualLoop) -> None:
        with pytest.raises(Away):
            await pool.read("a")
        assert loop.time() == 0.0
        server.room = 1
        assert await pool.read("a") == []
        server.room = 0
        server.opened[0].driver.terminate()
        waiting = asyncio.ensure_future(pool.read("a"))
        await passed(3)
        assert not waiting.done()
        server.room = 1
        assert await waiting == []
        await pool.close()

    in_virtual_time(server, scenario)


def test_whoever_is_cancelled_while_it_tries_leaves_the_trying_to_another() -> None:
    server = Full(0)

    async def scenario(pool: Pool, _loop: VirtualLoop) -> None:
        waiting = [asyncio.ensure_future(pool.read("a")) for _ in range(5)]
        await passed(1)
        for each in waiting[:4]:
            each.cancel()
        server.room = 1
        assert await waiting[4] == []
        assert pool.open == 1
        await pool.close()

    in_virtual_time(server, scenario)


def test_connections_that_a_burst_has_opened_are_closed_when_they_were_idle_for_a_minute() -> None:
    """The one that is in use stays."""
    server = Server()

    async def scenario(pool: Pool, loop: VirtualLoop) -> None:
        await asyncio.gather(*(pool.read("a") for _ in range(20)))
        assert pool.open == 20
        while loop.time() < IDLE_S_MAX - 1:
            await passed(10)
            await pool.read("a")
        await passed(5)
        assert pool.open == 1
        await passed(IDLE_S_MAX)
        assert pool.open == 0
        assert await pool.read("a") == []
        await pool.close()
        assert all(link.driver.is_closed() for link in server.opened)

    in_virtual_time(server, scenario)


@pytest.mark.parametrize("ending", ["as it should", "cancelled"])
def test_a_caller_that_waits_is_not_overtaken_by_those_who_come_back_without_a_pause(ending: str) -> None:
    """A writer in a loop releases its connection and takes it again before the woken caller runs."""

    async def scenario(_server: Server, pool: Pool) -> None:
        async with asyncio.TaskGroup() as group:

            async def write_on() -> None:
                while True:
                    await pool.write("c", ())

            writers = [group.create_task(write_on()) for _ in range(4)]
            for _ in range(20):
                await asyncio.sleep(0)
            if ending == "cancelled":  # A turn that is not taken goes to the next one.
                given_up = [group.create_task(pool.read("a")) for _ in range(3)]
                for turn in range(6):
                    await asyncio.sleep(0)
                    given_up[turn % 3].cancel()
            finished = [group.create_task(pool.read("a")) for _ in range(5)]
            turns = 0
            while not all(each.done() for each in finished):
                turns += 1
                assert turns < 200, "it starves"
                await asyncio.sleep(0)
            for each in writers:
                each.cancel()
        assert pool._promised == 0
        await pool.close()

    tried(2, scenario)
