"""What a schema says of workflows that are on their way to it, or have left it.

Two tables of their own, so that nothing that is open has to know them: `workflows_arriving` while a move is under way
(and afterwards, with the time of the arrival), `workflows_moved` when the workflows live elsewhere. While they arrive,
the tables are made in a schema beside it, and there are none here: who opens the store is refused, and who has it open
from before is told to come again later. The tables move here in one transaction, when their source has left.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from interlock.catalog.secrets import shown as shown_address
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.sql.postgres.address import IDENTIFIER_BYTES_MAX, Address
from interlock.sql.postgres.failures import state_of
from interlock.sql.postgres.link import Record

Read = Callable[..., Awaitable[list[Record]]]
"""Runs a statement with its values."""

ARRIVING = "workflows_arriving"
MOVED = "workflows_moved"

TABLES = ("workflows", "workflow_events", "workflow_effects", "dead_letters", "leases", "notes", "migrations")
VIEWS = ("workflow_states", "workflow_leases", "workflows_due")
SEQUENCE = "workflow_numbers"

NO_TABLE = ("42P01", "3F000")
"""The states of a statement about a table, or a schema, that is not there."""

_LOOK = """
SELECT relname::text FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname IN ('workflows_arriving', 'workflows_moved', 'workflows')"""


class Arriving(NamedTuple):
    """A move whose target is here."""

    epoch: int
    source: str
    """As it may be shown."""
    complete: bool
    """Everything is here that the source has, which it is sealed with: only the source's tombstone is missing."""
    arrived: bool
    report: str
    """What was moved, in the words of the mover."""
    time_us: int
    """The last time of the source (G8)."""


class Gone(NamedTuple):
    """The workflows that were here live elsewhere."""

    url: str
    epoch: int


class Marks(NamedTuple):
    """What a schema says."""

    arriving: Arriving | None = None
    gone: Gone | None = None
    present: bool = False
    """It has the tables of a store."""


async def marks_of(read: Read, schema: str) -> Marks:
    """Look. One question, and one more for each mark there is."""
    found = {row[0] for row in await read(_LOOK, schema)}
    arriving, gone = None, None
    if ARRIVING in found:
        rows = await read(f"SELECT epoch, source, complete, arrived, report, time_us FROM {schema}.{ARRIVING}")
        arriving = Arriving(*rows[0]) if rows else None
    if MOVED in found:
        rows = await read(f"SELECT url, epoch FROM {schema}.{MOVED} ORDER BY epoch DESC LIMIT 1")
        gone = Gone(*rows[0]) if rows else None
    return Marks(arriving, gone, "workflows" in found)


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
    """The error for a store that is not there yet."""
    return UnavailableError(
        f"workflows are arriving at {shown} from {arriving.source} (move {arriving.epoch}).",
        why="Until they are all here and their old place is sealed nobody may use the store. Nothing was changed.",
        fix="Come again when the move is over. If nobody moves any more, run `interlock route` again to finish or "
        "abandon it.",
    )


def is_missing(error: BaseException) -> bool:
    """Whether a statement failed because its tables are not there: they may be on their way, or have left."""
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
