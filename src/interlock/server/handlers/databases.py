"""The SQL route: run statements as one transaction in a database at the home.

A database is opened by its first request and closed with the server. The database that holds the workflows is not
reachable: clients change a workflow by sending it events. Every transaction is written to the audit log first, with
its statements but without their parameters, which may hold secrets and personal data.

On PostgreSQL the server's login also owns the schema of the workflows, the audit log and the API keys. Each statement
is therefore checked before it runs there (`sql.confinement`). A schema that holds a home is not served as a database,
whatever its name. A lane can reach only itself.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Protocol, cast
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import msgspec

from interlock.catalog.catalog import Catalog
from interlock.database.database import Database
from interlock.database.inventory import is_absent
from interlock.database.transactions import Transaction, schema_inside
from interlock.engine.path.commands import check_id
from interlock.errors import InvalidPayload, LimitReached
from interlock.lanes.contention import HotRow
from interlock.server.problems import HttpProblem
from interlock.server.request import Request
from interlock.server.response import Answer, json_answer, listing
from interlock.server.service import Service
from interlock.server.shapes import ShownResult, ShownTransaction, TransactionBody
from interlock.sql.confinement import confine
from interlock.store.open import NAME
from interlock.urls import is_postgres_url, parse_postgres_url

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

_HOLDS_A_HOME = """
SELECT count(*) FILTER (WHERE relname IN ('workflows', 'workflow_events', 'workflow_effects')) = 3
    OR count(*) FILTER (WHERE relname IN ('security_documents', 'security_audit')) = 2
    OR count(*) FILTER (WHERE relname IN ('workflows_moved', 'workflows_arriving', 'interlock_catalog')) > 0
