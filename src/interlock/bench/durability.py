"""Experiment 4: every acknowledged commit survives a crash, and no transaction is torn (D12, G2).

A child process writes with many clients and reports each acknowledgement through a pipe. It is killed with SIGKILL at
a random moment. Then the database is opened again and compared with the reports: every acknowledged transaction is
there, each client has at most one transaction more, and the three rows of every transaction agree. On a bucket, every
other crash loses the local disk as well.

The experiment does not cut the power: after a kill the system still writes what it had taken over. The tests of the
repository cut the power of a simulated disk.
"""

import asyncio
import shutil
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, NoReturn

import msgspec

from interlock.bench.load import Ground, Kind, ground, refuse_out_of_bounds
from interlock.clock import SystemChance, SystemClock
from interlock.database.database import Database, Opening
from interlock.errors import BadUsage, CorruptionError, InterlockError, UnavailableError
from interlock.sql.stored_values import Statements
from interlock.testing.faults import Process, Processes
from interlock.urls import is_bucket_url, parse_bucket_url

# --- Writing process -------------------------------------------------------------------------------------------------
# Every transaction changes three rows that must agree: it adds a line to the ledger, takes a unit from the client's
# own account and puts it into one of a few tills that all clients share. A client begins its next transaction after it
# has reported the last acknowledgement. So at most one transaction per client is in doubt after a kill.

TILLS: Final = 12
FIRST_OWN: Final = 1_000
"""Accounts of clients are numbered from here, tills from 0."""

TABLES: Final = (
    "CREATE TABLE account (id integer PRIMARY KEY, units bigint NOT NULL)",
    """CREATE TABLE ledger (cycle integer NOT NULL, client integer NOT NULL, turn integer NOT NULL,
        till integer NOT NULL, PRIMARY KEY (cycle, client, turn))""",
)
ACCOUNT: Final = "INSERT INTO account (id, units) VALUES ($1, 0)"
BOOK: Final = "INSERT INTO ledger (cycle, client, turn, till) VALUES ($1, $2, $3, $4)"
TAKE: Final = "UPDATE account SET units = units - 1 WHERE id = $1"
GIVE: Final = "UPDATE account SET units = units + 1 WHERE id = $1"

OPENED: Final = "opened"
TURNS_MAX: Final = 100_000
ERROR_CHARACTERS_MAX: Final = 900

Say = Callable[[str], None]


def opening(url: str, cache: str, lease_s: float) -> Opening:
    """Return the opening of the database, with small bounds: checkpoints and snapshots happen every few groups."""
    return Database.open(
        url,
        cache=cache,
        lease_s=lease_s,
        wal_bytes_max=65_536,
        snapshot_bytes_min=65_536,
        snapshots_retained=1,
        retention_s=0.0,
    )


async def move(tx: Statements, cycle: int, client: int, turn: int) -> None:
    """Change the three rows of one transaction."""
    till = (client + turn) % TILLS
    await tx.execute(BOOK, cycle, client, turn, till)
    await tx.execute(TAKE, FIRST_OWN + client)
    await tx.execute(GIVE, till)


