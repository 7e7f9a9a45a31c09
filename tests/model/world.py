"""The world of the model: writers around a bucket, the fates of a request, and the switches that leave a rule out."""

from collections.abc import Iterator
from enum import Enum, unique
from typing import Literal, NamedTuple

from tests.model.bucket import NAMES, NO_HASH, Answer, Bucket, Entry, Manifest, Request, carry_out

# In "claim", "seek" and "append" the last request may or may not have been carried out: the next thing is a GET.
Phase = Literal["absent", "claim", "seek", "confirm", "own", "append", "refuse", "gone"]


@unique
class Sabotage(Enum):
    """One rule of the protocol left out. The search must find what it was good for."""

    ACKNOWLEDGE_FIRST = "a group is acknowledged before its append"
    EXISTS_IS_SUCCESS = "'exists' is taken for success"
    EXISTS_IS_FENCED = "'exists' is taken for a fence"
    NO_FENCE = "an opener writes no fence"
    FENCE_COLLECTED = "fences below the floor are deleted too"
    SLOT_SKIPPED = "after an ambiguous append the group goes to the next slot"
    SLOT_REUSED = "after an ambiguous append the next group goes to the same slot"
    LOCAL_POSITION = "a restart goes on where its local file ends"
    NO_NONCE = "the manifest has no nonce"
    SAME_EPOCH = "an open does not raise the epoch"
    FLOOR_FIRST = "the floor is raised before the snapshot is stored"
    DELETE_FIRST = "groups are deleted before the floor is raised"
    PENDING_SNAPSHOT = "a snapshot holds the group that is still being appended"
    PENDING_READ = "reads show the group that is still being appended"
    NO_CONFIRMATION = "the manifest is not read again after the fence"
    BLIND_REFUSAL = "a fenced append is refused for certain without a look at the floor"


class Size(NamedTuple):
    """How far to look."""

    writers: int
    slots: int
    groups: int = 1  # Appends begun by one writer.
    late: int = 1  # Requests under way whose sender no longer waits.
    changes: int = 1  # Changes of the manifest by one owner.
    renewals: bool = False  # Are leases renewed, or only floors raised?
    faults: bool = True  # Can requests be lost or be late?

    def __str__(self) -> str:
        return ", ".join(f"{name}={int(value)}" for name, value in self._asdict().items())


class Writer(NamedTuple):
    """One run of a process. `body` is the manifest as it last knew it; `at` the slot it is about to read or fill."""

    phase: Phase
    body: Manifest = Manifest(0, 0, -1, 0)
    at: int = -1
    last: str = NO_HASH
    known: tuple[str, ...] = ()
    groups: int = 0
    wanted: Manifest | None = None  # A change of the manifest that is owed,
    doubted: bool = False  # or that was sent and not answered "done".
    refused: str = ""


class State(NamedTuple):
    """The whole world."""

    bucket: Bucket
    late: frozenset[Request]
    writers: tuple[Writer, ...]


Step = tuple[str, State]
ABSENT, GONE = Writer("absent"), Writer("gone")


class Broken(Exception):
    """A guarantee does not hold after `step`."""

    def __init__(self, step: str, what: str) -> None:
        super().__init__(what)
        self.step = step
        self.what = what


class World:
    """What all actions share."""

    def __init__(self, size: Size, sabotage: Sabotage | None = None) -> None:
        self.size = size
        self.sabotage = sabotage
        self.trusting = sabotage in {Sabotage.EXISTS_IS_SUCCESS, Sabotage.EXISTS_IS_FENCED}

    def send(self, state: State, request: Request) -> Iterator[tuple[str, State, Answer]]:
        """Every fate of a request: what happened, the world after, what the sender hears."""
        bucket, answer = carry_out(state.bucket, request)
        after = state if bucket is state.bucket else State(bucket, state.late, state.writers)
        yield f"{request}: {answer}", after, answer
        if not self.size.faults:
            return
        if after is not state:
            yield f"{request}: carried out, the answer is lost", after, "no answer"
        yield f"{request}: lost on the way", state, "no answer"
        if len(state.late) < self.size.late and request not in state.late:
            delayed = State(state.bucket, state.late | {request}, state.writers)
            yield f"{request}: no answer, it is still under way", delayed, "no answer"
        if self.trusting:  # All others do after "exists" what they do after silence.
            yield f"{request}: carried out, but answered 'exists' (a hidden retry)", after, "exists"
            yield f"{request}: answered 'exists' though nothing was stored (409)", state, "exists"

    def manifest(self, body: Manifest) -> Manifest:
        """Each body has a revision and a nonce: identical bytes would let a stale CAS win, or pass for one's own."""
        return body._replace(author=-1, revision=0) if self.sabotage is Sabotage.NO_NONCE else body

    def claimed(self, who: int, writer: Writer) -> Manifest:
        epoch = writer.body.epoch + (self.sabotage is not Sabotage.SAME_EPOCH or writer.body.epoch == 0)
        return self.manifest(Manifest(epoch, writer.body.floor, who, 0))

    def fenced(self, step: str, state: State, who: int, writer: Writer, then: Writer = GONE) -> Step:
        """The writer stops. G9: it says so only when somebody did take over."""
        if state.bucket.manifest.epoch <= writer.body.epoch:
            raise Broken(step, f"G9: {NAMES[who]} says that it is fenced, but nobody took over")
        return f"{step}; it is fenced", move(state, who, then)


def move(state: State, who: int, writer: Writer) -> State:
    """The same world, with one writer changed."""
    writers = state.writers
    return State(state.bucket, state.late, (*writers[:who], writer, *writers[who + 1 :]))


def group(who: int, writer: Writer) -> Entry:
    """The bytes of the group that the writer is appending."""
    return Entry(writer.at, writer.body.epoch, who, f"{NAMES[who]}{writer.groups}", writer.last)


def is_own(entry: Entry, who: int, payload: str) -> bool:
    """Has the object found the nonce that I gave to mine?"""
    return entry.author == who and entry.payload == payload
