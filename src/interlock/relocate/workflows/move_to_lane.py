"""Moving workflows from PostgreSQL into the lane of a home while they run (decision 0018).

The source's own commit decides, as in every move. Until its tombstone is durable the lane is a draft that cannot be
opened. From then on the workflows live in the lane, and the next mover or engine finishes the rest.

A lane has one owner. Of the engines that shared the workflows one continues, and the others get LaneOwned with its
name. A lane has no leases of workflows: a running step is owed there as after a crash, with the same key (G5). Live
engines learn of the move within a second, so for two seconds no step begins in the lane: no attempt runs twice
concurrently, and no undo overtakes its step.
"""

import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from interlock.catalog.moves import Amount, At, Moved, Plan, Watch
from interlock.clock import Clock, RandomIds
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.relocate.workflows.canonical import Digests, Numbered, bytes_of, digest_of, key_of
from interlock.relocate.workflows.canonical import bytes_of as size_of
from interlock.relocate.workflows.draft import CHUNK, compared, difference
from interlock.relocate.workflows.lane_draft import ALL, Exchange, LaneDraft
from interlock.relocate.workflows.lane_source import SOURCE_ASIDE, Apart, Span, Sums
from interlock.relocate.workflows.postgres_source import NOTES_MAX, Part, Reading, Watching, Wire
from interlock.store.lane import HELD, HELD_US
from interlock.store.postgres.schema import beside
from interlock.store.records import HistoryRecord
from interlock.urls import lane_path, parse_postgres_url, redact_url, without_secrets

# --- Estimate --------------------------------------------------------------------------------------------------------
# The sample is really copied and read back, into a file that is thrown away. What the seal brings over is bounded,
# so its length does not grow with the workflows.

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
    def bytes_each(values: list[Numbered] | list[HistoryRecord]) -> float:
        return sum(map(bytes_of, values)) / max(1, len(values))

    history = [each for events in part.events.values() for each in events]
    found = [
        Amount("workflows", sums.workflows, int(sums.workflows * bytes_each(list(part.rows.values())))),
        Amount("workflow_events", sums.events, int(sums.events * bytes_each(history))),
    ]
    for table in SOURCE_ASIDE:
        keys = await reading.keys_aside(table, "", SAMPLE)
        values = list((await reading.aside(table, keys)).values())
        count = await reading.count(table)
        found.append(Amount(table, count, int(count * sum(map(bytes_of, values)) / max(1, len(values)))))
    return tuple(found)


# --- Copy into a draft -----------------------------------------------------------------------------------------------
# As on the way there (`draft.Copying`): what is transferred is the state of workflows, never what was done to
# them; whatever is written is read back and compared; what changes at the source afterwards is noted, and comes
# again.


