"""Moving the workflows of a home to PostgreSQL while they run (decision 0018).

The source's own commit decides. Until its tombstone is durable the workflows run where they are, and the target is a
draft that cannot be opened. From then on they live at the target, and the next mover or engine finishes the rest. All
machines of a home move together, because they share its notes, leases and keys.

A step that was running at the source is owed at the target as after a crash: its row says that an attempt has begun,
and it is due, so that the first engine there takes it up with the same key (G5). If the engine at the source is alive
its attempt may still be under way: then the workflow is held for two seconds, in which that engine learns of the move.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import msgspec

from interlock.catalog.moves import Amount, At, Moved, Plan, Watch, nowhere
from interlock.catalog.secrets import shown, without_secrets
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.lanes.objects.addresses import is_bucket, redacted
from interlock.seams import Clock, Ids, RandomIds
from interlock.sql.postgres.address import Address, is_postgres, parsed
from interlock.sql.postgres.link import Link
from interlock.store.moving.apart import Apart
from interlock.store.moving.copying import Copying
from interlock.store.moving.draft import Draft
from interlock.store.moving.estimate import estimated
from interlock.store.moving.local import LocalOrigin
from interlock.store.moving.origin import Left, Origin
from interlock.store.moving.returning.moving import abandon_return, machines_there, plan_return, return_workflows
from interlock.store.moving.source import ASIDE, BY_NUMBER, WATCHED, Source
from interlock.store.postgres.arriving import arrive, begin, refuse_behind, take_back, throw_away
from interlock.store.postgres.marks import marks_of

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
    if is_postgres(source):
        return await machines_there(source)
    apart = Apart()
    async with _origin(source, apart, clock) as origin:
        return await apart(origin.source.machines)


async def refuse_if_left(source: str, *, clock: Clock) -> None:
    """Raise MovedElsewhere when the place has a tombstone, which a catalog may not know of."""
    if not is_postgres(source):  # Reading the machines of a schema checks it.
        async with _origin(source, Apart(), clock) as origin:
            _refuse_left(await origin.left(), source)


async def plan_workflows(source: str, target: str, *, epoch: int, clock: Clock, ids: Ids | None = None) -> Plan:
    """Return the plan of a move. Nothing is changed: the measurement at the target is rolled back."""
    if is_postgres(source):
        return await plan_return(source, target, epoch=epoch, clock=clock)
    address, apart = _postgres(target), Apart()
    async with _origin(source, apart, clock) as origin, _draft(address, (ids or RandomIds()).text()) as draft:
        _refuse_left(await origin.left(), source)
        guess = await estimated(origin.source, draft, apart, clock)
        machines = await apart(origin.source.machines)
    listed = ", ".join(f"{count:,} of {machine!r}" for machine, count in machines.items()) or "none"
    return Plan(
        name=NAME,
        source=shown(source),
        target=shown(target),
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
    if is_postgres(source):
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
    if is_postgres(source):
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
        begun = await begin(_link(self._draft), self._draft.address, epoch=self._epoch, source=redacted(self._source))
        if begun.arrived:
            raise UnavailableError(
                f"move {self._epoch} has arrived at {self._draft.address.shown}, and {redacted(self._source)} does not "
                "know it.",
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
            noted = await self._round()
            self._watch("catch up", number, 0)
            self._at(f"catch up/{number}")
            if noted <= LITTLE:
                return

    async def _round(self, *, sealed: bool = False) -> int:
        """Bring over what was noted until now; returns how much that was."""
        total = 0
        while notes := await self._origin.touched(self._place, NOTES_MAX):
            numbers = {int(str(key[0])) for _, table, key in notes if table in BY_NUMBER}
            # What is not copied yet is read later, and so is newer than its note.
            await self._copying.touched({number for number in numbers if number <= self._copied})
            for aside in ASIDE:
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
                raise _sealed_too_long(self._draft.address.shown) from error
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
        refuse_behind((time_us - now_us) / 1_000_000, draft.address.shown)
        skew_us = max(0, now_us - max(time_us, int(self._clock.wall_s() * 1_000_000)))
        rows = {"workflows": digests.workflows, "workflow_events": digests.events}
        rows |= {table: digests.aside(table) for table in ASIDE}
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
            source=redacted(self._source),
            target=self._draft.address.shown,
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
    if not is_bucket(source):
        return LocalOrigin.opened
    from interlock.store.moving.bucket import BucketOrigin  # noqa: PLC0415 -- an extra, which may not be installed.

    return BucketOrigin.opened


@contextlib.asynccontextmanager
async def _draft(address: Address, mover: str) -> AsyncGenerator[Draft]:
    draft = await Draft.connected(address, mover)
    try:
        yield draft
    finally:
        await draft.close()


def _link(draft: Draft) -> Link:
    """The same connection, for what is asked by statements that stay prepared."""
    return Link(draft.driver, draft.address)


def _postgres(target: str) -> Address:
    if not is_postgres(target):
        raise BadUsage(
            f"{redacted(target)!r} is not a place that workflows can be moved to; postgresql://host/database is.",
            why="Workflows are moved when one process is not enough for them, to a store that many share.",
            fix="Name an address of PostgreSQL: postgresql://user@host/shop?schema=orders.",
        )
    return parsed(target)


def _sealed_too_long(shown: str) -> UnavailableError:
    return UnavailableError(
        f"{shown} did not take the last changes within {SEALED_S_MAX:g} s.",
        why="All writers wait meanwhile, so the seal was given up. Nothing has moved; the workflows go on.",
        fix="Run the same again, when the target answers faster: it goes on from here.",
    )


def _refuse_left(left: Left | None, source: str) -> None:
    if left is not None:
        raise MovedElsewhere(
            f"the workflows of {redacted(source)} live at {shown(left.url)} since move {left.epoch}.",
            url=left.url,
            epoch=left.epoch,
        )
