"""The SQL route: run statements as one transaction in a database at the home.

Every transaction is written to the audit log first, with its statements but without their parameters, which may hold
secrets and personal data.

On PostgreSQL the server's login also owns the schema of the workflows, the audit log and the API keys. Each statement
is therefore checked before it runs there (`sql.http_confinement`). A lane can reach only itself.
"""

import base64
import binascii
import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import cast
from uuid import UUID

import msgspec

from interlock.database.transactions import Transaction, schema_inside
from interlock.engine.path.caller_commands import check_id
from interlock.errors import InvalidPayload, LimitReached
from interlock.server.http_messages import HttpAnswer, Request, json_answer, listing
from interlock.server.service import HOLDS_A_HOME, Service, reserved_database
from interlock.sql.http_confinement import confine
from interlock.wire import ShownResult, ShownTransaction, TransactionBody, shown_hot

# --- SQL parameters --------------------------------------------------------------------------------------------------
# {"$numeric": "19.90"}    {"$timestamptz": "2026-11-16T10:00:00Z"}    {"$uuid": "6ba7…"}    {"$bytes": "aGVsbG8="}
#
# Every other value stands for itself: a text, a whole number, a float, a truth value, null, and lists and objects as
# jsonb. A number with a fraction is a float, as in JSON; money is therefore sent as `$numeric`. An object whose only
# member begins with another `$` is refused, so that a spelling mistake is not stored as a document.


def _numeric(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return number


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment


_TYPES: dict[str, tuple[Callable[[str], object], str]] = {
    "$numeric": (_numeric, "a decimal number as text"),
    "$timestamptz": (_moment, "a moment in ISO 8601 with its offset"),
    "$uuid": (UUID, "a UUID"),
    "$bytes": (lambda text: base64.b64decode(text, validate=True), "bytes in base64"),
}


def parameter(value: object) -> object:
    """Convert a JSON value to the parameter it stands for. Raises InvalidPayload."""
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, object]", value)
    name = next(iter(members), "") if len(members) == 1 else ""
    if not name.startswith("$"):
        return members
    known = _TYPES.get(name)
    if known is None:
        raise InvalidPayload(
            f"{name!r:.50} is not a type of a parameter; the types are {', '.join(_TYPES)}.",
            why="An object with one member that begins with $ names a type that JSON does not have.",
            fix="Correct the name; a document that looks like this goes as text: $1::text::jsonb.",
        )
    read, expected = known
    text = members[name]
    try:
        if not isinstance(text, str):
            raise TypeError(name)  # noqa: TRY301 -- one error for every invalid value.
        return read(text)
    except (ValueError, TypeError, InvalidOperation, binascii.Error) as error:
        raise InvalidPayload(
            f"{text!r:.100} is not {expected}.",
            why=f"A parameter of the type {name} is a text of that form.",
            fix=f"Correct the text of {name}.",
        ) from error


# --- Transactions ----------------------------------------------------------------------------------------------------

_READS = re.compile(r"\s*(?:select|with|values|table)\b|.*\breturning\b", re.IGNORECASE | re.DOTALL)

_USES = re.compile(r"\s*(?:select|with|values|table|insert|update|delete|merge)\b", re.IGNORECASE)
"""Statements that need existing tables."""

AUDITED = 20
AUDITED_CHARACTERS = 500
"""Number of statements of a transaction that the audit log keeps, and characters of each."""

_body = msgspec.json.Decoder(TransactionBody)


async def transact(service: Service, request: Request) -> HttpAnswer:
    """Run statements as one durable transaction."""
    body = await request.json(_body)
    most = request.limits.statements_max
    if len(body.statements) > most:
        raise InvalidPayload(
            f"the transaction has {len(body.statements):,} statements; {most} are allowed.",
            why="A transaction blocks all others while it runs.",
            fix="Split it, or use one statement over many rows.",
        )
    for each in body.statements:
        [parameter(value) for value in each.params]  # An invalid parameter is refused before anything is opened.
    key = body.key if body.key is not None else request.idempotency_key()
    if key is not None:
        check_id(key, "the key of a transaction", slash=True)
    makes = any(_USES.match(each.sql) is None for each in body.statements)
    database = await service.databases.get(request.parts[0], makes=makes)
    statements = [[each.sql, each.params] for each in body.statements]
    audited = {"statements": [each.sql[:AUDITED_CHARACTERS] for each in body.statements][:AUDITED], "key": key}
    async with service.audit_action(request, "database.transact", request.parts[0], before=None, after=audited):
        results = await database.transact(run_statements, statements, request.limits.rows_max, key=key)
    return json_answer(ShownTransaction(results=[msgspec.convert(each, ShownResult) for each in results]))


async def run_statements(tx: Transaction, statements: list[list[object]], rows_max: int) -> list[dict[str, object]]:
    """Run the statements in order. Returns the result of each as plain values, which are stored with a key."""
    schema = schema_inside()
    if schema is not None:
        # Checked here, because a database may have moved to PostgreSQL since the request arrived.
        for sql, _ in statements:
            confine(str(sql))
        [(holds,)] = await tx.query(HOLDS_A_HOME, schema)
        if holds:
            raise reserved_database(schema)
    results: list[dict[str, object]] = []
    for sql, params in statements:
        text, values = str(sql), [parameter(each) for each in cast("list[object]", params)]
        if _READS.match(text) is None:
            results.append({"count": await tx.execute(text, *values)})
            continue
        rows = await tx.query(text, *values)
        if len(rows) > rows_max:
            raise LimitReached(
                f"the statement gave {len(rows):,} rows; {rows_max:,} are allowed (rows_max).",
                why="Every answer has a bound.",
                fix="Add a LIMIT to the statement.",
            )
        results.append({"count": len(rows), "rows": [row._asdict() for row in rows]})
    return results


async def contention(service: Service, request: Request) -> HttpAnswer:
    """Return the rows and workflows that writers contend for in this process, worst first."""
    allows = request.identity.allows
    hot = [shown_hot(None, row) for row in await service.engine.contention() if allows(row.table, str(row.key))]
    if not request.identity.limited:
        for name, database in service.databases.open_now().items():
            hot += [shown_hot(name, row) for row in await database.contention()]
    hot.sort(key=lambda row: -(row.handoffs_per_s + row.conflicts_per_s))
    return listing(hot)
