"""Moving the workflows of a home to PostgreSQL while they run (decision 0018).

The source's own commit decides. Until its tombstone is durable the workflows run where they are, and the target is a
draft that cannot be opened. From then on they live at the target, and the next mover or engine finishes the rest. All
machines of a home move together, because they share its notes, leases and keys.

A step that was running at the source is owed at the target as after a crash: its row says that an attempt has begun,
and it is due, so that the first engine there takes it up with the same key (G5). If the engine at the source is alive
its attempt may still be under way: then the workflow is held for two seconds, in which that engine learns of the move.
Sections: estimate, move, routes by the name of a machine.
"""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

import msgspec

from interlock.catalog.catalog import ALL, Catalog, workflows_at
from interlock.catalog.moves import Amount, At, Moved, Plan, Watch, nowhere
from interlock.clock import Clock, Ids, RandomIds
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.postgres.pool import Link
from interlock.relocate.database.mover import refuse_unreachable
from interlock.relocate.workflows.canonical import Numbered, bytes_of, digest_of
from interlock.relocate.workflows.draft import PLANNING, Copying, Draft, Exchange
from interlock.relocate.workflows.lane_source import (
    BY_NUMBER,
    SOURCE_ASIDE,
    WATCHED,
    Apart,
    Left,
    LocalOrigin,
    Origin,
    Source,
    Sums,
)
from interlock.relocate.workflows.move_to_lane import abandon_return, machines_there, plan_return, return_workflows
from interlock.store.postgres.schema import (
    CLOCK_BEHIND_S_MAX,
    arrive,
    begin,
    marks_of,
    refuse_behind,
    refuse_used,
    take_back,
    throw_away,
    trial,
)
from interlock.store.records import HistoryRecord
from interlock.urls import (
    PostgresAddress,
    is_bucket_url,
    is_postgres_url,
    parse_postgres_url,
    redact_secrets,
    redact_url,
    with_secrets,
    without_secrets,
)

# --- Estimate --------------------------------------------------------------------------------------------------------
# The sample is really copied into tables like those of a draft, so that indexes, checks and the network count. They
# are rolled back afterwards.

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


