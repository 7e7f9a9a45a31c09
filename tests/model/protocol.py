"""The object log's protocol as an executable specification, and what must hold in every state it can reach.

Read `bucket` (objects, requests, recovery), `opening` and `owning` (what a writer does, rule by rule), then `Protocol`
(all steps, all guarantees); `settling` makes the search small, `search` does it, `sizes` says how far. `python -m
tests.model` prints it all; INTERLOCK_MODEL=large looks further (`make proof`).

Covered: every interleaving of two to four writers on one bucket of a few slots. Any writer may open at any time: leases
are liveness, never safety. Every request may be lost, carried out with its answer lost, answered "exists" rightly or
wrongly, or carried out LATE, when its sender is long fenced or dead; only how many are late at once is bounded, not how
many faults there are. A writer is one run of a process; a restart is a new one, without a local file. A crash, a pause
and giving up (OutcomeUnknown) are no actions: each is a writer that never moves again, and every state is checked. All
writers run one program, so they are numbered in the order they start. A GET and the conditional request that follows it
are one step, because whatever comes between them makes the request fail, and the next GET tell. Not covered: anything
larger than `Size`; buckets that break their word (the probe's matter); collection of snapshots, and a retention floor
below the replay floor; clients that send a payload again; clocks, pages, bytes; whether anything ever finishes.
"""

from collections.abc import Iterator

from tests.model.bucket import NAMES, Bucket, carry_out, empty_bucket, recover, told
from tests.model.opening import Opening
from tests.model.owning import Owning
from tests.model.settling import Settling
from tests.model.world import ABSENT, Broken, Sabotage, State, Step, Writer, group

SHOWING = frozenset({"own", "append"})


class Protocol(Opening, Owning, Settling):
    """All steps that can follow a state, and what must hold after each. An action is one method, and cites its rule."""

    def first(self) -> State:
        return State(empty_bucket(self.size.slots), frozenset(), (ABSENT,) * self.size.writers)

    def steps(self, state: State) -> Iterator[Step]:
        """Every step possible now; raises Broken when one of them breaks a guarantee by itself."""
        yield from self.arrive_late(state)
        for who, writer in enumerate(state.writers):
            match writer.phase:
                case "absent":
                    yield from self.start(state, who)
                    break  # Writers start in the order of their numbers.
                case "claim":
                    yield from self.resolve_claim(state, who, writer)
                case "seek":
                    yield from self.seek(state, who, writer)
                case "confirm":
                    yield self.confirm(state, who, writer)
                case "own":
                    yield from self.begin(state, who, writer)
                    yield from self.care(state, who, writer)
                case "append":
                    yield from self.resolve_append(state, who, writer)
                    yield from self.care(state, who, writer)
                case "refuse":
                    yield self.refuse(state, who, writer)
                case "gone":
                    pass

    def arrive_late(self, state: State) -> Iterator[Step]:
        """A request arrives whose sender no longer waits. (One that never does is one that was lost.)"""
        for request in sorted(state.late, key=str):
            bucket, answer = carry_out(state.bucket, request)
            yield f"arriving late, {request}: {answer}", State(bucket, state.late - {request}, state.writers)

    def check_step(self, step: str, before: Bucket, after: Bucket) -> None:
        """G1, G2: what recovery yields only grows; so what was acknowledged once, or shown, is there for ever."""
        recovered, previous = recover(after), recover(before).payloads
        if recovered.problem:
            raise Broken(step, f"G2: the database cannot be opened: {recovered.problem}")
        if recovered.payloads[: len(previous)] != previous:
            raise Broken(step, f"G1, G2: recovery yielded {told(previous)}, and now {told(recovered.payloads)}")

    def check_state(self, step: str, state: State) -> None:
        """G7: what an owner shows is durable. G9: what was refused for certain is nowhere."""
        durable = recover(state.bucket).payloads
        for who, writer in enumerate(state.writers):
            if writer.phase in SHOWING:
                shown = self.shown(who, writer)
                if durable[: len(shown)] != shown:
                    raise Broken(step, f"G7: {NAMES[who]} shows {told(shown)}, recovery yields {told(durable)}")
            elif writer.refused in durable:
                raise Broken(step, f"G9: {writer.refused} was refused for certain, recovery yields {told(durable)}")

    def shown(self, who: int, writer: Writer) -> tuple[str, ...]:
        """What a read or a refusal of this owner is based on: durable groups, never the one being appended."""
        if self.sabotage is Sabotage.PENDING_READ and writer.phase != "own":
            return (*writer.known, group(who, writer).payload)
        return writer.known
