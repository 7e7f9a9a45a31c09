"""The route of SQL: statements that happen together or not at all, in a database at the home.

A database is opened when it is first asked for and closed with the server. The one that the workflows live in is not
reachable: whoever wants to change a workflow sends it an event. Every transaction is in the audit log first: its
statements, and not their parameters, which are where secrets and people's data are.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Protocol, cast
from urllib.parse import urlsplit, urlunsplit

import msgspec

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import InvalidPayload, LimitReached
from interlock.lanes.contention import HotRow
from interlock.runtime.envelopes import check_id
from interlock.server.answers import Answer, listing, shown
from interlock.server.parameters import parameter
from interlock.server.problems import HttpProblem
from interlock.server.requests import Request
from interlock.server.service import Service
from interlock.server.shapes import ShownResult, ShownTransaction, TransactionBody
from interlock.sql.postgres.address import is_postgres, parsed
from interlock.store.opening import NAME

_READS = re.compile(r"\s*(?:select|with|values|table)\b|.*\breturning\b", re.IGNORECASE | re.DOTALL)

AUDITED = 20
AUDITED_CHARACTERS = 500
"""So many statements of a transaction are in the audit log, and so much of each."""

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

    async def get(self, name: str) -> Database:
        """The database of that name, opened if it is not. Raises 404 where there can be none."""
        if name in self._given:
            return self._given[name]
        opening = self._opening.get(name)
        if opening is None:
            self._refuse(name)
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
        if home is None or name == own:
            raise HttpProblem(
                404,
                f"there is no database {name!r:.300} here.",
                code="database-not-found",
                why="This app was given none of that name, and no home to look for one."
                if home is None
                else "Workflows live there, and are changed by events alone.",
                fix="Give it to the app: interlock.asgi(engine, home=…) or databases={…}."
                if home is None
                else "Use another name.",
            )
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
            return await Database.open(_schema_url(home, name))
        return await Database.open(name, home=home)


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
    key = body.key if body.key is not None else request.header(b"idempotency-key")
    if key is not None:
        check_id(key, "the key of a transaction", slash=True)
    database = await served.databases.get(request.parts[0])
    asked = [[each.sql, each.params] for each in body.statements]
    told = {"statements": [each.sql[:AUDITED_CHARACTERS] for each in body.statements][:AUDITED], "key": key}
    async with served.service.acting(request, "database.transact", request.parts[0], before=None, after=told):
        results = await database.transact(run_statements, asked, request.limits.rows_max, key=key)
    return shown(ShownTransaction(results=[msgspec.convert(each, ShownResult) for each in results]))


async def run_statements(tx: Transaction, statements: list[list[object]], rows_max: int) -> list[dict[str, object]]:
    """Run each statement in its turn; returns what each gave, as plain values that can be kept with a key."""
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