def write(say: Say, url: str, cache: str, cycle: int, clients: int, lease_s: float) -> None:
    """Write with `clients` clients until the parent kills this process."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            try:
                db = await stack.enter_async_context(opening(url, cache, lease_s))
            except InterlockError as error:
                _wait_for_the_end(say, error)
            say(OPENED)

            async def client(number: int) -> None:
                for turn in range(1, TURNS_MAX):
                    await db.transact(move, cycle, number, turn)
                    say(f"+{number} {turn}")

            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(clients):
                        group.create_task(client(number))
            except* InterlockError as errors:
                _wait_for_the_end(say, errors.exceptions[0])

    _skip_probe(url)
    asyncio.run(main())


def _wait_for_the_end(say: Say, error: Exception) -> NoReturn:
    """Report the error, and wait for the kill. The failed transaction is in doubt, so no client may continue."""
    say(f"!{' '.join(str(error).split())[:ERROR_CHARACTERS_MAX]}")
    while True:
        signal.pause()


def _skip_probe(url: str) -> None:
    """Skip the probe of the bucket, which costs seconds on some servers: the parent has done it."""
    if is_bucket_url(url):
        from interlock.lanes.objectlog.remote_bucket import believe  # noqa: PLC0415 -- an extra, which may not be installed.

        believe(parse_bucket_url(url))


# --- Experiment ------------------------------------------------------------------------------------------------------

CYCLES: Final = 20
CYCLES_MAX: Final = 10_000
CLIENTS: Final = 16
CLIENTS_MAX: Final = 500
LEASE_S: Final = 1.0
"""Seconds of a lease on a bucket: after the loss of its disk, a child waits for the lease of the killed one."""

LINES_MAX: Final = 200
"""Maximum number of acknowledgements before a kill."""

MOMENT_S_MAX: Final = 0.005
"""Maximum delay of the kill after the last of these acknowledgements, so that it hits a group."""

EARLY_ONE_IN: Final = 5
EARLY_S_MAX: Final = 0.05
"""Maximum delay of an early kill, one in `EARLY_ONE_IN`: while the child opens, recovers, or has just begun."""

RECOVERY_S_MAX: Final = 30.0
RECOVERY_PAUSE_S: Final = 0.05
"""Bound on the attempts to open the database after a crash, and the pause between them."""

WRITER: Final = "interlock.bench.durability:write"
DATABASE: Final = "ledger"

CAVEAT: Final = (
    "What is acknowledged is durable; what was under way when the process died may be there or not, but whole. "
    "A kill is not a power cut: what the system had taken over for writing is written all the same."
)

LINES = "SELECT client, turn FROM ledger WHERE cycle = $1"
COUNTS = "SELECT cycle, count(*) FROM ledger WHERE cycle < $1 GROUP BY cycle"
ACCOUNTS = "SELECT id, units FROM account"
BY_CLIENT = "SELECT client, count(*) FROM ledger GROUP BY client"
BY_TILL = "SELECT till, count(*) FROM ledger GROUP BY till"


class Cycle(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the child, its kill, and the comparison."""

    cycle: int
    acknowledged: int
    found: int
    in_doubt: int
    """Transactions found without an acknowledgement: running when the process died, and complete."""
    lost: int
    """Transactions acknowledged and not found. Must be 0."""
    torn: int
    """Accounts that do not agree with the ledger. Must be 0."""
    disk_lost: bool
    recovery_ms: float
    """From the kill to the first answer of the reopened database."""


class DurabilityResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the whole experiment."""

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
    caveat: str = msgspec.field(default=CAVEAT, name="told")


Strike = Callable[[Process], None]
"""Kills a child, and optionally more. The child may have failed before."""


class Reports(NamedTuple):
    """The reports of a child before it died."""

    acknowledged: dict[int, int]
    """The last turn of each client, 0 if none; all turns before it were acknowledged, too."""
    failed: list[str]
    """Its error, if it failed before the kill."""


class LedgerState(NamedTuple):
    """Content of the database, read in one transaction."""

    turns: dict[int, set[int]]
    """Turns of the last child, by client."""
    before: dict[int, int]
    """Number of turns of each earlier child, by cycle."""
    torn: int


async def measure(
    *,
    url: str | None,
    cycles: int,
    clients: int,
    seed: int,
    watch: Callable[[Cycle], None],
    strike: Strike | None = None,
    writer: str = WRITER,
    lease_s: float = LEASE_S,
) -> DurabilityResult:
    """Run and kill `cycles` children. Stop at the first lost or torn transaction, for which `check` raises.

    A custom `strike` may kill more than the process, and then a child may fail before its kill. `writer` is the child's
    program; the tests pass a sabotaged one.
    """
    check_bounds(url, cycles=cycles, clients=clients)
    chance = SystemChance(seed)
    done: list[Cycle] = []
    async with ground(url) as place:
        address = place.address(DATABASE)
        await _make_tables(address, place, clients, lease_s)
        known: dict[int, range] = {}
        with Processes() as processes:
            for number in range(1, cycles + 1):
                life = processes.start(writer, address, str(place.cache), number, clients, lease_s)
                reports = _run_until_killed(life, clients, chance, strike or Process.kill)
                if reports.failed and strike is None:
                    raise UnavailableError(
                        f"cycle {number} failed before it was killed: {reports.failed[0]}",
                        why="The process writes until it is killed; this one could not.",
                        fix="Look at the error; the database and its disk, bucket or server must work.",
                    )
                disk_lost = place.kind == "bucket" and number % 2 == 0
                killed_s = time.perf_counter()
                if disk_lost:
                    shutil.rmtree(place.cache, ignore_errors=True)
                state = await _reopen(address, place, number, lease_s)
                recovery_ms = 1e3 * (time.perf_counter() - killed_s)
                done.append(judge(number, reports, state, known, disk_lost=disk_lost, recovery_ms=recovery_ms))
                watch(done[-1])
                if done[-1].lost or done[-1].torn:
                    break
    return summary(done, place, seed=seed, clients=clients)


def check_bounds(url: str | None, *, cycles: int, clients: int) -> None:
    """Raise BadUsage for values that are out of bounds, and for a database in memory."""
    if url == "memory:":
        raise BadUsage(
            "a database in memory has no durability to measure.",
            why="It is gone with its process, and this experiment kills the process.",
            fix="Name a place for a lane, a folder of a bucket, or a PostgreSQL: lanes:///tmp/crashed.",
        )
    bounds = (("cycles", cycles, CYCLES_MAX), ("clients", clients, CLIENTS_MAX))
    refuse_out_of_bounds([f"{value:,} {what}; 1 to {most:,}" for what, value, most in bounds if not 1 <= value <= most])


def check(result: DurabilityResult) -> None:
    """Raise CorruptionError when anything was lost or torn."""
    last = result.cycles[-1]
    if last.lost or last.torn:
        raise CorruptionError(
            f"cycle {last.cycle} (seed {result.seed}): {last.lost:,} acknowledged commits are gone, and {last.torn:,} "
            "accounts do not agree with the ledger."
        )


def judge(
    number: int, reports: Reports, state: LedgerState, known: dict[int, range], *, disk_lost: bool, recovery_ms: float
) -> Cycle:
    """Compare the reports with the database, and update `known`, the possible counts of earlier cycles.

    A commit of PostgreSQL may arrive after its client was killed, so that a transaction in doubt may appear later.
    """
    lost = torn = found = in_doubt = 0
    for client in {*reports.acknowledged, *state.turns}:
        last = reports.acknowledged.get(client, 0)
        turns = state.turns.get(client, set())
        lost += len(set(range(1, last + 1)) - turns)
        # Only one transaction can have been running; any other row was never written by a client.
        torn += len(turns - set(range(1, last + 2)))
        found += len(turns)
        in_doubt += last + 1 in turns
    for cycle, possible in known.items():
        counted = state.before.get(cycle, 0)
        lost += max(0, possible.start - counted)
        torn += max(0, counted - (possible.stop - 1))
        known[cycle] = range(max(counted, possible.start), possible.stop)
    acknowledged = sum(reports.acknowledged.values())
    known[number] = range(found, acknowledged + len(reports.acknowledged) + 1)
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


def summary(done: Sequence[Cycle], place: Ground, *, seed: int, clients: int) -> DurabilityResult:
    """Return all cycles as one result."""
    return DurabilityResult(
        engine=place.kind,
        url=place.public_url,
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


async def _make_tables(address: str, place: Ground, clients: int, lease_s: float) -> None:
    async with opening(address, str(place.cache), lease_s) as db:
        for table in TABLES:
            await db.execute(table)
        for account in (*range(TILLS), *range(FIRST_OWN, FIRST_OWN + clients)):
            await db.execute(ACCOUNT, account)


def _run_until_killed(life: Process, clients: int, chance: SystemChance, strike: Strike) -> Reports:
    """Let the child run for a while, kill it, and read all its reports, also those that are still in the pipe."""
    reports = Reports(dict.fromkeys(range(clients), 0), [])
    if int(chance.fraction() * EARLY_ONE_IN) == 0:
        _read_reports(life.lines_for(chance.fraction() * EARLY_S_MAX), reports)
    else:
        _read_reports(life.lines(2 + int(chance.fraction() * LINES_MAX)), reports)
        _read_reports(life.lines_for(chance.fraction() * MOMENT_S_MAX), reports)
    strike(life)
    life.kill()
    _read_reports(life.lines(), reports)
    ended = life.end()
    life.close()
    if ended != -signal.SIGKILL:
        raise UnavailableError(f"the writing process ended by itself (code {ended}) and not because it was killed.")
    return reports


def _read_reports(lines: Iterable[str], reports: Reports) -> None:
    for line in lines:
        if line.startswith("+"):
            client, turn = map(int, line[1:].split())
            reports.acknowledged[client] = turn
        elif line != OPENED:
            reports.failed.append(line.removeprefix("!"))
            return  # The child reports nothing after an error.


async def _reopen(address: str, place: Ground, number: int, lease_s: float) -> LedgerState:
    """Open the database again and read it. Retry while a server that was killed as well does not accept connections."""
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


async def look(tx: Statements, number: int) -> LedgerState:
    """Read the whole database in one transaction."""
    turns: defaultdict[int, set[int]] = defaultdict(set)
    for client, turn in await tx.query(LINES, number):
        turns[_as_int(client)].add(_as_int(turn))
    before = {_as_int(cycle): _as_int(count) for cycle, count in await tx.query(COUNTS, number)}
    expected: defaultdict[int, int] = defaultdict(int)
    for client, count in await tx.query(BY_CLIENT):
        expected[FIRST_OWN + _as_int(client)] -= _as_int(count)
    for till, count in await tx.query(BY_TILL):
        expected[_as_int(till)] += _as_int(count)
    units = {_as_int(account): _as_int(units_held) for account, units_held in await tx.query(ACCOUNTS)}
    torn = sum(units.get(account) != expected[account] for account in {*units, *expected})
    return LedgerState(dict(turns), before, torn)


def _as_int(value: object) -> int:
    assert isinstance(value, int)
    return value
