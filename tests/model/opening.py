"""How a writer becomes the owner: a new epoch by CAS, the tail by GET, a fence, and a last look at the manifest."""

from collections.abc import Iterator

from tests.model.bucket import NAMES, Change, Create, Entry, Manifest, recover, told
from tests.model.world import GONE, Broken, Sabotage, State, Step, World, Writer, group, is_own, move


class Opening(World):
    """The actions of a writer that opens the log, in their order."""

    def start(self, state: State, who: int) -> Iterator[Step]:
        """Open: read the manifest, claim it. Any writer, at any time; the local file was discarded."""
        seen = state.bucket.manifest
        yield from self.claim(f"{NAMES[who]} opens", state, who, Writer("claim", seen))
        if self.sabotage is Sabotage.LOCAL_POSITION:
            for dead, writer in enumerate(state.writers):
                if writer.phase in {"own", "append"}:
                    copy = self.local_file(dead, writer, seen)
                    step = f"{NAMES[dead]} crashes and opens as {NAMES[who]}, with its local file {told(copy.known)}"
                    yield from self.claim(step, move(state, dead, GONE), who, copy)

    def local_file(self, who: int, writer: Writer, seen: Manifest) -> Writer:
        """What a local file holds: a group is committed there before it is appended."""
        if writer.phase == "own":
            return Writer("claim", seen, writer.at, writer.last, writer.known)
        entry = group(who, writer)
        return Writer("claim", seen, writer.at + 1, entry.hash, (*writer.known, entry.payload))

    def claim(self, step: str, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """Every open takes a new epoch by CAS, the same owner included."""
        mine = self.claimed(who, writer)
        for fate, after, answer in self.send(state, Change(writer.body, mine)):
            if answer == "done":
                yield self.replay(f"{step}; {fate}", after, who, writer, mine)
            else:
                yield f"{step}; {fate}", move(after, who, writer)

    def resolve_claim(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """An ambiguous CAS is resolved by GET: my nonce = done; unchanged = again; else another was first."""
        found, mine = state.bucket.manifest, self.claimed(who, writer)
        step = f"{NAMES[who]} reads the manifest (epoch {found.epoch})"
        if found == mine:
            yield self.replay(f"{step}: its own", state, who, writer, mine)
        elif found == writer.body:
            yield from self.claim(f"{step}: unchanged", state, who, writer)
        else:
            yield f"{step}: somebody was first, it stops", move(state, who, GONE)

    def replay(self, step: str, state: State, who: int, writer: Writer, mine: Manifest) -> Step:
        """Load the snapshot at the floor, and go on from there. The manifest is mine: the floor cannot have moved."""
        if self.sabotage is Sabotage.LOCAL_POSITION and writer.at >= 0:
            return step, move(state, who, writer._replace(phase="seek", body=mine))
        snapshot = state.bucket.snapshots[mine.floor]
        if snapshot is None:
            raise Broken(step, f"G2: {NAMES[who]} finds no snapshot for the floor {mine.floor}")
        loaded = Writer("seek", mine, mine.floor, snapshot.last, snapshot.payloads)
        return step, move(state, who, loaded)

    def seek(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """The tail is found by GET: the first free slot from the floor on. Any answer to the fence but success is
        resolved by the same GET: mine = go on; absent = the same bytes again; another's = see `pass_by`."""
        if writer.at == self.size.slots:
            return  # The model's log is full.
        entry = state.bucket.log[writer.at]
        step = f"{NAMES[who]} reads log/{writer.at}: {entry.title if entry else 'absent'}"
        if entry is None:
            yield from self.fence(step, state, who, writer)
        elif is_own(entry, who, ""):
            yield self.past_fence(step, state, who, writer, entry)
        else:
            yield self.pass_by(step, state, who, writer, entry)

    def fence(self, step: str, state: State, who: int, writer: Writer) -> Iterator[Step]:
        """The next free slot gets a fence: whatever the last owner sends there from now on finds it occupied."""
        if self.sabotage is Sabotage.NO_FENCE:
            yield step, move(state, who, writer._replace(phase="confirm"))
            return
        entry = Entry(writer.at, writer.body.epoch, who, "", writer.last)
        for fate, after, answer in self.send(state, Create(entry)):
            if answer == "done":
                yield self.past_fence(f"{step}; {fate}", after, who, writer, entry)
            else:
                yield f"{step}; {fate}", move(after, who, writer)

    def pass_by(self, step: str, state: State, who: int, writer: Writer, entry: Entry) -> Step:
        """An opener meets an object: a higher epoch = fenced; a lower one = replay it, try the next slot."""
        if entry.epoch > writer.body.epoch:
            return self.fenced(step, state, who, writer)
        if entry.epoch == writer.body.epoch:
            raise Broken(step, f"corruption: {NAMES[who]} meets another writer of its own epoch {entry.epoch}")
        if entry.previous != writer.last:
            raise Broken(
                step, f"corruption: {entry.hash} says it follows {entry.previous}; {NAMES[who]} saw {writer.last}"
            )
        known = (*writer.known, entry.payload) if entry.payload else writer.known
        return step, move(state, who, writer._replace(phase="seek", at=writer.at + 1, last=entry.hash, known=known))

    def past_fence(self, step: str, state: State, who: int, writer: Writer, entry: Entry) -> Step:
        fenced = writer._replace(phase="confirm", at=writer.at + 1, last=entry.hash)
        if self.sabotage is Sabotage.NO_CONFIRMATION:
            return self.take_over(step, state, who, fenced)
        return step, move(state, who, fenced)

    def confirm(self, state: State, who: int, writer: Writer) -> Step:
        """Read the manifest again: epoch still mine and fence not below the floor. The slots that were seen free were
        free because nothing was ever there, not because a later owner had collected them."""
        found = state.bucket.manifest
        step = f"{NAMES[who]} reads the manifest again (epoch {found.epoch}, floor {found.floor})"
        fence = writer.at if self.sabotage is Sabotage.NO_FENCE else writer.at - 1
        if found.epoch != writer.body.epoch or fence < found.floor:
            return f"{step}: no longer its own, it stops", move(state, who, GONE)
        return self.take_over(step, state, who, writer)

    def take_over(self, step: str, state: State, who: int, writer: Writer) -> Step:
        """G1: the owner begins with exactly what recovery yields, so with all that was ever acknowledged or shown. One
        that lost its epoch again already may be behind, like any owner that sleeps, but not beside."""
        step = f"{step}; it is the owner now, with {told(writer.known)}"
        durable = recover(state.bucket).payloads
        late = writer.body.epoch < state.bucket.manifest.epoch
        if writer.known != (durable[: len(writer.known)] if late else durable):
            raise Broken(step, f"G1: {NAMES[who]} begins with {told(writer.known)}, recovery yields {told(durable)}")
        return step, move(state, who, writer._replace(phase="own"))
