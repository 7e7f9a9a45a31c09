"""Experiment 4: every acknowledged commit survives a crash, and no transaction is ever there by half (D12, G2).

A process of its own writes with many clients and says what was acknowledged, through a pipe. At a moment chosen by
chance it is killed, kill -9. Then the database is opened again and compared with what was said: everything that was
acknowledged is there, of each client at most the one transaction that was under way besides, and the three rows of
every transaction agree. On a bucket the local disk is lost as well, every other time.

What it does not show is a machine that loses its power: a killed process leaves what the system had already taken over
for writing. The tests of the repository cut the power of a simulated disk.
"""

import asyncio
import shutil
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from interlock.bench.durability_child import ACCOUNT, FIRST_OWN, OPENED, TABLES, TILLS, opening
from interlock.bench.grounds import Ground, Kind, ground
from interlock.errors import BadUsage, CorruptionError, UnavailableError
from interlock.seams import SystemChance, SystemClock
from interlock.sql.executor import Statements
from interlock.testing.faults.processes import Process, Processes

CYCLES: Final = 20
CYCLES_MAX: Final = 10_000
CLIENTS: Final = 16
CLIENTS_MAX: Final = 500
LEASE_S: Final = 1.0
"""On a bucket: who lost its disk waits so long for the lease of the life that was killed."""

LINES_MAX: Final = 200
"""A life is killed after at most so many acknowledgements."""

MOMENT_S_MAX: Final = 0.005
"""And at most so long after the last of them that was waited for: somewhere within a group."""

EARLY_ONE_IN: Final = 5
EARLY_S_MAX: Final = 0.05
"""One life in so many is killed so soon after its start: while it opens, recovers, or has just begun."""

RECOVERY_S_MAX: Final = 30.0
RECOVERY_PAUSE_S: Final = 0.05
"""How long, and how often, the database is tried after a crash."""

WRITER: Final = "interlock.bench.durability_child:write"
DATABASE: Final = "ledger"

TOLD: Final = (
    "What is acknowledged is durable; what was under way when the process died may be there or not, but whole. "
    "A kill is not a power cut: what the system had taken over for writing is written all the same."
)

LINES = "SELECT client, turn FROM ledger WHERE cycle = $1"
COUNTS = "SELECT cycle, count(*) FROM ledger WHERE cycle < $1 GROUP BY cycle"
ACCOUNTS = "SELECT id, units FROM account"
BY_CLIENT = "SELECT client, count(*) FROM ledger GROUP BY client"
BY_TILL = "SELECT till, count(*) FROM ledger GROUP BY till"


