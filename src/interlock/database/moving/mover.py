"""Plan, execution and abandonment of the move of a database.

The same call continues an interrupted move. The draft at the target has the position; the tombstone at the source
shows whether the move is decided. No other state exists.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from interlock.catalog.moves import Amount, At, Moved, Plan, Watch, nowhere
from interlock.catalog.secrets import without_secrets
from interlock.database.moving import stages
from interlock.database.moving.ends import Draft, Restart, Source, Target
from interlock.database.moving.estimate import Estimate, estimated
from interlock.database.moving.opening import is_same, opened_source, opened_target, shown_url
from interlock.database.moving.parts import refuse_parts
from interlock.database.moving.shape import Shape
from interlock.errors import BadUsage, InterlockError, MovedElsewhere, UnavailableError
from interlock.lanes.objects.addresses import is_bucket
from interlock.seams import Clock

UNMEASURED = (
    "The times were tried on this disk, because a try would stay in the bucket: there every 1,000 rows, and the seal "
    "about three times, wait for the bucket's answer, too."
)

RESTARTS_MAX = 3
"""Number of restarts of a copy after changes of the source's schema."""


def unwatched(_what: str, _done: int, _of: int) -> None:
    """Ignore the progress."""


async def plan_database(source: str, target: str, *, name: str, clock: Clock, epoch: int = 1) -> Plan:
    """Return the plan of the move. Changes nothing at either place."""
    _refuse_same(source, target)
    async with _ends(source, target, clock, only_look=True) as (leaving, arriving):
        left = await leaving.moved()
        if left is not None:
            raise _has_moved(leaving, left)
        draft = await arriving.draft()
        if draft is None:
            await arriving.refuse_taken()
        shape = await leaving.shape()
        await refuse_parts(leaving, shape, source, target)
        amounts = await amounts_of(leaving, shape)
        guess: Estimate = await estimated(leaving, arriving, shape, amounts, clock=clock)
        number = await next_epoch(leaving, arriving, epoch)
    notes = list(shape.notes)
    if is_bucket(target):
        notes.append(UNMEASURED)
    if draft is not None:
        notes.append(f"A move from {draft.source} was begun and not ended; it would go on.")
    return Plan(
        name=name,
        source=shown_url(source),
        target=shown_url(target),
        epoch=number,
        amounts=amounts,
        copy_s=guess.copy_s,
        seal_ms=guess.seal_ms,
        notes=tuple(notes),
    )


async def move_database(
    source: str,
    target: str,
    *,
    name: str,
    clock: Clock,
    epoch: int = 1,
    watch: Watch = unwatched,
    at: At = nowhere,
) -> Moved:
    """Move a database, or continue an interrupted move. The database lives at exactly one place at any time.

    Its epoch is higher than that of any move known at either place, and not lower than `epoch`.
    """
    _refuse_same(source, target)
    async with _ends(source, target, clock) as (leaving, arriving):
        await leaving.take()  # Before the check of the tombstone: another mover may just be about to leave.
        left = await leaving.moved()
        if left is not None:
            return await _finish(leaving, arriving, left, source, target, name=name, watch=watch, at=at)
        await refuse_parts(leaving, await leaving.shape(), source, target)
        number = await next_epoch(leaving, arriving, epoch)
        reason = ""
        for _ in range(RESTARTS_MAX):
            try:
                return await _move(
                    leaving, arriving, source, target, name=name, epoch=number, clock=clock, watch=watch, at=at
                )
            except Restart as error:
                reason = str(error)
                await leaving.unwatch()
                await arriving.drop()
        raise UnavailableError(
            f"the schema of {leaving.shown} was changed {RESTARTS_MAX} times while it was copied: {reason}.",
            why="A copy that began with another schema cannot be verified, so it begins anew each time.",
            fix="Run the command again when the schema is at rest.",
        )


async def abandon_database(source: str, target: str, *, clock: Clock) -> bool:
    """Abandon a move: remove the draft, then the triggers and notes. Return False when there was none.

    Raises MovedElsewhere when the source has left: that is final, and only a move back helps.
    """
    _refuse_same(source, target)
    async with _ends(source, target, clock) as (leaving, arriving):
        await leaving.take()
        left = await leaving.moved()
        if left is not None:
            raise _has_moved(leaving, left)
        draft = await arriving.draft()
        if draft is not None and draft.source != leaving.shown:
            raise _another(arriving, draft)
        await arriving.drop()
        await leaving.unwatch()
        return draft is not None


async def next_epoch(source: Source, target: Target, least: int = 1) -> int:
    """Return one more than any epoch at either place; for a running move its own, unless another was faster."""
    draft = await target.draft()
    number = max(await source.last_epoch() + 1, await target.last_epoch() + 1, least)
    return number if draft is None else max(draft.epoch, number)


async def amounts_of(source: Source, shape: Shape) -> tuple[Amount, ...]:
    """Return the rows and bytes of each table."""
    sizes = await source.bytes_of(shape)
    return tuple([Amount(table.name, await source.count(table), sizes[table.name]) for table in shape.tables])


