"""`Counter`: a number that any number of writers add to concurrently, always the exact sum of all adds (D5-D7).

    views = db.counter("video:42")
    await views.add(1)
    await views.value()

An add is written in exactly one place: the counter's row, one of its shards, or its log; the value is the sum of all
places. So a counter may be opened as anything at any time, by several processes as different things, and `auto` may
change its form between two adds. Only adds with a key have a fixed place, or a retry could miss its first attempt.

A counter is one row of `hotrow_counter`, up to `shard_count` rows of `hotrow_counter_shard`, the rows of
`hotrow_counter_event` that were not rolled up yet, and one row of `hotrow_counter_snapshot` for those that were. Every
add is one statement that changes exactly one row. Roll-ups have a row of their own, because concurrent adds to the
counter's row would starve them.

Sections: SQL, choice of the form, contention signal, shards, form of an `auto` counter, headers, names, keys and
amounts, roll-up, counter, counters of a database.
"""

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, Literal, NamedTuple, assert_never, cast, get_args
from weakref import WeakMethod

from interlock.clock import Chance, Clock, SystemChance, SystemClock
from interlock.errors import BadUsage, DefinitionError, InterlockError, InvalidPayload
from interlock.hotrow.tables import AMOUNT_MAX, NAME_CHARACTERS_MAX, Once, check_key, ready, text_problem
from interlock.lanes.hot_rows import HotRow
from interlock.lanes.idempotency_keys import KEY_CHARACTERS_MAX
from interlock.lanes.lane import LaneStats
from interlock.lanes.lane_settings import COUNTER_SHARDS_MAX
from interlock.redaction import logger_of
from interlock.sql.stored_values import EngineName, Executor, Statements

log = logger_of("interlock.hotrow")

ROW_TABLE: Final = "hotrow_counter"
SHARD_TABLE: Final = "hotrow_counter_shard"

# --- SQL -------------------------------------------------------------------------------------------------------------

# The header of a counter; no row when it does not exist.
HEADER: Final = "SELECT keyed, keyed_shard_count, shard_count FROM hotrow_counter WHERE name = $1"

# Create it. Of several concurrent calls, the first decides.
MAKE: Final = (
    "INSERT INTO hotrow_counter (name, keyed, keyed_shard_count) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING"
)

# Shards up to this one may hold something from now on. Committed before the first of them is written.
WIDEN: Final = "UPDATE hotrow_counter SET shard_count = $2 WHERE name = $1 AND shard_count < $2"

# Add to the row itself.
ADD: Final = (
    "INSERT INTO hotrow_counter (name, n) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET n = hotrow_counter.n + excluded.n"
)

# Add to one shard, which the caller has chosen: a random() in WHERE would be another one for every row (D5).
ADD_SHARD: Final = (
    "INSERT INTO hotrow_counter_shard (name, shard, n) VALUES ($1, $2, $3) "
    "ON CONFLICT (name, shard) DO UPDATE SET n = hotrow_counter_shard.n + excluded.n"
)

# Add to the log.
APPEND: Final = "INSERT INTO hotrow_counter_event (name, delta) VALUES ($1, $2)"

# Take the oldest entries out of the log. It returns exactly the rows that it deletes: ids are not committed in their
# order on PostgreSQL, so "all up to the largest" may delete an entry that was not read.
TAKE: Final = (
    "DELETE FROM hotrow_counter_event WHERE id IN "
    "(SELECT id FROM hotrow_counter_event WHERE name = $1 ORDER BY id LIMIT $2) RETURNING delta"
)

# Keep what was taken out of the log, in the same transaction.
SNAP: Final = (
    "INSERT INTO hotrow_counter_snapshot (name, n) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET n = hotrow_counter_snapshot.n + excluded.n"
)

# The snapshot and the log in one statement: in two of them a roll-up in between would count twice, or not at all.
VALUE: Final = (
    "SELECT c.shard_count, c.n, "
    "(SELECT coalesce(sum(s.n), 0) FROM hotrow_counter_snapshot s WHERE s.name = $1) AS snapshot, "
    "(SELECT coalesce(sum(e.delta), 0) FROM hotrow_counter_event e WHERE e.name = $1) AS tail "
    "FROM hotrow_counter c WHERE c.name = $1"
)

