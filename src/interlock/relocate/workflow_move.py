"""Move of the workflows of a home, between folders, buckets and PostgreSQL, while they run (decision 0018).

The unit is a workflow with its history. All machines of a home move together, because they share its notes, leases and
keys. A step that runs at the source is owed at the target as after a crash: its row says that an attempt has begun, and
the first engine there takes it up with the same key (G5). If an engine is alive at the source its attempt may still be
under way: then nothing is begun again for as long as that engine may need to learn of the move.

A lane has one owner. Of the engines that shared the workflows one continues there, and the others get LaneOwned.

Sections: protocols, copy, unit, estimate, move.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NamedTuple, Protocol

import msgspec

from interlock.catalog.catalog import ALL as NAME
from interlock.clock import Clock, Ids, RandomIds
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.relocate.mover import shown_url
from interlock.relocate.stages import Amount, At, Moved, Plan, Watch, arrive, nowhere, run_stages
from interlock.relocate.workflow_lanes import LaneArrival, LaneWorkflows
from interlock.relocate.workflow_records import (
    ALL,
    TABLES_ASIDE,
    Aside,
    Clocks,
    Digests,
    Exchange,
    Exchanged,
    Noted,
    Numbered,
    Part,
    Span,
    Sums,
    Timed,
    bytes_of,
    compared,
    difference,
    digest_of,
    key_of,
)
from interlock.store.records import HistoryRecord
from interlock.urls import (
    is_bucket_url,
    is_lane_url,
    is_postgres_url,
    redact_secrets,
    redact_url,
    with_secrets,
    without_secrets,
)

# --- Protocols -------------------------------------------------------------------------------------------------------


class WorkflowSource(Protocol):
    """The store that workflows leave, while engines serve it or while it is sealed."""

    @property
    def location(self) -> str:
        """Return its address without secrets."""
        ...

    async def check(self) -> None:
        """Raise MovedElsewhere when they have left, BadUsage where there were never any."""
        ...

    async def refuse_left(self) -> None:
        """Do the same after a mover that may be leaving has ended."""
        ...

    async def last_epoch(self) -> int:
        """Return the epoch of the move that brought the workflows here; 0 without one."""
        ...

    async def machines(self) -> dict[str, int]:
        """Count the workflows of each machine."""
        ...

    async def page(self, after: str, limit: int) -> Part:
        """Return the next workflows after an id, with their histories."""
        ...

    async def states(self, ids: Sequence[str]) -> tuple[dict[str, Numbered], dict[str, Span]]:
        """Return these workflows and the spans of their histories; those that are gone are missing."""
        ...

    async def events_after(self, versions: Mapping[str, int]) -> dict[str, list[HistoryRecord]]:
        """Return the history of these workflows, each after a version."""
        ...

    async def aside(self, table: str, keys: Sequence[str]) -> dict[str, Aside]:
        """Return the records of these keys."""
        ...

    async def keys_aside(self, table: str, after: str, limit: int) -> list[str]:
        """Return the next keys after one."""
        ...

    async def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        ...

    async def sums(self) -> Sums:
        """Return quick totals of all rows."""
        ...

    async def clocks(self) -> Clocks:
        """Return the times of the source."""
        ...

    async def watch(self) -> None:
        """Record changes from now on."""
        ...

    async def load_notes(self) -> Noted:
        """Return recorded changes, oldest first."""
        ...

    async def forget(self, changes: Noted) -> None:
        """Do not return these changes again."""
        ...

    async def forget_all(self) -> bool:
        """Record nothing any more. Return whether something was recorded."""
        ...

    def sealed(self) -> AbstractAsyncContextManager[float]:
        """Block all writers during the block; yield when that began."""
        ...

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone inside the seal, durably."""
        ...

    async def close(self) -> None:
        """Give everything up."""
        ...