class Cycle(msgspec.Struct, frozen=True, kw_only=True):
    """One life, its end, and what was found afterwards."""

    cycle: int
    acknowledged: int
    found: int
    in_doubt: int
    """Found without an acknowledgement: under way when the process died, and whole."""
    lost: int
    """Acknowledged and not found. Must be 0."""
    torn: int
    """Accounts that do not agree with the ledger. Must be 0."""
    disk_lost: bool
    recovery_ms: float
    """From the kill to the first answer of the database that was opened again."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """The whole experiment."""

    name: str = "durability"
    engine: Kind
    url: str
    seed: int
    clients: int
    acknowledged: int
    found: int
    in_doubt: int
    lost: int
    torn: int
    recovery_p50_ms: float
    recovery_max_ms: float
    cycles: list[Cycle]
    told: str = TOLD


Watcher = Callable[[Cycle], None]
Strike = Callable[[Process], None]
"""Kills a life, and whatever else a crash takes with it. The life may have failed by then."""


class Said(NamedTuple):
    """What a life said before it died."""

    acknowledged: dict[int, int]
    """The last turn of each client, 0 if none; all turns before it were acknowledged, too."""
    failed: list[str]
    """Why it could not go on, if it could not."""


class State(NamedTuple):
    """What is in the database, read in one transaction."""

    turns: dict[int, set[int]]
    """Of the last life, by client."""
    before: dict[int, int]
    """How many of each life before."""
    torn: int


async def measure(
    *,
    url: str | None,
    cycles: int,
    clients: int,
    seed: int,
    watch: Watcher,
    strike: Strike | None = None,
    writer: str = WRITER,
    lease_s: float = LEASE_S,
) -> Experiment:
    """Kill so many lives; stops at the first that lost or tore anything, which `check` raises.

    With a `strike` of one's own more may be killed than the process, and a life may fail before it dies. `writer` is
    what a life does; a sabotaged one must be caught.
    """
    check_bounds(url, cycles=cycles, clients=clients)
    chance = SystemChance(seed)
    done: list[Cycle] = []
    async with ground(url) as place:
        address = place.address(DATABASE)
        await _make(address, place, clients, lease_s)
        known: dict[int, range] = {}
        with Processes() as processes:
            for number in range(1, cycles + 1):
                life = processes.start(writer, address, str(place.cache), number, clients, lease_s)
                said = _until_killed(life, clients, chance, strike or Process.kill)
                if said.failed and strike is None:
                    raise UnavailableError(
                        f"cycle {number} failed before it was killed: {said.failed[0]}",
                        why="A life writes until it is killed; this one could not.",
                        fix="Look at the error; the database and the disk, bucket or server behind it must work.",
                    )
                disk_lost = place.kind == "bucket" and number % 2 == 0
                killed_s = time.perf_counter()
                if disk_lost:
                    shutil.rmtree(place.cache, ignore_errors=True)
                state = await _opened_again(address, place, number, lease_s)
                recovery_ms = 1e3 * (time.perf_counter() - killed_s)
                done.append(judge(number, said, state, known, disk_lost=disk_lost, recovery_ms=recovery_ms))
                watch(done[-1])
                if done[-1].lost or done[-1].torn:
                    break
    return summary(done, place, seed=seed, clients=clients)


def check_bounds(url: str | None, *, cycles: int, clients: int) -> None:
    """Refuse what would not end, or would show nothing: BadUsage."""
    if url == "memory:":
        raise BadUsage(
            "a database in memory has no durability to measure.",
            why="It is gone with its process, and this experiment kills the process.",
            fix="Name a place for a lane, a folder of a bucket, or a PostgreSQL: lanes:///tmp/crashed.",
        )
    for what, value, most in (("cycles", cycles, CYCLES_MAX), ("clients", clients, CLIENTS_MAX)):
        if not 1 <= value <= most:
            raise BadUsage(
                f"the experiment cannot have {value:,} {what}; 1 to {most:,}.",
                why="It is bounded in time and number, so that it always ends.",
                fix="Choose a number from the range that is named.",
            )


def check(result: Experiment) -> None:
    """Raise CorruptionError when anything was lost or torn."""
    last = result.cycles[-1]
    if last.lost or last.torn:
        raise CorruptionError(
            f"cycle {last.cycle} (seed {result.seed}): {last.lost:,} acknowledged commits are gone, and {last.torn:,} "
            "accounts do not agree with the ledger.",
        )


def judge(
    number: int, said: Said, state: State, known: dict[int, range], *, disk_lost: bool, recovery_ms: float
) -> Cycle:
    """Compare what a life said with what is there; `known` has what earlier cycles may hold, and is brought up to date.

    A commit of PostgreSQL may arrive a moment after its client was killed, so what is in doubt may be found later.
    """
    lost = torn = found = in_doubt = 0
    for client in {*said.acknowledged, *state.turns}:
        last = said.acknowledged.get(client, 0)
        turns = state.turns.get(client, set())
        lost += len(set(range(1, last + 1)) - turns)
        # Whatever is there beyond the one that was under way was never asked for.
        torn += len(turns - set(range(1, last + 2)))
        found += len(turns)
        in_doubt += last + 1 in turns
    for cycle, possible in known.items():
        counted = state.before.get(cycle, 0)
        lost += max(0, possible.start - counted)
        torn += max(0, counted - (possible.stop - 1))
        known[cycle] = range(max(counted, possible.start), possible.stop)
    acknowledged = sum(said.acknowledged.values())
    known[number] = range(found, acknowledged + len(said.acknowledged) + 1)
    return Cycle(
        cycle=number,
        acknowledged=acknowledged,
        found=found,
        in_doubt=in_doubt,
        lost=lost,
        torn=torn + state.torn,
        disk_lost=disk_lost,
        recovery_ms=recovery_ms,
    )


def summary(done: Sequence[Cycle], place: Ground, *, seed: int, clients: int) -> Experiment:
    """All cycles as one result."""
    return Experiment(
        engine=place.kind,
        url=place.shown,
        seed=seed,
        clients=clients,
        acknowledged=sum(each.acknowledged for each in done),
        found=sum(each.found for each in done),
        in_doubt=sum(each.in_doubt for each in done),
        lost=sum(each.lost for each in done),
        torn=sum(each.torn for each in done),
        recovery_p50_ms=statistics.median(each.recovery_ms for each in done),
        recovery_max_ms=max(each.recovery_ms for each in done),
        cycles=list(done),
    )


async def _make(address: str, place: Ground, clients: int, lease_s: float) -> None:
    async with opening(address, str(place.cache), lease_s) as db:
        for table in TABLES:
            await db.execute(table)
        for account in (*range(TILLS), *range(FIRST_OWN, FIRST_OWN + clients)):
            await db.execute(ACCOUNT, account)


def _until_killed(life: Process, clients: int, chance: SystemChance, strike: Strike) -> Said:
    """Let it live for a while, kill it, and read all it said: what was said before the kill is still in the pipe."""
    said = Said(dict.fromkeys(range(clients), 0), [])
    if int(chance.fraction() * EARLY_ONE_IN) == 0:
        _hear(life.lines_for(chance.fraction() * EARLY_S_MAX), said)
    else:
        _hear(life.lines(2 + int(chance.fraction() * LINES_MAX)), said)
        _hear(life.lines_for(chance.fraction() * MOMENT_S_MAX), said)
    strike(life)
    life.kill()
    _hear(life.lines(), said)
    ended = life.end()
    life.close()
    if ended != -signal.SIGKILL:
        raise UnavailableError(f"a life ended by itself (code {ended}) and not because it was killed.")
    return said


def _hear(lines: Iterable[str], said: Said) -> None:
    for line in lines:
        if line.startswith("+"):
            client, turn = map(int, line[1:].split())
            said.acknowledged[client] = turn
        elif line != OPENED:
            said.failed.append(line.removeprefix("!"))
            return  # It says nothing more.


async def _opened_again(address: str, place: Ground, number: int, lease_s: float) -> State:
    """What is there. A server that was killed as well may need a while until it takes connections again."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + RECOVERY_S_MAX
    while True:
        try:
            async with opening(address, str(place.cache), lease_s) as db:
                return await db.transact(look, number)
        except UnavailableError:
            if clock.monotonic_s() >= until_s:
                raise
        await asyncio.sleep(RECOVERY_PAUSE_S)


async def look(tx: Statements, number: int) -> State:
    """Everything there is, as of one moment."""
    turns: defaultdict[int, set[int]] = defaultdict(set)
    for client, turn in await tx.query(LINES, number):
        turns[_number(client)].add(_number(turn))
    before = {_number(cycle): _number(count) for cycle, count in await tx.query(COUNTS, number)}
    expected: defaultdict[int, int] = defaultdict(int)
    for client, count in await tx.query(BY_CLIENT):
        expected[FIRST_OWN + _number(client)] -= _number(count)
    for till, count in await tx.query(BY_TILL):
        expected[_number(till)] += _number(count)
    units = {_number(account): _number(held) for account, held in await tx.query(ACCOUNTS)}
    torn = sum(units.get(account) != expected[account] for account in {*units, *expected})
    return State(dict(turns), before, torn)


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