# The shards that live in this database.
SHARDS: Final = "SELECT shard, n FROM hotrow_counter_shard WHERE name = $1"


# --- Choice of the form (D7) -----------------------------------------------------------------------------------------
# Up, immediately: from the row to shards when the row is handed from writer to writer more often than the threshold,
# unless they share their commits; from shards to the log when even a shard is, and where appending to the log is not
# one more queue. A lane executes one write after the other, so its log is: there the shards, each in a database of its
# own, are the end.
#
# Down, only after a long calm: when for `CALM_S` this process has added so little that the form below could not come
# near the threshold, even if each of its writes waited for another. What rises at the threshold falls at a quarter.

Form = Literal["exact", "sharded", "event_log"]
"""Where an add is written."""

Kind = Literal["exact", "sharded", "event_log", "auto"]
"""The kind that a counter is opened with: one fixed form, or a chosen one."""

CALM_S: Final = 60.0
CALM_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterMeasurements:
    """The measurements that a choice is made from."""

    row_handoffs_per_s: float = 0.0
    """How often the counter's own row went from one writer to the next that waited for it."""
    shard_handoffs_per_s: float = 0.0
    """The same for the worst of its shards."""
    calm_s: float = 0.0
    """How long the rate of adds has been below `calm_below`."""
    commits_shared: bool = False
    """Whether writers of one row share commits: in a lane whose groups have room hand-offs cost nothing."""
    appends_apart: bool = False
    """Whether appends to the log run side by side: on PostgreSQL they do, in a lane they do not."""


def choose(current: Form, measured: CounterMeasurements, *, threshold: float) -> Form:
    """Return the form for the next adds."""
    calm = measured.calm_s >= CALM_S
    match current:
        case "exact":
            hurts = measured.row_handoffs_per_s > threshold and not measured.commits_shared
            return "sharded" if hurts else "exact"
        case "sharded":
            if measured.shard_handoffs_per_s > threshold and measured.appends_apart:
                return "event_log"
            return "exact" if calm else "sharded"
        case "event_log":
            return "sharded" if calm else "event_log"
        case _:
            assert_never(current)


def calm_below(current: Form, *, threshold: float, shard_count: int) -> float:
    """Return the adds per second below which the next simpler form would certainly be calm."""
    rows_below = shard_count if current == "event_log" else 1
    return CALM_SHARE * threshold * rows_below


# --- Contention signal -----------------------------------------------------------------------------------------------
# One read serves all counters, at most once a second, independent of the number of adds.
#
# In a lane many writers of one row share one commit as long as its groups have room: each hands the row to the next
# in memory, and all of them wait for the disk together. Splitting such a row would mean many commits instead of one,
# and be slower. Only a lane whose groups are full makes its writers queue (D13).

LOOK_S: Final = 1.0
"""The shortest time between two reads of the signal."""

FULL_SHARE: Final = 0.5
"""Groups count as full when on average they hold more than this of what they may."""

ReadContention = Callable[[], Awaitable[Sequence[HotRow]]]
"""The contention signal of a database: `Database.contention`."""


class Groups(NamedTuple):
    """How a lane commits."""

    stats: Callable[[], LaneStats]
    """Its totals so far: `Database.stats`."""
    size_max: int
    """`group_commit_max_batch`."""


class SignalReading(NamedTuple):
    """The result of one read of the signal."""

    rates: Mapping[tuple[str, str], float]
    """Hand-offs and conflicts per second, by table and counter; of several rows of a counter, the worst."""
    commits_shared: bool
    """Whether writers of one row share commits, so that its hand-offs cost nothing."""


