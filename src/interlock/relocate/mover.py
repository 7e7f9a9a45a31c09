"""Plan, execution and abandonment of the move of a database, row by row.

The same call continues an interrupted move. The draft at the target has the position; the tombstone at the source
shows whether the move is decided. No other state exists. The order of the stages is that of every move (`stages`).

Sections: unit, estimate, ends, parts, move.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from interlock.clock import Clock
from interlock.database.inventory import (
    DatabasePart,
    address_of,
    describe_part,
    marks_at,
    parts_of,
    refuse_other_schemas,
)
from interlock.errors import BadUsage, CorruptionError, InterlockError, MovedElsewhere, TargetNotFound, UnavailableError
from interlock.relocate.local_lane import DraftPlace, LaneDraft, LaneSource, LaneTarget
from interlock.relocate.rows import Digest, StoredRow, checksum, key_of
from interlock.relocate.shape import Shape, Table
from interlock.relocate.source_and_target import (
    RESTS,
    ROWS_PER_PIECE,
    Draft,
    Pace,
    Pending,
    Reading,
    Restart,
    Sealed,
    Source,
    Target,
)
from interlock.relocate.stages import Amount, At, Durations, Moved, Plan, Watch, arrive, nowhere, run_stages
from interlock.urls import (
    is_bucket_url,
    is_postgres_url,
    lane_path,
    parse_postgres_url,
    redact_postgres_url,
    with_secrets,
    without_secrets,
)
from interlock.urls import redact_url as redacted_elsewhere

# --- Unit ------------------------------------------------------------------------------------------------------------
# Both places are compared while the source still serves: page by page each row of the source is looked up at the
# target, and a difference must have a note. From then on the digest of the target is updated with every copied row,
# and every write is read back. So the seal compares only the last rows and the row counts. A small database is
# compared as a whole once more.

KEYS_MAX: Final = 100_000
"""Maximum number of keys per round."""

SEAL_KEYS_MAX: Final = 2_000
"""Maximum number of pending keys at which the source is sealed."""

SEAL_KEYS_MOST: Final = 4 * SEAL_KEYS_MAX
"""Number of pending keys above which the seal is given up, and retried after another round."""

SEAL_WAIT_S: Final = 30.0
WHOLE_ROWS_MAX: Final = 20_000
"""Maximum rows of a table without a key, which is copied as a whole in the seal if it was written to."""

FULL_ROWS_MAX: Final = 5_000
"""Maximum rows of a database that is compared as a whole in the seal."""


@dataclass
class RowUnit:
    """The rows of one database, on their way by one mover."""

    source: Source
    target: Target
    source_url: str
    target_place: str
    name: str
    epoch: int
    clock: Clock
    watch: Watch
    at: At
    shape: Shape = field(default_factory=lambda: Shape(()))
    draft: Draft = field(default_factory=lambda: Draft(0, "", ""))
    bytes_of: dict[str, int] = field(default_factory=dict[str, int])
    rows: int = 0
    """Rows at the source when the move began."""
    resumed: bool = False
    digests: dict[str, Digest] = field(default_factory=dict[str, Digest])
    """Digests of the target's tables, after the comparison."""
    compared: bool = False
    parts: dict[DatabasePart, Moved] = field(default_factory=dict[DatabasePart, Moved])
    """Streams and shards that have moved."""

    rounds_max = 200

    def __post_init__(self) -> None:
        self.pace = Pace(self.clock)
        self._sealed: Sealed | None = None
        self._round_s, self._notes, self._keys, self._least = 0.0, 0, 0, 0
        self._written = False
        """Whether a program has written to the source during the move."""

    @property
    def keyed(self) -> list[Table]:
        """Return the tables with a key, which are copied while the source serves."""
        return [table for table in self.shape.tables if table.key]

    async def begin(self) -> float:
        """Watch, then begin or continue the draft."""
        source, target = self.source, self.target
        self.shape = await source.shape()
        amounts = await amounts_of(source, self.shape)
        _refuse_keyless(self.shape, amounts)
        self.bytes_of, self.rows = {each.table: each.bytes for each in amounts}, sum(each.rows for each in amounts)
        self.at("watch/before")
        self.watch("watch", 0, 0)
        draft = await target.draft()
        if draft is None:
            await target.refuse_taken()
        elif draft.source != source.location:
            raise _another(target, draft)
        waited_s = await source.watch(self.shape)
        self.at("watch")
        watched = await source.fingerprint()
        self.resumed = draft is not None
        if draft is None or draft.watched != watched or draft.epoch != self.epoch:
            self.draft = Draft(epoch=self.epoch, source=source.location, watched=watched)
            self.at("draft/before")
            await target.begin(self.draft, self.shape)
            self.at("draft")
        else:
            self.draft = draft
            await target.resume(self.shape)
        return waited_s

    async def copy(self) -> None:
        """Copy all rows, table by table, in small pieces."""
        done = 0
        for table in self.keyed:
            if table.name not in self.draft.copied:
                done = await self._copy_table(table, done)
        if not self.draft.indexed:
            self.at("copy/index")
            self.draft.indexed = True
            await self.target.index(self.shape, self.draft)

    async def _copy_table(self, table: Table, done: int) -> int:
        found = self.draft.after.get(table.name)
        after: StoredRow | None = None if found is None else tuple(msgspec.msgpack.decode(found))
        while True:
            self.pace.begin()
            page = await self.source.page(table, after, ROWS_PER_PIECE)
            after = page.after
            if after is None:
                self.draft.copied = (*self.draft.copied, table.name)
                self.draft.after.pop(table.name, None)
            else:
                self.draft.after[table.name] = msgspec.msgpack.encode(after)
            await self.target.copy(table, page.rows, self.draft)
            done += len(page.rows)
            self.watch("copy", done, self.rows)
            self.at(f"copy/{table.name}/{done}")
            if after is None:
                return done
            await self.pace.rest("copy", len(page.rows))

    async def bring_noted(self, number: int) -> bool:
        """Copy noted rows, read them back, and delete the notes."""
        if number == 0:
            self._round_s, self._notes, self._keys, self._least = self.clock.monotonic_s(), 0, 0, KEYS_MAX
        self.pace.begin()
        pending = await self.source.pending(self.shape, KEYS_MAX)
        await bring(self, pending)
        self.at(f"catch up/{number}")
        await self.source.forget(pending)
        self._written = self._written or pending.notes > 0
        self._notes, self._keys = self._notes + pending.notes, self._keys + pending.count
        self._least = min(self._least, pending.count)
        self.watch("catch up", self._keys, 0)
        if pending.complete and pending.count <= SEAL_KEYS_MAX:
            return True
        await self.pace.rest("catch up", pending.count)
        return False

    def never_catches_up(self) -> None:
        """Raise UnavailableError: the seal would take too long."""
        took_s = max(self.clock.monotonic_s() - self._round_s, 0.001)
        raise UnavailableError(
            f"the move cannot catch up: in {took_s:.0f} s it brought {self._notes / took_s:,.0f} writes per second "
            f"over, and never fewer than {self._least:,} rows were left.",
            why="Writers change more rows than can be brought over meanwhile, so the seal would take too long.",
            fix="Run the command again when there is less to do: it goes on where it ended. Or end it with --abandon.",
        )

    async def compare(self) -> None:
        """Compare every row, unless that is still valid, and move the streams and shards."""
        if not self.compared:
            await compare(self, self.rows)
        await bring_parts(self)

    @asynccontextmanager
    async def sealed(self) -> AsyncGenerator[float]:
        """Block the writers."""
        async with self.source.sealed(SEAL_WAIT_S) as sealed:
            self._sealed = sealed
            yield sealed.since_s

    async def end(self) -> bool:
        """Copy the last rows, verify, and record it. Return False when too much is left, or a stream is new."""
        sealed = self._sealed
        assert sealed is not None
        if await sealed.fingerprint() != self.draft.watched:
            raise Restart("its schema was changed")
        pending = await sealed.pending(self.shape, SEAL_KEYS_MOST)
        if not pending.complete or not self.compared or await _has_new_parts(self):
            return False
        self._written = self._written or pending.notes > 0
        await _end(self, sealed, pending)
        return True

    async def leave(self) -> None:
        """Write the tombstone at the source."""
        assert self._sealed is not None
        await self._sealed.leave(without_secrets(self.target_place), self.draft.epoch)

    async def arrive(self) -> None:
        """Make the draft the database."""
        await self.target.arrive(self.epoch)

    async def reached(self) -> float:
        """Return when programs that follow have the target open; without any writes nothing is known to follow."""
        return await self.target.reached() if self._written else self.clock.monotonic_s()

    async def finish(self) -> None:
        """Validate what was not checked during the seal."""
        await self.target.finish()

    def moved(self, draft: Draft | None, durations: Durations | None = None) -> Moved:
        """Return the result of the move; without amounts where the draft is gone already."""
        below = tuple(_amount_of(part, moved) for part, moved in self.parts.items())
        return Moved(
            name=self.name,
            source=shown_url(self.source_url),
            target=shown_url(self.target_place),
            epoch=self.epoch,
            amounts=() if draft is None else (*draft.amounts, *below),
            checksum="" if draft is None else draft.checksum,
            copy_s=0.0 if durations is None else durations.copy_s,
            seal_ms=max(
                0.0 if durations is None else durations.seal_ms, *(part.seal_ms for part in self.parts.values()), 0.0
            ),
            resumed=self.resumed or durations is None,
        )