class WorkflowTarget(Protocol):
    """The store that workflows arrive in."""

    @property
    def location(self) -> str:
        """Return its address without secrets."""
        ...

    @property
    def seal_factor(self) -> float:
        """Return the share of the time for making the tables that the seal takes."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks for people."""
        ...

    async def check(self, epoch: int = ALL, source: str = "") -> None:
        """Raise BadUsage or MovedElsewhere unless workflows may come here."""
        ...

    async def begin(self, epoch: int, source: str) -> bool:
        """Make the draft, or continue with that of an earlier mover; return whether it is fresh."""
        ...

    async def between(self, after: str, last: str | None) -> Part:
        """Return the workflows after an id, up to another, with their histories."""
        ...

    async def spans(self, rows: Iterable[Numbered]) -> dict[str, Span]:
        """Return the spans of history of the workflows that are here with these numbers."""
        ...

    async def exchange(self, change: Exchange) -> Exchanged:
        """Change the draft, in one transaction, and read back what it has now."""
        ...

    async def put_aside(self, table: str, keys: Sequence[str], values: Mapping[str, Aside]) -> list[Aside]:
        """Replace the records of these keys; return them as the draft has them."""
        ...

    async def clear_aside(self) -> None:
        """Remove everything that is stored beside workflows."""
        ...

    async def sums(self) -> Sums:
        """Return quick totals of all rows."""
        ...

    async def settle(self) -> None:
        """Prepare for a quick end."""
        ...

    async def now_us(self) -> int:
        """Return the time of the clock that leases will run by."""
        ...

    async def complete(self, epoch: int, report: str, clocks: Clocks, now_us: int) -> None:
        """Mark the draft complete, durably: from now on only the source's tombstone is missing."""
        ...

    async def arrive(self, epoch: int) -> str | None:
        """Make the draft the store; return its report, if it is known. A second call changes nothing."""
        ...

    async def reached(self) -> float | None:
        """Return when an engine that follows has written here, by the monotonic clock; None where that is not known."""
        ...

    async def draft(self) -> tuple[int, str] | None:
        """Return the epoch and the source of the draft; None without one."""
        ...

    async def take_back(self, epoch: int) -> bool | None:
        """Take the draft over; return whether it was complete, None without one."""
        ...

    async def throw_away(self, epoch: int) -> None:
        """Remove the draft, and restore what was there before."""
        ...

    async def timed(self, part: Part) -> Timed:
        """Measure with a sample that is not kept."""
        ...

    async def clock_notes(self, clocks: Clocks) -> tuple[str, ...]:
        """Return remarks about the clocks of both places, for people."""
        ...

    async def close(self) -> None:
        """Give everything up."""
        ...


# --- Copy ------------------------------------------------------------------------------------------------------------
# The state of workflows is transferred, never the operations on them. All written rows are read back and compared, so
# that the checksum of the draft is that of the source as it was read. Later changes are recorded at the source and
# copied again.

CHUNK = 1_000
"""Workflows per copy step: their histories are in memory together."""


