"""Estimate of the duration of a move, measured on a sample of this source and this target, without changes.

A few pieces are read from the source and written to a temporary table or file. The rest is arithmetic: every row is
read, written, read again at both places and digested, with pauses in between.
"""

from typing import Final, NamedTuple

from interlock.catalog.moves import Amount
from interlock.database.moving.digests import Digest
from interlock.database.moving.ends import Source, Target
from interlock.database.moving.lane_rows import key_of
from interlock.database.moving.pacing import RESTS, ROWS_PER_PIECE
from interlock.database.moving.shape import Shape
from interlock.database.moving.values import StoredRow
from interlock.seams import Clock

PIECES: Final = 5
"""Number of pieces of the largest table in the sample."""
SEAL_MS: Final = 15.0
TABLE_MS: Final = 2.0
"""Fixed time of a seal, and time per table: locks, the tombstone, two commits."""


class Estimate(NamedTuple):
    """Expected durations of a move."""

    copy_s: float
    seal_ms: float


async def estimated(
    source: Source, target: Target, shape: Shape, amounts: tuple[Amount, ...], *, clock: Clock
) -> Estimate:
    """Copy a sample, and count rows as the seal does."""
    rows = {each.table: each.rows for each in amounts}
    tried_s, tried = 0.0, 0
    for table in sorted(shape.tables, key=lambda table: -rows[table.name])[:2]:
        after: StoredRow | None = None
        async with target.sample(table) as sample:
            since_s = clock.monotonic_s()
            for _ in range(PIECES):
                page = await source.page(table, after, ROWS_PER_PIECE)
                await sample.write(page.rows)
                if table.key:
                    again = await source.page(table, after, ROWS_PER_PIECE)
                    found = await sample.read([key_of(table)(row) for row in page.rows])
                    for each in (again.rows, found):
                        Digest().add(each)
                tried += len(page.rows)
                after = page.after
                if after is None:
                    break
            tried_s += clock.monotonic_s() - since_s
    each_s = tried_s / max(tried, 1)
    copy_s = sum(rows.values()) * each_s * (1 + RESTS)
    since_s = clock.monotonic_s()
    for table in shape.tables:
        _ = await source.count(table)
    count_s = clock.monotonic_s() - since_s
    return Estimate(copy_s=copy_s, seal_ms=SEAL_MS + TABLE_MS * len(shape.tables) + 2_000 * count_s)
