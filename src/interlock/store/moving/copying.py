"""Copying the source into a draft, part by part, in any order and repeatedly.

The state of workflows is transferred, never the operations on them. History is identified by its first and last
version: it is only appended to and pruned from its beginning. All written rows are read back and compared, so that the
checksum of the draft is that of the source as it was read. Later changes are recorded at the source and copied again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from interlock.errors import CorruptionError
from interlock.store.moving.apart import Apart
from interlock.store.moving.canonical import Aside, Digests, Numbered, bytes_of, digest_of, key_of
from interlock.store.moving.draft import Draft, Exchange
from interlock.store.moving.source import ASIDE, Source, Span
from interlock.store.values import Happened

CHUNK = 1_000
"""Workflows per copy step: their histories are in memory together."""

ALL = 2**62
"""A version above all others."""


class Read(NamedTuple):
    """A part of the source at one moment."""

    rows: list[Numbered]
    events: dict[int, list[Happened]]


class Copying:
    """From one source into one draft."""

    def __init__(self, source: Source, draft: Draft, apart: Apart) -> None:
        self.digests = Digests()
        self.bytes: Counter[str] = Counter()
        """Amounts read, by table."""
        self.source = source
        self._draft = draft
        self._apart = apart

    async def chunk(self, after: int, *, fresh: bool) -> int | None:
        """Copy the next workflows after a number; return the last one's number, None at the end.

        Unless the draft is fresh it is compared with what an earlier mover has left there.
        """
        read = await self._apart(self._read_chunk, after)
        if not read.rows:
            if not fresh:
                found, _ = await self._found(after, ALL)
                await self._exchange([], [], gone=list(found), cuts={})
            return None
        last = read.rows[-1].number
        left = read if fresh else await self._compared(read, after, last)
        if left.rows:
            events = [each for number, _ in left.rows for each in read.events.get(number, ())]
            cuts = {} if fresh else {row.id: ALL for _, row in left.rows}
            await self._exchange(left.rows, events, gone=(), cuts=cuts)
        return last

    def _read_chunk(self, after: int) -> Read:
        with self.source.moment():
            rows = self.source.rows_between(after, CHUNK)
            return Read(rows, self.source.events_between(after, rows[-1].number) if rows else {})

    async def _compared(self, read: Read, after: int, last: int) -> Read:
        """What the draft has otherwise, or not at all; what it has beyond that is taken out."""
        found, histories = await self._found(after, last)
        numbers = {each.number for each in read.rows}
        await self._exchange([], [], gone=[number for number in found if number not in numbers], cuts={})
        left = [
            each
            for each in read.rows
            if found.get(each.number) != each or histories.get(each.row.id, []) != read.events.get(each.number, [])
        ]
        return Read(left, read.events)

    async def _found(self, after: int, last: int) -> tuple[dict[int, Numbered], dict[str, list[Happened]]]:
        """Rows of an earlier mover with these numbers; they count until they are removed."""
        found = {each.number: each for each in await self._draft.rows_between(after, last)}
        histories = await self._draft.events_of([each.row.id for each in found.values()])
        for number, each in found.items():
            self.digests.put_row(number, digest_of(each))
        for history in histories.values():
            history.sort(key=lambda happened: happened.version)
            self.digests.add_events(len(history), sum(map(digest_of, history)))
        return found, histories

    async def touched(self, numbers: Collection[int]) -> None:
        """Bring over what has become of these workflows."""
        rows, spans = await self._apart(self._read_rows, numbers)
        here = await self._draft.spans(rows.values())
        cuts: dict[str, int] = {}
        after_versions: dict[int, int] = {}
        for number, each in rows.items():
            span, known = spans[number], here.get(each.row.id, Span())
            keep_from, add_behind = difference(span, known)
            if keep_from > known.first and known.size:
                cuts[each.row.id] = keep_from
            if add_behind < span.last:
                after_versions[number] = add_behind
        events = await self._apart(self._read_events, after_versions)
        gone = [number for number in numbers if number not in rows]
        await self._exchange(list(rows.values()), events, gone=gone, cuts=cuts)

    def _read_rows(self, numbers: Collection[int]) -> tuple[dict[int, Numbered], dict[int, Span]]:
        with self.source.moment():
            rows = self.source.rows(sorted(numbers))
            return rows, self.source.spans(rows)

    def _read_events(self, after_versions: dict[int, int]) -> list[Happened]:
        with self.source.moment():
            return [
                each
                for number, version in after_versions.items()
                for each in self.source.events_behind(number, version)
            ]

    async def _exchange(
        self,
        rows: Sequence[Numbered],
        events: Sequence[Happened],
        *,
        gone: Sequence[int],
        cuts: dict[str, int],
    ) -> None:
        if not rows and not gone:
            return
        done = await self._draft.exchange(Exchange(rows, events, gone, cuts))
        digests = compared("workflow", rows, done.rows)
        history = compared("history", events, done.events)
        self.digests.add_events(-len(done.cut), -sum(map(digest_of, done.cut)))
        for number in done.gone:
            self.digests.put_row(number, 0)
        for each, digest in zip(done.rows, digests, strict=True):
            self.digests.put_row(each.number, digest)
        self.digests.add_events(len(history), sum(history))
        self.bytes["workflows"] += sum(map(bytes_of, rows))
        self.bytes["workflow_events"] += sum(map(bytes_of, events))

    async def all_aside(self) -> None:
        """Bring over everything that is stored beside workflows and their history."""
        await self._draft.clear_aside()
        for table in ASIDE:
            after = ""
            while keys := await self._apart(self.source.keys_aside, table, after, CHUNK):
                await self.aside(table, keys)
                after = keys[-1]

    async def aside(self, table: str, keys: Sequence[str]) -> None:
        """Bring over what has become of what stands under these keys."""
        values = await self._apart(self.source.aside, table, keys)
        found = await self._draft.put_aside(table, keys, values)
        digests = compared(table, values.values(), found)
        for key in keys:
            self.digests.put_aside(table, key, 0)
        for each, digest in zip(found, digests, strict=True):
            self.digests.put_aside(table, key_of(each), digest)
        self.bytes[table] += sum(map(bytes_of, values.values()))


def difference(source: Span, draft: Span) -> tuple[int, int]:
    """Return the first version of history that the draft may keep, and after which one it needs the source's."""
    whole = source.size == source.last - source.first + 1 and draft.size == draft.last - draft.first + 1
    if not source.size or not draft.size:
        return ALL, 0
    if not whole or not draft.first <= source.first <= draft.last + 1 or draft.last > source.last:
        return ALL, 0
    return source.first, draft.last


def compared(
    what: str, sent: Iterable[Numbered | Happened | Aside], found: Iterable[Numbered | Happened | Aside]
) -> list[int]:
    """Return the digests of the rows read back. Raises CorruptionError when they differ from those sent."""
    expected = {digest_of(each): each for each in sent}
    digests: list[int] = []
    for each in found:
        digest = digest_of(each)
        if expected.pop(digest, None) is None:
            raise _differs(what, each)
        digests.append(digest)
    for each in expected.values():
        raise _differs(what, each)
    return digests


def _differs(what: str, value: object) -> CorruptionError:
    name = getattr(value, "workflow", None) or getattr(getattr(value, "row", value), "id", None) or repr(value)
    return CorruptionError(
        f"a {what} did not arrive as it was sent: {name}.",
        why="What was written was read back before it was committed, and was another value. Nothing has moved.",
        fix="Please report it with the workflow's history; the workflows go on where they are.",
    )
