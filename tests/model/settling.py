"""States that differ only in what can have no effect any more are one state, and need one look.

That is what makes the search small enough. It rests on four facts of the protocol: a body of the manifest never comes
back once it was changed; a fence never goes away; an epoch that was passed never changes the manifest again; and a
snapshot is stored anew by whoever is about to point the floor at it.
"""

from tests.model.bucket import Bucket, Change, Create, Delete, Request, Store
from tests.model.world import GONE, Sabotage, State, World, Writer


class Settling(World):
    """The reduction."""

    def settle(self, state: State) -> State:
        """The one state that stands for all that behave like `state`."""
        bucket, late, writers = state
        for request in late:
            if not self.may_matter(bucket, request):
                late -= {request}
        for who, writer in enumerate(writers):
            if self.is_stopped(bucket, who, writer):
                rest = GONE if writer.phase == "claim" else writer._replace(wanted=None, doubted=False)
                writers = (*writers[:who], rest, *writers[who + 1 :])
        if bucket.snapshots.count(None) < self.size.slots:
            bucket = self.without_garbage(bucket, late, writers)
        return State(bucket, late, writers)

    def may_matter(self, bucket: Bucket, request: Request) -> bool:
        """Can this request, arriving later, still change anything?"""
        match request:
            case Create(entry):
                found = bucket.log[entry.seq]
                return found is None or bool(found.payload) or self.sabotage is Sabotage.FENCE_COLLECTED
            case Change(expected, _):
                return bucket.manifest == expected
            case Store(floor, snapshot):
                return floor >= bucket.manifest.floor and bucket.snapshots[floor] != snapshot
            case Delete(_):
                return True

    def is_stopped(self, bucket: Bucket, who: int, writer: Writer) -> bool:
        """A claim that lost is over; an owner whose epoch was passed will not change the manifest."""
        if writer.phase == "claim":
            return bucket.manifest not in {writer.body, self.claimed(who, writer)}
        return (writer.doubted or writer.wanted is not None) and writer.body.epoch < bucket.manifest.epoch

    def without_garbage(self, bucket: Bucket, late: frozenset[Request], writers: tuple[Writer, ...]) -> Bucket:
        """A snapshot counts while the floor is there, or may come there by a change that is owed or under way."""
        floors = {bucket.manifest.floor}
        floors.update(writer.wanted.floor for writer in writers if writer.wanted)
        floors.update(request.body.floor for request in late if isinstance(request, Change))
        kept = [snapshot if floor in floors else None for floor, snapshot in enumerate(bucket.snapshots)]
        return Bucket(bucket.log, bucket.manifest, tuple(kept))