async def bring(move: RowUnit, pending: Pending) -> None:
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


async def compare(move: RowUnit, total: int) -> None:
    """Compare every row of the source with the target, while the source serves."""
    digests: dict[str, Digest] = {}
    done = 0
    for table in move.keyed:
        kept = digests[table.name] = Digest()
        after: StoredRow | None = None
        key = key_of(table)
        noted_keys = _NotedKeys(move.source, table)
        while True:
            move.pace.begin()
            page = await move.source.page(table, after, ROWS_PER_PIECE)
            there = await move.target.rows_of(table, [key(row) for row in page.rows])
            here, found = Digest(), Digest()
            here.add(page.rows)
            found.add(there)
            if here != found:
                await _explained(move, table, page.rows, there, noted_keys)
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


async def _rest_of(move: RowUnit, table: Table, kept: Digest) -> None:
    """Count rows of the target that the source has deleted meanwhile: they are noted, and removed later."""
    if await move.target.count(table) == kept.rows:
        return
    whole = await _digest_of(move.target, table)
    kept.rows, kept.total = whole.rows, whole.total


class _NotedKeys:
    """The keys of one table that are noted while it is compared. Only notes that came since are read again."""

    def __init__(self, source: Source, table: Table) -> None:
        self._source = source
        self._table = table
        self._known: set[StoredRow] = set()
        self._last = 0

    async def without(self, keys: set[StoredRow]) -> set[StoredRow]:
        """Return those of the keys that have no note."""
        for after in (self._last, 0):  # A note may be seen after a later one: PostgreSQL numbers it before its commit.
            if keys <= self._known:
                break
            found, self._last = await self._source.noted_keys(self._table, after)
            self._known |= found
        return keys - self._known


