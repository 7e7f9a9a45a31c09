"""What a turn costs the server: its CPU, the bytes of its log, its transactions and its statements.

CPU, log and transactions are read before and after each turn. Transactions are those that write: each of them takes one
number of the server's, so they are counted exactly, which its statistics are not until a second later.

Statements are counted by the server too, whatever the driver does: for one turn of its own, which is not timed, it
writes down every statement it executes (`log_statement`), BEGIN, COMMIT and the resets of a pool included. Whose they
are is told by the name of the application, which engines have and baselines do not, so that engines that are waiting
for their turn are not counted against a baseline. The server's wheel has no pg_stat_statements.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import asyncpg
from rich.table import Table

from benchmarks.postgres import Server
from benchmarks.report import Figure, Round

Contestant = Callable[[], Round]

ENGINE = "interlock"
BY_HAND = "[unknown]"
READ = """
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_snapshot_xmax(pg_current_snapshot())::text::numeric
"""


class Reading(NamedTuple):
    """What was used so far."""

    server_cpu_ms: float
    wal_bytes: float
    transactions: float


class Meter:
    """Reads the meters of a server, over a connection of its own."""

    def __init__(self, runner: asyncio.Runner, server: Server) -> None:
        self._runner = runner
        self._server = server
        self._connection: Any = runner.run(asyncpg.connect(server.url, server_settings={"application_name": "meter"}))

    def close(self) -> None:
        """Hang up."""
        self._runner.run(self._connection.close())

    def metered(self, contestant: Contestant) -> Contestant:
        """The same, and its rounds say what the server did for them."""

        def turn() -> Round:
            before = self.read()
            result = contestant()
            after = self.read()
            used = {name: after[place] - before[place] for place, name in enumerate(Reading._fields)}
            used["client_cpu_ms"] = max(0.0, 1e3 * result.cpu_seconds - used["server_cpu_ms"])
            return replace(result, counts={**result.counts, **used})

        return turn

    def read(self) -> Reading:
        """The meters."""
        wal, number = self._runner.run(self._connection.fetchrow(READ))
        return Reading(1e3 * self._server.own_cpu_seconds(), float(wal), float(number))

    def statements_each(self, contestant: Contestant, application: str) -> float:
        """Statements per operation, from a turn of its own."""
        executed = re.compile(rf"^{re.escape(application)}\|LOG:  (?:execute|statement)", re.MULTILINE)
        self._log("all")
        begun = self._server.log.stat().st_size
        try:
            result = contestant()
        finally:
            self._log("none")
        with self._server.log.open("rb") as log:
            log.seek(begun)
            found = executed.findall(log.read().decode(errors="replace"))
        return len(found) / result.operations

    def _log(self, what: str) -> None:
        async def change() -> None:
            await self._connection.execute(f"ALTER SYSTEM SET log_statement = '{what}'")
            await self._connection.execute("ALTER SYSTEM SET log_parameter_max_length = 0")
            await self._connection.execute("ALTER SYSTEM SET log_line_prefix = '%a|'")
            await self._connection.execute("SELECT pg_reload_conf()")
            # Every process of the server looks for new settings before its next statement, once it was told to.
            while await self._connection.fetchval("SHOW log_statement") != what:
                pass

        self._runner.run(change())


def metered_table(figures: Mapping[str, Figure], statements: Mapping[str, float]) -> Table:
    """What one operation of each contestant cost its clients and the server."""
    table = Table(title="on PostgreSQL, each operation: CPU, log, commits that write, statements")
    for heading in ("contestant", "client µs", "server µs", "WAL bytes", "commits", "statements"):
        table.add_column(heading, justify="left" if heading == "contestant" else "right", no_wrap=True)
    for name, figure in figures.items():
        found = [figure.each(count) for count in ("client_cpu_ms", "server_cpu_ms", "wal_bytes", "transactions")]
        client, server, wal, transactions = (each or 0.0 for each in found)
        if None not in found:
            counted = f"{statements[name]:.3f}" if name in statements else ""
            table.add_row(
                name, f"{1e3 * client:.1f}", f"{1e3 * server:.1f}", f"{wal:,.0f}", f"{transactions:.3f}", counted
            )
    return table
