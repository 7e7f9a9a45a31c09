"""Program of a process with many contenders for one lease, which write to a fenced resource. `locks` starts several.

Each contender acquires the lease repeatedly and writes twice under it, with its token. Contenders never check whether
their lease is lost: only the resource protects itself from a former holder. In one process, the first holder freezes
the whole process (SIGSTOP) between its two writes, and writes again after it was woken.

The resource is a table of SQLite that all processes have open. It accepts a write unless it has accepted one with a
higher token, and records every attempt for the audit.
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
    """The resource that the lease protects. Without `fenced` it accepts every write, which the proof must detect."""

    def __init__(self, path: Path, *, fenced: bool = True) -> None:
        self._fenced = fenced
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(BUSY_MS_MAX)
        self._connection.execute("PRAGMA synchronous = OFF")

    def make(self) -> None:
        """Create the table."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(TABLE)
        self._connection.execute(HIGHEST)

    def write(self, process: int, contender: int, token: int, moment: Moment) -> bool:
        """Write with a token; return whether the write was accepted. Check and write are one atomic statement."""
        return bool(self._connection.execute(ATTEMPT, (process, contender, token, moment, self._fenced)).get)

    def attempts(self) -> list[tuple[int, int, int, Moment, bool]]:
        """Return every attempt in order: process, contender, token, moment, and whether it was accepted."""
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
    """The machine's clocks, with a wall clock that is wrong by a fixed offset."""

    def __init__(self, wrong_by_s: float) -> None:
        self._wrong_by_s = wrong_by_s

    def wall_s(self) -> float:
        """Seconds since the epoch, plus the offset."""
        return super().wall_s() + self._wrong_by_s


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of one process."""

    redis: str
    resource: str
    enough: str
    """Path of a file: contenders begin no further turn once it exists and the seconds are over."""
    process: int
    contenders: int
    seconds: float
    lease_s: float
    fenced: bool = True
    freezes: bool = False
    wrong_by_s: float = 0.0


def contend(say: Say, plan_json: str) -> None:
    """Run one process to its end, with its plan as JSON."""
    die_with_parent()  # Also while it is frozen.
    logging.disable(logging.WARNING)  # Lost leases are expected here.
    plan = msgspec.json.decode(plan_json, type=Plan)
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
        while self._continues():
            try:
                async with engine.lease(NAME, wait_s=self._plan.lease_s, lease_s=self._plan.lease_s) as lease:
                    await self._turn(contender, lease)
            except UnavailableError:
                # The lease was not granted in time, or this process was starved for so long that Redis seemed gone.
                continue

    def _continues(self) -> bool:
        """Return whether contenders continue: for the planned seconds, and until the frozen process was woken."""
        past_s = self._clock.monotonic_s() - self._begun_s
        return past_s < self._plan.seconds or (past_s < SECONDS_MAX and not Path(self._plan.enough).exists())

    async def _turn(self, contender: int, lease: Lease) -> None:
        process, token = self._plan.process, lease.token
        self._resource.write(process, contender, token, "enter")
        self._say(f"held {token}")
        await asyncio.sleep(0)  # Another task that believes to hold the lease may write now.
        if not self._freezes:
            self._resource.write(process, contender, token, "leave")
            return
        self._freezes = False
        self._say(f"frozen {token}")
        os.kill(os.getpid(), signal.SIGSTOP)
        self._resource.write(process, contender, token, "leave")
        self._say(f"woken {int(lease.lost)}")
