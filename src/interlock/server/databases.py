"""The databases at the home of a server, opened by their first request and closed with the server.

The database that holds the workflows is not reachable: clients change a workflow by sending it events. A schema of
PostgreSQL that holds a home is not served as a database, whatever its name.
"""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from interlock.catalog.catalog import Catalog
from interlock.database.database import Database
from interlock.database.inventory import is_absent
from interlock.engine.path.caller_commands import check_id
from interlock.errors import InvalidPayload, LimitReached
from interlock.server.problems import HttpProblem
from interlock.store.open import NAME
from interlock.urls import is_postgres_url, parse_postgres_url

HOLDS_A_HOME = """
SELECT count(*) FILTER (WHERE relname IN ('workflows', 'workflow_events', 'workflow_effects')) = 3
    OR count(*) FILTER (WHERE relname IN ('security_documents', 'security_audit')) = 2
    OR count(*) FILTER (WHERE relname IN ('workflows_moved', 'workflows_arriving', 'interlock_catalog')) > 0
FROM pg_catalog.pg_class WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)"""
"""Detect a home by its tables: another home, and workflows set aside by a move, have schemas of any name."""


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
            raise _not_found(
                name,
                why="The app has neither a database of that name nor a home.",
                fix="Pass it to the app: interlock.asgi(engine, home=…) or databases={…}.",
            )
        if name == own:
            raise reserved_database(name)

    async def _refuse_absent(self, name: str) -> None:
        home = self._home
        assert home is not None
        if is_postgres_url(home):
            url = _schema_url(home, name)
        else:
            catalog = Catalog(home)
            url = catalog.address(name, await catalog.entry(name))
        if await is_absent(url):
            raise _not_found(
                name,
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
        [(holds,)] = await pool.read(HOLDS_A_HOME, address.schema)
    finally:
        await pool.close()
    if holds:
        raise reserved_database(name)


def reserved_database(name: str) -> HttpProblem:
    """Build the error for a database that holds a home."""
    return _not_found(name, why="It holds workflows, which only events may change.", fix="Use another name.")


def _not_found(name: str, *, why: str, fix: str) -> HttpProblem:
    what = f"there is no database {name!r:.300} here."
    return HttpProblem("database-not-found", what, why=why, fix=fix)


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