class Signal:
    """The contention signal, read again after `LOOK_S`."""

    def __init__(self, contended: ReadContention | None, clock: Clock, *, groups: Groups | None = None) -> None:
        self._contended = contended
        self._clock = clock
        self._groups = groups
        self._looked_s: float | None = None
        self._done = (0, 0)
        self._latest = SignalReading({}, commits_shared=False)
        self.failures = 0
        """Looks that failed. No add fails for that; the counters keep the form they have."""

    async def look(self) -> SignalReading:
        """Return the current signal. While one caller reads it, the others get the previous one."""
        now_s = self._clock.monotonic_s()
        if self._contended is not None and (self._looked_s is None or now_s - self._looked_s >= LOOK_S):
            self._looked_s = now_s
            shared = self._commits_shared()
            try:
                self._latest = SignalReading(_worst(await self._contended()), shared)
            except InterlockError:
                self.failures += 1
                self._latest = SignalReading({}, shared)
                log.warning("the contention signal could not be read; counters keep their form.", exc_info=True)
        return self._latest

    def _commits_shared(self) -> bool:
        if self._groups is None:
            return False
        stats = self._groups.stats()
        groups, transactions = self._done
        self._done = stats.groups, stats.transactions
        return stats.transactions - transactions <= FULL_SHARE * self._groups.size_max * (stats.groups - groups)


