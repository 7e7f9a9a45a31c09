"""The estimate of a move, measured on a sample of this source and this target.

The sample is really copied into tables like those of a draft, so that indexes, checks and the network count. They are
rolled back afterwards.
"""

from typing import NamedTuple

from interlock.catalog.moves import Amount
from interlock.seams import Clock
from interlock.sql.postgres.link import Link
from interlock.store.moving.apart import Apart
from interlock.store.moving.canonical import Numbered, bytes_of, digest_of
from interlock.store.moving.draft import PLANNING, Draft, Exchange
from interlock.store.moving.source import ASIDE, Source, Sums
from interlock.store.postgres.arriving import CLOCK_BEHIND_S_MAX, refuse_used, trial
from interlock.store.postgres.marks import marks_of
from interlock.store.values import Happened

SAMPLE = 2_000
"""Workflows that are copied to see how long that takes."""

LAST_ROUND_MAX = 200
"""Workflows that the seal brings over at most, as long as the mover keeps up."""

SLOW_S = 0.15
"""Above this everything is not counted once more under the seal."""


ARRIVES = 0.25
"""Taking tables from one schema to another is so much of making them; most of a seal that has nothing else to do."""


class Guess(NamedTuple):
    """Return the estimate of the move."""

    amounts: tuple[Amount, ...]
    copy_s: float
    seal_ms: float
    notes: tuple[str, ...]


class _Timed(NamedTuple):
    copied_s: float
    """For each workflow of the sample, with its history."""
    again_s: float
    """For each that is brought over a second time."""
    counted_s: float
    """For all of the sample."""
    made_s: float
    """For the tables themselves."""


async def estimated(source: Source, draft: Draft, apart: Apart, clock: Clock) -> Guess:
    """Measure it. Raises BadUsage where the target cannot be one."""
    marks = await marks_of(draft.read, draft.address.schema)
    await refuse_used(draft.driver, draft.address, marks, 2**62)
    began_s = clock.monotonic_s()
    before = await apart(source.sums)
    counted_s = clock.monotonic_s() - began_s
    rows, events = await apart(_sample, source)
    read_s = (clock.monotonic_s() - began_s - counted_s) / max(1, len(rows))
    timed = await _timed(draft, rows, events, clock)
    after = await apart(source.sums)
    written_per_s = max(0, after.revisions - before.revisions) / (clock.monotonic_s() - began_s)
    share = after.workflows / max(1, len(rows))
    amounts = await apart(_amounts, source, after, rows, events)
    copy_s = after.workflows * (timed.copied_s + read_s) + counted_s
    # What is written while the round before is brought over is left for the seal.
    left = min(LAST_ROUND_MAX, written_per_s * LAST_ROUND_MAX * timed.again_s)
    counting_s = counted_s + timed.counted_s * share
    seal_s = left * timed.again_s + timed.made_s * ARRIVES + (counting_s if counting_s <= SLOW_S else 0.0)
    return Guess(amounts, copy_s, seal_s * 1_000, _notes(await draft.time_us(), await apart(source.time_us)))


def _sample(source: Source) -> tuple[list[Numbered], list[Happened]]:
    with source.moment():
        # From the middle: the oldest workflows have the longest histories, and the youngest have none yet.
        rows = source.rows_between(max(0, (source.last_number() - SAMPLE) // 2), SAMPLE)
        if not rows:
            return [], []
        found = source.events_between(rows[0].number - 1, rows[-1].number)
        return rows, [each for number, _ in rows for each in found.get(number, ())]


async def _timed(draft: Draft, rows: list[Numbered], events: list[Happened], clock: Clock) -> _Timed:
    began_s = clock.monotonic_s()
    async with trial(Link(draft.driver, draft.address), draft.address) as schema:
        await draft.driver.execute(PLANNING)
        made_s = clock.monotonic_s() - began_s
        tried = Draft(draft.address, draft.driver, "", schema)
        copied_s, again_s, counted_s = 0.0, 0.0, 0.0
        if rows:
            began_s = clock.monotonic_s()
            done = await tried.exchange_within(Exchange(rows, events))
            for each in (rows, done.rows):
                sum(map(digest_of, each))
            for history in (events, done.events):
                sum(map(digest_of, history))
            copied_s = (clock.monotonic_s() - began_s) / len(rows)
            await draft.driver.execute("DROP TABLE staged_workflows; DROP TABLE IF EXISTS staged_workflow_events")
            few = rows[:LAST_ROUND_MAX]
            began_s = clock.monotonic_s()
            await tried.spans(few)
            await tried.exchange_within(Exchange(few))
            again_s = (clock.monotonic_s() - began_s) / len(few)
            began_s = clock.monotonic_s()
            await tried.sums()
            counted_s = clock.monotonic_s() - began_s
    return _Timed(copied_s, again_s, counted_s, made_s)


def _amounts(source: Source, sums: Sums, rows: list[Numbered], events: list[Happened]) -> tuple[Amount, ...]:
    def bytes_each(values: list[Numbered] | list[Happened]) -> float:
        return sum(map(bytes_of, values)) / max(1, len(values))

    found = [
        Amount("workflows", sums.workflows, int(sums.workflows * bytes_each(rows))),
        Amount("workflow_events", sums.events, int(sums.events * bytes_each(events))),
    ]
    for table in ASIDE:
        keys = source.keys_aside(table, "", SAMPLE)
        values = list(source.aside(table, keys).values())
        count = source.count(table)
        found.append(Amount(table, count, int(count * sum(map(bytes_of, values)) / max(1, len(values)))))
    return tuple(found)


def _notes(now_us: int, time_us: int | None) -> tuple[str, ...]:
    behind_s = ((time_us or 0) - now_us) / 1_000_000
    if behind_s <= 0:
        return ()
    bound = f"at most {CLOCK_BEHIND_S_MAX:g} s" if behind_s <= CLOCK_BEHIND_S_MAX else "and that is too much"
    return (f"The database's clock is {behind_s:.1f} s before the workflows, who have to wait for it ({bound}).",)
