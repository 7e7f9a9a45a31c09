"""`Counter`: a number that any number of writers add to concurrently, always the exact sum of all adds (D5-D7).

    views = db.counter("video:42")
    await views.add(1)
    await views.value()

An add is written in exactly one place: the counter's row, one of its shards, or its log; the value is the sum of all
places. So a counter may be opened as anything at any time, by several processes as different things, and `auto` may
change its form between two adds. Only adds with a key have a fixed place, or a retry could miss its first attempt.

Sections: shards, form of an `auto` counter, headers, names and keys, roll-up, counter, counters of a database.
"""

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, assert_never, cast, get_args
from weakref import WeakMethod

from interlock.clock import Chance, Clock, SystemChance, SystemClock
from interlock.errors import BadUsage, DefinitionError, InvalidPayload
from interlock.hotrow.counters import statements
from interlock.hotrow.counters.choice import (
    LOOK_S,
    ROW_TABLE,
    SHARD_TABLE,
    Form,
    Groups,
    Kind,
    Measured,
    ReadContention,
    Signal,
    SignalReading,
    calm_below,
    choose,
)
from interlock.hotrow.counters.statements import Once, Tables, refuse_amount, whole
from interlock.lanes.keys import KEY_CHARACTERS_MAX
from interlock.lanes.settings import COUNTER_SHARDS_MAX
from interlock.redaction import logger_of
from interlock.sql.values import EngineName, Executor, Statements

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