async def _explained(
    move: RowUnit, table: Table, here: list[StoredRow], there: list[StoredRow], noted_keys: _NotedKeys
) -> None:
    """Raise CorruptionError for differing rows without a note of a write."""
    key, known = key_of(table), set(there)
    differing = {key(row): row for row in here if row not in known}
    for unexplained in await noted_keys.without(set(differing)):
        raise _different(
            move, table.name, [differing[unexplained]], [each for each in there if key(each) == unexplained]
        )


async def _end(move: RowUnit, sealed: Sealed, pending: Pending) -> None:
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


async def _whole(move: RowUnit, sealed: Sealed, table: Table) -> None:
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


async def _verify(move: RowUnit, sealed: Reading) -> None:
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


def _different(move: RowUnit, name: str, here: list[StoredRow], there: list[StoredRow]) -> CorruptionError:
    first = next((row for row in here if row not in there), next((row for row in there if row not in here), None))
    location = "" if first is None else f", such as {str(first)[:200]}"
    return CorruptionError(
        f"{name!r} is not the same at both places{location}; nothing was moved.",
        why=f"What was read back at {move.target.location} differs from what {move.source.location} holds.",
        fix="The source is as it was. End the move with --abandon, run `interlock doctor` on both, and report it.",
    )


def _miscounted(move: RowUnit, name: str, here: int, there: int) -> CorruptionError:
    return CorruptionError(
        f"{name!r} has {here:,} rows at its source and {there:,} at its target; nothing was moved.",
        why=f"A program wrote at {move.source.location} past the triggers, or at {move.target.location}.",
        fix="The source is as it was. End the move with --abandon, and run it again.",
    )


