"""Marks of a database that has left a schema of PostgreSQL, or that is about to arrive there (decision 0018).

`interlock_moved` is the tombstone: it has the new URL and the epoch, and is created by the transaction that moves the
tables aside. Every statement looks names up again, prepared or not, so a later statement finds no table, then the
tombstone. `interlock_arriving` marks a draft: its rows are in a schema of their own until they have arrived, so that
clients with the old URL cannot reach them. `interlock_arrived` records the last arrival.

A transaction that creates or drops tables locks the gate in share mode first (`GATE`). The gate leaves
with the tables, so a table cannot be created unnoticed during a move.
"""

# ruff: noqa: S608 -- every name in these texts is our own, or quoted.

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from interlock.errors import InterlockError, MovedElsewhere, UnavailableError
from interlock.postgres.pool import Link, PostgresRow
from interlock.postgres.translate_errors import is_missing, translate_errors
from interlock.urls import redact_postgres_url

GATE: Final = "interlock_gate"
"""The table that stands for the turn between processes after a conflict. It has no rows."""

MOVED: Final = "interlock_moved"
ARRIVING: Final = "interlock_arriving"
ARRIVED: Final = "interlock_arrived"
TOUCHED: Final = "interlock_touched"
WATCHED: Final = "interlock_watched"
TOUCH: Final = "interlock_touch"
"""The triggers that note what is written while a database is copied. They read no other row (`isolation.PLAIN`)."""

IDENTIFIER_BYTES_MAX: Final = 63
DIGEST_LETTERS: Final = 16
LOOKS_MAX: Final = 10
"""Moves that may end between the look at the catalog and the read of the marks, before the look gives up."""

FoundT = TypeVar("FoundT")

MARKS: Final = (ARRIVING, MOVED, ARRIVED)
READ: Final = (
    ("SELECT epoch, source FROM {} LIMIT 1", "SELECT NULL, NULL WHERE false"),
    ("SELECT url, epoch FROM {} ORDER BY epoch DESC LIMIT 1", "SELECT NULL, NULL WHERE false"),
    ("SELECT max(epoch) FROM {}", "SELECT NULL"),
)
"""How each mark is read where it is present, and what is read in its place where it is not."""

TOGETHER: Final = """
SELECT arriving.*, moved.*, arrived.* FROM (SELECT) AS always LEFT JOIN ({}) AS arriving ON true
LEFT JOIN ({}) AS moved ON true LEFT JOIN ({}) AS arrived ON true"""
"""All marks by one statement: with several, a draft could arrive in between, and the answer would mix two moments.

It locks the mark of the draft first, as `arrive` does: in another order the two could wait for each other.
"""

Fetch = Callable[[str, Sequence[object]], Awaitable[Sequence[PostgresRow]]]
"""Runs a statement that reads; gives its rows."""


class HandoverMarks(NamedTuple):
    """The marks in a schema: without a tombstone `url` is empty, and without a mark the epoch is 0."""

    url: str = ""
    epoch: int = 0
    """Of the tombstone."""
    arriving: int = 0
    source: str = ""
    """From where the draft comes, as it may be shown."""
    arrived: int = 0


def quote_identifier(name: str) -> str:
    """Return the name as a quoted identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def aside(schema: str, epoch: int) -> str:
    """Return the schema for the tables that have left under this epoch."""
    return _below(schema, f"__moved_{epoch}")


def draft(schema: str, epoch: int) -> str:
    """Return the schema for the tables that are about to arrive."""
    return _below(schema, f"__arriving_{epoch}")


def _below(schema: str, ending: str) -> str:
    name = schema.encode()
    if len(name) + len(ending) > IDENTIFIER_BYTES_MAX:
        # What is cut off may be all that tells two schemas apart, and each would remove the other's draft.
        ending = f"_{hashlib.sha256(name).hexdigest()[:DIGEST_LETTERS]}{ending}"
        name = name[: IDENTIFIER_BYTES_MAX - len(ending)]
    return name.decode(errors="ignore") + ending


async def handover_marks(fetch: Fetch, schema: str) -> HandoverMarks:
    """Return the marks of a schema, all of one moment; none where there is no such schema.

    Not for use inside a transaction, which ends with its first error, unless it holds the lock of the mark.
    """
    return await look_again(lambda: _marks_of(fetch, schema))


async def look_again(look: Callable[[], Awaitable[FoundT]]) -> FoundT:
    """Return the result of a look. Repeat it if a table that it saw in the catalog is gone when it is read.

    Only a move removes tables, so the next look sees what the move has left.
    """
    for _ in range(LOOKS_MAX):
        try:
            return await look()
        except InterlockError as error:
            if not is_missing(error):
                raise
    return await look()


async def _marks_of(fetch: Fetch, schema: str) -> HandoverMarks:
    names = [f"{quote_identifier(schema)}.{name}" for name in MARKS]
    sql = "SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL, to_regclass($3) IS NOT NULL"
    [row] = await fetch(sql, names)
    present = [bool(row[place]) for place in range(len(names))]
    if not any(present):
        return HandoverMarks()
    parts = [
        text.format(name) if there else absent for (text, absent), name, there in zip(READ, names, present, strict=True)
    ]
    [row] = await fetch(TOGETHER.format(*parts), ())
    source, url = row[1], row[2]
    arriving, epoch, arrived = (int(str(row[place] or 0)) for place in (0, 3, 4))
    return HandoverMarks(
        "" if url is None else str(url), epoch, arriving, "" if source is None else str(source), arrived
    )


def refuse_marked(marks: HandoverMarks, place: str) -> None:
    """Raise when the database has moved, or is only arriving."""
    if marks.url:
        raise moved_elsewhere(marks, place)
    if marks.arriving:
        raise UnavailableError(
            f"the database at {place} is arriving from {marks.source}, as move {marks.arriving}.",
            why="Its rows are being copied; until the move is over the old place is the one that counts.",
            fix="Open it by its name or its old address; or end the move: interlock route … --abandon.",
        )


def moved_elsewhere(marks: HandoverMarks, place: str) -> MovedElsewhere:
    """Return our error for a tombstone."""
    return MovedElsewhere(
        f"the database of {place} has moved to {redact_postgres_url(marks.url)} (move {marks.epoch}).",
        url=marks.url,
        epoch=marks.epoch,
    )


TABLES_OF: Final = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') ORDER BY c.relname"""

