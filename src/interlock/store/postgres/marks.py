"""Marks of a schema: workflows that are arriving, or that have left.

Two tables of their own, so that nothing that is open has to know them: `workflows_arriving` while a move is under way
(and afterwards, with the time of the arrival), `workflows_moved` when the workflows live elsewhere. While they arrive,
the tables are created in a schema beside it and are missing here. Opening the store is refused, and calls of an engine
that has it open raise UnavailableError. The tables move here in one transaction, when their source has left.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from interlock.catalog.secrets import shown as shown_address
from interlock.errors import BadUsage, InterlockError, MovedElsewhere, UnavailableError
from interlock.sql.postgres.address import IDENTIFIER_BYTES_MAX, Address
from interlock.sql.postgres.failures import state_of
from interlock.sql.postgres.link import Record

Read = Callable[..., Awaitable[list[Record]]]
"""Runs a statement with its values."""

FoundT = TypeVar("FoundT")

ARRIVING = "workflows_arriving"
MOVED = "workflows_moved"

TABLES = ("workflows", "workflow_events", "workflow_effects", "dead_letters", "leases", "notes", "migrations")
VIEWS = ("workflow_states", "workflow_leases", "workflows_due")
SEQUENCE = "workflow_numbers"

NO_TABLE = ("42P01", "3F000")
"""SQLSTATEs of a statement about a missing table or schema."""

LOOKS_MAX = 3
"""Moves that may end between the look at the catalog and the read of the marks, before the look gives up."""

_LOOK = """
SELECT relname::text FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname IN ('workflows_arriving', 'workflows_moved', 'workflows')"""

_ARRIVING = "SELECT epoch, source, complete, arrived, report, time_us FROM {schema}.workflows_arriving LIMIT 1"
_MOVED = "SELECT url, epoch FROM {schema}.workflows_moved ORDER BY epoch DESC LIMIT 1"
_NOT_ARRIVING = "SELECT NULL, NULL, NULL, NULL, NULL, NULL WHERE false"
_NOT_MOVED = "SELECT NULL, NULL WHERE false"
_MARKS = """
SELECT arriving.*, moved.* FROM (SELECT) AS always
LEFT JOIN ({arriving}) AS arriving ON true LEFT JOIN ({moved}) AS moved ON true"""
"""Both marks by one statement: with two, a move could end in between, and the answer would be of no moment at all."""


class Arriving(NamedTuple):
    """A move whose target is here."""

    epoch: int
    source: str
    """Without secrets."""
    complete: bool
    """The draft is complete and the source sealed: only the source's tombstone is missing."""
    arrived: bool
    report: str
    """The report of the move, as the mover wrote it."""
    time_us: int
    """The last time of the source (G8)."""


class Gone(NamedTuple):
    """The workflows that were here live elsewhere."""

    url: str
    epoch: int


class Marks(NamedTuple):
    """The marks of a schema."""

    arriving: Arriving | None = None
    gone: Gone | None = None
    present: bool = False
    """It has the tables of a store."""


async def marks_of(read: Read, schema: str) -> Marks:
    """Return the marks of a schema, all of one moment.

    A table that is not there cannot be named, so the catalog is read first. An arrival that commits after that drops
    `workflows_moved`; then the catalog is read again. Inside a transaction the caller holds the schema's lock, under
    which no mark comes or goes.
    """

    async def look() -> Marks:
        return await _marks_of(read, schema)

    return await looked_again(look)


async def looked_again(look: Callable[[], Awaitable[FoundT]]) -> FoundT:
    """Return what a look finds. A look is repeated when a table that it saw in the catalog is gone when it reads it.

    Only a move takes tables away, so the next look sees what the move has left. Not for use inside a transaction, which
    ends with its first error.
    """
    for _ in range(LOOKS_MAX):
        try:
            return await look()
        except InterlockError as error:
            if not is_missing(error):
                raise
    return await look()


async def _marks_of(read: Read, schema: str) -> Marks:
    found = {row[0] for row in await read(_LOOK, schema)}
    present = "workflows" in found
    if found <= {"workflows"}:
        return Marks(present=present)
    arriving = (_ARRIVING if ARRIVING in found else _NOT_ARRIVING).format(schema=schema)
    moved = (_MOVED if MOVED in found else _NOT_MOVED).format(schema=schema)
    [row] = await read(_MARKS.format(arriving=arriving, moved=moved))
    epoch, source, complete, arrived, report, time_us, url, gone_epoch = row
    return Marks(
        None if epoch is None else Arriving(epoch, source, complete, arrived, report, time_us),
        None if url is None else Gone(url, gone_epoch),
        present,
    )


def refuse_marked(marks: Marks, shown: str) -> None:
    """Raise MovedElsewhere where workflows have left, and UnavailableError where they have not arrived."""
    arriving, gone = marks.arriving, marks.gone
    if gone is not None and (arriving is None or arriving.epoch < gone.epoch):
        raise MovedElsewhere(
            f"the workflows of {shown} live at {shown_address(gone.url)} since move {gone.epoch}.",
            url=gone.url,
            epoch=gone.epoch,
        )
    if arriving is not None and not arriving.arrived:
        raise on_the_way(arriving, shown)


def on_the_way(arriving: Arriving, shown: str) -> UnavailableError:
    """Return the error for a store whose workflows are arriving."""
    return UnavailableError(
        f"workflows are arriving at {shown} from {arriving.source} (move {arriving.epoch}).",
        why="The store cannot be used until all workflows are here and their old place is sealed. Nothing was changed.",
        fix="Try again when the move is over. If no mover runs any more, run `interlock route` again to finish or "
        "abandon it.",
    )


def is_missing(error: BaseException) -> bool:
    """Return whether a statement failed because its tables are missing: they may be arriving, or have left."""
    cause: BaseException | None = error
    while cause is not None:
        if (state_of(cause) or "") in NO_TABLE:
            return True
        cause = cause.__cause__
    return False


def draft_of(address: Address) -> str:
    """The schema that workflows arrive in."""
    return beside(address, "arriving")


def beside(address: Address, what: str) -> str:
    """A schema beside the one of the address."""
    name = f"{address.schema}__{what}"
    if len(name) > IDENTIFIER_BYTES_MAX:
        raise BadUsage(
            f"the schema {address.schema!r} has too long a name to move workflows to or from.",
            why=f"A schema {name!r} is made beside it meanwhile, and names have at most {IDENTIFIER_BYTES_MAX} bytes.",
            fix="Name another schema in the address: ?schema=workflows.",
        )
    return name


def moving_tables(old: str, new: str) -> str:
    """The statements that take a store's tables from one schema to another, in one transaction with others."""
    statements = [f"ALTER TABLE {old}.{table} SET SCHEMA {new}" for table in TABLES]
    statements += [f"ALTER VIEW {old}.{view} SET SCHEMA {new}" for view in VIEWS]
    statements.append(f"ALTER SEQUENCE {old}.{SEQUENCE} SET SCHEMA {new}")
    return ";\n".join(statements) + ";"