# --- Estimate --------------------------------------------------------------------------------------------------------
# A few pieces are read from the source and written to a temporary table or file. The rest is arithmetic: every row
# is read, written, read again at both places and digested, with pauses in between.

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


# --- Ends ------------------------------------------------------------------------------------------------------------
# An engine's modules are imported only for its addresses: the driver of PostgreSQL is an extra.


def shown_url(url: str) -> str:
    """Return an address without secrets."""
    return redact_postgres_url(url) if is_postgres_url(url) else redacted_elsewhere(url)


def is_same(one: str, other: str) -> bool:
    """Return whether both addresses name one place, apart from secrets."""
    return shown_url(without_secrets(one)) == shown_url(without_secrets(other))


async def opened_source(url: str, *, clock: Clock) -> Source:
    """Open the source. Raises TargetNotFound without a database there."""
    if is_postgres_url(url):
        from interlock.relocate.postgres import PostgresSource  # noqa: PLC0415 -- an extra.

        return await PostgresSource.opened(url, clock=clock)
    _refuse_memory(url)
    if is_bucket_url(url):
        from interlock.relocate.bucket_lane import BucketSource  # noqa: PLC0415 -- an extra.

        return await BucketSource.opened(url, shown_url(url), clock=clock)
    path = lane_path(url)
    assert path is not None
    if not path.exists():
        raise TargetNotFound(
            f"there is no database at {shown_url(url)}.",
            why=f"There is no file {path}.",
            fix="Check the name and --home; `interlock route` moves a database that is there.",
        )
    return await LaneSource.opened(path, shown_url(url), clock=clock)


async def opened_target(url: str, *, clock: Clock, only_look: bool) -> Target:
    """Open the target. With `only_look` it does not lock out other movers."""
    if is_postgres_url(url):
        from interlock.relocate.postgres import PostgresTarget  # noqa: PLC0415 -- an extra.

        return await PostgresTarget.opened(url, clock=clock, only_look=only_look)
    _refuse_memory(url)
    return LaneTarget(opened_draft(url, clock=clock))


def opened_draft(url: str, *, clock: Clock) -> DraftPlace:
    """Return the lane that a mover fills, in a folder or a bucket. Nothing is opened yet."""
    if not is_bucket_url(url):
        return LaneDraft(url, shown_url(url), clock)
    from interlock.relocate.bucket_lane import BucketDraft  # noqa: PLC0415 -- an extra.

    return BucketDraft(url, shown_url(url), clock)


def _refuse_memory(url: str) -> None:
    if url == "memory:":
        raise BadUsage(
            "a database in memory cannot be moved.",
            why="It exists only inside the program that opened it.",
            fix="Name a place that stays: lanes:///var/shop/stock, s3://bucket/stock or postgresql://host/shop.",
        )


CLOSE_S: Final = 5.0