class WorkflowsCopy:
    """The copy from one source into one draft."""

    def __init__(self, source: WorkflowSource, target: WorkflowTarget) -> None:
        self.digests = Digests()
        self.bytes: Counter[str] = Counter()
        """Amounts read, by table."""
        self.last_us = 0
        """The last time that stands in a workflow (G8)."""
        self._source = source
        self._target = target

    async def chunk(self, after: str, *, fresh: bool) -> str | None:
        """Copy the next workflows after an id; return the last one's id, None at the end.

        Unless the draft is fresh it is compared with what an earlier mover has left there.
        """
        part = await self._source.page(after, CHUNK)
        last = next(reversed(part.rows)) if part.rows else None
        if fresh:
            await self._exchange(part, removed=(), cuts={})
        else:
            await self._compared(part, after, last)
        return last

    async def _compared(self, part: Part, after: str, last: str | None) -> None:
        """Copy what differs in the draft, and remove what the source does not have."""
        found = await self._target.between(after, last)
        for id, each in found.rows.items():  # noqa: A001 -- of a workflow.
            history = found.events.get(id, [])
            self.digests.put_row(each.number, digest_of(each))
            self.digests.add_events(len(history), sum(map(digest_of, history)))
        differs = {
            workflow: each
            for workflow, each in part.rows.items()
            if found.rows.get(workflow) != each or found.events.get(workflow, []) != part.events.get(workflow, [])
        }
        removed = [workflow for workflow in found.rows if workflow not in part.rows]
        await self._exchange(Part(differs, part.events), removed=removed, cuts=dict.fromkeys(differs, ALL))

    async def changed(self, ids: Sequence[str]) -> None:
        """Copy the present state of these workflows."""
        for begin in range(0, len(ids), CHUNK):
            await self._changed(ids[begin : begin + CHUNK])

    async def _changed(self, ids: Sequence[str]) -> None:
        rows, spans = await self._source.states(ids)
        known = await self._target.spans(rows.values())
        cuts: dict[str, int] = {}
        after_versions: dict[str, int] = {}
        for workflow in rows:
            span, here = spans.get(workflow, Span()), known.get(workflow, Span())
            keep_from, add_after = difference(span, here)
            if keep_from > here.first and here.size:
                cuts[workflow] = keep_from
            if add_after < span.last:
                after_versions[workflow] = add_after
        events = await self._source.events_after(after_versions)
        removed = [workflow for workflow in ids if workflow not in rows]
        await self._exchange(Part(rows, events), removed=removed, cuts=cuts)

    async def _exchange(self, part: Part, *, removed: Sequence[str], cuts: dict[str, int]) -> None:
        if not part.rows and not removed:
            return
        rows = list(part.rows.values())
        histories = {workflow: part.events.get(workflow, []) for workflow in part.rows}
        events = [each for history in histories.values() for each in history]
        done = await self._target.exchange(Exchange(rows, histories, removed, cuts))
        digests = compared("workflow", rows, done.rows)
        history = compared("history", events, done.events)
        self.digests.add_events(-len(done.cut), -sum(map(digest_of, done.cut)))
        for number in done.removed:
            self.digests.put_row(number, 0)
        for each, digest in zip(done.rows, digests, strict=True):
            self.digests.put_row(each.number, digest)
        self.digests.add_events(len(history), sum(history))
        self.last_us = max(self.last_us, *(each.row.updated_us for each in rows), 0)
        self.bytes["workflows"] += sum(map(bytes_of, rows))
        self.bytes["workflow_events"] += sum(map(bytes_of, events))

    async def all_aside(self) -> None:
        """Copy everything that is stored beside workflows and their history."""
        await self._target.clear_aside()
        for table in TABLES_ASIDE:
            after = ""
            while keys := await self._source.keys_aside(table, after, CHUNK):
                await self.aside(table, keys)
                after = keys[-1]

    async def aside(self, table: str, keys: Sequence[str]) -> None:
        """Copy the present state of what has these keys."""
        values = await self._source.aside(table, keys)
        found = await self._target.put_aside(table, keys, values)
        digests = compared(table, values.values(), found)
        for key in keys:
            self.digests.put_aside(table, key, 0)
        for each, digest in zip(found, digests, strict=True):
            self.digests.put_aside(table, key_of(each), digest)
        self.bytes[table] += sum(map(bytes_of, values.values()))


# --- Unit ------------------------------------------------------------------------------------------------------------

COPIED_BETWEEN = 20
"""Chunks after which what was noted meanwhile is brought over, so that notes do not pile up."""

LITTLE = 200
"""Notes that are left for the seal."""

SEALED_S_MAX = 10.0
"""Longest seal in seconds. If the target does not answer in time, the seal is given up and nothing moves."""

SUMS_S_MAX = 0.15
"""Longest count under the seal, in seconds: all rows are counted again if that takes no longer."""