class Copying:
    """From one schema into one draft."""

    def __init__(self, source: Watching, draft: LaneDraft, apart: Apart) -> None:
        self.digests = Digests()
        self.bytes: Counter[str] = Counter()
        """Amounts read, by table."""
        self.last_us = 0
        """The last time that stands in a workflow (G8)."""
        self._reading = source.reading
        self._wire = source.wire
        self._draft = draft
        self._apart = apart

    async def chunk(self, after: str, *, fresh: bool) -> str | None:
        """Copy the next workflows after an id; return the last one's id, None at the end.

        Unless the draft is fresh it is compared with what an earlier mover has left there.
        """
        part = await self._reading.page(after, CHUNK)
        last = next(reversed(part.rows)) if part.rows else None
        if fresh:
            await self._exchange(part, removed=(), cuts={})
        else:
            await self._compared(part, after, last)
        return last

    async def _compared(self, part: Part, after: str, last: str | None) -> None:
        """Bring over what the draft has otherwise, or not at all; what it has beyond that is taken out."""
        found = await self._apart(self._draft.between, after, last)
        for each, history in found.values():
            self.digests.put_row(each.number, digest_of(each))
            self.digests.add_events(len(history), sum(map(digest_of, history)))
        other = {
            workflow: each
            for workflow, each in part.rows.items()
            if found.get(workflow) != (each, part.events.get(workflow, []))
        }
        removed = [workflow for workflow in found if workflow not in part.rows]
        await self._exchange(Part(other, part.events), removed=removed, cuts=dict.fromkeys(other, ALL))

    async def touched(self, ids: Sequence[str]) -> None:
        """Bring over what has become of these workflows."""
        for begin in range(0, len(ids), CHUNK):
            await self._touched(ids[begin : begin + CHUNK])

    async def _touched(self, ids: Sequence[str]) -> None:
        async with self._wire.moment():
            rows = await self._reading.rows(ids)
            spans = await self._reading.spans(ids)
            numbers = [each.number for each in rows.values()]
            known = await self._apart(lambda: self._draft.source.spans(numbers))
            cuts: dict[str, int] = {}
            after_versions: dict[str, int] = {}
            for workflow, each in rows.items():
                span, here = spans.get(workflow, Span()), known[each.number]
                keep_from, add_behind = difference(span, here)
                if keep_from > here.first and here.size:
                    cuts[workflow] = keep_from
                if add_behind < span.last:
                    after_versions[workflow] = add_behind
            events = await self._reading.events_behind(after_versions)
        removed = [workflow for workflow in ids if workflow not in rows]
        await self._exchange(Part(rows, events), removed=removed, cuts=cuts)

    async def _exchange(self, part: Part, *, removed: Sequence[str], cuts: dict[str, int]) -> None:
        if not part.rows and not removed:
            return
        rows = list(part.rows.values())
        events: list[HistoryRecord] = [each for workflow in part.rows for each in part.events.get(workflow, ())]
        done = await self._apart(self._draft.exchange, Exchange(rows, part.events, removed, cuts))
        digests = compared("workflow", rows, done.rows)
        history = compared("history", events, done.events)
        self.digests.add_events(-len(done.cut), -sum(map(digest_of, done.cut)))
        for number in done.removed:
            self.digests.put_row(number, 0)
        for each, digest in zip(done.rows, digests, strict=True):
            self.digests.put_row(each.number, digest)
        self.digests.add_events(len(history), sum(history))
        self.last_us = max(self.last_us, *(each.row.updated_us for each in rows)) if rows else self.last_us
        self.bytes["workflows"] += sum(map(size_of, rows))
        self.bytes["workflow_events"] += sum(map(size_of, events))

    async def all_aside(self) -> None:
        """Bring over everything that is stored beside workflows and their history."""
        await self._apart(self._draft.clear_aside)
        for table in SOURCE_ASIDE:
            after = ""
            while keys := await self._reading.keys_aside(table, after, CHUNK):
                await self.aside(table, keys)
                after = keys[-1]

    async def aside(self, table: str, keys: Sequence[str]) -> None:
        """Bring over what has become of what stands under these keys."""
        values = await self._reading.aside(table, keys)
        found = await self._apart(self._draft.put_aside, table, keys, values)
        digests = compared(table, values.values(), found)
        for key in keys:
            self.digests.put_aside(table, key, 0)
        for each, digest in zip(found, digests, strict=True):
            self.digests.put_aside(table, key_of(each), digest)
        self.bytes[table] += sum(map(size_of, values.values()))


# --- Move ------------------------------------------------------------------------------------------------------------

NAME = "workflows"

COPIED_BETWEEN = 20
"""Chunks after which what was noted meanwhile is brought over, so that notes do not pile up."""

LITTLE = 200
"""So few notes are left for the seal."""

ROUNDS_MAX = 50
"""Rounds of catching up. A source that is written faster than it is read is sealed all the same, a little longer."""

SUMS_S_MAX = 0.15
"""Longest count under the seal, in seconds: all rows are counted again if that takes no longer."""


async def machines_there(source: str) -> dict[str, int]:
    """Return the machines with workflows in a schema, with their counts. Raises BadUsage for a schema without any."""
    async with _watching(source) as watching:
        if (await watching.marks()).tombstone is not None:
            return {}  # They have left: a move that was begun may still have to be finished.
        await watching.refuse_no_store()
        return await watching.reading.machines()


async def plan_return(source: str, target: str, *, epoch: int, clock: Clock) -> Plan:
    """Return the plan of a move. Nothing is changed: the measurement uses a temporary folder."""
    async with _watching(source) as watching, _draft(target, clock) as (draft, apart):
        await watching.refuse_no_store()
        await apart(draft.refuse_used, ALL, "")
        guess = await estimated(watching, apart, clock)
        machines, owners = await watching.reading.machines(), await watching.reading.owners()
    listed = ", ".join(f"{count:,} of {machine!r}" for machine, count in machines.items()) or "none"
    serving = f" {owners} look after workflows at this moment." if owners > 1 else ""
    return Plan(
        name=NAME,
        source=redact_url(source),
        target=redact_url(target),
        epoch=epoch,
        amounts=guess.amounts,
        copy_s=guess.copy_s,
        seal_ms=guess.seal_ms,
        notes=(
            f"All workflows of the schema move together: {listed}.",
            f"A lane has one owner: the first engine there goes on, the others get LaneOwned until it ends.{serving}",
            "The lane is on the disk of this host: engines on other hosts cannot follow.",
            "Steps that run when it is sealed are tried again in the lane, with the same keys.",
        ),
    )


