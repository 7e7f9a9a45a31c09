"""The route of SQL: statements that happen together or not at all, in a database at the home.

A database is opened when it is first asked for and closed with the server. The one that the workflows live in is not
reachable: whoever wants to change a workflow sends it an event. Every transaction is in the audit log first: its
statements, and not their parameters, which are where secrets and people's data are.

On PostgreSQL the login of the server owns the schema of the workflows too, with the audit log and the API keys. So a
statement is admitted before it is run there (`sql.confinement`), and a schema that holds a home is no database here,
whatever its name is. A lane can reach nothing but itself.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Protocol, cast
from urllib.parse import urlsplit, urlunsplit

import msgspec

from interlock.catalog.catalog import Catalog
from interlock.database.database import Database
from interlock.database.residents import is_absent
from interlock.database.transactions import Transaction, schema_inside
from interlock.errors import InvalidPayload, LimitReached
from interlock.lanes.contention import HotRow
from interlock.runtime.envelopes import check_id
from interlock.server.answers import Answer, listing, shown
from interlock.server.parameters import parameter
from interlock.server.problems import HttpProblem
from interlock.server.requests import Request
from interlock.server.service import Service
from interlock.server.shapes import ShownResult, ShownTransaction, TransactionBody
from interlock.sql.confinement import confine
from interlock.sql.postgres.address import is_postgres, parsed
from interlock.store.opening import NAME

_READS = re.compile(r"\s*(?:select|with|values|table)\b|.*\breturning\b", re.IGNORECASE | re.DOTALL)

_USES = re.compile(r"\s*(?:select|with|values|table|insert|update|delete|merge)\b", re.IGNORECASE)
"""Statements that need tables which are there already."""

AUDITED = 20
AUDITED_CHARACTERS = 500
"""So many statements of a transaction are in the audit log, and so much of each."""

_HOLDS_A_HOME = """
SELECT count(*) FILTER (WHERE relname IN ('workflows', 'workflow_events', 'workflow_effects')) = 3
    OR count(*) FILTER (WHERE relname IN ('security_documents', 'security_audit')) = 2
    OR count(*) FILTER (WHERE relname IN ('workflows_moved', 'workflows_arriving', 'interlock_catalog')) > 0
