"""The connections of a database on PostgreSQL: never too many, never shared, honest when the server goes (G2, G6)."""

import asyncio
import itertools
import os
import threading

import pytest

from interlock.database.database import Database
from interlock.errors import InterlockError, OutcomeUnknown, Overloaded, UnavailableError
from tests.integration.postgres.databases.servers import counter, named, value
from tests.integration.postgres.test_restarts import OwnServer, own_server

__all__ = ["own_server"]

ADD = "UPDATE c SET n = n + 1 WHERE id = 1"
READ_ADD = "UPDATE c SET n = (SELECT n FROM c WHERE id = 1) + 1 WHERE id = 1"


def test_five_hundred_calls_need_no_more_connections_than_allowed(postgres_url: str) -> None:
    async def scenario() -> None:
        async with (
            counter(postgres_url) as db,
            Database.open(named(postgres_url, "many") + "&connections_max=7") as many,
        ):
            calls = [many.execute((ADD, READ_ADD)[number % 2]) for number in range(500)]
            storm = asyncio.gather(*calls)
            most = 0
            while not storm.done():
                [(now,)] = await db.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'many'")
                assert isinstance(now, int)
                most = max(most, now)
            assert sum(await storm) == await value(db) == 500
            assert 0 < most <= 7

    asyncio.run(scenario())


class Writers:
    """Writers that go on until they are stopped, and what they were told."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.done = self.unknown = 0
        self.stopped = False
        self._moved = asyncio.Event()

    async def write(self, sql: str) -> None:
        """Without a key: what may have happened is counted."""
        while not self.stopped:
            try:
                self._acknowledged(await self._db.execute(sql))
            except OutcomeUnknown:
                self.unknown += 1
            except UnavailableError:
                continue

    async def write_once(self, name: str) -> None:
        """With a key: it is repeated until it is acknowledged."""
        for number in itertools.count():
            while True:
                try:
                    self._acknowledged(await self._db.execute(ADD, key=f"{name}-{number}"))
                    break
                except (OutcomeUnknown, UnavailableError):
                    continue
            if self.stopped:
                return

    async def more(self, number: int) -> None:
        """Until so many more were acknowledged."""
        until = self.done + number
        while self.done < until:
            self._moved.clear()
            await self._moved.wait()

    def _acknowledged(self, changed: int) -> None:
        self.done += changed
        self._moved.set()


@pytest.mark.slow
def test_a_crash_of_the_server_is_survived_without_a_lost_or_doubled_write(own_server: OwnServer) -> None:
    """Reads are repeated; a write has happened once, or says that nobody can know (G9)."""

    async def scenario() -> None:
        async with counter(f"{own_server.url}&schema=crashed") as db:
            writers = Writers(db)
            tasks = [asyncio.ensure_future(writers.write(sql)) for sql in (ADD, READ_ADD) for _ in range(4)]
            tasks += [asyncio.ensure_future(writers.write_once(f"w{number}")) for number in range(4)]
            for _ in range(2):
                await writers.more(100)
                reads = [asyncio.ensure_future(db.query("SELECT n FROM c")) for _ in range(8)]
                await asyncio.to_thread(own_server.restart, "immediate")
                await asyncio.gather(*reads)
            await writers.more(100)
            writers.stopped = True
            await asyncio.gather(*tasks)
            found = await value(db)
            assert isinstance(found, int)
            assert writers.done <= found <= writers.done + writers.unknown

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_full_server_is_waited_for_and_then_said_to_be_full(postgres_url: str) -> None:
    async def scenario() -> None:
        async with counter(postgres_url) as db:
            await db.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
            try:
                address = postgres_url.replace("postgres:", "crowded:", 1)
                with pytest.raises(UnavailableError, match="too many"):
                    await Database.open(f"{address}&connect_timeout_s=3")
            finally:
                await db.execute("DROP ROLE crowded")

    asyncio.run(scenario())


def test_one_database_serves_two_event_loops_and_outlives_one(postgres_url: str) -> None:
    async def scenario() -> None:
        async with counter(postgres_url) as db:
            failures: list[BaseException] = []

            def elsewhere() -> None:
                try:
                    asyncio.run(adds())
                except BaseException as error:  # noqa: BLE001 -- it is looked at below.
                    failures.append(error)

            async def adds() -> None:
                await asyncio.gather(*[db.execute(sql) for sql in (ADD, READ_ADD) for _ in range(10)])

            for _ in range(2):
                thread = threading.Thread(target=elsewhere)
                thread.start()
                await adds()
                await asyncio.to_thread(thread.join)
            assert failures == []
            assert await value(db) == 80

    asyncio.run(scenario())


def test_a_child_process_does_not_use_its_parents_connections(postgres_url: str) -> None:
    async def scenario() -> None:
        async with counter(postgres_url) as db:
            await db.execute(ADD)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    db.execute(ADD).send(None)
                except InterlockError:
                    code = 0
                finally:
                    os._exit(code)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            await db.execute(ADD)
            assert await value(db) == 2

    asyncio.run(scenario())


def test_more_calls_than_may_wait_are_refused_at_once(postgres_url: str) -> None:
    """G6: what waits is bounded by queue_max, as in a lane."""

    async def scenario() -> None:
        async with Database.open(postgres_url, queue_max=5) as db:
            answers = await asyncio.gather(*(db.query("SELECT 1") for _ in range(8)), return_exceptions=True)
            assert [type(answer) for answer in answers[5:]] == [Overloaded] * 3
            assert answers[:5] == [[(1,)]] * 5
            assert await db.query("SELECT 1") == [(1,)]

    asyncio.run(scenario())
