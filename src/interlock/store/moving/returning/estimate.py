"""The estimate of a move into a lane, measured on a sample of this schema and this disk.

The sample is really copied and read back, into a file that is thrown away. What the seal brings over is bounded, so its
length does not grow with the workflows.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

from interlock.catalog.moves import Amount
from interlock.seams import Clock
from interlock.store.moving.apart import Apart
from interlock.store.moving.canonical import Numbered, bytes_of, digest_of
from interlock.store.moving.returning.draft import Exchange, LaneDraft
from interlock.store.moving.returning.reading import Part, Reading
from interlock.store.moving.returning.watching import Watching
from interlock.store.moving.source import ASIDE, Sums
from interlock.store.values import Happened

SAMPLE = 2_000
"""Workflows that are copied to see how long that takes."""

LAST_ROUND_MAX = 200
"""Workflows that the seal brings over at most, as long as the mover keeps up."""

SLOW_S = 0.15
"""Above this everything is not counted once more under the seal."""


class Guess(NamedTuple):
    """Return the estimate of the move."""

    amounts: tuple[Amount, ...]
    copy_s: float
    seal_ms: float


async def estimated(source: Watching, apart: Apart, clock: Clock) -> Guess:
    """Measure it."""
    reading, began_s = source.reading, clock.monotonic_s()
    sums = await reading.sums()
    counted_s = clock.monotonic_s() - began_s
    part = await reading.page("", SAMPLE)
    read_s = clock.monotonic_s() - began_s - counted_s
    written_s = await apart(_written_s, part, clock)
    each_s = (read_s + written_s) / max(1, len(part.rows))
    share = sums.workflows / max(1, len(part.rows))
    left = min(LAST_ROUND_MAX, sums.workflows)
    seal_s = left * each_s + (counted_s if counted_s * 2 <= SLOW_S else 0.0)
    return Guess(await _amounts(reading, sums, part), share * (read_s + written_s) + counted_s, seal_s * 1_000)


def _written_s(part: Part, clock: Clock) -> float:
    """Into a lane in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="interlock-route-") as folder:
        draft = LaneDraft(Path(folder) / "sample.lane", clock)
        try:
            draft.trial()
            began_s = clock.monotonic_s()
            done = draft.exchange(Exchange(list(part.rows.values()), part.events))
            sum(map(digest_of, [*part.rows.values(), *done.rows]))
            sum(map(digest_of, [*done.events, *done.events]))
            return clock.monotonic_s() - began_s
        finally:
            draft.close()


async def _amounts(reading: Reading, sums: Sums, part: Part) -> tuple[Amount, ...]:
    def bytes_each(values: list[Numbered] | list[Happened]) -> float:
        return sum(map(bytes_of, values)) / max(1, len(values))

    history = [each for events in part.events.values() for each in events]
    found = [
        Amount("workflows", sums.workflows, int(sums.workflows * bytes_each(list(part.rows.values())))),
        Amount("workflow_events", sums.events, int(sums.events * bytes_each(history))),
    ]
    for table in ASIDE:
        keys = await reading.keys_aside(table, "", SAMPLE)
        values = list((await reading.aside(table, keys)).values())
        count = await reading.count(table)
        found.append(Amount(table, count, int(count * sum(map(bytes_of, values)) / max(1, len(values)))))
    return tuple(found)
