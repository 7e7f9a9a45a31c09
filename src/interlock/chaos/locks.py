"""Proof of locks: contenders in several processes acquire one lease, and its holder is frozen and woken.

Mutual exclusion is proved at the protected resource, which refuses a write with a lower token than it has accepted. So
its accepted writes came from one holder after the other. It must also refuse the write of the holder that was frozen
past its lease. The wall clock of one process is an hour ahead, which must change nothing.

The proof does not show that only one process *believes* to hold the lease: no lock over a network can keep a process
from being frozen between its check and its write. Tokens exist for that reason.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import logging
import os
import signal
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

import apsw
import msgspec

from interlock.chaos.server_parent import die_with_parent
from interlock.clock import SystemClock
from interlock.engine.engine import Engine
from interlock.engine.leases import Lease
from interlock.errors import BadUsage, UnavailableError
from interlock.examples.order import order
from interlock.testing.faults import Process, Processes

# --- Contenders ------------------------------------------------------------------------------------------------------
# Each contender acquires the lease repeatedly and writes twice under it, with its token. Contenders never check
# whether their lease is lost: only the resource protects itself from a former holder. In one process, the first holder
# freezes the whole process (SIGSTOP) between its two writes, and writes again after it was woken. The resource is a
# table of SQLite that all processes have open; it records every attempt for the audit.

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

    def attempts(self) -> "list[Attempt]":
        """Return every attempt in order."""
        rows = self._connection.execute("SELECT process, contender, token, moment, taken FROM attempt ORDER BY number")
        return [(int(row[0]), int(row[1]), int(row[2]), row[3], bool(row[4])) for row in rows]

    def close(self) -> None:
        """Close it."""
        self._connection.close()


class WrongClock:
    """The machine's clocks, with a wall clock that is wrong by a fixed offset."""

    def __init__(self, wrong_by_s: float) -> None:
        self._clock = SystemClock()
        self._wrong_by_s = wrong_by_s

    def wall_s(self) -> float:
        """Seconds since the epoch, plus the offset."""
        return self._clock.wall_s() + self._wrong_by_s

    def monotonic_s(self) -> float:
        """Seconds of the machine's monotonic clock."""
        return self._clock.monotonic_s()


class ContenderPlan(msgspec.Struct, frozen=True, kw_only=True):
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
    plan = msgspec.json.decode(plan_json, type=ContenderPlan)
    with closing(Resource(Path(plan.resource), fenced=plan.fenced)) as resource:
        asyncio.run(_Process(say, plan, resource).live())


class _Process:
    def __init__(self, say: Say, plan: ContenderPlan, resource: Resource) -> None:
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


# --- Proof -----------------------------------------------------------------------------------------------------------

CONTENDERS: Final = 50
CONTENDERS_MAX: Final = 500
PROCESSES: Final = 5
PROCESSES_MAX: Final = 20
SECONDS: Final = 6.0
LEASE_S: Final = 1.5
WRONG_BY_S: Final = 3_600.0

FROZEN, WRONG = 0, 1
"""The numbers of the process that is frozen and of the process with a wrong clock."""

TURNS_MEANWHILE: Final = 3
"""How often another process acquires the lease before the frozen one is woken."""

WAKING_S: Final = 1.0
WAKINGS_MAX: Final = 20

WORKLOAD: Final = "interlock.chaos.locks:contend"
FILE: Final = "treasure.sqlite"
ENOUGH: Final = "enough"

Attempt = tuple[int, int, int, Moment, bool]
"""Process, contender, token, moment, and whether the write was accepted."""


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of the turns over the contenders. They retry at random: the lease has no queue."""

    least: int
    median: float
    most: int
    busiest_process_share: float
    """Share of all turns; 1 / processes if the turns are even."""


class Locks(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the proof."""

    contenders: int
    processes: int
    seconds: float
    acquisitions: int
    violations: int
    """Writes accepted after one with a higher token, and tokens that two contenders had. Must be 0."""
    refused_late_writes: int
    """Writes of former holders that the resource refused; the frozen holder's must be among them."""
    holder_frozen: bool
    """Whether others acquired the lease while its former holder was frozen: otherwise the run proves nothing."""
    frozen_write_refused: bool
    holder_knew: bool
    """Whether the lease object of the woken holder reported that it is lost."""
    wrong_clock_by_s: float
    wrong_clock_acquisitions: int
    """Acquisitions of the process with the wrong clock, which must get a share like the others."""
    fairness: Fairness


