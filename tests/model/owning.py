"""What an owner does: appends, one at a time, and beside them the care of the manifest, snapshots and collection."""

from collections.abc import Iterator

from tests.model.bucket import NAMES, Change, Create, Delete, Entry, Manifest, Snapshot, Store, recover, told
from tests.model.world import GONE, Broken, Sabotage, State, Step, World, Writer, group, is_own, move


class Owning(World):
    """The actions of a writer that has opened the log."""

    # --- Appending ----------------------------------------------------------------------------------------------------

    def begin(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """The next group, when the one before it is durable: one append in flight."""
        if writer.groups < self.size.groups and writer.at < self.size.slots:
            begun = writer._replace(phase="append", groups=writer.groups + 1)
            yield from self.append(f"{NAMES[who]} begins a group", state, who, begun)

    def append(self, step: str, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """Only success is success; anything else, "exists" too, is an open question."""
        entry = group(who, writer)
        for fate, after, answer in self.send(state, Create(entry)):
            told_so = f"{step}; {fate}"
            if self.sabotage is Sabotage.ACKNOWLEDGE_FIRST:
                self.acknowledge(told_so, after, who, entry)
            if answer == "done" or (answer == "exists" and self.sabotage is Sabotage.EXISTS_IS_SUCCESS):
                yield self.durable(told_so, after, who, writer, entry)
            elif answer == "exists" and self.sabotage is Sabotage.EXISTS_IS_FENCED:
                yield self.fenced(told_so, after, who, writer)
            else:
                yield told_so, move(after, who, writer)

    def resolve_append(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """Any answer but success is resolved by GET of that key: my nonce = done; a higher epoch = fenced; a foreign
        nonce of an equal or lower epoch = corruption; absent = try again."""
        mine, found = group(who, writer), state.bucket.log[writer.at]
        step = f"{NAMES[who]} reads log/{writer.at}: {found.title if found else 'absent'}"
        if found is None:
            yield from self.try_again(step, state, who, writer)
        elif is_own(found, who, mine.payload):
            yield self.durable(step, state, who, writer, mine)
        elif found.epoch <= writer.body.epoch:
            raise Broken(step, f"corruption: {NAMES[who]} of epoch {writer.body.epoch} meets epoch {found.epoch} there")
        elif self.sabotage is Sabotage.BLIND_REFUSAL:
            yield self.refused(step, state, who, mine)
        else:
            refusing = writer._replace(phase="refuse", wanted=None, doubted=False)
            yield self.fenced(step, state, who, writer, refusing)

    def try_again(self, step: str, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """Absent is not final, the request may land later: the same bytes to the same key again. Never skip a slot,
        never put other bytes into a tried one."""
        if self.sabotage is Sabotage.SLOT_SKIPPED:
            if writer.at + 1 < self.size.slots:
                skipped = writer._replace(at=writer.at + 1, last=group(who, writer).hash)
                yield from self.append(step, state, who, skipped)
        elif self.sabotage is Sabotage.SLOT_REUSED:
            yield from self.begin(state, who, writer)
        else:
            yield from self.append(step, state, who, writer)

    def durable(self, step: str, state: State, who: int, writer: Writer, entry: Entry) -> Step:
        """Acknowledge, and only now apply the group to what is shown."""
        self.acknowledge(step, state, who, entry)
        known = (*writer.known, entry.payload)
        done = writer._replace(phase="own", at=writer.at + 1, last=entry.hash, known=known)
        return f"{step}; {entry.payload} is acknowledged", move(state, who, done)

    def acknowledge(self, step: str, state: State, who: int, entry: Entry) -> None:
        """G2, G4: what is acknowledged is what recovery yields, also when the one who does it was fenced since."""
        payloads = recover(state.bucket).payloads
        if payloads.count(entry.payload) != 1:
            what = f"G2: {NAMES[who]} acknowledges {entry.payload}, recovery yields {told(payloads)}"
            raise Broken(f"{step}; {entry.payload} is acknowledged", what)

    def refuse(self, state: State, who: int, writer: Writer) -> Step:
        """A fenced append is refused for certain only if its slot is not below the floor. Below it, the object found
        may be a late fence in the place of the group itself, which is in the snapshot by now: OutcomeUnknown."""
        found = state.bucket.manifest
        step = f"{NAMES[who]} reads the manifest (floor {found.floor})"
        if writer.at < found.floor:
            return f"{step}: OutcomeUnknown", move(state, who, GONE)
        return self.refused(step, state, who, group(who, writer))

    def refused(self, step: str, state: State, who: int, entry: Entry) -> Step:
        gone = GONE._replace(refused=entry.payload)
        return f"{step}; {entry.payload} is refused for certain", move(state, who, gone)

    # --- Caring -------------------------------------------------------------------------------------------------------

    def care(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """The one task that changes the manifest, and collects. It runs beside the appends."""
        if writer.doubted:
            yield self.resolve_change(state, who, writer)
        elif writer.wanted is not None:
            yield from self.change(state, who, writer, writer.wanted)
        elif writer.body.revision < self.size.changes:
            yield from self.snapshot(state, who, writer)
            if self.size.renewals:
                yield from self.renew(state, who, writer)
        yield from self.collect(state, who, writer)

    def snapshot(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """A snapshot at a durable seq; when it is known to be stored, the floor may follow it."""
        floor, snapshot = writer.at, Snapshot(writer.known, writer.last)
        if self.sabotage is Sabotage.PENDING_SNAPSHOT and writer.phase != "own":
            pending = group(who, writer)
            floor, snapshot = writer.at + 1, Snapshot((*writer.known, pending.payload), pending.hash)
        if floor <= writer.body.floor:
            return
        body = writer.body._replace(floor=floor, author=who, revision=writer.body.revision + 1)
        wanting = writer._replace(wanted=self.manifest(body))
        if self.sabotage is Sabotage.FLOOR_FIRST:
            yield f"{NAMES[who]} wants the floor at {floor}", move(state, who, wanting)
        for fate, after, answer in self.send(state, Store(floor, snapshot)):
            yield f"{NAMES[who]}: {fate}", move(after, who, wanting) if answer == "done" else after

    def renew(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """The lease is renewed: new bytes, nothing else."""
        body = self.manifest(writer.body._replace(author=who, revision=writer.body.revision + 1))
        yield from self.change(state, who, writer, body)

    def change(self, state: State, who: int, writer: Writer, body: Manifest) -> Iterator[Step]:
        """The owner changes the manifest by CAS on the body it knows, so only while the epoch is its own."""
        for fate, after, answer in self.send(state, Change(writer.body, body)):
            if answer == "done":
                yield f"{NAMES[who]}: {fate}", move(after, who, writer._replace(body=body, wanted=None))
            else:
                yield f"{NAMES[who]}: {fate}", move(after, who, writer._replace(wanted=None, doubted=True))

    def resolve_change(self, state: State, who: int, writer: Writer) -> Step:
        """An ambiguous CAS is resolved by GET: the epoch is mine = this is the body now; else fenced."""
        found = state.bucket.manifest
        step = f"{NAMES[who]} reads the manifest (epoch {found.epoch}, floor {found.floor})"
        if found.epoch != writer.body.epoch:
            return self.fenced(step, state, who, writer)
        return step, move(state, who, writer._replace(body=found, doubted=False))

    def collect(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """Groups below the floor are deleted, fences never: a zombie's next slot stays occupied."""
        floor = writer.body.floor
        if self.sabotage is Sabotage.DELETE_FIRST and writer.wanted is not None:
            floor = writer.wanted.floor
        for seq, entry in enumerate(state.bucket.log[:floor]):
            if entry is not None and (entry.payload or self.sabotage is Sabotage.FENCE_COLLECTED):
                for fate, after, _ in self.send(state, Delete(seq)):
                    if after is not state:
                        yield f"{NAMES[who]}: {fate}", after