def _worst(rows: Sequence[HotRow]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for row in rows:
        table = row.table.rpartition(".")[2]
        if table in {ROW_TABLE, SHARD_TABLE}:
            key = table, _counter_of(row.key)
            # A conflict is a hand-off that failed: on PostgreSQL some adds wait, others are run again.
            found[key] = max(found.get(key, 0.0), row.handoffs_per_s + row.conflicts_per_s)
    return found


def _counter_of(key: object) -> str:
    # The key of a shard is its counter and its number.
    parts = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
    return str(parts[0]) if parts else ""


# --- Shards ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a counter at one moment; `values[3]` is what shard 3 holds."""

    values: tuple[int, ...]

    @property
    def total(self) -> int:
        """The sum of all shards: the counter's value without its row and its log."""
        return sum(self.values)

    @property
    def skew(self) -> float:
        """The largest shard compared with the mean: 1.0 is even; as many as there are shards means one holds all.

        Sizes are compared without their signs, because a shard may have taken back more than was added to it.
        """
        sizes = [abs(value) for value in self.values]
        return max(sizes) * len(sizes) / sum(sizes) if any(sizes) else 1.0


# --- Form of an `auto` counter ---------------------------------------------------------------------------------------
# Every process chooses for itself. That is safe because the value is the sum of all forms, and because adds with a
# key have a place that no choice moves.


class Automatic:
    """The current form of one counter, and since when a simpler one would suffice."""

    def __init__(self, name: str, *, threshold: float, shard_count: int, engine: EngineName) -> None:
        self.form: Form = "exact"
        self._name = name
        self._threshold = threshold
        self._shard_count = shard_count
        self._appends_apart = engine == "postgres"
        self._adds = 0
        self._looked_s: float | None = None
        self._calm_since_s = 0.0

    async def next_form(self, signal: Signal, now_s: float) -> Form:
        """Return the form of an add that happens now."""
        if self._looked_s is None:
            self._looked_s = self._calm_since_s = now_s
        elif now_s - self._looked_s >= LOOK_S:
            # Set before anything is awaited: the other adds of this moment do not look again.
            adds_per_s = self._adds / (now_s - self._looked_s)
            self._looked_s, self._adds = now_s, 0
            self._choose(adds_per_s, await signal.look(), now_s)
        self._adds += 1
        return self.form

    def _choose(self, adds_per_s: float, signal: SignalReading, now_s: float) -> None:
        if adds_per_s >= calm_below(self.form, threshold=self._threshold, shard_count=self._shard_count):
            self._calm_since_s = now_s
        measured = CounterMeasurements(
            row_handoffs_per_s=signal.rates.get((ROW_TABLE, self._name), 0.0),
            shard_handoffs_per_s=signal.rates.get((SHARD_TABLE, self._name), 0.0),
            calm_s=now_s - self._calm_since_s,
            commits_shared=signal.commits_shared,
            appends_apart=self._appends_apart,
        )
        chosen = choose(self.form, measured, threshold=self._threshold)
        if chosen != self.form:
            log.info("counter %r: from %s to %s, %s", self._name, self.form, chosen, measured)
            self.form, self._calm_since_s = chosen, now_s


# --- Headers ---------------------------------------------------------------------------------------------------------
# A header says where adds with a key go, and how many shards may hold something. The first never changes; the second
# only grows, and is committed BEFORE a shard beyond it is written: a reader that comes after an acknowledged add
# finds the shard it went to. So a header that was read once is cached for ever, and no add reads it again.

NAMES_MAX: Final = 10_000
"""G6: cached counters. One more evicts the one that was opened longest ago; its header is read again."""


class Header(NamedTuple):
    """The header row of a counter."""

    keyed: Form
    """Where adds with a key go, for ever: a retry must meet the key of the first attempt (D5)."""
    keyed_shard_count: int
    """How many shards they are spread over, if that is where they go."""
    shard_count: int
    """How many shards may hold something."""


class CachedCounter:
    """The cache entry of one counter."""

    __slots__ = ("automatic", "header", "name")

    def __init__(self, name: str, automatic: Automatic) -> None:
        self.name = name
        self.automatic = automatic
        self.header: Header | None = None


class Headers:
    """The counters of one database."""

    def __init__(self, executor: Executor, *, shard_count: int, threshold: float) -> None:
        self._executor = executor
        self._shard_count = shard_count
        self._threshold = threshold
        self._known: OrderedDict[str, CachedCounter] = OrderedDict()
        self._reading: Once[Header] = Once()

    def known(self, name: str) -> CachedCounter:
        """Return the cache entry of this counter, one for all handles."""
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= NAMES_MAX:
                self._known.popitem(last=False)
            automatic = Automatic(
                name, threshold=self._threshold, shard_count=self._shard_count, engine=self._executor.engine
            )
            found = self._known[name] = CachedCounter(name, automatic)
        else:
            self._known.move_to_end(name)
        return found

    async def made(self, known: CachedCounter, kind: Kind) -> Header:
        """Return the header of a counter; create and cache it if it is missing."""
        return self._remember(known, await self._reading.do((known.name, kind), partial(self._made, known.name, kind)))

    async def widened(self, known: CachedCounter, header: Header, shard_count: int) -> Header:
        """Return the header after it was committed with at least this shard count."""
        if header.shard_count >= shard_count:
            return header
        await self._executor.execute(WIDEN, known.name, shard_count)
        return self._remember(known, header._replace(shard_count=shard_count))

    async def _made(self, name: str, kind: Kind) -> Header:
        await ready(self._executor, ROW_TABLE)
        header = await self._read(name)
        if header is None:
            # A counter that chooses by itself may end up with many writers, and keys cannot move there later.
            keyed: Form = "sharded" if kind == "auto" else kind
            await self._executor.execute(MAKE, name, keyed, self._shard_count)
            header = await self._read(name)
            assert header is not None, "a counter that was just made is not there"
        return header

    async def _read(self, name: str) -> Header | None:
        for keyed, keyed_shard_count, shard_count in await self._executor.query(HEADER, name):
            return Header(cast("Form", keyed), whole(keyed_shard_count), whole(shard_count))
        return None

    @staticmethod
    def _remember(known: CachedCounter, header: Header) -> Header:
        # Another task may have widened it further meanwhile.
        if known.header is None or known.header.shard_count < header.shard_count:
            known.header = header
        return known.header


# --- Names, keys and amounts -----------------------------------------------------------------------------------------
# The key that the database remembers names the counter too, with its length in front: one caller may use one key for
# two counters, and no two pairs of counter and key make the same text.

_DIGEST_BYTES: Final = 20


def refuse_name(name: object) -> None:
    """Raise InvalidPayload for an invalid name of a counter."""
    wrong = text_problem(name, NAME_CHARACTERS_MAX)
    if wrong:
        raise InvalidPayload(
            f"the name of the counter {wrong}; it must be a text of 1 to {NAME_CHARACTERS_MAX} characters that UTF-8 "
            "can write.",
            why="A counter is found again by its name, which is a column of its table.",
            fix='Pass a text that names what is counted: db.counter(f"video:{video_id}").',
        )


def stored_key(name: str, key: object) -> str:
    """Return the key as the database stores it. Raises InvalidPayload for an invalid idempotency key."""
    check_key(key)
    text = f"counter:{len(name)}:{name}:{key}"
    return text if len(text) <= KEY_CHARACTERS_MAX else f"counter:={_digest(text).hex()}"


def shard_of(key: str, count: int) -> int:
    """Return the shard of a key: the same in every process and after every restart, for the same count."""
    return int.from_bytes(_digest(key)) % count


def refuse_amount(amount: object) -> None:
    """Raise ValueError for an amount that is not a whole number, is 0, or is more than a `bigint` holds."""
    if isinstance(amount, int) and not isinstance(amount, bool) and amount and abs(amount) <= AMOUNT_MAX:
        return
    raise ValueError(
        f"{amount!r} cannot be added to a counter; a whole number from 1 to {AMOUNT_MAX} can, or its negative.\n"
        "  why: A counter is the exact sum of what was added, in a column of 64 bits. Nothing is added by 0.\n"
        "  fix: Add a whole number, and leave the call out when there is nothing to add."
    )


def whole(stored: object) -> int:
    """Return a number of the database as an int: a sum of bigint is a numeric."""
    assert isinstance(stored, int | Decimal)
    return int(stored)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


# --- Roll-up ---------------------------------------------------------------------------------------------------------
# Entries of the event log become part of a snapshot, so that reading stays cheap (D6). The cost is bounded: a turn
# starts one cadence after the first append that is not rolled up, and folds a bounded number of bounded transactions.
# A fold takes entries out of the log and adds them to the snapshot in ONE transaction, so no crash can fall between
# the two, and no reader sees an entry twice or not at all. A concurrent fold of another process takes other entries,
# or fails and is retried.
#
# A counter without appends starts no turn. Between turns nothing but a timer with a weak reference exists, so a
# database that is dropped without being closed is not kept alive. A turn that fails is counted, logged and repeated;
# a counter that fails again and again is left alone until its next append. What is not rolled up counts all the
# same.

CADENCE_S: Final = 1.0
ROWS_MAX: Final = 1_000
"""Entries in one fold, which is one transaction."""

FOLDS_PER_TURN: Final = 100
"""Folds in one turn, of all counters together."""

FAILURES_MAX: Final = 5
"""Turns that a counter may fail one after the other."""

OWED_MAX: Final = 10_000
"""G6: counters that wait for a turn. One more is left alone until its next append; its entries count all the same."""


async def fold(tx: Statements, name: str, rows_max: int) -> int:
    """Move the oldest entries of a counter from the log into its snapshot; return their number."""
    taken = await tx.query(TAKE, name, rows_max)
    if taken:
        await tx.execute(SNAP, name, sum(whole(delta) for (delta,) in taken))
    return len(taken)


class Rollup:
    """Rolls up the counters of one database that have been appended to."""

    def __init__(self, executor: Executor, *, cadence_s: float = CADENCE_S, rows_max: int = ROWS_MAX) -> None:
        self._executor = executor
        self._cadence_s = cadence_s
        self._rows_max = rows_max
        self._owed: dict[str, int] = {}
        """Counters with entries in the log, and how many turns they have failed in a row."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the next turn waits or runs."""
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Task[None] | None = None
        self._closed = False
        self.failures = 0
        """Folds that failed since the database was opened."""

    def appended(self, name: str) -> None:
        """Schedule a roll-up of this counter within the cadence; called after an append."""
        if len(self._owed) < OWED_MAX:
            self._owed.setdefault(name, 0)
        # The event loop that the next turn waited in may have ended without it.
        if not self._closed and (self._loop is None or self._loop.is_closed()):
            self._wait()

    async def run(self, name: str) -> int:
        """Roll up one counter now; return how many entries were folded."""
        folded = 0
        for _ in range(FOLDS_PER_TURN):
            taken = await self._executor.transact(fold, name, self._rows_max)
            folded += taken
            if taken < self._rows_max:
                break
        return folded

    async def close(self) -> None:
        """Start no further turn; a running one ends after its current fold."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        turn = self._turn
        if turn is not None and turn.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([turn])

    def _wait(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._cadence_s, _call_if_alive, WeakMethod(self._begin))

    def _begin(self) -> None:
        if not self._closed and self._loop is not None:
            self._turn = self._loop.create_task(self._take_turn(), name="interlock-roll-up")

    async def _take_turn(self) -> None:
        try:
            await self._fold_owed()
        except BaseException:
            self._loop = None  # It was cancelled with its event loop: the next append begins anew.
            raise
        finally:
            self._turn = None
        if self._owed and not self._closed:
            self._wait()
        else:
            self._loop = None

    async def _fold_owed(self) -> None:
        waiting = deque(self._owed)
        for _ in range(FOLDS_PER_TURN):
            if self._closed or not waiting:
                return
            name = waiting.popleft()
            if await self._fold(name):
                waiting.append(name)  # There is more, but first it is the others' turn.

    async def _fold(self, name: str) -> bool:
        """Fold once; return whether to fold again in this turn."""
        failed = self._owed.pop(name, 0)  # Before it is folded: what is appended meanwhile is owed again.
        try:
            taken = await self._executor.transact(fold, name, self._rows_max)
        except Exception as error:  # noqa: BLE001 -- no caller awaits a turn: every failure is counted and logged.
            self.failures += 1
            log.warning("counter %r could not be rolled up (%d in a row): %s", name, failed + 1, error)
            if failed + 1 < FAILURES_MAX:
                self._owed[name] = failed + 1
            return False
        if taken < self._rows_max:
            return False
        self._owed.setdefault(name, 0)
        return True


def _call_if_alive(method: WeakMethod[Callable[[], None]]) -> None:
    found = method()
    if found is not None:
        found()


# --- Counter ---------------------------------------------------------------------------------------------------------


class Counter:
    """A counter. Make one with `Database.counter`; it is cheap, and needs no closing."""

    __slots__ = ("_kind", "_known", "_parts")

    def __init__(self, parts: "Counters", known: CachedCounter, kind: Kind) -> None:
        self._parts = parts
        self._known = known
        self._kind: Kind = kind

    @property
    def name(self) -> str:
        """The name that it was opened with."""
        return self._known.name

    @property
    def kind(self) -> Form:
        """The form that adds have now; of an `auto` counter the one that it has chosen."""
        return self._known.automatic.form if self._kind == "auto" else self._kind

    async def add(self, amount: int = 1, *, key: str | None = None) -> None:
        """Add a whole number, or take one back with a negative amount; durable when it returns.

        The sum is exact and may fall below zero; use a stock or a balance where it must not. With a key it is added
        once, however often it is repeated, also after a crash, in another process, or under another kind; the
        same key with another amount is KeyReused. Raises ValueError for 0 and for what is not a whole number.
        """
        refuse_amount(amount)
        if key is not None:
            await self._add_once(amount, key, stored_key(self.name, key))
            return
        header = self._known.header or await self._parts.headers.made(self._known, self._kind)
        form = self._kind
        if form == "auto":
            form = await self._known.automatic.next_form(self._parts.signal, self._parts.clock.monotonic_s())
        count = self._parts.shard_count
        # Chosen once, and here: in WHERE it would be chosen anew for every row (D5).
        shard = int(self._parts.chance.fraction() * count)
        await self._write(header, form, amount, shard=shard, shard_count=count, key=None)

    async def value(self) -> int:
        """Return the sum of all adds that were acknowledged before this call, each counted once."""
        apart, shard_count = await self._read()
        return apart + sum(await self._shard_values(shard_count))

    async def shards(self) -> Shards:
        """Return the value of each shard, and the skew between them. Empty for a counter that was never sharded."""
        _, shard_count = await self._read()
        return Shards(tuple(await self._shard_values(shard_count)))

    async def roll_up(self) -> int:
        """Roll the log up now, instead of within a second; return how many entries became part of its snapshot.

        One call folds at most 100,000 entries; when it returns that number, there may be more.
        """
        await ready(self._parts.executor, ROW_TABLE)
        return await self._parts.rollup.run(self.name)

    def __repr__(self) -> str:
        return f"<Counter {self.name!r}, {self._kind}: {self.kind}>"

    async def _add_once(self, amount: int, key: str, stored: str) -> None:
        header = self._known.header or await self._parts.headers.made(self._known, self._kind)
        count = header.keyed_shard_count
        await self._write(header, header.keyed, amount, shard=shard_of(key, count), shard_count=count, key=stored)

    async def _write(
        self, header: Header, form: Form, amount: int, *, shard: int, shard_count: int, key: str | None
    ) -> None:
        parts, name = self._parts, self.name
        match form:
            case "exact":
                await parts.executor.execute(ADD, name, amount, key=key)
            case "sharded":
                if header.shard_count < shard_count:
                    await parts.headers.widened(self._known, header, shard_count)
                part = await parts.executor.shard(shard)
                await ready(part, SHARD_TABLE)
                await part.execute(ADD_SHARD, name, shard, amount, key=key)
            case "event_log":
                await parts.executor.execute(APPEND, name, amount, key=key)
                parts.rollup.appended(name)
            case _:
                assert_never(form)

    async def _read(self) -> tuple[int, int]:
        """Return the value outside of the shards, and the number of shards. Called before the shards are read."""
        parts = self._parts
        await ready(parts.executor, ROW_TABLE)
        for shard_count, *apart in await parts.executor.query(VALUE, self.name):
            return sum([whole(n) for n in apart]), whole(shard_count)
        return 0, 0

    async def _shard_values(self, count: int) -> list[int]:
        # On PostgreSQL all shards are rows of one database, which is asked once.
        parts = await asyncio.gather(*[self._parts.executor.shard(shard) for shard in range(count)])
        found = await asyncio.gather(*[self._shards_in(part) for part in {id(part): part for part in parts}.values()])
        values = [0] * count
        for shard, n in (row for rows in found for row in rows):
            if shard < count:
                values[shard] += n
        return values

    async def _shards_in(self, part: Executor) -> list[tuple[int, int]]:
        await ready(part, SHARD_TABLE)
        return [(whole(shard), whole(n)) for shard, n in await part.query(SHARDS, self.name)]


# --- Counters of a database ------------------------------------------------------------------------------------------

SHARD_COUNT: Final = 16
THRESHOLD: Final = 50.0

_KINDS: Final[tuple[str, ...]] = get_args(Kind)


class Counters:
    """The counters of one database, and the parts that they share."""

    def __init__(
        self,
        executor: Executor,
        *,
        shard_count: int = SHARD_COUNT,
        kind: Kind = "auto",
        clock: Clock | None = None,
        chance: Chance | None = None,
        contention: ReadContention | None = None,
        groups: Groups | None = None,
        threshold: float = THRESHOLD,
        roll_up_every_s: float = CADENCE_S,
    ) -> None:
        _refuse_shard_count(shard_count)
        self.executor = executor
        self.clock = clock or SystemClock()
        self.chance = chance or SystemChance()
        self.shard_count = shard_count
        self.headers = Headers(executor, shard_count=shard_count, threshold=threshold)
        self.signal = Signal(contention, self.clock, groups=groups)
        self.rollup = Rollup(executor, cadence_s=roll_up_every_s)
        self._kind: Kind = kind
        """The kind of a counter that is opened without one: `auto`, unless it was set otherwise (D16)."""

    def open(self, name: str, *, kind: Kind = "auto") -> Counter:
        """Return the counter of this name. Nothing is read or written before it is used."""
        refuse_name(name)
        if kind not in _KINDS:
            raise BadUsage(
                f"{kind!r} is not a kind of counter; {', '.join(_KINDS)} are.",
                why="The kind says where adds are written; the value is the same under each of them.",
                fix='Leave it out, or write kind="auto": it is chosen by measured contention.',
            )
        chosen = self._kind if kind == "auto" else kind
        return Counter(self, self.headers.known(name), chosen)

    @property
    def roll_up_failures(self) -> int:
        """Roll-ups that failed. Nothing is lost by that: what is not rolled up counts all the same."""
        return self.rollup.failures

    @property
    def signal_failures(self) -> int:
        """Looks at the contention signal that failed: `auto` counters kept their form."""
        return self.signal.failures

    async def close(self) -> None:
        """End the roll-up. Call it before the database is closed; what it leaves in the log counts all the same."""
        await self.rollup.close()


def _refuse_shard_count(count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= COUNTER_SHARDS_MAX:
        raise DefinitionError(
            f"counter_shard_count is {count!r}; it must be a whole number from 1 to {COUNTER_SHARDS_MAX}.",
            why="Each shard is a row, on lanes a database of its own, and reading a counter reads all of them.",
            fix=f"Give it a whole number from 1 to {COUNTER_SHARDS_MAX}; {SHARD_COUNT} is the default.",
            rule="value-out-of-range",
        )