async def refuse_unreachable(source: str, target: str) -> None:
    """Raise BadUsage when programs that follow cannot log in at the target with what this environment has.

    A tombstone has no secrets. A program takes them from the address that it opened, if that is of the same user at the
    same server, or from its environment. So only a target whose secrets are in this command alone has to be tried.
    """
    plain = with_secrets(without_secrets(target), source)
    if plain == target or without_secrets(target) == target:
        return
    try:
        await _log_in(plain)
    except UnavailableError as error:
        raise BadUsage(
            f"programs that follow to {shown_url(target)} cannot log in there: {error.what.rstrip('.')}.",
            why="A tombstone and a catalog have no secrets, and this command has those of the target from --to alone. "
            "Nothing was copied.",
            fix=f"{_credentials(plain)}, here and where the programs run, and leave them out of --to. If the programs "
            "run elsewhere and have them, add --unchecked-credentials.",
        ) from error


async def _log_in(url: str) -> None:
    if is_bucket_url(url):
        _ = await marks_at(url)
        return
    from interlock.postgres.pool import driver_of  # noqa: PLC0415 -- an extra, which may not be installed.

    driver = await driver_of(parse_postgres_url(url), {})
    await driver.close(timeout=CLOSE_S)


def _credentials(url: str) -> str:
    if is_bucket_url(url):
        return "Set the variables of the bucket's provider (AWS_…, GOOGLE_… or AZURE_…)"
    parts = urlsplit(url)
    if service := parse_qs(parts.query).get("service"):
        services = os.environ.get("PGSERVICEFILE") or "~/.pg_service.conf"
        return f"Set PGPASSWORD, or write password=PASSWORD below [{service[-1]}] of {services}"
    place = f"{parts.hostname or '*'}:{parts.port or '*'}:{parts.path.strip('/') or '*'}"
    passwords = os.environ.get("PGPASSFILE") or "~/.pgpass"
    return f"Set PGPASSWORD, or write the line {place}:{parts.username or '*'}:PASSWORD into {passwords}"


# --- Parts -----------------------------------------------------------------------------------------------------------
# Streams and shards are moved before the seal, each as a database by itself. One that was moved alone before comes
# along from where it lives, so that after the move everything is at one place.

HOPS_MAX: Final = 32


async def bring_parts(move: RowUnit) -> None:
    """Move the streams and shards that are still at the source."""
    for part, address in (await parts_of(move.source_url)).items():
        if part not in move.parts:
            try:
                move.parts[part] = await _bring_part(move, part, address)
            except MovedElsewhere:
                # It moved alone, and its mover died before the manifest of its bucket said so. Now it does.
                move.parts[part] = await _bring_part(move, part, address)


async def _bring_part(move: RowUnit, part: DatabasePart, address: str) -> Moved:
    there = address_of(move.target_place, part)
    here = await _home_of(address, there)

    def at(point: str) -> None:
        move.at(f"{part.kind}/{part.name}/{point}")

    def watch(what: str, done: int, total: int) -> None:
        move.watch(f"{part.kind}/{part.name}: {what}", done, total)

    moved = await move_database(here, there, name=part.name, clock=move.clock, watch=watch, at=at, checked=False)
    await describe_part(move.target_place, part)
    return moved


async def _has_new_parts(move: RowUnit) -> bool:
    return any(part not in move.parts for part in await parts_of(move.source_url))


async def _home_of(here: str, there: str) -> str:
    """Return where a part lives, or where it was left for `there`."""
    for _ in range(HOPS_MAX):
        left = await _left_for(here)
        if left is None or is_same(left, there):
            return here
        here = with_secrets(left, here, there)
    raise CorruptionError(
        f"{shown_url(here)} was moved more than {HOPS_MAX} times, and is still not found.",
        fix="Name the database by the address where it lives.",
    )


async def _left_for(here: str) -> str | None:
    marks = await marks_at(here)
    return marks.other if marks.state == "left" else None


async def _return_parts(source: str, target: str, clock: Clock) -> bool:
    """Abandon the moves of streams and shards, and bring back those that have moved. Return False without any."""
    returned = False
    for part, here in (await parts_of(source)).items():
        there, left = address_of(target, part), await _left_for(here)
        if left is None:
            returned = await abandon_database(here, there, clock=clock) or returned
        elif is_same(left, there):
            # It may have to arrive first.
            _ = await move_database(here, there, name=part.name, clock=clock, checked=False)
            _ = await move_database(there, here, name=part.name, clock=clock, checked=False)
            returned = True
    return returned