class WorkflowUnit:
    """The workflows of one move, by one mover."""

    rounds_max = 50

    def __init__(
        self,
        source: WorkflowSource,
        target: WorkflowTarget,
        *,
        source_url: str,
        target_url: str,
        epoch: int,
        clock: Clock,
        watch: Watch,
        at: At,
    ) -> None:
        self._source, self._target = source, target
        self._from, self._to, self._epoch = source_url, target_url, epoch
        self._clock, self._watch, self._at = clock, watch, at
        self._copying = WorkflowsCopy(source, target)
        self._copied: str | None = ""
        """Up to this id everything was copied; None: all of it was."""
        self._fresh = True
        self._counts = self._is_compared = False
        self._written = False
        """Whether an engine has written to the source since everything was copied."""
        self._begun_s = clock.monotonic_s()
        self.report: str | None = None

    async def begin(self) -> float:
        """Begin or continue the draft, then watch, for which writers hardly wait."""
        self._at("watch")
        await self._source.check()
        self._fresh = await self._target.begin(self._epoch, redact_url(self._from))
        await self._source.watch()
        self._watch("watch", 1, 1)
        self._begun_s = self._clock.monotonic_s()
        return 0.0

    async def copy(self) -> None:
        """Copy all workflows, chunk by chunk, and what was noted in between."""
        total = await self._source.count("workflows")
        await self._copying.all_aside()
        self._at("copy/aside")
        number = 0
        while self._copied is not None:
            self._copied = await self._copying.chunk(self._copied, fresh=self._fresh)
            number += 1
            self._watch("copy", min(self._copying.digests.workflows, total), total)
            self._at(f"copy/{number}")
            if number % COPIED_BETWEEN == 0:
                await self._round()

    async def bring_noted(self, number: int) -> bool:
        """Bring over what was noted until now."""
        count = await self._round()
        self._watch("catch up", count, 0)
        self._at(f"catch up/{number}")
        return count <= LITTLE

    async def _round(self) -> int:
        total = 0
        while (changes := await self._source.load_notes()).numbers:
            for table, keys in changes.keys.items():
                if table in TABLES_ASIDE:
                    await self._copying.aside(table, keys)
                else:
                    # What is not copied yet is read later, and so is newer than its note.
                    await self._copying.changed([key for key in keys if self._copied is None or key <= self._copied])
            await self._source.forget(changes)
            total += len(changes.numbers)
            if changes.complete:
                break
        self._written = self._written or (self._is_compared and total > 0)
        return total

    def never_catches_up(self) -> None:
        """Seal all the same: a source that is written faster than it is read is sealed a little longer."""

    async def compare(self) -> None:
        """Measure how long it takes to count all rows; the copy has compared them already."""
        await self._target.settle()
        began_s = self._clock.monotonic_s()
        await self._source.sums()
        await self._target.sums()
        self._counts = self._clock.monotonic_s() - began_s <= SUMS_S_MAX
        self._is_compared = True

    def sealed(self) -> AbstractAsyncContextManager[float]:
        """Block the engines at the source."""
        return self._source.sealed()

    async def end(self) -> bool:
        """Bring over the last notes, and record at the target that it is everything."""
        copy_s = self._clock.monotonic_s() - self._begun_s
        try:
            async with asyncio.timeout(SEALED_S_MAX):
                await self._round()
                self._at("verify")
                await self._verify(copy_s)
        except TimeoutError as error:
            raise UnavailableError(
                f"{self._target.location} did not take the last changes within {SEALED_S_MAX:g} s.",
                why="All writers wait meanwhile, so the seal was given up. Nothing has moved; the workflows go on.",
                fix="Run the same again, when the target answers faster: it goes on from here.",
            ) from error
        return True

    async def _verify(self, copy_s: float) -> None:
        digests = self._copying.digests
        self._watch("verify", 0, 1)
        if self._counts:
            here, there = await self._source.sums(), await self._target.sums()
            counted = (digests.workflows, digests.events)
            if here != there or counted != (here.workflows, here.events):
                raise UnavailableError(
                    f"the target differs from the source: {there} instead of {here}, {counted} were compared.",
                    why="Something has written to one of them that the mover was not told of. Nothing has moved.",
                    fix="Take the move back with `interlock route --abandon`, and begin again.",
                )
        now_us = await self._target.now_us()  # Before the source's, so that the time in between does not count.
        clocks = await self._source.clocks()
        clocks = clocks._replace(
            time_us=max(clocks.time_us, self._copying.last_us), now_us=max(clocks.now_us, self._copying.last_us)
        )
        rows = {"workflows": digests.workflows, "workflow_events": digests.events}
        rows |= {table: digests.aside(table) for table in TABLES_ASIDE}
        amounts = tuple(Amount(table, count, self._copying.bytes[table]) for table, count in rows.items())
        moved = self.moved(amounts, checksum=digests.checksum, copy_s=copy_s, resumed=not self._fresh)
        self.report = msgspec.json.encode(moved).decode()
        await self._target.complete(self._epoch, self.report, clocks, now_us)

    async def leave(self) -> None:
        """Write the tombstone at the source."""
        await self._source.leave(without_secrets(self._to), self._epoch)

    async def arrive(self) -> None:
        """Make the target the store, unless an engine that followed the tombstone has done so."""
        self.report = await self._target.arrive(self._epoch) or self.report

    async def reached(self) -> float:
        """Return when an engine that follows has written; without any writes nothing is known to follow."""
        now_s = self._clock.monotonic_s()
        return (await self._target.reached() or now_s) if self._written else now_s

    async def finish(self) -> None:
        """Do nothing."""

    def moved(
        self, amounts: tuple[Amount, ...] = (), *, checksum: str = "", copy_s: float = 0.0, resumed: bool = True
    ) -> Moved:
        """Return the result of the move; without amounts where it has moved on since."""
        return Moved(
            name=NAME,
            source=redact_url(self._from),
            target=redact_url(self._to),
            epoch=self._epoch,
            amounts=amounts,
            checksum=checksum,
            copy_s=copy_s,
            seal_ms=0.0,
            resumed=resumed,
        )