def _sample(source: Source) -> tuple[list[Numbered], list[HistoryRecord]]:
    with source.moment():
        # From the middle: the oldest workflows have the longest histories, and the youngest have none yet.
        rows = source.rows_between(max(0, (source.last_number() - SAMPLE) // 2), SAMPLE)
        if not rows:
            return [], []
        found = source.events_between(rows[0].number - 1, rows[-1].number)
        return rows, [each for number, _ in rows for each in found.get(number, ())]


async def _timed(draft: Draft, rows: list[Numbered], events: list[HistoryRecord], clock: Clock) -> _Timed:
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


def _amounts(source: Source, sums: Sums, rows: list[Numbered], events: list[HistoryRecord]) -> tuple[Amount, ...]:
    def bytes_each(values: list[Numbered] | list[HistoryRecord]) -> float:
        return sum(map(bytes_of, values)) / max(1, len(values))

    found = [
        Amount("workflows", sums.workflows, int(sums.workflows * bytes_each(rows))),
        Amount("workflow_events", sums.events, int(sums.events * bytes_each(events))),
    ]
    for table in SOURCE_ASIDE:
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


# --- Move ------------------------------------------------------------------------------------------------------------

NAME = "workflows"

COPIED_BETWEEN = 20
"""Chunks after which what was noted meanwhile is brought over, so that notes do not pile up."""

NOTES_MAX = 5_000
"""Notes that are looked at together."""

LITTLE = 200
"""So few notes are left for the seal."""

ROUNDS_MAX = 50
"""Rounds of catching up. A source that is written faster than it is read is sealed all the same, a little longer."""

SEALED_S_MAX = 10.0
"""Longest seal in seconds. If the target does not answer in time, the seal is given up and nothing moves."""

SUMS_S_MAX = 0.15
"""Longest count under the seal, in seconds: all rows are counted again if that takes no longer."""


async def machines_at(source: str, *, clock: Clock) -> dict[str, int]:
    """Return the machines with workflows at a home, with their counts: they move together."""
    if is_postgres_url(source):
        return await machines_there(source)
    apart = Apart()
    async with _origin(source, apart, clock) as origin:
        return await apart(origin.source.machines)


async def refuse_if_left(source: str, *, clock: Clock) -> None:
    """Raise MovedElsewhere when the place has a tombstone, which a catalog may not know of."""
    if not is_postgres_url(source):  # Reading the machines of a schema checks it.
        async with _origin(source, Apart(), clock) as origin:
            _refuse_left(await origin.left(), source)


async def plan_workflows(source: str, target: str, *, epoch: int, clock: Clock, ids: Ids | None = None) -> Plan:
    """Return the plan of a move. Nothing is changed: the measurement at the target is rolled back."""
    if is_postgres_url(source):
        return await plan_return(source, target, epoch=epoch, clock=clock)
    address, apart = _postgres(target), Apart()
    async with _origin(source, apart, clock) as origin, _draft(address, (ids or RandomIds()).text()) as draft:
        _refuse_left(await origin.left(), source)
        guess = await estimated(origin.source, draft, apart, clock)
        machines = await apart(origin.source.machines)
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
            *guess.notes,
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
    """Move them, or go on with a move that was begun. Raises whatever was in the way; then nothing has moved yet."""
    mover = (ids or RandomIds()).text()
    if is_postgres_url(source):
        return await return_workflows(source, target, epoch=epoch, clock=clock, watch=watch, at=at)
    address, apart = _postgres(target), Apart()
    async with _origin(source, apart, clock) as origin, _draft(address, mover) as draft:
        move = _Move(origin, draft, apart, source=source, target=target, epoch=epoch, clock=clock, watch=watch, at=at)
        try:
            _refuse_left(await origin.left(), source)
            return await move.run()
        except MovedElsewhere as error:
            # Also when another mover of the same move was quicker: the source has left, as it was asked to.
            if (error.url, error.epoch) != (without_secrets(target), epoch):
                raise
            return await move.finish()


async def abandon_workflows(source: str, target: str, *, epoch: int, clock: Clock, ids: Ids | None = None) -> bool:
    """Take a move back that has not happened yet: the source forgets it, the draft is thrown away. False: none was."""
    if is_postgres_url(source):
        return await abandon_return(source, target, epoch=epoch, clock=clock)
    address, apart, mover = _postgres(target), Apart(), (ids or RandomIds()).text()
    async with _origin(source, apart, clock) as origin, _draft(address, mover) as draft:
        _refuse_left(await origin.left(), source)
        complete = await take_back(_link(draft), address, epoch, mover)
        await origin.forget_all()
        if complete:
            # Its mover may be about to leave: under a seal of our own it has, which raises, or never will.
            async with origin.sealed():
                pass
        return await throw_away(_link(draft), address, epoch, mover)


class _Move:
    """One move by one mover."""

    def __init__(
        self,
        origin: Origin,
        draft: Draft,
        apart: Apart,
        *,
        source: str,
        target: str,
        epoch: int,
        clock: Clock,
        watch: Watch,
        at: At,
    ) -> None:
        self._origin, self._draft, self._apart = origin, draft, apart
        self._source, self._target, self._epoch = source, target, epoch
        self._clock, self._watch, self._at = clock, watch, at
        self._copying = Copying(origin.source, draft, apart)
        self._place = 0
        """Of the notes: those before it were brought over."""
        self._copied = 0
        """Up to this number everything was copied."""
        self._copy_s = 0.0
        self._held_us = 0

    async def run(self) -> Moved:
        """All of it."""
        self._at("watch")
        begun = await begin(_link(self._draft), self._draft.address, epoch=self._epoch, source=redact_url(self._source))
        if begun.arrived:
            raise UnavailableError(
                f"move {self._epoch} has arrived at {self._draft.address.redacted_url}, and "
                f"{redact_url(self._source)} does not know it.",
                why="The source was put back from a copy that is older than the move, or another one had the number.",
                fix="Open the target. If the source is what counts, move it with a higher number to an empty schema.",
            )
        await self._draft.take(self._epoch)
        await self._origin.watch(WATCHED)
        self._watch("watch", 1, 1)
        began_s = self._clock.monotonic_s()
        await self._copy(fresh=begun.fresh)
        self._copy_s = self._clock.monotonic_s() - began_s
        await self._catch_up()
        await self._draft.analyze()
        counted_s = await self._count_ahead()
        await self._catch_up()
        return await self._leave(counts=counted_s <= SUMS_S_MAX, resumed=not begun.fresh)

    async def finish(self) -> Moved:
        """Make the target the store after the source has left, unless that has happened."""
        self._watch("arrive", 0, 1)
        await arrive(_link(self._draft), self._draft.address, self._epoch)
        self._at("arrive/after")
        marks = await marks_of(self._draft.read, self._draft.address.schema)
        if marks.arriving is None or marks.arriving.epoch != self._epoch or not marks.arriving.report:
            # It has moved on since, or the mark was removed: the report of this move is lost.
            return self._moved((), checksum="", seal_ms=0.0, resumed=True)
        self._watch("done", 1, 1)
        return msgspec.structs.replace(msgspec.json.decode(marks.arriving.report, type=Moved), resumed=True)

    async def _copy(self, *, fresh: bool) -> None:
        total = await self._apart(self._origin.source.count, "workflows")
        await self._copying.all_aside()
        self._at("copy/aside")
        number = 0
        while (last := await self._copying.chunk(self._copied, fresh=fresh)) is not None:
            self._copied = last
            number += 1
            self._watch("copy", min(self._copying.digests.workflows, total), total)
            self._at(f"copy/{number}")
            if number % COPIED_BETWEEN == 0:
                await self._round()
        self._copied = 2**62  # What is started from now on is noted.

    async def _catch_up(self) -> None:
        for number in range(1, ROUNDS_MAX + 1):
            notes = await self._round()
            self._watch("catch up", number, 0)
            self._at(f"catch up/{number}")
            if notes <= LITTLE:
                return

    async def _round(self, *, sealed: bool = False) -> int:
        """Bring over what was noted until now; returns how much that was."""
        total = 0
        while notes := await self._origin.touched(self._place, NOTES_MAX):
            numbers = {int(str(key[0])) for _, table, key in notes if table in BY_NUMBER}
            # What is not copied yet is read later, and so is newer than its note.
            await self._copying.touched({number for number in numbers if number <= self._copied})
            for aside in SOURCE_ASIDE:
                keys = {str(key[0]): None for _, table, key in notes if table == aside}
                if keys:
                    await self._copying.aside(aside, list(keys))
            self._place = notes[-1][0]
            total += len(notes)
            if len(notes) < NOTES_MAX:
                break
        if total and not sealed:
            async with self._draft.turn():  # A mover that takes the draft over waits, and needs none of these.
                await self._origin.forget(self._place)
        return total

    async def _count_ahead(self) -> float:
        """Return how long it takes to count all rows at both places."""
        began_s = self._clock.monotonic_s()
        await self._apart(self._origin.source.sums)
        await self._draft.sums()
        return self._clock.monotonic_s() - began_s

    async def _leave(self, *, counts: bool, resumed: bool) -> Moved:
        self._watch("seal", 0, 1)
        self._at("seal/before")
        self._held_us = await self._origin.held_us()
        async with self._origin.sealed() as sealed:
            began_s = self._clock.monotonic_s()
            self._at("seal")
            self._copying.source = sealed.source
            try:
                async with asyncio.timeout(SEALED_S_MAX):
                    await self._round(sealed=True)
                    self._at("verify")
                    moved = await self._verified(sealed.source, counts=counts, resumed=resumed)
            except TimeoutError as error:
                raise _sealed_too_long(self._draft.address.redacted_url) from error
            self._at("leave/before")
            await sealed.leave(without_secrets(self._target), self._epoch)
            self._at("leave/after")
        self._watch("arrive", 0, 1)
        await arrive(_link(self._draft), self._draft.address, self._epoch)
        seal_ms = (self._clock.monotonic_s() - began_s) * 1_000
        self._at("arrive/after")
        self._watch("done", 1, 1)
        return msgspec.structs.replace(moved, seal_ms=seal_ms)

    async def _verified(self, source: Source, *, counts: bool, resumed: bool) -> Moved:
        """Compare what both places have, and write down at the target that it is everything."""
        digests, draft = self._copying.digests, self._draft
        self._watch("verify", 0, 1)
        if counts:
            here, there = await self._apart(source.sums), await draft.sums()
            counted = (digests.workflows, digests.events)
            if here != there or counted != (here.workflows, here.events):
                raise UnavailableError(
                    f"the target differs from the source: {there} instead of {here}, {counted} were compared.",
                    why="Something has written to one of them that the mover was not told of. Nothing has moved.",
                    fix="Take the move back with `interlock route --abandon`, and begin again.",
                )
        time_us, now_us = await self._apart(source.time_us) or 0, await draft.time_us()
        refuse_behind((time_us - now_us) / 1_000_000, draft.address.redacted_url)
        skew_us = max(0, now_us - max(time_us, int(self._clock.wall_s() * 1_000_000)))
        rows = {"workflows": digests.workflows, "workflow_events": digests.events}
        rows |= {table: digests.aside(table) for table in SOURCE_ASIDE}
        amounts = tuple(Amount(table, count, self._copying.bytes[table]) for table, count in rows.items())
        moved = self._moved(amounts, checksum=digests.checksum, seal_ms=0.0, resumed=resumed)
        await draft.complete(
            report=msgspec.json.encode(moved).decode(),
            time_us=time_us,
            skew_us=skew_us,
            held_us=self._held_us,
        )
        return moved

    def _moved(self, amounts: tuple[Amount, ...], *, checksum: str, seal_ms: float, resumed: bool) -> Moved:
        return Moved(
            name=NAME,
            source=redact_url(self._source),
            target=self._draft.address.redacted_url,
            epoch=self._epoch,
            amounts=amounts,
            checksum=checksum,
            copy_s=self._copy_s,
            seal_ms=seal_ms,
            resumed=resumed,
        )


@contextlib.asynccontextmanager
async def _origin(source: str, apart: Apart, clock: Clock) -> AsyncGenerator[Origin]:
    try:
        async with _opener(source)(source, apart, clock) as origin:
            yield origin
    finally:
        apart.close()


def _opener(source: str) -> Callable[[str, Apart, Clock], contextlib.AbstractAsyncContextManager[Origin]]:
    if not is_bucket_url(source):
        return LocalOrigin.opened
    from interlock.relocate.workflows.bucket_source import BucketOrigin  # noqa: PLC0415 -- an extra, which may not be installed.

    return BucketOrigin.opened


@contextlib.asynccontextmanager
async def _draft(address: PostgresAddress, mover: str) -> AsyncGenerator[Draft]:
    draft = await Draft.connected(address, mover)
    try:
        yield draft
    finally:
        await draft.close()


def _link(draft: Draft) -> Link:
    """The same connection, for what is asked by statements that stay prepared."""
    return Link(draft.driver, draft.address)


def _postgres(target: str) -> PostgresAddress:
    if not is_postgres_url(target):
        raise BadUsage(
            f"{redact_url(target)!r} is not a place that workflows can be moved to; postgresql://host/database is.",
            why="Workflows are moved when one process is not enough for them, to a store that many share.",
            fix="Name an address of PostgreSQL: postgresql://user@host/shop?schema=orders.",
        )
    return parse_postgres_url(target)


def _sealed_too_long(location: str) -> UnavailableError:
    return UnavailableError(
        f"{location} did not take the last changes within {SEALED_S_MAX:g} s.",
        why="All writers wait meanwhile, so the seal was given up. Nothing has moved; the workflows go on.",
        fix="Run the same again, when the target answers faster: it goes on from here.",
    )


def _refuse_left(left: Left | None, source: str) -> None:
    if left is not None:
        raise MovedElsewhere(
            f"the workflows of {redact_url(source)} live at {redact_secrets(left.url)} since move {left.epoch}.",
            url=left.url,
            epoch=left.epoch,
        )


# --- Routes by the name of a machine ---------------------------------------------------------------------------------
# A home has one store for all of its machines, which share its notes, leases and keys. So a move of one machine
# moves all of them, and the plan says so; `workflows` names them all. A repeated call for a completed move returns
# its result: an engine that followed may have finished it.


class WorkflowsRoute(NamedTuple):
    """The workflows of a home on their way."""

    name: str
    source: str
    target: str
    home: str
    epoch: int
    """Of this move."""

    @property
    def is_there(self) -> bool:
        """Return whether an earlier move has brought them to the target: nothing is left to do."""
        return _is_same(self.source, self.target)

    @property
    def undo(self) -> str:
        """The command that moves them back; empty when nothing is moved."""
        if self.is_there:
            return ""
        # Quoted: an address of PostgreSQL may have an ampersand in it, and is pasted into a shell.
        words = ("interlock", "route", ALL, "--home", without_secrets(self.home), "--to", without_secrets(self.source))
        return shlex.join(words)


async def find_workflows(name: str, target: str, *, home: str | None, clock: Clock) -> WorkflowsRoute | None:
    """Find the current place of a machine's workflows. Return None when the home has no such machine.

    Raises BadUsage for a name that a machine and a database share, unless it is `workflows`, which no database has.
    """
    if home is None or "://" in name:
        return None
    catalog = Catalog(home)
    source = await workflows_at(home, [name])
    try:
        machines = await machines_at(source, clock=clock)
    except BadUsage:
        if name == ALL:
            raise
        return None
    if name != ALL and name not in machines:
        return None
    if name != ALL and name in await catalog.names():
        raise BadUsage(
            f"{name!r} is a machine and a database of {redact_secrets(home)}.",
            why="Either could be meant, and Interlock does not guess.",
            fix=f"Write `{ALL}` for all workflows of the home, or the address of the database.",
        )
    known = await catalog.entry(ALL, kind="workflows")
    there = _is_same(source, target)
    if there:
        await refuse_if_left(source, clock=clock)
        if not known.epoch:
            raise _live_there(home, target)
    epoch = known.epoch if there else known.epoch + 1
    return WorkflowsRoute(name, source, with_secrets(target, source, home), home, epoch)


async def plan_for_workflows(route: WorkflowsRoute, *, clock: Clock) -> Plan:
    """Return the plan of the move. Changes nothing."""
    if route.is_there:
        raise _live_there(route.home, route.target)
    return await plan_workflows(route.source, route.target, epoch=route.epoch, clock=clock)


async def move_along(
    route: WorkflowsRoute, *, clock: Clock, watch: Watch, at: At = nowhere, checked: bool = True
) -> Moved:
    """Move them, and tell the catalog. The same again goes on where it ended, and does nothing when it is over."""
    if route.is_there:
        where = redact_secrets(route.target)
        return Moved(
            name=ALL,
            source=where,
            target=where,
            epoch=route.epoch,
            amounts=(),
            checksum="",
            copy_s=0.0,
            seal_ms=0.0,
            resumed=True,
        )
    if checked:
        await refuse_unreachable(route.source, route.target)
    moved = await move_workflows(route.source, route.target, epoch=route.epoch, clock=clock, watch=watch, at=at)
    watch("enter", 0, 0)
    at("enter/before")
    _ = await Catalog(route.home).enter(ALL, route.target, moved.epoch, kind="workflows")
    at("enter")
    return moved


async def abandon_route(route: WorkflowsRoute, *, clock: Clock) -> bool:
    """End a move that was begun. False when there was none."""
    if route.is_there:
        raise _live_there(route.home, route.target)
    return await abandon_workflows(route.source, route.target, epoch=route.epoch, clock=clock)


def _is_same(one: str, other: str) -> bool:
    return redact_secrets(without_secrets(one)).rstrip("/") == redact_secrets(without_secrets(other)).rstrip("/")


def _live_there(home: str, target: str) -> BadUsage:
    return BadUsage(
        f"the workflows of {redact_secrets(home)} live at {redact_secrets(target)} already.",
        why="A move brings them to another place.",
        fix="Nothing is left to do. To move them, name another place with --to.",
    )
