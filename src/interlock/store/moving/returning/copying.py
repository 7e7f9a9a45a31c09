"""Copying PostgreSQL's workflows into a lane's draft, part by part, in any order and repeatedly.

As on the way there (`store.moving.copying`): what is transferred is the state of workflows, never what was done to
them; whatever is written is read back and compared; what changes at the source afterwards is noted, and comes again.
"""

from collections import Counter
from collections.abc import Sequence

from interlock.store.moving.apart import Apart
from interlock.store.moving.canonical import Digests, digest_of, key_of
from interlock.store.moving.canonical import bytes_of as size_of
from interlock.store.moving.copying import CHUNK, compared, difference
from interlock.store.moving.returning.draft import ALL, Exchange, LaneDraft
from interlock.store.moving.returning.reading import Part
from interlock.store.moving.returning.watching import Watching
from interlock.store.moving.source import ASIDE, Span
from interlock.store.values import Happened


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
            await self._exchange(part, gone=(), cuts={})
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
        gone = [workflow for workflow in found if workflow not in part.rows]
        await self._exchange(Part(other, part.events), gone=gone, cuts=dict.fromkeys(other, ALL))

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
        gone = [workflow for workflow in ids if workflow not in rows]
        await self._exchange(Part(rows, events), gone=gone, cuts=cuts)

    async def _exchange(self, part: Part, *, gone: Sequence[str], cuts: dict[str, int]) -> None:
        if not part.rows and not gone:
            return
        rows = list(part.rows.values())
        events: list[Happened] = [each for workflow in part.rows for each in part.events.get(workflow, ())]
        done = await self._apart(self._draft.exchange, Exchange(rows, part.events, gone, cuts))
        digests = compared("workflow", rows, done.rows)
        history = compared("history", events, done.events)
        self.digests.add_events(-len(done.cut), -sum(map(digest_of, done.cut)))
        for number in done.gone:
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
        for table in ASIDE:
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