async def _amounts_below(source: str, target: str, clock: Clock) -> list[Amount]:
    """Return the amounts of streams and shards, each as a whole."""
    found: list[Amount] = []
    for part, here in (await parts_of(source)).items():
        there = address_of(target, part)
        lives = await _home_of(here, there)
        if await _left_for(lives) is not None:
            continue
        end = await opened_source(lives, clock=clock)
        try:
            amounts = [*await amounts_of(end, await end.shape()), *await _amounts_below(lives, there, clock)]
        finally:
            await end.close()
        rows, size = sum(each.rows for each in amounts), sum(each.bytes for each in amounts)
        found.append(Amount(f"{part.kind}/{part.name}", rows, size))
    return found


def _amount_of(part: DatabasePart, moved: Moved) -> Amount:
    return Amount(f"{part.kind}/{part.name}", moved.rows, sum(each.bytes for each in moved.amounts))


# --- Move ------------------------------------------------------------------------------------------------------------

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
        await refuse_other_schemas(source)
        draft = await arriving.draft()
        if draft is None:
            await arriving.refuse_taken()
        shape = await leaving.shape()
        amounts = await amounts_of(leaving, shape)
        guess: Estimate = await estimated(leaving, arriving, shape, amounts, clock=clock)
        number = await next_epoch(leaving, arriving, epoch)
    below = await _amounts_below(source, target, clock)
    notes = list(shape.notes)
    if below:
        notes.append(
            f"{len(below):,} streams and shards move with it, one after the other; their writers wait for each alone."
        )
    if is_bucket_url(target):
        notes.append(UNMEASURED)
    if draft is not None:
        notes.append(f"A move from {draft.source} was begun and not ended; it would go on.")
    return Plan(
        name=name,
        source=shown_url(source),
        target=shown_url(target),
        epoch=number,
        amounts=(*amounts, *below),
        copy_s=guess.copy_s * (1 + sum(each.rows for each in below) / max(1, sum(each.rows for each in amounts))),
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
    checked: bool = True,
) -> Moved:
    """Move a database, or continue an interrupted move. The database lives at exactly one place at any time.

    Its epoch is higher than that of any move known at either place, and not lower than `epoch`. With `checked` it does
    not begin unless programs that follow can log in at the target.
    """
    _refuse_same(source, target)
    if checked:
        await refuse_unreachable(source, target)
    async with _ends(source, target, clock) as (leaving, arriving):
        unit = RowUnit(leaving, arriving, source, target, name=name, epoch=epoch, clock=clock, watch=watch, at=at)
        await leaving.take()  # Before the check of the tombstone: another mover may just be about to leave.
        left = await leaving.moved()
        if left is not None:
            return await _finish(unit, left)
        await refuse_other_schemas(source)
        unit.epoch = await next_epoch(leaving, arriving, epoch)
        reason = ""
        for _ in range(RESTARTS_MAX):
            try:
                durations = await _staged(unit)
            except Restart as error:
                reason = str(error)
                await leaving.unwatch()
                await arriving.drop()
                unit = replace(unit, draft=Draft(0, "", ""), compared=False, digests={}, parts={})
            else:
                return unit.moved(unit.draft, durations)
        raise UnavailableError(
            f"the schema of {leaving.location} was changed {RESTARTS_MAX} times while it was copied: {reason}.",
            why="A copy that began with another schema cannot be verified, so it begins anew each time.",
            fix="Run the command again when the schema is at rest.",
        )