FROM pg_catalog.pg_class WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)"""
"""Detect a home by its tables: another home, and workflows set aside by a move, have schemas of any name."""

_body = msgspec.json.Decoder(TransactionBody)


class HasDatabases(Protocol):
    """The bundle of objects that this route needs."""

    @property
    def service(self) -> Service:
        """The engine with its guard and limits."""
        ...

    @property
    def databases(self) -> "Databases":
        """The databases at the home."""
        ...


class Databases:
    """The databases at one home, by name."""

    def __init__(self, home: str | None, opened: Mapping[str, Database] | None = None, *, most: int = 100) -> None:
        self._home = home
        self._passed = dict(opened or {})
        self._most = most
        self._opening: dict[str, asyncio.Task[Database]] = {}

    async def get(self, name: str, *, makes: bool = True) -> Database:
        """Return the database of that name, opening it if needed. Raises 404 for a name that cannot be one.

        With `makes` False it also raises 404 for a database that does not exist yet: a misspelled name neither creates
        a database nor counts as an open one.
        """
        if name in self._passed:
            return self._passed[name]
        if name not in self._opening:
            self._refuse(name)
            if not makes:
                await self._refuse_absent(name)
        opening = self._opening.get(name)
        if opening is None:
            self._refuse_if_full()
            opening = self._opening[name] = asyncio.get_running_loop().create_task(self._open(name))
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and self._opening.get(name) is opening and (opening.cancelled() or opening.exception()):
                del self._opening[name]
            raise

    def open_now(self) -> dict[str, Database]:
        """Return the open databases by name."""
        opened = {
            name: task.result()
            for name, task in self._opening.items()
            if task.done() and not task.cancelled() and task.exception() is None
        }
        return {**self._passed, **opened}

    async def close(self) -> None:
        """Close the databases that were opened here."""
        for name, task in list(self._opening.items()):
            del self._opening[name]
            results = await asyncio.gather(task, return_exceptions=True)
            for database in results:
                if isinstance(database, Database):
                    await database.close()

    def _refuse(self, name: str) -> None:
        check_id(name, "the name of a database")
        home = self._home
        own = parse_postgres_url(home).schema if home is not None and is_postgres_url(home) else NAME
        if home is None:
            raise HttpProblem(
                404,
                f"there is no database {name!r:.300} here.",
                code="database-not-found",
                why="The app has neither a database of that name nor a home.",
                fix="Pass it to the app: interlock.asgi(engine, home=…) or databases={…}.",
            )
        if name == own:
            raise _reserved_database(name)

    async def _refuse_absent(self, name: str) -> None:
        home = self._home
        assert home is not None
        if is_postgres_url(home):
            url = _schema_url(home, name)
        else:
            catalog = Catalog(home)
            url = catalog.address(name, await catalog.entry(name))
        if await is_absent(url):
            raise HttpProblem(
                404,
                f"there is no database {name!r:.300} here.",
                code="database-not-found",
                why="The first transaction that creates a table creates the database.",
                fix="Correct the name, or create a table first.",
            )

    def _refuse_if_full(self) -> None:
        if len(self._opening) >= self._most:
            raise LimitReached(
                f"{len(self._opening)} databases are open already (databases_max).",
                why="Everything that can grow has a limit.",
                fix="Use an open database, or raise databases_max.",
            )

    async def _open(self, name: str) -> Database:
        home = self._home
        assert home is not None
        if home == "memory:":
            return await Database.open(home)
        if is_postgres_url(home):
            url = _schema_url(home, name)
            await _refuse_home(url, name)
            return await Database.open(url)
        return await Database.open(name, home=home)


async def _refuse_home(url: str, name: str) -> None:
    """Raise 404 for a schema that holds a home. Called before it is opened, which would create tables in it."""
    from interlock.postgres.pool import Pool  # noqa: PLC0415 -- an extra, which may not be installed.

    address = parse_postgres_url(url)
    pool = Pool(address._replace(connections_max=1))
    try:
        [(holds,)] = await pool.read(_HOLDS_A_HOME, address.schema)
    finally:
        await pool.close()
    if holds:
        raise _reserved_database(name)


def _reserved_database(name: str) -> HttpProblem:
    return HttpProblem(
        404,
        f"there is no database {name!r:.300} here.",
        code="database-not-found",
        why="It holds workflows, which only events may change.",
        fix="Use another name.",
    )


def _schema_url(home: str, name: str) -> str:
    """Return the address of the home with another schema."""
    if re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name) is None or name.startswith("pg_") or name == "information_schema":
        raise InvalidPayload(
            f"{name!r:.100} is not the name of a database here.",
            why="On PostgreSQL a database is a schema.",
            fix="Use up to 63 lower-case letters, digits and underscores.",
        )
    parts = urlsplit(home)
    kept = [option for option in parts.query.split("&") if option and not option.startswith("schema=")]
    return urlunsplit(parts._replace(query="&".join([*kept, f"schema={name}"])))


async def transact(served: HasDatabases, request: Request) -> Answer:
    """Run statements as one durable transaction."""
    request.query()
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
    database = await served.databases.get(request.parts[0], makes=makes)
    statements = [[each.sql, each.params] for each in body.statements]
    audited = {"statements": [each.sql[:AUDITED_CHARACTERS] for each in body.statements][:AUDITED], "key": key}
    async with served.service.acting(request, "database.transact", request.parts[0], before=None, after=audited):
        results = await database.transact(run_statements, statements, request.limits.rows_max, key=key)
    return json_answer(ShownTransaction(results=[msgspec.convert(each, ShownResult) for each in results]))


async def run_statements(tx: Transaction, statements: list[list[object]], rows_max: int) -> list[dict[str, object]]:
    """Run the statements in order. Returns the result of each as plain values, which are stored with a key."""
    schema = schema_inside()
    if schema is not None:
        # Checked here, because a database may have moved to PostgreSQL since the request arrived.
        for sql, _ in statements:
            confine(str(sql))
        [(holds,)] = await tx.query(_HOLDS_A_HOME, schema)
        if holds:
            raise _reserved_database(schema)
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


class ShownHot(msgspec.Struct, kw_only=True):
    """A row or workflow that writers contend for."""

    database: str | None
    """None for a workflow; then `table` is its machine and `key` its id."""
    table: str
    key: object
    handoffs_per_s: float
    writes_per_s: float
    wait_s: float
    flagged: bool
    source: str
    conflicts_per_s: float


async def contention(served: HasDatabases, request: Request) -> Answer:
    """Return the rows and workflows that writers contend for in this process, worst first."""
    request.query()
    allows = request.identity.allows
    hot = [_hot_row(None, row) for row in await served.service.engine.contention() if allows(row.table, str(row.key))]
    if not request.identity.limited:
        for name, database in served.databases.open_now().items():
            hot += [_hot_row(name, row) for row in await database.contention()]
    hot.sort(key=lambda row: -(row.handoffs_per_s + row.conflicts_per_s))
    return listing(hot)


def _hot_row(database: str | None, row: HotRow) -> ShownHot:
    return ShownHot(
        database=database,
        table=row.table,
        key=row.key,
        handoffs_per_s=row.handoffs_per_s,
        writes_per_s=row.writes_per_s,
        wait_s=row.wait_s,
        flagged=row.flagged,
        source=row.source,
        conflicts_per_s=row.conflicts_per_s,
    )