# --- Estimate --------------------------------------------------------------------------------------------------------
# The sample is really copied and read back, into tables like those of a draft, and then thrown away. What the seal
# brings over is bounded, so its length does not grow with the workflows.

SAMPLE: Final = 2_000
"""Workflows that are copied to see how long that takes."""

LAST_ROUND_MAX: Final = 200
"""Workflows that the seal brings over at most, as long as the mover keeps up."""


class WorkflowsEstimate(NamedTuple):
    """The expected amounts and durations of a move."""

    amounts: tuple[Amount, ...]
    copy_s: float
    seal_ms: float


async def estimated(source: WorkflowSource, target: WorkflowTarget, clock: Clock) -> WorkflowsEstimate:
    """Copy a sample, and count all rows."""
    began_s = clock.monotonic_s()
    before = await source.sums()
    counted_s = clock.monotonic_s() - began_s
    part = await source.page("", SAMPLE)
    read_s = (clock.monotonic_s() - began_s - counted_s) / max(1, len(part.rows))
    timed = await target.timed(part)
    after = await source.sums()
    written_per_s = max(0, after.revisions - before.revisions) / max(0.001, clock.monotonic_s() - began_s)
    copy_s = after.workflows * (timed.copied_s + read_s) + counted_s
    # What is written while the round before is brought over is left for the seal.
    left = min(LAST_ROUND_MAX, written_per_s * LAST_ROUND_MAX * timed.again_s)
    counting_s = counted_s + timed.counted_s * after.workflows / max(1, len(part.rows))
    seal_s = left * timed.again_s + timed.made_s * target.seal_factor + (counting_s if counting_s <= SUMS_S_MAX else 0)
    return WorkflowsEstimate(await _amounts(source, after, part), copy_s, seal_s * 1_000)


