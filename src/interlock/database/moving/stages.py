"""Stages of a move, in their order: watch, copy, catch up, seal, verify, leave, arrive (decision 0018).

Both places are compared while the source still serves: page by page each row of the source is looked up at the target,
and a difference must have a note. From then on the digest of the target is updated with every copied row, and every
write is read back. So the seal compares only the last rows and the row counts. A small database is compared as a whole
once more.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from interlock.catalog.moves import Amount, At, Watch
from interlock.database.moving.digests import Digest, checksum
from interlock.database.moving.ends import Draft, Pending, Reading, Restart, Sealed, Source, Target
from interlock.database.moving.lane_rows import key_of
from interlock.database.moving.pacing import ROWS_PER_PIECE, Pace
from interlock.database.moving.parts import refuse_parts
from interlock.database.moving.shape import Shape, Table
from interlock.database.moving.values import StoredRow
from interlock.errors import CorruptionError, UnavailableError
from interlock.seams import Clock

KEYS_MAX: Final = 100_000
"""Maximum number of keys per round."""

SEAL_KEYS_MAX: Final = 2_000
"""Maximum number of pending keys at which the source is sealed."""

SEAL_KEYS_MOST: Final = 4 * SEAL_KEYS_MAX
"""Number of pending keys above which the seal is given up, and retried after another round."""

ROUNDS_MAX: Final = 200
SEALS_MAX: Final = 10
SEAL_WAIT_S: Final = 30.0
WHOLE_ROWS_MAX: Final = 20_000
"""Maximum rows of a table without a key, which is copied as a whole in the seal if it was written to."""

FULL_ROWS_MAX: Final = 5_000
"""Maximum rows of a database that is compared as a whole in the seal."""


@dataclass
class Under:
    """A running move."""

    source: Source
    target: Target
    source_url: str
    target_url: str
    shape: Shape
    draft: Draft
    clock: Clock
    watch: Watch
    at: At
    bytes_of: dict[str, int]
    pace: Pace = field(init=False)
    digests: dict[str, Digest] = field(default_factory=dict[str, Digest])
    """Digests of the target's tables, after the comparison."""
    compared: bool = False
    seal_ms: float = 0.0

    def __post_init__(self) -> None:
        self.pace = Pace(self.clock)

    @property
    def keyed(self) -> list[Table]:
        """Return the tables with a key, which are copied while the source serves."""
        return [table for table in self.shape.tables if table.key]


async def copy(move: Under, total: int) -> None:
    """Copy all rows, table by table, in small pieces."""
    done = 0
    for table in move.keyed:
        if table.name in move.draft.copied:
            continue
        found = move.draft.after.get(table.name)
        after: StoredRow | None = None if found is None else tuple(msgspec.msgpack.decode(found))
        while True:
            move.pace.begin()
            page = await move.source.page(table, after, ROWS_PER_PIECE)
            after = page.after
            if after is None:
                move.draft.copied = (*move.draft.copied, table.name)
                move.draft.after.pop(table.name, None)
            else:
                move.draft.after[table.name] = msgspec.msgpack.encode(after)
            await move.target.copy(table, page.rows, move.draft)
            done += len(page.rows)
            move.watch("copy", done, total)
            move.at(f"copy/{table.name}/{done}")
            if after is None:
                break
            await move.pace.rest("copy", len(page.rows))
    if not move.draft.indexed:
        move.at("copy/index")
        move.draft.indexed = True
        await move.target.index(move.shape, move.draft)


async def catch_up(move: Under) -> None:
    """Copy noted rows in rounds until few are left."""
    since_s, notes, keys = move.clock.monotonic_s(), 0, 0
    least = None
    for number in range(ROUNDS_MAX):
        move.pace.begin()
        pending = await move.source.pending(move.shape, KEYS_MAX)
        await bring(move, pending)
        move.at(f"catch up/{number}")
        await move.source.forget(pending)
        notes, keys = notes + pending.notes, keys + pending.count
        move.watch("catch up", keys, 0)
        if pending.complete and pending.count <= SEAL_KEYS_MAX:
            return
        least = pending.count if least is None else min(least, pending.count)
        await move.pace.rest("catch up", pending.count)
    took_s = max(move.clock.monotonic_s() - since_s, 0.001)
    raise UnavailableError(
        f"the move cannot catch up: in {took_s:.0f} s it brought {notes / took_s:,.0f} writes per second over, and "
        f"never fewer than {least:,} rows were left.",
        why="Writers change more rows than can be brought over meanwhile, so the seal would take too long.",
        fix="Run the command again when there is less to do: it goes on where it ended. Or end it with --abandon.",
    )


async def bring(move: Under, pending: Pending) -> None:
    """Copy pending rows, read them back, and update the digest of the target."""
    if not pending.complete:
        # A row may have replaced a colliding one that comes later: everything must be compared again.
        move.compared = False
        move.digests.clear()
    for name, keys in pending.keys.items():
        if name in move.digests:
            move.digests[name].remove(await move.target.rows_of(move.shape.table(name), keys))
    await move.target.put(move.shape, pending)
    if not pending.complete:
        return
    for name, keys in pending.keys.items():
        written = await move.target.rows_of(move.shape.table(name), keys)
        expected, found = Digest(), Digest()
        expected.add(pending.rows[name])
        found.add(written)
        if expected != found:
            raise _different(move, name, pending.rows[name], written)
        if name in move.digests:
            move.digests[name].add(written)


