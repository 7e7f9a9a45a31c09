"""Moving workflows from PostgreSQL into the lane of a home while they run (decision 0018).

The source's own commit decides, as in every move. Until its tombstone is durable the lane is a draft that cannot be
opened. From then on the workflows live in the lane, and the next mover or engine finishes the rest.

A lane has one owner. Of the engines that shared the workflows one continues, and the others get LaneOwned with its
name. A lane has no leases of workflows: a running step is owed there as after a crash, with the same key (G5). Live
engines learn of the move within a second, so for two seconds no step begins in the lane: no attempt runs twice
concurrently, and no undo overtakes its step.
"""

import contextlib
from collections.abc import AsyncGenerator

import msgspec

from interlock.catalog.addresses import lane_path
from interlock.catalog.moves import Amount, At, Moved, Plan, Watch
from interlock.catalog.secrets import without_secrets
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.lanes.objects.addresses import redacted
from interlock.seams import Clock, RandomIds
from interlock.sql.postgres.address import parsed
from interlock.store.holding import HELD, HELD_US
from interlock.store.moving.apart import Apart
from interlock.store.moving.returning.copying import Copying
from interlock.store.moving.returning.draft import ALL, LaneDraft
from interlock.store.moving.returning.estimate import estimated
from interlock.store.moving.returning.watching import NOTES_MAX, Watching
from interlock.store.moving.returning.wire import Wire
from interlock.store.moving.source import ASIDE
from interlock.store.postgres.marks import beside

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
        if (await watching.marks()).gone is not None:
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
        source=redacted(source),
        target=redacted(target),
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
        fresh = await self._apart(self._draft.begin, self._epoch, redacted(self._from))
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
            noted = await self._round()
            self._watch("catch up", number, 0)
            self._at(f"catch up/{number}")
            if noted <= LITTLE:
                return

    async def _round(self) -> int:
        """Bring over what was noted until now; returns how much that was."""
        total = 0
        while (noted := await self._source.noted()).numbers:
            for kind, keys in noted.keys.items():
                if kind in ASIDE:
                    await self._copying.aside(kind, keys)
                else:
                    # What is not copied yet is read later, and so is newer than its note.
                    known = [key for key in keys if self._copied is None or key <= self._copied]
                    await self._copying.touched(known)
            await self._source.forget(noted.numbers)
            total += len(noted.numbers)
            if sum(map(len, noted.keys.values())) < NOTES_MAX:
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
        rows |= {table: digests.aside(table) for table in ASIDE}
        amounts = tuple(Amount(table, count, self._copying.bytes[table]) for table, count in rows.items())
        moved = self._moved(amounts, checksum=digests.checksum, resumed=resumed)
        database_us, wall_us = await reading.time_us(), int(self._clock.wall_s() * 1_000_000)
        time_us = max(database_us, self._copying.last_us)
        held = {HELD: str(max(time_us, wall_us) + HELD_US)} if await reading.owners() else {}
        await self._apart(
            self._draft.complete,
            self._epoch,
            msgspec.json.encode(moved).decode(),
            time_us=time_us,
            later_us=max(0, wall_us - time_us),
            notes=held,
        )
        return moved

    def _moved(self, amounts: tuple[Amount, ...], *, checksum: str, resumed: bool) -> Moved:
        return Moved(
            name=NAME,
            source=redacted(self._from),
            target=redacted(self._to),
            epoch=self._epoch,
            amounts=amounts,
            checksum=checksum,
            copy_s=self._copy_s,
            seal_ms=0.0,
            resumed=resumed,
        )


@contextlib.asynccontextmanager
async def _watching(source: str) -> AsyncGenerator[Watching]:
    wire = await Wire.connected(parsed(source))
    try:
        yield Watching(wire, RandomIds().text())
    finally:
        await wire.close()


@contextlib.asynccontextmanager
async def _draft(target: str, clock: Clock) -> AsyncGenerator[tuple[LaneDraft, Apart]]:
    path = lane_path(f"{target.rstrip('/')}/workflows") if target.startswith("lanes:///") else None
    if path is None:
        raise BadUsage(
            f"{redacted(target)!r} is not a place that workflows can be moved to from PostgreSQL; lanes:///folder is.",
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
