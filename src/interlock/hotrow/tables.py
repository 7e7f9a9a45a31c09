"""The tables and argument checks that counters, stock, balances, quotas and parents share.

They are ordinary tables, created when the first helper needs them. Users may read, join and back them up; the
guarantees hold only while no other code writes to them. The helpers look for a table before they create it, so that a
role without CREATE rights can use existing tables; and CREATE takes a lock on PostgreSQL that stops all writers.

On PostgreSQL two sessions that create one table at the same time can fail although both say IF NOT EXISTS; the loser
looks again, and finds it.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Hashable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from interlock.errors import InvalidPayload, TransactionError
from interlock.lanes.idempotency_keys import KEY_CHARACTERS_MAX
from interlock.sql.stored_values import Executor, Statements

# --- Deduplication of concurrent calls -------------------------------------------------------------------------------
# A burst on a new counter would otherwise create its tables a hundred times. A cancelled caller does not cancel the
# work.

ResultT = TypeVar("ResultT")


class Once(Generic[ResultT]):
    """The running calls of this process, by event loop and key."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[asyncio.AbstractEventLoop, Hashable], asyncio.Task[ResultT]] = {}

    async def do(self, what: Hashable, function: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Return the function's result, called by this caller or by a concurrent one in the same event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # A function passed to `transact` runs outside of any loop; the statement that it calls raises the error.
            return await function()
        # A task can only be awaited in its own event loop, and a database may be used from several.
        place = loop, what
        task = self._under_way.get(place)
        if task is None:
            task = self._under_way[place] = asyncio.create_task(function())
            task.add_done_callback(lambda _: self._under_way.pop(place, None))
        return await asyncio.shield(task)


# --- Tables ----------------------------------------------------------------------------------------------------------

ATTEMPTS_MAX = 5
"""Attempts to find or create a table; each failure means that another session has just created it."""

TABLES: Mapping[str, tuple[str, ...]] = {
    "hotrow_counter": (
        # `n` counts exact adds. `shard_count` is 0 until the first shard is written. `keyed` and
        # `keyed_shard_count` say where adds with a key go; they never change, or a retry could count twice (D5).
        """CREATE TABLE IF NOT EXISTS hotrow_counter (
  name text PRIMARY KEY,
  n bigint NOT NULL DEFAULT 0,
  shard_count integer NOT NULL DEFAULT 0,
  keyed text NOT NULL DEFAULT 'sharded',
  keyed_shard_count integer NOT NULL DEFAULT 16
)""",
        """CREATE TABLE IF NOT EXISTS hotrow_counter_event (
  id bigserial PRIMARY KEY,
  name text NOT NULL,
  delta bigint NOT NULL
)""",
        "CREATE TABLE IF NOT EXISTS hotrow_counter_snapshot (name text PRIMARY KEY, n bigint NOT NULL)",
        "CREATE INDEX IF NOT EXISTS hotrow_counter_event_name ON hotrow_counter_event (name, id)",
    ),
    "hotrow_counter_shard": (
        """CREATE TABLE IF NOT EXISTS hotrow_counter_shard (
  name text NOT NULL,
  shard integer NOT NULL,
  n bigint NOT NULL,
  PRIMARY KEY (name, shard)
)""",
    ),
    "hotrow_stock": (
        """CREATE TABLE IF NOT EXISTS hotrow_stock (
  name text PRIMARY KEY,
  available bigint NOT NULL CHECK (available >= 0),
  reserved bigint NOT NULL CHECK (reserved >= 0),
  sold bigint NOT NULL CHECK (sold >= 0)
)""",
    ),
    "hotrow_reservation": (
        """CREATE TABLE IF NOT EXISTS hotrow_reservation (
  id uuid PRIMARY KEY,
  name text NOT NULL,
  quantity bigint NOT NULL CHECK (quantity > 0),
  expires_at timestamptz NOT NULL
)""",
        "CREATE INDEX IF NOT EXISTS hotrow_reservation_due ON hotrow_reservation (name, expires_at, id)",
    ),
    "hotrow_balance": ("CREATE TABLE IF NOT EXISTS hotrow_balance (name text PRIMARY KEY, value bigint NOT NULL)",),
    "hotrow_quota": (
        """CREATE TABLE IF NOT EXISTS hotrow_quota (
  name text PRIMARY KEY,
  starts_us bigint NOT NULL,
  ends_us bigint NOT NULL,
  used bigint NOT NULL CHECK (used >= 0)
)""",
        "CREATE INDEX IF NOT EXISTS hotrow_quota_ended ON hotrow_quota (ends_us)",
    ),
    "hotrow_parent": (
        """CREATE TABLE IF NOT EXISTS hotrow_parent (
  name text PRIMARY KEY,
  touches bigint NOT NULL CHECK (touches >= 0),
  last_touched_at timestamptz NOT NULL
)""",
    ),
    "hotrow_parent_event": (
        """CREATE TABLE IF NOT EXISTS hotrow_parent_event (
  id bigserial PRIMARY KEY,
  name text NOT NULL,
  touches bigint NOT NULL CHECK (touches > 0),
  touched_at timestamptz NOT NULL
)""",
        "CREATE INDEX IF NOT EXISTS hotrow_parent_event_of ON hotrow_parent_event (name, id)",
    ),
}
"""By name, each with the indexes and tables that are created in one transaction with it: the name stands for all."""


class _KnownTables:
    """The tables that one database is known to have."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.making: Once[None] = Once()


_known: WeakKeyDictionary[Executor, _KnownTables] = WeakKeyDictionary()


async def ready(db: Executor, *tables: str) -> None:
    """Create the tables that are missing. Costs one set lookup once they are known to exist."""
    known = _known.get(db)
    if known is None:
        known = _known.setdefault(db, _KnownTables())
    if known.tables.issuperset(tables):
        return
    for table in tables:
        if table not in known.tables:
            await known.making.do(table, partial(_ensure_table, db, table))
            known.tables.add(table)


async def _ensure_table(db: Executor, table: str) -> None:
    for attempt in range(1, ATTEMPTS_MAX + 1):
        if await _is_there(db, table):
            return
        try:
            await db.transact(_make, table)
        except TransactionError:
            if attempt == ATTEMPTS_MAX:
                raise
        else:
            return


async def _is_there(db: Executor, table: str) -> bool:
    try:
        await db.query(f"SELECT 1 FROM {table} LIMIT 0")  # noqa: S608 - one of the names above.
    except TransactionError:
        return False  # Any other failure shows when it is created.
    return True


async def _make(tx: Statements, table: str) -> None:
    for sql in TABLES[table]:
        await tx.execute(sql)


# --- Argument checks -------------------------------------------------------------------------------------------------
# Amounts are whole numbers that a `bigint` holds. A wrong one is a ValueError before anything is sent. Keys of
# callers become keys of the database below the kind and the name of what they are used on, so that "order-7" may
# take from one stock and withdraw from a balance.

AMOUNT_MAX = 2**63 - 1
"""The largest `bigint`."""

NAME_CHARACTERS_MAX = 500


def text_problem(text: object, characters_max: int) -> str:
    """Return why a name or a key is invalid, to follow its noun; empty for a valid one."""
    if not isinstance(text, str):
        return f"is {type(text).__name__}"
    if not 0 < len(text) <= characters_max:
        return f"has {len(text):,} characters"
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        return f"{text!a} holds NUL or half of a surrogate pair"
    return ""


def check_key(key: object) -> None:
    """Raise InvalidPayload unless this is a valid idempotency key."""
    wrong = text_problem(key, KEY_CHARACTERS_MAX)
    if wrong:
        raise InvalidPayload(
            f"the idempotency key {wrong}; it must be a text of 1 to {KEY_CHARACTERS_MAX} characters that UTF-8 can "
            "write.",
            why="The key is stored with the transaction and found again by its text.",
            fix='Pass a text that names the call, the same at every attempt: key=f"order-{order_id}".',
        )


def checked_name(kind: str, name: object) -> str:
    """Return the name. Raises InvalidPayload."""
    wrong = text_problem(name, NAME_CHARACTERS_MAX)
    if isinstance(name, str) and not wrong:
        return name
    raise InvalidPayload(
        f"the name of a {kind} {wrong}; it must be a text of 1 to {NAME_CHARACTERS_MAX} characters that UTF-8 can "
        "write.",
        why="The name is the primary key of its row.",
        fix=f'Name it by what it counts: db.{kind}("sku-1").',
    )


def checked_amount(call: str, amount: object, least: int = 1) -> int:
    """Return the amount. Raises ValueError unless it is a whole number from `least` that fits into a bigint."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not least <= amount <= AMOUNT_MAX:
        raise ValueError(
            f"{call} was given {amount!r}; it takes a whole number from {least} to {AMOUNT_MAX}. Nothing was changed.\n"
            "  why: Units, cents and calls are counted exactly, in a column of 64 bits; there is no half of one.\n"
            "  fix: Count in the smallest unit there is, and check what comes from outside before it gets here."
        )
    return amount


def checked_seconds(call: str, seconds: object, longest_s: float) -> float:
    """Return the seconds. Raises ValueError unless they are more than 0 and at most `longest_s`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= longest_s:
        raise ValueError(
            f"{call} was given {seconds!r}; it takes more than 0 and at most {longest_s:,.0f} seconds.\n"
            "  why: A reservation must expire, and a window must end.\n"
            "  fix: Pass seconds as a number."
        )
    return float(seconds)


def key_of(kind: str, name: str, key: str | None, part: str = "") -> str | None:
    """Return the database's key for a caller's key; `part` distinguishes the statements of one call."""
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise InvalidPayload(
            f"the idempotency key of a {kind} is {key!r}; it must be a text that is not empty.",
            why="The key is stored with the change and found again by its text.",
            fix='Pass a text that names the call, the same at every attempt: key=f"order-{order_id}".',
        )
    # Written so that no two pairs of name and key read the same.
    escaped = name.replace("%", "%25").replace(":", "%3A")
    whole = f"{kind}{part}:{escaped}:{key}"
    if len(whole) <= KEY_CHARACTERS_MAX:
        return whole
    return f"{kind}{part}:sha256:{hashlib.sha256(whole.encode('utf-8', 'surrogatepass')).hexdigest()}"