def run_locks(
    redis_url: str,
    folder: Path,
    *,
    contenders: int = CONTENDERS,
    processes: int = PROCESSES,
    seconds: float = SECONDS,
    lease_s: float = LEASE_S,
    fenced: bool = True,
) -> Locks:
    """Let contenders in several processes compete for at least `seconds`, and audit the resource's record.

    `fenced=False` is sabotage: the resource checks no token, which must show as violations.
    """
    _check_bounds(contenders, processes, seconds, lease_s)
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Resource(folder / FILE)) as resource, Processes() as starting:
        resource.make()
        started: list[Process] = []
        for number in range(processes):
            plan = ContenderPlan(
                redis=redis_url,
                resource=str(folder / FILE),
                enough=str(folder / ENOUGH),
                process=number,
                contenders=contenders // processes + (number < contenders % processes),
                seconds=seconds,
                lease_s=lease_s,
                fenced=fenced,
                freezes=number == FROZEN,
                wrong_by_s=WRONG_BY_S if number == WRONG else 0.0,
            )
            started.append(starting.start(WORKLOAD, msgspec.json.encode(plan).decode()))
        frozen, meanwhile, knew = _freeze_and_wake(started[FROZEN], started[WRONG])
        (folder / ENOUGH).touch()
        _wait_for_ends(started)
        attempts = resource.attempts()
    entered = [(process, contender) for process, contender, _, moment, taken in attempts if taken and moment == "enter"]
    by_process = Counter(process for process, _ in entered)
    return Locks(
        contenders=contenders,
        processes=processes,
        seconds=seconds,
        acquisitions=len(entered),
        violations=violations(attempts),
        refused_late_writes=sum(not taken for *_, taken in attempts),
        holder_frozen=meanwhile > 0,
        frozen_write_refused=any(token == frozen and not taken for _, _, token, _, taken in attempts),
        holder_knew=knew,
        wrong_clock_by_s=WRONG_BY_S,
        wrong_clock_acquisitions=by_process[WRONG],
        fairness=fairness(Counter(entered), contenders),
    )


def violations(attempts: Sequence[Attempt]) -> int:
    """Count the accepted writes that contradict one holder at a time."""
    highest = late = 0
    holders: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    for process, contender, token, _, taken in attempts:
        if taken:
            late += token < highest
            highest = max(highest, token)
            holders[token].add((process, contender))
    return late + sum(len(each) - 1 for each in holders.values())


def fairness(turns: Counter[tuple[int, int]], contenders: int) -> Fairness:
    """Return how evenly the turns were distributed, contenders without a turn included."""
    counts = [*turns.values(), *[0] * (contenders - len(turns))]
    by_process: Counter[int] = Counter()
    for (process, _), count in turns.items():
        by_process[process] += count
    share = max(by_process.values(), default=0) / max(1, turns.total())
    return Fairness(least=min(counts), median=statistics.median(counts), most=max(counts), busiest_process_share=share)


def _freeze_and_wake(holding: Process, other: Process) -> tuple[int, int, bool]:
    """Return the frozen holder's token, the other process's acquisitions meanwhile, and whether the holder noticed."""
    token = next((int(line.split()[1]) for line in holding.lines() if line.startswith("frozen")), 0)
    if not token:
        return 0, 0, False  # It ended without having had the lease.
    meanwhile = 0
    for line in other.lines():
        # Lines from before the freeze have lower tokens and do not count.
        meanwhile += int(line.split()[1]) > token
        if meanwhile == TURNS_MEANWHILE:
            break
    for _ in range(WAKINGS_MAX):
        os.kill(holding.number, signal.SIGCONT)
        for line in holding.lines_for(WAKING_S):
            if line.startswith("woken"):
                return token, meanwhile, line.endswith("1")
    raise UnavailableError("the frozen process does not wake up.", why="SIGCONT had no effect on it.")


def _wait_for_ends(started: Sequence[Process]) -> None:
    for process in started:
        try:
            process.end()
        except RuntimeError as error:
            raise UnavailableError(
                f"a process of contenders has failed: {error}",
                why="Contenders tolerate a slow or absent Redis; this was another error.",
                fix="Look at the error.",
            ) from error


def _check_bounds(contenders: int, processes: int, seconds: float, lease_s: float) -> None:
    for what, value, least, most in (
        ("processes", processes, 2, PROCESSES_MAX),
        ("contenders", contenders, processes, CONTENDERS_MAX),
        ("seconds", seconds, 2 * lease_s, SECONDS_MAX),
    ):
        if not least <= value <= most:
            raise BadUsage(
                f"the proof of locks cannot have {value:g} {what}; {least:g} to {most:g}.",
                why="It is bounded in time and number, and the holder has to be frozen for longer than its lease.",
                fix="Choose a number from this range.",
            )