log = logger_of("interlock.hotrow")


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
        measured = Measured(
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

    def __init__(self, executor: Executor, tables: Tables, *, shard_count: int, threshold: float) -> None:
        self._executor = executor
        self._tables = tables
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
        await self._executor.execute(statements.WIDEN, known.name, shard_count)
        return self._remember(known, header._replace(shard_count=shard_count))

    async def _made(self, name: str, kind: Kind) -> Header:
        await self._tables.need(self._executor, "counter")
        header = await self._read(name)
        if header is None:
            # A counter that chooses by itself may end up with many writers, and keys cannot move there later.
            keyed: Form = "sharded" if kind == "auto" else kind
            await self._executor.execute(statements.MAKE, name, keyed, self._shard_count)
            header = await self._read(name)
            assert header is not None, "a counter that was just made is not there"
        return header

    async def _read(self, name: str) -> Header | None:
        for keyed, keyed_shard_count, shard_count in await self._executor.query(statements.HEADER, name):
            return Header(cast("Form", keyed), whole(keyed_shard_count), whole(shard_count))
        return None

    @staticmethod
    def _remember(known: CachedCounter, header: Header) -> Header:
        # Another task may have widened it further meanwhile.
        if known.header is None or known.header.shard_count < header.shard_count:
            known.header = header
        return known.header


# --- Names and keys --------------------------------------------------------------------------------------------------
# The key that the database remembers names the counter too, with its length in front: one caller may use one key for
# two counters, and no two pairs of counter and key make the same text.

NAME_CHARACTERS_MAX: Final = 500
_DIGEST_BYTES: Final = 20


def refuse_name(name: object) -> None:
    """Raise InvalidPayload for an invalid name of a counter."""
    wrong = _unusable(name, NAME_CHARACTERS_MAX)
    if wrong:
        raise InvalidPayload(
            f"the name of the counter {wrong}; it must be a text of 1 to {NAME_CHARACTERS_MAX} characters that UTF-8 "
            "can write.",
            why="A counter is found again by its name, which is a column of its table.",
            fix='Pass a text that names what is counted: db.counter(f"video:{video_id}").',
        )


def stored_key(name: str, key: object) -> str:
    """Return the key as the database stores it. Raises InvalidPayload for an invalid idempotency key."""
    wrong = _unusable(key, KEY_CHARACTERS_MAX)
    if wrong:
        raise InvalidPayload(
            f"the idempotency key {wrong}; it must be a text of 1 to {KEY_CHARACTERS_MAX} characters that UTF-8 can "
            "write.",
            why="The key is stored with the add and found again by its text.",
            fix='Pass a text that names the call, the same at every attempt: key=f"view-{request_id}".',
        )
    text = f"counter:{len(name)}:{name}:{key}"
    return text if len(text) <= KEY_CHARACTERS_MAX else f"counter:={_digest(text).hex()}"


def shard_of(key: str, count: int) -> int:
    """Return the shard of a key: the same in every process and after every restart, for the same count."""
    return int.from_bytes(_digest(key)) % count


def _unusable(text: object, characters_max: int) -> str:
    if not isinstance(text, str):
        return f"is {type(text).__name__}"
    if not 0 < len(text) <= characters_max:
        return f"has {len(text):,} characters"
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        return f"{text!a} holds NUL or half of a surrogate pair"
    return ""


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
    taken = await tx.query(statements.TAKE, name, rows_max)
    if taken:
        await tx.execute(statements.SNAP, name, sum(whole(delta) for (delta,) in taken))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterParts:
    """The parts that all counters of one database share."""

    executor: Executor
    clock: Clock
    chance: Chance
    shard_count: int
    tables: Tables
    headers: Headers
    signal: Signal
    rollup: Rollup


class Counter:
    """A counter. Make one with `Database.counter`; it is cheap, and needs no closing."""

    __slots__ = ("_kind", "_known", "_parts")

    def __init__(self, parts: CounterParts, known: CachedCounter, kind: Kind) -> None:
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
        await self._parts.tables.need(self._parts.executor, "counter")
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
                await parts.executor.execute(statements.ADD, name, amount, key=key)
            case "sharded":
                if header.shard_count < shard_count:
                    await parts.headers.widened(self._known, header, shard_count)
                part = await parts.executor.shard(shard)
                await parts.tables.need(part, "shard")
                await part.execute(statements.ADD_SHARD, name, shard, amount, key=key)
            case "event_log":
                await parts.executor.execute(statements.APPEND, name, amount, key=key)
                parts.rollup.appended(name)
            case _:
                assert_never(form)

    async def _read(self) -> tuple[int, int]:
        """Return the value outside of the shards, and the number of shards. Called before the shards are read."""
        parts = self._parts
        await parts.tables.need(parts.executor, "counter")
        for shard_count, *apart in await parts.executor.query(statements.VALUE, self.name):
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
        await self._parts.tables.need(part, "shard")
        return [(whole(shard), whole(n)) for shard, n in await part.query(statements.SHARDS, self.name)]


# --- Counters of a database ------------------------------------------------------------------------------------------

SHARD_COUNT: Final = 16
THRESHOLD: Final = 50.0

_KINDS: Final[tuple[str, ...]] = get_args(Kind)


class Counters:
    """The counters of one database."""

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
        clock = clock or SystemClock()
        tables = Tables()
        self._kind: Kind = kind
        """The kind of a counter that is opened without one: `auto`, unless it was set otherwise (D16)."""
        self._parts = CounterParts(
            executor=executor,
            clock=clock,
            chance=chance or SystemChance(),
            shard_count=shard_count,
            tables=tables,
            headers=Headers(executor, tables, shard_count=shard_count, threshold=threshold),
            signal=Signal(contention, clock, groups=groups),
            rollup=Rollup(executor, cadence_s=roll_up_every_s),
        )

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
        return Counter(self._parts, self._parts.headers.known(name), chosen)

    @property
    def roll_up_failures(self) -> int:
        """Roll-ups that failed. Nothing is lost by that: what is not rolled up counts all the same."""
        return self._parts.rollup.failures

    @property
    def signal_failures(self) -> int:
        """Looks at the contention signal that failed: `auto` counters kept their form."""
        return self._parts.signal.failures

    async def close(self) -> None:
        """End the roll-up. Call it before the database is closed; what it leaves in the log counts all the same."""
        await self._parts.rollup.close()


def _refuse_shard_count(count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= COUNTER_SHARDS_MAX:
        raise DefinitionError(
            f"counter_shard_count is {count!r}; it must be a whole number from 1 to {COUNTER_SHARDS_MAX}.",
            why="Each shard is a row, on lanes a database of its own, and reading a counter reads all of them.",
            fix=f"Give it a whole number from 1 to {COUNTER_SHARDS_MAX}; {SHARD_COUNT} is the default.",
            rule="value-out-of-range",
        )
