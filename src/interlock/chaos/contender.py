"""A process full of those who want one lease, and write to what it protects. `locks` starts some of them.

Each takes the lease again and again, and writes twice under it, with its token. None ever looks whether its lease is
lost: only the resource keeps a former holder from doing harm. In one process the first who has it freezes the whole
process in the middle of the turn, SIGSTOP, and writes once more when it is woken.

The resource is a table of SQLite that all processes have open. It takes a write unless it has taken one with a higher
token, and writes down every attempt, so that what happened can be audited afterwards.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import apsw
import msgspec

from interlock.chaos.keeper import die_with_parent
from interlock.errors import UnavailableError
from interlock.examples.order import order
from interlock.runtime.engine import Engine
from interlock.runtime.leases import Lease
from interlock.seams import SystemClock

NAME: Final = "treasure"
BUSY_MS_MAX: Final = 30_000
SECONDS_MAX: Final = 30.0

Say = Callable[[str], None]
Moment = Literal["enter", "leave"]

TABLE = """CREATE TABLE attempt (number INTEGER PRIMARY KEY, process INTEGER NOT NULL, contender INTEGER NOT NULL,
    token INTEGER NOT NULL, moment TEXT NOT NULL, taken INTEGER NOT NULL)"""
HIGHEST = "CREATE INDEX highest ON attempt (token) WHERE taken"
ATTEMPT = """INSERT INTO attempt (process, contender, token, moment, taken) SELECT ?1, ?2, ?3, ?4,
    NOT ?5 OR ?3 >= (SELECT coalesce(max(token), 0) FROM attempt WHERE taken) RETURNING taken"""


class Resource:
    """What the lease protects. Without `fenced` it believes everybody: the sabotage that the proof must notice."""

    def __init__(self, path: Path, *, fenced: bool = True) -> None:
        self._fenced = fenced
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(BUSY_MS_MAX)
        self._connection.execute("PRAGMA synchronous = OFF")

    def make(self) -> None:
        """Make the table."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(TABLE)
        self._connection.execute(HIGHEST)

    def write(self, process: int, contender: int, token: int, moment: Moment) -> bool:
        """Write with a token; whether it was taken. One statement: looking and writing are one step for everybody."""
        return bool(self._connection.execute(ATTEMPT, (process, contender, token, moment, self._fenced)).get)

    def attempts(self) -> list[tuple[int, int, int, Moment, bool]]:
        """Every attempt in order: process, contender, token, moment, and whether it was taken."""
        rows = self._connection.execute("SELECT process, contender, token, moment, taken FROM attempt ORDER BY number")
        return [(int(row[0]), int(row[1]), int(row[2]), row[3], bool(row[4])) for row in rows]

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WrongClock(SystemClock):
    """The machine's clocks, of which that on the wall is wrong."""

    def __init__(self, wrong_by_s: float) -> None:
        self._wrong_by_s = wrong_by_s

    def wall_s(self) -> float:
        """Seconds since the epoch, and some more."""
        return super().wall_s() + self._wrong_by_s


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one process does."""

    redis: str
    resource: str
    enough: str
    """Nobody begins another turn when there is such a file, and the seconds are over."""
    process: int
    contenders: int
    seconds: float
    lease_s: float
    fenced: bool = True
    freezes: bool = False
    wrong_by_s: float = 0.0


def contend(say: Say, told: str) -> None:
    """The whole life of one process; it is told its plan as JSON."""
    die_with_parent()  # Also while it is frozen.
    logging.disable(logging.WARNING)  # That a lease was lost is what this is about, and no news.
    plan = msgspec.json.decode(told, type=Plan)
    with Resource(Path(plan.resource), fenced=plan.fenced) as resource:
        asyncio.run(_Process(say, plan, resource).live())


class _Process:
    def __init__(self, say: Say, plan: Plan, resource: Resource) -> None:
        self._say = say
        self._plan = plan
        self._resource = resource
        self._clock = WrongClock(plan.wrong_by_s)
        self._freezes = plan.freezes
        self._begun_s = 0.0

    async def live(self) -> None:
        plan = self._plan
        async with (
            Engine.open("memory:", machines=[order], redis=plan.redis, clock=self._clock) as engine,
            asyncio.TaskGroup() as group,
        ):
            self._begun_s = self._clock.monotonic_s()
            for contender in range(plan.contenders):
                group.create_task(self._contend(engine, contender))

    async def _contend(self, engine: Engine, contender: int) -> None:
        while self._goes_on():
            try:
                async with engine.lease(NAME, wait_s=self._plan.lease_s, lease_s=self._plan.lease_s) as lease:
                    await self._turn(contender, lease)
            except UnavailableError:
                # It was not given in time, or this process was starved for so long that it took Redis for gone.
                continue

    def _goes_on(self) -> bool:
        """For so many seconds, and then until the frozen one was woken: a slow machine takes longer for that."""
        past_s = self._clock.monotonic_s() - self._begun_s
        return past_s < self._plan.seconds or (past_s < SECONDS_MAX and not Path(self._plan.enough).exists())

    async def _turn(self, contender: int, lease: Lease) -> None:
        process, token = self._plan.process, lease.token
        self._resource.write(process, contender, token, "enter")
        self._say(f"held {token}")
        await asyncio.sleep(0)  # Whoever else believes to have it may write now.
        if not self._freezes:
            self._resource.write(process, contender, token, "leave")
            return
        self._freezes = False
        self._say(f"frozen {token}")
        os.kill(os.getpid(), signal.SIGSTOP)
        self._resource.write(process, contender, token, "leave")
        self._say(f"woken {int(lease.lost)}")