async def abandon_database(source: str, target: str, *, clock: Clock) -> bool:
    """Abandon a move: remove the draft, then the triggers and notes. Return False when there was none.

    The draft of another move is removed as well if its source has left, and the database has arrived at another place.
    Raises MovedElsewhere when the source has left: that is final, and only a move back helps.
    """
    _refuse_same(source, target)
    async with _ends(source, target, clock) as (leaving, arriving):
        await leaving.take()
        left = await leaving.moved()
        if left is not None:
            raise _has_moved(leaving, left)
        draft = await arriving.draft()
        if draft is not None and draft.source != leaving.location:
            there = await marks_at(with_secrets(without_secrets(draft.source), source, target))
            overtaken = there.state == "left" and await _has_arrived(
                with_secrets(there.other, source, target), there.epoch, clock
            )
            if not overtaken:
                raise _another(arriving, draft)
            await arriving.drop()  # That move can never end: its source has left to another place.
            return True
        returned = await _return_parts(source, target, clock)
        await arriving.drop()
        await leaving.unwatch()
        return draft is not None or returned


async def _has_arrived(url: str, epoch: int, clock: Clock) -> bool:
    """Return whether the database of a move has arrived at an address.

    A draft there has not arrived. It may be the draft in question, because one place has several addresses.
    """
    there = await opened_target(url, clock=clock, only_look=True)
    try:
        return await there.draft() is None and await there.last_epoch() >= epoch
    finally:
        await there.close()


async def next_epoch(source: Source, target: Target, least: int = 1) -> int:
    """Return one more than any epoch at either place; for a running move its own, unless another was faster."""
    draft = await target.draft()
    number = max(await source.last_epoch() + 1, await target.last_epoch() + 1, least)
    return number if draft is None else max(draft.epoch, number)


async def amounts_of(source: Source, shape: Shape) -> tuple[Amount, ...]:
    """Return the rows and bytes of each table."""
    sizes = await source.bytes_of(shape)
    return tuple([Amount(table.name, await source.count(table), sizes[table.name]) for table in shape.tables])


async def _staged(unit: RowUnit) -> Durations:
    """Run all stages. Raises Restart when the schema was changed: then a dropped table cannot be read."""
    try:
        return await run_stages(unit, clock=unit.clock, watch=unit.watch, at=unit.at)
    except InterlockError as error:
        if unit.draft.watched and await _is_another(unit.source, unit.draft.watched):
            raise Restart(error.what) from error
        raise


async def _is_another(source: Source, watched: str) -> bool:
    try:
        # In this order: a faster mover removes its triggers in the commit that leaves.
        return await source.fingerprint() != watched and await source.moved() is None
    except InterlockError:
        return False  # The source does not answer: the mover raises that error, not this one.


async def _finish(unit: RowUnit, left: tuple[str, int]) -> Moved:
    """Complete the arrival at the target: the source has left, and the mover died after that."""
    url, unit.epoch = left
    await unit.source.confirm_left()
    if not is_same(url, unit.target_place):
        raise _has_moved(unit.source, left)
    draft = await unit.target.draft()
    if draft is not None and draft.epoch != unit.epoch:
        raise _another(unit.target, draft)
    _ = await arrive(unit, watch=unit.watch, at=unit.at)
    return unit.moved(draft)


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
        if not table.key and rows[table.name] > WHOLE_ROWS_MAX:
            raise BadUsage(
                f"{table.name!r} has no primary key and {rows[table.name]:,} rows; without one a table may have "
                f"{WHOLE_ROWS_MAX:,}.",
                why="Its rows cannot be distinguished, so all of them would have to be copied while writers wait.",
                fix=f"Give it a primary key: ALTER TABLE {table.name} ADD COLUMN id bigserial PRIMARY KEY.",
            )


def _has_moved(source: Source, left: tuple[str, int]) -> MovedElsewhere:
    url, epoch = left
    return MovedElsewhere(
        f"the database of {source.location} has moved to {shown_url(url)} (move {epoch}).", url=url, epoch=epoch
    )


def _another(target: Target, draft: Draft) -> BadUsage:
    return BadUsage(
        f"a move from {draft.source} to {target.location} was begun and not ended (move {draft.epoch}).",
        why="Its draft is at the place that this move would need.",
        fix="Run that one again, which goes on where it ended; or end it with --abandon.",
    )