OBJECTS_OF: Final = """
SELECT 'TYPE', t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = $1 AND t.typtype = 'e'
UNION ALL SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'SEQUENCE' END, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND (c.relkind = 'v' OR c.relkind = 'S' AND NOT EXISTS (
  SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')))
ORDER BY 1, 2"""
"""Enumerations, views, and the sequences that belong to no column: a schema's own, and ALTER takes each by its kind."""

SHARE_GATE: Final = f"LOCK TABLE {GATE} IN ACCESS SHARE MODE"
"""The first statement of every transaction that may change the schema. It conflicts only with a mover's seal."""


def leaving_script(schema: str, tables: Sequence[str], others: Sequence[tuple[str, str]], epoch: int) -> list[str]:
    """Return the statements that move everything in a schema aside; the caller writes the tombstone itself."""
    there = quote_identifier(aside(schema, epoch))
    here = quote_identifier(schema)
    return [
        f"CREATE SCHEMA IF NOT EXISTS {there}",
        *[f"ALTER TABLE {here}.{quote_identifier(table)} SET SCHEMA {there}" for table in tables],
        *[f"ALTER {kind} {here}.{quote_identifier(name)} SET SCHEMA {there}" for kind, name in others],
        f"CREATE TABLE {here}.{MOVED} (url text NOT NULL, epoch bigint PRIMARY KEY, time timestamptz NOT NULL)",
    ]


async def arrive(link: Link, schema: str, epoch: int) -> bool:
    """Let the draft of this epoch become the database; False when it is not there, as when it has arrived already.

    Everything happens in one transaction of the caller, which rolls it back when the result is False. Any process that
    has seen the tombstone at the source may do this: after the tombstone the draft can only arrive.
    """
    here, there = quote_identifier(schema), quote_identifier(draft(schema, epoch))

    async def fetch(sql: str, values: Sequence[object]) -> Sequence[PostgresRow]:
        with translate_errors(writing=False):
            return await link.driver.fetch(sql, *values)

    async def run(sql: str) -> None:
        with translate_errors(writing=False):
            _ = await link.driver.execute(sql)

    try:
        # Of several who do this the first wins. A lock, and no look: inside a transaction names may be remembered.
        await run(f"LOCK TABLE {here}.{ARRIVING} IN ACCESS EXCLUSIVE MODE")
    except InterlockError as error:
        if is_missing(error):
            return False
        raise
    marks = await handover_marks(fetch, schema)
    if marks.arriving != epoch:
        return False
    existing = {str(row[0]) for row in await fetch(TABLES_OF, (schema,))}
    coming = [str(row[0]) for row in await fetch(TABLES_OF, (draft(schema, epoch),))]
    if marks.url:
        await run(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(aside(schema, marks.epoch))}")
        await run(f"ALTER TABLE {here}.{MOVED} SET SCHEMA {quote_identifier(aside(schema, marks.epoch))}")
    for table in coming:
        if table in existing and table in OWN:
            await run(f"DROP TABLE {here}.{quote_identifier(table)}")
        await run(f"ALTER TABLE {there}.{quote_identifier(table)} SET SCHEMA {here}")
    for kind, name in await fetch(OBJECTS_OF, (draft(schema, epoch),)):
        await run(f"ALTER {kind} {there}.{quote_identifier(str(name))} SET SCHEMA {here}")
    await run(f"CREATE TABLE IF NOT EXISTS {here}.{ARRIVED} (epoch bigint PRIMARY KEY, source text NOT NULL)")
    await run(f"INSERT INTO {here}.{ARRIVED} SELECT epoch, source FROM {here}.{ARRIVING}")
    await run(f"DROP TABLE {here}.{ARRIVING}; DROP SCHEMA {there}")
    return True


OWN: Final = ("interlock_keys", GATE)
"""Our tables that opening a database makes: at an empty place they hold nothing."""