FROM pg_catalog.pg_class WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)"""
"""By what is in it: another home, and workflows that a move has put aside, have schemas of any name."""

_body = msgspec.json.Decoder(TransactionBody)


class Served(Protocol):
    """What this route needs beside the service."""

    @property
    def service(self) -> Service:
        """The engine, as it is served."""
        ...

    @property
    def databases(self) -> "Databases":
        """The databases at the home."""
        ...


class Databases:
    """The databases at one home, by name."""

    def __init__(self, home: str | None, given: Mapping[str, Database] | None = None, *, most: int = 100) -> None:
        self._home = home
        self._given = dict(given or {})
        self._most = most
        self._opening: dict[str, asyncio.Task[Database]] = {}

    async def get(self, name: str, *, makes: bool = True) -> Database:
        """The database of that name, opened if it is not. Raises 404 where there can be none.

        Raises 404 also where there is none yet, unless it may be made: a misspelled name makes no database, and does
        not count as an open one.
        """
        if name in self._given:
            return self._given[name]
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
        """Those that are open."""
        opened = {
            name: task.result()
            for name, task in self._opening.items()
            if task.done() and not task.cancelled() and task.exception() is None
        }
        return {**self._given, **opened}

    async def close(self) -> None:
        """Close those that were opened here."""
        for name, task in list(self._opening.items()):
            del self._opening[name]
            results = await asyncio.gather(task, return_exceptions=True)
            for database in results:
                if isinstance(database, Database):
                    await database.close()

    def _refuse(self, name: str) -> None:
        check_id(name, "the name of a database")
        home = self._home
        own = parsed(home).schema if home is not None and is_postgres(home) else NAME
        if home is None:
            raise HttpProblem(
                404,
                f"there is no database {name!r:.300} here.",
                code="database-not-found",
                why="This app was given none of that name, and no home to look for one.",
                fix="Give it to the app: interlock.asgi(engine, home=…) or databases={…}.",
            )
        if name == own:
            raise _workflows_live_there(name)

    async def _refuse_absent(self, name: str) -> None:
        home = self._home
        assert home is not None
        if is_postgres(home):
            url = _schema_url(home, name)
        else:
            catalog = Catalog(home)
            url = catalog.address(name, await catalog.entry(name))
        if await is_absent(url):
            raise HttpProblem(
                404,
                f"there is no database {name!r:.300} here.",
                code="database-not-found",
                why="A database is made by the first transaction that creates something in it.",
                fix="Correct the name, or create a table first.",
            )

    def _refuse_if_full(self) -> None:
        if len(self._opening) >= self._most:
            raise LimitReached(
                f"{len(self._opening)} databases are open already (databases_max).",
                why="Everything that can grow has a limit.",
                fix="Use one of those that are open, or raise databases_max.",
            )

    async def _open(self, name: str) -> Database:
        home = self._home
        assert home is not None
        if home == "memory:":
            return await Database.open(home)
        if is_postgres(home):
            url = _schema_url(home, name)
            await _refuse_home(url, name)
            return await Database.open(url)
        return await Database.open(name, home=home)


async def _refuse_home(url: str, name: str) -> None:
    """Raise 404 for a schema that holds a home. Before it is opened, which would make tables in it."""
    from interlock.sql.postgres.pool import Pool  # noqa: PLC0415 -- an extra, which may not be installed.

    address = parsed(url)
    pool = Pool(address._replace(connections_max=1))
    try:
        [(holds,)] = await pool.read(_HOLDS_A_HOME, address.schema)
    finally:
        await pool.close()
    if holds:
        raise _workflows_live_there(name)


def _workflows_live_there(name: str) -> HttpProblem:
    return HttpProblem(
        404,
        f"there is no database {name!r:.300} here.",
        code="database-not-found",
        why="Workflows live there, and are changed by events alone.",
        fix="Use another name.",
    )


def _schema_url(home: str, name: str) -> str:
    """The same address with another schema."""
    if re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name) is None or name.startswith("pg_") or name == "information_schema":
        raise InvalidPayload(
            f"{name!r:.100} is not the name of a database here.",
            why="On PostgreSQL a database is a schema.",
            fix="Use up to 63 lower-case letters, digits and underscores.",
        )
    parts = urlsplit(home)
    kept = [option for option in parts.query.split("&") if option and not option.startswith("schema=")]
    return urlunsplit(parts._replace(query="&".join([*kept, f"schema={name}"])))


async def transact(served: Served, request: Request) -> Answer:
    """Run statements as one durable transaction."""
    request.query()
    body = await request.json(_body)
    most = request.limits.statements_max
    if len(body.statements) > most:
        raise InvalidPayload(
            f"the transaction has {len(body.statements):,} statements; {most} are allowed.",
            why="A transaction keeps all others waiting.",
            fix="Split it, or use one statement over many rows.",
        )
    for each in body.statements:
        [parameter(given) for given in each.params]  # What is no parameter is refused before anything is opened.
    key = body.key if body.key is not None else request.idempotency_key()
    if key is not None:
        check_id(key, "the key of a transaction", slash=True)
    makes = any(_USES.match(each.sql) is None for each in body.statements)
    database = await served.databases.get(request.parts[0], makes=makes)
    asked = [[each.sql, each.params] for each in body.statements]
    told = {"statements": [each.sql[:AUDITED_CHARACTERS] for each in body.statements][:AUDITED], "key": key}
    async with served.service.acting(request, "database.transact", request.parts[0], before=None, after=told):
        results = await database.transact(run_statements, asked, request.limits.rows_max, key=key)
    return shown(ShownTransaction(results=[msgspec.convert(each, ShownResult) for each in results]))


async def run_statements(tx: Transaction, statements: list[list[object]], rows_max: int) -> list[dict[str, object]]:
    """Run each statement in its turn; returns what each gave, as plain values that can be kept with a key."""
    schema = schema_inside()
    if schema is not None:
        # Here and not before: a database may have moved to PostgreSQL since it was asked for.
        for sql, _ in statements:
            confine(str(sql))
        [(holds,)] = await tx.query(_HOLDS_A_HOME, schema)
        if holds:
            raise _workflows_live_there(schema)
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
                fix="Ask for fewer of them: LIMIT.",
            )
        results.append({"count": len(rows), "rows": [row._asdict() for row in rows]})
    return results


class ShownHot(msgspec.Struct, kw_only=True):
    """A row that writers wait for each other on, and where it is."""

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


async def contention(served: Served, request: Request) -> Answer:
    """The rows and workflows that writers wait for each other on, worst first, as this process has seen them."""
    request.query()
    allows = request.identity.allows
    hot = [_shown(None, row) for row in await served.service.engine.contention() if allows(row.table, str(row.key))]
    if not request.identity.limited:
        for name, database in served.databases.open_now().items():
            hot += [_shown(name, row) for row in await database.contention()]
    hot.sort(key=lambda row: -(row.handoffs_per_s + row.conflicts_per_s))
    return listing(hot)


def _shown(database: str | None, row: HotRow) -> ShownHot:
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