async def _amounts(source: WorkflowSource, sums: Sums, part: Part) -> tuple[Amount, ...]:
    def scaled(table: str, count: int, values: Sequence[Numbered | HistoryRecord | Aside]) -> Amount:
        return Amount(table, count, int(count * sum(map(bytes_of, values)) / max(1, len(values))))

    history = [each for events in part.events.values() for each in events]
    found = [
        scaled("workflows", sums.workflows, list(part.rows.values())),
        scaled("workflow_events", sums.events, history),
    ]
    for table in TABLES_ASIDE:
        keys = await source.keys_aside(table, "", SAMPLE)
        found.append(scaled(table, await source.count(table), list((await source.aside(table, keys)).values())))
    return tuple(found)


# --- Move ------------------------------------------------------------------------------------------------------------


async def machines_at(source: str, *, clock: Clock) -> dict[str, int]:
    """Return the machines with workflows at a home, with their counts. Raises BadUsage where there were never any."""
    async with _source(source, clock) as leaving:
        return await leaving.machines()


async def last_epoch_at(source: str, *, clock: Clock) -> int:
    """Return the epoch of the move that brought the workflows here; 0 without one."""
    async with _source(source, clock) as leaving:
        return await leaving.last_epoch()


async def refuse_if_left(source: str, *, clock: Clock) -> None:
    """Raise MovedElsewhere when the place has a tombstone, which a catalog may not know of."""
    async with _source(source, clock) as leaving:
        await leaving.check()


async def plan_workflows(source: str, target: str, *, epoch: int, clock: Clock, ids: Ids | None = None) -> Plan:
    """Return the plan of a move. Nothing is changed at either place."""
    async with _ends(source, target, clock, ids) as (leaving, arriving):
        await leaving.check()
        await arriving.check()
        guess = await estimated(leaving, arriving, clock)
        machines, clocks = await leaving.machines(), await leaving.clocks()
        notes = (*arriving.notes, *await arriving.clock_notes(clocks))
    listed = ", ".join(f"{count:,} of {machine!r}" for machine, count in machines.items()) or "none"
    return Plan(
        name=NAME,
        source=redact_secrets(source),
        target=redact_secrets(target),
        epoch=epoch,
        amounts=guess.amounts,
        copy_s=guess.copy_s,
        seal_ms=guess.seal_ms,
        notes=(
            f"All workflows of the home move together: {listed}.",
            "Steps that run when it is sealed are tried again at the target, with the same keys.",
            *notes,
        ),
    )


async def move_workflows(
    source: str,
    target: str,
    *,
    epoch: int,
    clock: Clock,
    watch: Watch,
    at: At = nowhere,
    ids: Ids | None = None,
) -> Moved:
    """Move them, or go on with a move that was begun. Raises whatever is in the way; then nothing has moved yet."""
    async with _ends(source, target, clock, ids) as (leaving, arriving):
        unit = WorkflowUnit(
            leaving, arriving, source_url=source, target_url=target, epoch=epoch, clock=clock, watch=watch, at=at
        )
        try:
            durations = await run_stages(unit, clock=clock, watch=watch, at=at)
        except MovedElsewhere as error:
            # Also when another mover of the same move was quicker: the source has left, as it was asked to.
            if (error.url, error.epoch) != (without_secrets(target), epoch):
                raise
            unit.report = None
            _ = await arrive(unit, watch=watch, at=at)
            return msgspec.structs.replace(_report(unit), resumed=True)
        return msgspec.structs.replace(_report(unit), copy_s=durations.copy_s, seal_ms=durations.seal_ms)


def _report(unit: WorkflowUnit) -> Moved:
    return unit.moved() if unit.report is None else msgspec.json.decode(unit.report, type=Moved)


