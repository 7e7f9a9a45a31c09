"""Lane in a temporary folder, to measure how fast rows of a table are written and read.

It also stands in for a bucket, because objects of a sample would stay in the bucket's log.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import apsw

from interlock.database.moving.lane_rows import lane_rows_of, to_lane
from interlock.database.moving.making import make_in_lane
from interlock.database.moving.shape import Shape, Table
from interlock.database.moving.threads import Alone
from interlock.database.moving.values import StoredRow
from interlock.database.on_lanes import Translators
from interlock.lanes.connection import open_writer
from interlock.seams import Clock


class LaneSample:
    """Rows in a temporary file."""

    def __init__(self, alone: Alone, connection: apsw.Connection, table: Table) -> None:
        self._alone = alone
        self._connection = connection
        self._table = table

    async def write(self, rows: Sequence[StoredRow]) -> None:
        """Add rows."""
        await self._alone.run(lambda: self._write(rows))

    def _write(self, rows: Sequence[StoredRow]) -> None:
        self._connection.execute("BEGIN")
        to_lane(self._connection, self._table, rows)
        self._connection.execute("COMMIT")

    async def read(self, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        return await self._alone.run(lambda: lane_rows_of(self._connection, self._table, keys))


@asynccontextmanager
async def lane_sample(alone: Alone, table: Table, clock: Clock) -> AsyncGenerator[LaneSample]:
    """Create a lane with such a table, which is removed at the end of the block."""
    translators = Translators()
    with tempfile.TemporaryDirectory(prefix="interlock-route-") as folder:
        connection = await alone.run(lambda: _sampled(Path(folder) / "sample.lane", table, translators, clock))
        try:
            yield LaneSample(alone, connection, table)
        finally:
            await alone.run(connection.close)


def _sampled(path: Path, table: Table, translators: Translators, clock: Clock) -> apsw.Connection:
    connection = open_writer(path)
    for pragma in ("synchronous = NORMAL", "foreign_keys = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    translators.prepare(connection, lambda: int(clock.wall_s() * 1_000_000))
    make_in_lane(connection, Shape((replace(table, references=()),)))
    return connection