async def _move(
    source: Source,
    target: Target,
    source_url: str,
    target_url: str,
    *,
    name: str,
    epoch: int,
    clock: Clock,
    watch: Watch,
    at: At,
) -> Moved:
    shape = await source.shape()
    amounts = await amounts_of(source, shape)
    _refuse_keyless(shape, amounts)
    at("watch/before")
    watch("watch", 0, 0)
    draft = await target.draft()
    if draft is None:
        await target.refuse_taken()
    elif draft.source != source.shown:
        raise _another(target, draft)
    await source.watch(shape)
    at("watch")
    watched = await source.fingerprint()
    resumed = draft is not None
    if draft is None or draft.watched != watched or draft.epoch != epoch:
        draft = Draft(epoch=epoch, source=source.shown, watched=watched)
        at("draft/before")
        await target.begin(draft, shape)
        at("draft")
    else:
        await target.resume(shape)
    move = stages.Under(
        source=source,
        target=target,
        source_url=source_url,
        target_url=without_secrets(target_url),
        shape=shape,
        draft=draft,
        clock=clock,
        watch=watch,
        at=at,
        bytes_of={each.table: each.bytes for each in amounts},
    )
    copy_s = await _staged(move, sum(each.rows for each in amounts))
    await _arrive(target, draft.epoch, watch=watch, at=at)
    return Moved(
        name=name,
        source=shown_url(source_url),
        target=shown_url(target_url),
        epoch=draft.epoch,
        amounts=draft.amounts,
        checksum=draft.checksum,
        copy_s=copy_s,
        seal_ms=move.seal_ms,
        resumed=resumed,
    )


async def _staged(move: stages.Under, rows: int) -> float:
    """Run the stages from the copy to the tombstone; return the seconds until the seal."""
    begun_s = move.clock.monotonic_s()
    try:
        await stages.copy(move, rows)
        await stages.catch_up(move)
        await stages.compare(move, rows)
        await stages.catch_up(move)
        copied_s = move.clock.monotonic_s()
        await stages.seal(move)
    except InterlockError as error:
        if await _is_another(move.source, move.draft.watched):
            raise Restart(error.what) from error  # A dropped table cannot be read.
        raise
    return copied_s - begun_s


async def _is_another(source: Source, watched: str) -> bool:
    try:
        # In this order: a faster mover removes its triggers in the commit that leaves.
        return await source.fingerprint() != watched and await source.moved() is None
    except InterlockError:
        return False  # The source does not answer: the mover raises that error, not this one.


async def _arrive(target: Target, epoch: int, *, watch: Watch, at: At) -> None:
    watch("arrive", 0, 0)
    at("arrive/before")
    await target.arrive(epoch)
    at("arrive")
    await target.finish()
    at("done")


async def _finish(
    source: Source,
    target: Target,
    left: tuple[str, int],
    source_url: str,
    target_url: str,
    *,
    name: str,
    watch: Watch,
    at: At,
) -> Moved:
    """Complete the arrival at the target: the source has left, and the mover died after that."""
    url, epoch = left
    if not is_same(url, target_url):
        raise _has_moved(source, left)
    draft = await target.draft()
    if draft is not None and draft.epoch != epoch:
        raise _another(target, draft)
    await _arrive(target, epoch, watch=watch, at=at)
    return Moved(
        name=name,
        source=shown_url(source_url),
        target=shown_url(target_url),
        epoch=epoch,
        amounts=() if draft is None else draft.amounts,
        checksum="" if draft is None else draft.checksum,
        copy_s=0.0,
        seal_ms=0.0,
        resumed=True,
    )


@asynccontextmanager
async def _ends(
    source: str, target: str, clock: Clock, *, only_look: bool = False
) -> AsyncGenerator[tuple[Source, Target]]:
    leaving = await opened_source(source, clock=clock)
    try:
        arriving = await opened_target(target, clock=clock, only_look=only_look)
        try:
            yield leaving, arriving
        finally:
            await arriving.close()
    finally:
        await leaving.close()


def _refuse_same(source: str, target: str) -> None:
    if is_same(source, target):
        raise BadUsage(
            f"{shown_url(source)} is where it is already.",
            why="A move goes from one place to another one.",
            fix="Name another place with --to.",
        )


def _refuse_keyless(shape: Shape, amounts: tuple[Amount, ...]) -> None:
    rows = {each.table: each.rows for each in amounts}
    for table in shape.tables:
        if not table.key and rows[table.name] > stages.WHOLE_ROWS_MAX:
            raise BadUsage(
                f"{table.name!r} has no primary key and {rows[table.name]:,} rows; without one a table may have "
                f"{stages.WHOLE_ROWS_MAX:,}.",
                why="Its rows cannot be distinguished, so all of them would have to be copied while writers wait.",
                fix=f"Give it a primary key: ALTER TABLE {table.name} ADD COLUMN id bigserial PRIMARY KEY.",
            )


def _has_moved(source: Source, left: tuple[str, int]) -> MovedElsewhere:
    url, epoch = left
    return MovedElsewhere(
        f"the database of {source.shown} has moved to {shown_url(url)} (move {epoch}).", url=url, epoch=epoch
    )


def _another(target: Target, draft: Draft) -> BadUsage:
    return BadUsage(
        f"a move from {draft.source} to {target.shown} was begun and not ended (move {draft.epoch}).",
        why="Its draft is at the place that this move would need.",
        fix="Run that one again, which goes on where it ended; or end it with --abandon.",
    )