async def abandon_workflows(source: str, target: str, *, clock: Clock, ids: Ids | None = None) -> bool:
    """Abandon a move that has not happened yet: remove the notes, then the draft. Return False when there was none.

    The draft of another move is removed as well if that move can never end: its source has left to another place.
    """
    async with _ends(source, target, clock, ids) as (leaving, arriving):
        await leaving.check()
        epoch, came_from = await arriving.draft() or (0, redact_url(source))
        if came_from != redact_url(source):
            await _refuse_under_way(came_from, source, target, clock)
            _ = await arriving.take_back(epoch)
            await arriving.throw_away(epoch)
            return True
        complete = await arriving.take_back(epoch)
        watched = await leaving.forget_all()
        if complete:
            # Its mover may be about to leave. From here on it has, which raises, or never will.
            await leaving.refuse_left()
        else:
            await leaving.check()
        if complete is not None:
            await arriving.throw_away(epoch)
        return complete is not None or watched


async def _refuse_under_way(came_from: str, source: str, target: str, clock: Clock) -> None:
    """Raise BadUsage unless the source of a draft has left, and its workflows have arrived at another place.

    A draft keeps no user of PostgreSQL, so a move from there counts as one that may go on.
    """
    if not is_postgres_url(came_from):
        try:
            async with _source(with_secrets(came_from, source, target), clock) as leaving:
                await leaving.check()
        except MovedElsewhere as error:
            if await _have_arrived(with_secrets(error.url, source, target), clock):
                return
    raise BadUsage(
        f"the draft at {redact_url(target)} is of a move from {redact_url(came_from)}, which may go on.",
        why="Its source is not known to have left to another place, so the draft may become the only copy.",
        fix=f"Finish that move, or abandon it: name {redact_url(came_from)} as the home.",
    )


async def _have_arrived(url: str, clock: Clock) -> bool:
    """Return whether workflows live at an address, or have left it since.

    A draft there has not arrived. It may be the draft in question, because one place has several addresses.
    """
    there = await _target(url, clock, "")
    try:
        if await there.draft() is not None:
            return False
    finally:
        await there.close()
    try:
        await refuse_if_left(url, clock=clock)
    except MovedElsewhere:
        return True
    except BadUsage:
        return False  # There are no workflows.
    return True


@asynccontextmanager
async def _ends(
    source: str, target: str, clock: Clock, ids: Ids | None
) -> AsyncGenerator[tuple[WorkflowSource, WorkflowTarget]]:
    _refuse_no_home(target)
    async with _source(source, clock) as leaving:
        arriving = await _target(target, clock, (ids or RandomIds()).text())
        try:
            yield leaving, arriving
        finally:
            await arriving.close()


@asynccontextmanager
async def _source(url: str, clock: Clock) -> AsyncGenerator[WorkflowSource]:
    leaving: WorkflowSource
    if is_postgres_url(url):
        from interlock.relocate.workflow_postgres import PostgresWorkflows  # noqa: PLC0415 -- an extra.

        leaving = await PostgresWorkflows.opened(url, clock=clock)
    else:
        _refuse_no_home(url)
        leaving = await LaneWorkflows.opened(url, clock=clock)
    try:
        yield leaving
    finally:
        await leaving.close()


async def _target(url: str, clock: Clock, mover: str) -> WorkflowTarget:
    if is_postgres_url(url):
        from interlock.relocate.workflow_postgres import PostgresArrival  # noqa: PLC0415 -- an extra.

        return await PostgresArrival.opened(url, mover)
    return LaneArrival(url, clock=clock)


def _refuse_no_home(url: str) -> None:
    if not (is_lane_url(url) or is_bucket_url(url) or is_postgres_url(url)):
        raise BadUsage(
            f"{shown_url(url)!r} is not a home of workflows.",
            why="Workflows move between folders, buckets and schemas of PostgreSQL.",
            fix="Write lanes:///var/shop, s3://bucket/shop or postgresql://user@host/shop?schema=orders.",
        )
