"""What a lane has to hold, as checks: each raises AssertionError when it does not."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from interlock import Database
from interlock.database.lane_engine import OnLane
from interlock.errors import MovedElsewhere
from interlock.lanes.lane import Lane
from interlock.lanes.writer import Session, Work
from interlock.testing.faults import FaultyDisk
from tests.crash.power import work_through_cuts
from tests.unit.lanes.lanes import count, group, increment, make_counter, opened, sql
from tests.unit.lanes.movers import THERE, WAIT_S, leaving, meeting

Check = Callable[[Path], Awaitable[None]]


async def acknowledged_survives_power_cuts(folder: Path) -> None:
    """G2, G3: in every disk that a power cut may leave, what was acknowledged is there, wholly, with its key."""
    await _cut(folder, by_loop=False)


async def what_a_loop_wrote_survives_power_cuts(folder: Path) -> None:
    """G2, G3: the same, where the event loop writes the groups itself."""
    await _cut(folder, by_loop=True)


async def _cut(folder: Path, *, by_loop: bool) -> None:
    disk = FaultyDisk("faulty-sabotage")
    try:
        cuts = await work_through_cuts(disk, folder, seed=7, by_loop=by_loop)
    finally:
        disk.close()
    assert not cuts.failures, cuts.failures[:3]


async def a_failure_stays_alone(folder: Path) -> None:
    """A transaction that fails halfway leaves nothing, and its neighbours everything."""

    def half(session: Session) -> object:
        session.execute("UPDATE counter SET n = n + 100 WHERE id = 1")
        raise KeyError("halfway")

    with opened(folder / "x") as lane:
        await make_counter(lane)
        answers = await group(lane, increment(), Work(half), increment())
        assert [answers[0], answers[2]] == [1, 1]
        assert await count(lane) == 2


async def a_vanished_group_is_run_again(folder: Path) -> None:
    """A transaction that takes the group with it harms nobody."""
    with opened(folder / "x") as lane:
        await make_counter(lane)
        culprit = sql("INSERT OR ROLLBACK INTO counter VALUES (1, 7)")
        answers = await group(lane, increment(), culprit, increment())
        assert [answers[0], answers[2]] == [1, 1]
        assert await count(lane) == 2


async def a_commit_inside_is_refused(folder: Path) -> None:
    """COMMIT in a user's transaction is refused, also after ours has been executed many times."""
    with opened(folder / "x") as lane:
        await make_counter(lane)
        for statement in ("COMMIT", "ROLLBACK TO work", "RELEASE work"):
            before = await count(lane)
            answers = await group(lane, increment(), sql(statement), increment())
            assert [answers[0], answers[2]] == [1, 1]
            assert "not allowed" in str(answers[1]), str(answers[1])
            assert await count(lane) == before + 2


class SlowHandOff:
    """A hand-off that tells when it begins, and ends when it is let."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.begun = asyncio.Event()
        self.open = False
        self._loop = loop
        self._let = threading.Event()

    def __call__(self) -> None:
        self._loop.call_soon_threadsafe(self.begun.set)
        if not self.open:
            self._let.wait()

    def let(self) -> None:
        self.open = True
        self._let.set()


async def no_acknowledgement_before_the_hand_off(folder: Path) -> None:
    """D2: nobody is told before the group has been handed on."""
    hand_off = SlowHandOff(asyncio.get_running_loop())
    hand_off.open = True
    with opened(folder / "x", hand_off=hand_off) as lane:
        await make_counter(lane)
        hand_off.begun.clear()
        hand_off.open = False
        writing = asyncio.ensure_future(lane.run(increment()))
        begun = asyncio.ensure_future(hand_off.begun.wait())
        try:
            await asyncio.wait({writing, begun}, return_when=asyncio.FIRST_COMPLETED)
            assert not writing.done()
        finally:
            hand_off.let()
            begun.cancel()
        assert await writing == 1


async def no_read_before_the_hand_off(folder: Path) -> None:
    """G7: no reader is shown what has not been handed on."""
    hand_off = SlowHandOff(asyncio.get_running_loop())
    hand_off.open = True
    with opened(folder / "x", hand_off=hand_off) as lane:
        await make_counter(lane)
        hand_off.begun.clear()
        hand_off.open = False
        writing = asyncio.ensure_future(lane.run(increment()))
        await hand_off.begun.wait()
        reading = asyncio.ensure_future(read_count(lane))
        try:
            while not (lane._held_reads or reading.done()):  # noqa: ASYNC110 -- held or answered: one of both happens.
                await asyncio.sleep(0)
            assert not (reading.done() and reading.result() == 1), "shown before it was handed on"
        finally:
            hand_off.let()
        assert await reading == 1
        assert await writing == 1


async def no_interactive_read_before_the_hand_off(folder: Path) -> None:
    """G7: a read-only transaction is shown nothing that has not been handed on."""
    hand_off = SlowHandOff(asyncio.get_running_loop())
    hand_off.open = True
    async with Database.open(f"lanes://{folder}/x", hand_off=hand_off) as db:
        await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n integer)")
        hand_off.begun.clear()
        hand_off.open = False
        writing = asyncio.ensure_future(db.execute("INSERT INTO counter VALUES (1, 1)"))
        await hand_off.begun.wait()
        tx = db.transaction(read_only=True)
        reading = asyncio.ensure_future(tx.query("SELECT n FROM counter"))
        lane = cast("OnLane", db._engine).lane
        try:
            while not (lane._held_reads or reading.done()):  # noqa: ASYNC110 -- as above.
                await asyncio.sleep(0)
            assert not reading.done(), "shown before it was handed on"
        finally:
            hand_off.let()
        assert (await reading, await writing) == ([(1,)], 1)
        await tx.rollback()


async def no_acknowledgement_waits_for_an_interactive_transaction(folder: Path) -> None:
    """An interactive transaction is alone in its group: what runs beside it is acknowledged while it is open."""
    async with Database.open(f"lanes://{folder}/x", transaction_timeout_s=60.0) as db:
        await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n integer)")
        first, second = db.transaction(), db.transaction()
        await first.execute("INSERT INTO counter VALUES (1, 1)")
        begun = asyncio.ensure_future(second.execute("INSERT INTO counter VALUES (2, 1)"))
        await asyncio.sleep(0)
        single = asyncio.ensure_future(db.execute("INSERT INTO counter VALUES (3, 1)"))
        await asyncio.sleep(0)
        await first.commit()
        assert await begun == 1
        done, _ = await asyncio.wait([single], timeout=5.0)
        await second.rollback()
        await single
        assert done, "acknowledged only after another transaction has ended"


async def read_count(lane: Lane) -> object:
    return await lane.read(lambda connection: connection.execute("SELECT n FROM counter WHERE id = 1").get)


async def nothing_happens_at_a_place_that_was_left(folder: Path) -> None:
    """Whoever waits at the seal when the mover leaves has not written, and nobody reads there any more."""
    with opened(folder / "x") as lane, leaving(folder / "x") as mover:
        await make_counter(lane)
        with meeting() as met, mover.sealed(WAIT_S) as seal:
            waiting = asyncio.ensure_future(lane.run(increment()))
            await asyncio.to_thread(met.wait)
            seal.leave(THERE, 1)
        read = lane.read(lambda connection: connection.execute("SELECT n FROM counter").get)
        answers = await asyncio.gather(waiting, read, return_exceptions=True)
        assert [type(answer) for answer in answers] == [MovedElsewhere, MovedElsewhere], answers
        assert mover.connection.execute("SELECT n FROM counter").get == 0
