"""The tables of stock, balances, quotas and parents: ordinary tables, created when the first helper needs them.

Users may read, join and back them up; the guarantees hold only while no other code writes to them. The helpers look for
a table before they create it, so that a role without CREATE rights can use existing tables.

On PostgreSQL two sessions that create one table at the same time can fail although both say IF NOT EXISTS; the loser
looks again, and finds it.
"""

from collections.abc import Mapping
from functools import partial
from weakref import WeakKeyDictionary

from interlock.errors import TransactionError
from interlock.hotrow.counters.once import Once
from interlock.sql.executor import Executor, Statements

ATTEMPTS_MAX = 5
"""Attempts to find or create a table; each failure means that another session has just created it."""

TABLES: Mapping[str, str] = {
    "hotrow_stock": """
CREATE TABLE IF NOT EXISTS hotrow_stock (
  name text PRIMARY KEY,
  available bigint NOT NULL CHECK (available >= 0),
  reserved bigint NOT NULL CHECK (reserved >= 0),
  sold bigint NOT NULL CHECK (sold >= 0)
)""",
    "hotrow_reservation": """
CREATE TABLE IF NOT EXISTS hotrow_reservation (
  id uuid PRIMARY KEY,
  name text NOT NULL,
  quantity bigint NOT NULL CHECK (quantity > 0),
  expires_at timestamptz NOT NULL
)""",
    "hotrow_balance": """
CREATE TABLE IF NOT EXISTS hotrow_balance (
  name text PRIMARY KEY,
  value bigint NOT NULL
)""",
    "hotrow_quota": """
CREATE TABLE IF NOT EXISTS hotrow_quota (
  name text PRIMARY KEY,
  starts_us bigint NOT NULL,
  ends_us bigint NOT NULL,
  used bigint NOT NULL CHECK (used >= 0)
)""",
    "hotrow_parent": """
CREATE TABLE IF NOT EXISTS hotrow_parent (
  name text PRIMARY KEY,
  touches bigint NOT NULL CHECK (touches >= 0),
  last_touched_at timestamptz NOT NULL
)""",
    "hotrow_parent_event": """
CREATE TABLE IF NOT EXISTS hotrow_parent_event (
  id bigserial PRIMARY KEY,
  name text NOT NULL,
  touches bigint NOT NULL CHECK (touches > 0),
  touched_at timestamptz NOT NULL
)""",
}

INDEXES: Mapping[str, str] = {
    "hotrow_reservation": (
        "CREATE INDEX IF NOT EXISTS hotrow_reservation_due ON hotrow_reservation (name, expires_at, id)"
    ),
    "hotrow_quota": "CREATE INDEX IF NOT EXISTS hotrow_quota_ended ON hotrow_quota (ends_us)",
    "hotrow_parent_event": "CREATE INDEX IF NOT EXISTS hotrow_parent_event_of ON hotrow_parent_event (name, id)",
}


class _Made:
    """The tables that one database is known to have."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.making: Once[None] = Once()


_made: WeakKeyDictionary[Executor, _Made] = WeakKeyDictionary()


async def ready(db: Executor, *tables: str) -> None:
    """Create the tables that are missing. Costs one set lookup once they are known to exist."""
    made = _made.get(db)
    if made is None:
        made = _made.setdefault(db, _Made())
    if made.tables.issuperset(tables):
        return
    for table in tables:
        if table not in made.tables:
            await made.making.do(table, partial(_ensure_table, db, table))
            made.tables.add(table)


async def _ensure_table(db: Executor, table: str) -> None:
    failed: TransactionError | None = None
    for _ in range(ATTEMPTS_MAX):
        if await _is_there(db, table):
            return
        try:
            await db.transact(_make, table)
        except TransactionError as error:
            failed = error
        else:
            return
    assert failed is not None
    raise failed


async def _is_there(db: Executor, table: str) -> bool:
    try:
        await db.query(f"SELECT 1 FROM {table} LIMIT 0")  # noqa: S608 - one of the names above.
    except TransactionError:
        return False  # Any other failure shows when it is created.
    return True


async def _make(tx: Statements, table: str) -> None:
    # In one transaction with its index: a session that finds the table finds the index too.
    await tx.execute(TABLES[table])
    if table in INDEXES:
        await tx.execute(INDEXES[table])