async def return_workflows(source: str, target: str, *, epoch: int, clock: Clock, watch: Watch, at: At) -> Moved:
    """Move them, or go on with a move that was begun. Raises whatever was in the way; then nothing has moved yet."""
    async with _watching(source) as watching, _draft(target, clock) as (draft, apart):
        move = _Return(watching, draft, apart, source, target, epoch=epoch, clock=clock, watch=watch, at=at)
        try:
            await watching.refuse_no_store()
            return await move.run()
        except MovedElsewhere as error:
            # Also when another mover of the same move was quicker: the source has left, as it was asked to.
            if (error.url, error.epoch) != (without_secrets(target), epoch):
                raise
            return await move.finish()


async def abandon_return(source: str, target: str, *, epoch: int, clock: Clock) -> bool:
    """Take a move back that has not happened yet: the source forgets it, the draft is thrown away. False: none was."""
    async with _watching(source) as watching, _draft(target, clock) as (draft, apart):
        await watching.refuse_no_store()
        watched = await watching.forget_all()
        if not await apart(draft.take_back, epoch):
            return watched
        await watching.refuse_left()  # Until now a mover that has the lane could have left; from here on it cannot.
        return await apart(draft.throw_away, epoch) or watched


class _Return:
    """One move by one mover."""

    def __init__(
        self,
        source: Watching,
        draft: LaneDraft,
        apart: Apart,
        source_url: str,
        target_url: str,
        *,
        epoch: int,
        clock: Clock,
        watch: Watch,
        at: At,
    ) -> None:
        self._source, self._draft, self._apart = source, draft, apart
        self._from, self._to, self._epoch = source_url, target_url, epoch
        self._clock, self._watch, self._at = clock, watch, at
        self._copying = Copying(source, draft, apart)
        self._copied: str | None = ""
        """Up to this id everything was copied; None: all of it was."""
        self._copy_s = 0.0

    async def run(self) -> Moved:
        """All of it."""
        self._at("watch")
        beside(self._source.address, f"moved_{self._epoch}")  # Refuses a name that is too long now, and not at the end.
        fresh = await self._apart(self._draft.begin, self._epoch, redact_url(self._from))
        await self._source.watch()
        self._watch("watch", 1, 1)
        began_s = self._clock.monotonic_s()
        await self._copy(fresh=fresh)
        self._copy_s = self._clock.monotonic_s() - began_s
        await self._catch_up()
        await self._apart(self._draft.fold)
        counted_s = await self._count_ahead()
        await self._catch_up()
        return await self._leave(counts=counted_s <= SUMS_S_MAX, resumed=not fresh)

    async def finish(self) -> Moved:
        """Make the lane the store after the source has left, unless that has happened."""
        self._watch("arrive", 0, 1)
        report = await self._apart(self._draft.arrive, self._epoch)
        self._at("arrive/after")
        self._watch("done", 1, 1)
        if report is None:  # It has moved on since: what was moved is not known here any more.
            return self._moved((), checksum="", resumed=True)
        return msgspec.structs.replace(msgspec.json.decode(report, type=Moved), resumed=True)

    async def _copy(self, *, fresh: bool) -> None:
        total = await self._source.reading.count("workflows")
        await self._copying.all_aside()
        self._at("copy/aside")
        number = 0
        while self._copied is not None:
            self._copied = await self._copying.chunk(self._copied, fresh=fresh)
            number += 1
            self._watch("copy", min(self._copying.digests.workflows, total), total)
            self._at(f"copy/{number}")
            if number % COPIED_BETWEEN == 0:
                await self._round()

    async def _catch_up(self) -> None:
        for number in range(1, ROUNDS_MAX + 1):
            notes = await self._round()
            self._watch("catch up", number, 0)
            self._at(f"catch up/{number}")
            if notes <= LITTLE:
                return

    async def _round(self) -> int:
        """Bring over what was noted until now; returns how much that was."""
        total = 0
        while (changes_noted := await self._source.changes_noted()).numbers:
            for kind, keys in changes_noted.keys.items():
                if kind in SOURCE_ASIDE:
                    await self._copying.aside(kind, keys)
                else:
                    # What is not copied yet is read later, and so is newer than its note.
                    known = [key for key in keys if self._copied is None or key <= self._copied]
                    await self._copying.touched(known)
            await self._source.forget(changes_noted.numbers)
            total += len(changes_noted.numbers)
            if sum(map(len, changes_noted.keys.values())) < NOTES_MAX:
                break
        return total

    async def _count_ahead(self) -> float:
        """Return how long it takes to count all rows at both places."""
        began_s = self._clock.monotonic_s()
        await self._source.reading.sums()
        await self._apart(self._draft.sums)
        return self._clock.monotonic_s() - began_s

    async def _leave(self, *, counts: bool, resumed: bool) -> Moved:
        self._watch("seal", 0, 1)
        self._at("seal/before")
        async with self._source.sealed():
            began_s = self._clock.monotonic_s()
            self._at("seal")
            await self._round()
            self._at("verify")
            moved = await self._verified(counts=counts, resumed=resumed)
            self._at("leave/before")
            await self._source.leave(without_secrets(self._to), self._epoch)
            self._at("leave/after")
        self._watch("arrive", 0, 1)
        await self._apart(self._draft.arrive, self._epoch)
        seal_ms = (self._clock.monotonic_s() - began_s) * 1_000
        self._at("arrive/after")
        self._watch("done", 1, 1)
        return msgspec.structs.replace(moved, seal_ms=seal_ms)

    async def _verified(self, *, counts: bool, resumed: bool) -> Moved:
        """Compare what both places have, and write down in the lane that it is everything."""
        digests, reading = self._copying.digests, self._source.reading
        self._watch("verify", 0, 1)
        if counts:
            here, there = await reading.sums(), await self._apart(self._draft.sums)
            counted = (digests.workflows, digests.events)
            if here != there or counted != (here.workflows, here.events):
                raise UnavailableError(
                    f"the lane differs from the source: {there} instead of {here}, {counted} were compared.",
                    why="Something has written to one of them that the mover was not told of. Nothing has moved.",
                    fix="Take the move back with `interlock route --abandon`, and begin again.",
                )
        rows = {"workflows": digests.workflows, "workflow_events": digests.events}
        rows |= {table: digests.aside(table) for table in SOURCE_ASIDE}
        amounts = tuple(Amount(table, count, self._copying.bytes[table]) for table, count in rows.items())
        moved = self._moved(amounts, checksum=digests.checksum, resumed=resumed)
        database_us, wall_us = await reading.time_us(), int(self._clock.wall_s() * 1_000_000)
        time_us = max(database_us, self._copying.last_us)
        held_lease = {HELD: str(max(time_us, wall_us) + HELD_US)} if await reading.owners() else {}
        await self._apart(
            self._draft.complete,
            self._epoch,
            msgspec.json.encode(moved).decode(),
            time_us=time_us,
            later_us=max(0, wall_us - time_us),
            notes=held_lease,
        )
        return moved

    def _moved(self, amounts: tuple[Amount, ...], *, checksum: str, resumed: bool) -> Moved:
        return Moved(
            name=NAME,
            source=redact_url(self._from),
            target=redact_url(self._to),
            epoch=self._epoch,
            amounts=amounts,
            checksum=checksum,
            copy_s=self._copy_s,
            seal_ms=0.0,
            resumed=resumed,
        )


@contextlib.asynccontextmanager
async def _watching(source: str) -> AsyncGenerator[Watching]:
    wire = await Wire.connected(parse_postgres_url(source))
    try:
        yield Watching(wire, RandomIds().text())
    finally:
        await wire.close()


@contextlib.asynccontextmanager
async def _draft(target: str, clock: Clock) -> AsyncGenerator[tuple[LaneDraft, Apart]]:
    path = lane_path(f"{target.rstrip('/')}/workflows") if target.startswith("lanes:///") else None
    if path is None:
        raise BadUsage(
            f"{redact_url(target)!r} is not a place that workflows can be moved to from PostgreSQL; "
            "lanes:///folder is.",
            why="Workflows move from a lane to PostgreSQL, and back into a lane on a local disk.",
            fix="Name a home on a disk: lanes:///var/shop.",
        )
    apart = Apart()
    draft = LaneDraft(path, clock)
    try:
        yield draft, apart
    finally:
        try:
            await apart(draft.close)
        finally:
            apart.close()