async def compare(move: Under, total: int) -> None:
    """Compare every row of the source with the target, while the source serves."""
    digests: dict[str, Digest] = {}
    done = 0
    for table in move.keyed:
        kept = digests[table.name] = Digest()
        after: StoredRow | None = None
        key = key_of(table)
        while True:
            move.pace.begin()
            page = await move.source.page(table, after, ROWS_PER_PIECE)
            there = await move.target.rows_of(table, [key(row) for row in page.rows])
            here, found = Digest(), Digest()
            here.add(page.rows)
            found.add(there)
            if here != found:
                await _explained(move, table, page.rows, there)
            kept.add(there)
            done += len(page.rows)
            move.watch("compare", done, total)
            move.at(f"compare/{table.name}/{done}")
            after = page.after
            if after is None:
                break
            await move.pace.rest("compare", len(page.rows))
        await _rest_of(move, table, kept)
    move.digests, move.compared = digests, True


async def _rest_of(move: Under, table: Table, kept: Digest) -> None:
    """Count rows of the target that the source has deleted meanwhile: they are noted, and removed later."""
    if await move.target.count(table) == kept.rows:
        return
    whole = await _digest_of(move.target, table)
    kept.rows, kept.total = whole.rows, whole.total


async def _explained(move: Under, table: Table, here: list[StoredRow], there: list[StoredRow]) -> None:
    """Raise CorruptionError for differing rows without a note of a write."""
    key = key_of(table)
    noted = await move.source.noted(table)
    known = set(there)
    for row in here:
        if row not in known and key(row) not in noted:
            raise _different(move, table.name, [row], [each for each in there if key(each) == key(row)])


async def seal(move: Under) -> None:
    """Block writers, copy the last rows, verify, and leave."""
    for number in range(SEALS_MAX):
        move.at(f"seal/{number}/before")
        async with move.source.sealed(SEAL_WAIT_S) as sealed:
            move.at(f"seal/{number}")
            if await sealed.fingerprint() != move.draft.watched:
                raise Restart("its schema was changed")
            pending = await sealed.pending(move.shape, SEAL_KEYS_MOST)
            if pending.complete and move.compared:
                await refuse_parts(sealed, move.shape, move.source_url, move.target_url)
                await _end(move, sealed, pending)
                move.at("leave/before")
                await sealed.leave(move.target_url, move.draft.epoch)
                move.seal_ms = (move.clock.monotonic_s() - sealed.since_s) * 1_000
                move.at("leave")
                return
        await catch_up(move)
        if not move.compared:
            await compare(move, 0)
            await catch_up(move)
    raise UnavailableError(
        f"the move cannot catch up: {SEALS_MAX} times more was written than fits into a seal.",
        why="Writers change more rows than can be brought over while they wait.",
        fix="Run the command again when there is less to do: it goes on where it ended.",
    )


async def _end(move: Under, sealed: Sealed, pending: Pending) -> None:
    async with move.target.last():
        move.watch("seal", pending.count, pending.count)
        await bring(move, pending)
        for table in move.shape.tables:
            if not table.key:
                await _whole(move, sealed, table)
        move.at("verify")
        await _verify(move, sealed)
        move.draft.amounts = tuple(
            Amount(table.name, move.digests[table.name].rows, move.bytes_of.get(table.name, 0))
            for table in move.shape.tables
        )
        move.draft.checksum = checksum(move.digests)
        await move.target.complete(move.shape, await sealed.positions(move.shape), move.draft)


async def _whole(move: Under, sealed: Sealed, table: Table) -> None:
    """Copy a table without a key as a whole during the seal, because its rows cannot be distinguished."""
    rows, after, first = Digest(), None, True
    while True:
        page = await sealed.page(table, after, ROWS_PER_PIECE)
        rows.add(page.rows)
        await move.target.replace(table, page.rows, first=first)
        after, first = page.after, False
        if after is None:
            break
    move.digests[table.name] = rows
    if await _digest_of(move.target, table) != rows:
        raise _different(move, table.name, [], [])


async def _verify(move: Under, sealed: Reading) -> None:
    full = sum(each.rows for each in move.digests.values()) <= FULL_ROWS_MAX
    for table in move.keyed:
        kept = move.digests[table.name]
        here, there = await sealed.count(table), await move.target.count(table)
        if not here == there == kept.rows:
            raise _miscounted(move, table.name, here, there)
        if full and not await _digest_of(sealed, table) == await _digest_of(move.target, table) == kept:
            raise _different(move, table.name, [], [])


async def _digest_of(end: Reading | Target, table: Table) -> Digest:
    found, after = Digest(), None
    while True:
        page = await end.page(table, after, ROWS_PER_PIECE)
        found.add(page.rows)
        after = page.after
        if after is None:
            return found


def _different(move: Under, name: str, here: list[StoredRow], there: list[StoredRow]) -> CorruptionError:
    first = next((row for row in here if row not in there), next((row for row in there if row not in here), None))
    shown = "" if first is None else f", such as {str(first)[:200]}"
    return CorruptionError(
        f"{name!r} is not the same at both places{shown}; nothing was moved.",
        why=f"What was read back at {move.target.shown} differs from what {move.source.shown} holds.",
        fix="The source is as it was. End the move with --abandon, run `interlock doctor` on both, and report it.",
    )


def _miscounted(move: Under, name: str, here: int, there: int) -> CorruptionError:
    return CorruptionError(
        f"{name!r} has {here:,} rows at its source and {there:,} at its target; nothing was moved.",
        why=f"Something was written at {move.source.shown} past the triggers, or at {move.target.shown} by others.",
        fix="The source is as it was. End the move with --abandon, and run it again.",
    )
