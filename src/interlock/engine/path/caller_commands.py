"""Commands of callers: a start and an event, and the retry or resolution of a dead letter by an operator.

Each decides on the staged state of its group. Starts and events are idempotent: a start by its id and input (B4), an
event by its delivery key (B5). A repetition gets the first answer, from the store.
"""

import asyncio
import hashlib
from dataclasses import dataclass, field
from enum import Enum

from interlock.core import decide
from interlock.core.events import Event
from interlock.core.values import Decision
from interlock.engine.bound_machine import NOTHING, BoundMachine, LoadedWorkflow, event_text
from interlock.engine.path.engine_commands import Report, undone
from interlock.engine.path.staging import Group, LookFirst, Staged, count, replace
from interlock.engine.views import Moved, View, view_of
from interlock.errors import (
    InvalidPayload,
    InvalidTransition,
    KeyReused,
    Refusal,
    VersionConflict,
    WorkflowExists,
    WorkflowNotFound,
)
from interlock.store.protocol import Store
from interlock.store.records import Delivered, Letter, OwedEffect, Row

ID_CHARACTERS_MAX = 200

DOT_SEGMENTS = frozenset({".", ".."})
"""Path segments that clients remove from a URL (RFC 3986), so no URL can name such a workflow."""

DIGEST_BYTES = 16


class Start:
    """Starts a workflow. Idempotent on its id (B4)."""

    __slots__ = (
        "bound", "conflicts", "context", "digest", "encoded", "found", "future", "key", "look", "since_s", "workflow",
    )  # fmt: skip

    admitted = True
    begins = True
    found: bool
    """Whether the workflow existed, once it is decided."""
    since_s: float
    """When it was admitted. Not set inside a transaction of the caller."""

    def __init__(self, bound: BoundMachine, workflow: str, context: object) -> None:
        check_id(workflow, "the id of a workflow")
        if workflow in DOT_SEGMENTS:
            raise InvalidPayload(
                f"{workflow!r} is not the id of a new workflow.",
                why="An address cannot name it: clients remove such a part before they send it.",
                fix="Use another id, of 1 to 200 printable characters without a slash.",
            )
        self.bound = bound
        self.workflow = workflow
        self.encoded = bound.codec.checked_context(context)
        # A mutable context stays with the caller: the workflow begins with a copy of what is stored.
        self.context = context if bound.table.copy_context is None else bound.codec.decode_context(self.encoded)
        self.digest = digest_of(bound.name, self.encoded)
        self.key: str | None = None
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0
        self.look = False

    def decide(self, group: Group) -> View[Enum, object]:
        """Start the workflow, or return the one that exists. Raises WorkflowExists for other input."""
        staged = group.stage(self.workflow)
        self.found = staged is not None
        if staged is not None:
            if staged.live.row.digest != self.digest:
                raise _exists(staged.live.row, self.bound.name)
            return view_of(staged.live)
        bound = self.bound
        initial = bound.table.initial
        assert initial is not None
        decision: Decision[Enum, object] = decide.start(bound.table, initial.state, self.context)
        empty = Row(
            id=self.workflow,
            machine=bound.name,
            machine_version=bound.table.version,
            state="",
            context=self.encoded,
            version=0,
            visit=0,
            active=True,
            created_us=group.now_us,
            updated_us=group.now_us,
            entered_us=group.now_us,
            digest=self.digest,
        )
        staged = Staged(
            LoadedWorkflow(bound, empty, replace(decision.snapshot, version=0, visit=0), NOTHING), 0, NOTHING
        )
        staged.move(decision, group.means)
        if bound.opening is not None:
            # A pipeline begins in the same commit: a crash cannot leave it unbegun.
            staged.move(decide.decide(bound.table, staged.live.snapshot, bound.opening), group.means)
        group.staged[self.workflow] = staged
        return view_of(staged.live)


class Send:
    """One event for one workflow."""

    __slots__ = ("conflicts", "event", "expect_version", "future", "if_allowed", "key", "look", "since_s", "workflow")

    admitted = True
    begins = False
    since_s: float
    """As in `Start`."""

    def __init__(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> None:
        if key is not None:
            check_id(key, "a delivery key", slash=True)
        self.workflow = workflow
        self.event = event
        self.key = key
        self.if_allowed = if_allowed
        self.expect_version = expect_version
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0
        self.look = False

    def decide(self, group: Group) -> Moved[Enum]:
        """Apply the event, or raise the refusal."""
        staged = group.stage(self.workflow)
        if staged is None:
            raise no_workflow(self.workflow)
        key, digest = self.key, b""
        live = staged.live
        if key is not None:
            digest = digest_of(event_text(self.event), live.bound.codec.encode_event(self.event))
            before = group.delivered.get((self.workflow, key))
            if before is not None:
                return self._duplicate(group, live, before, digest)
        if self.expect_version is not None and live.row.version != self.expect_version:
            self._look_first()
            raise VersionConflict(
                f"workflow {self.workflow!r} is at version {live.row.version}, not {self.expect_version}."
            )
        try:
            decision = decide.decide(live.bound.table, staged.snapshot, self.event)
        except InvalidTransition:
            self._look_first()
            if not self.if_allowed:
                count(live, 2, group.means)
                raise
            count(live, 1, group.means)
            return Moved(state=live.snapshot.state, version=live.row.version, ignored=True)
        except Refusal:
            self._look_first()
            count(live, 2, group.means)
            raise
        if key is not None:
            # One byte more for each further transition: a duplicate returns the final state of the first delivery.
            digest += bytes(len(decision.records) - 1)
        staged.move(decision, group.means, key=key, key_digest=digest)
        if key is not None:
            moved = staged.history[-len(decision.records)]
            group.delivered[self.workflow, key] = Delivered(moved.version, moved.to_state, digest)
        after = staged.live
        return Moved(state=after.snapshot.state, version=after.row.version)

    def _look_first(self) -> None:
        if self.key is not None and not self.look:
            raise LookFirst

    def _duplicate(self, group: Group, live: LoadedWorkflow, before: Delivered, digest: bytes) -> Moved[Enum]:
        if before.key_digest[:DIGEST_BYTES] != digest:
            raise KeyReused(
                f"key {self.key!r} of workflow {self.workflow!r} was used for another event or payload, "
                f"at version {before.version}."
            )
        count(live, 0, group.means)
        node, passed = live.bound.node_of(before.to_state), len(before.key_digest) - DIGEST_BYTES
        for _ in range(passed):
            node = node.unwinds_to or node
        return Moved(state=node.state, version=before.version + passed, duplicate=True)


def digest_of(name: str, data: bytes) -> bytes:
    """Return a digest of a request, which distinguishes a repetition from a reused id or key."""
    return hashlib.blake2b(name.encode() + b"\0" + data, digest_size=DIGEST_BYTES).digest()


def check_id(value: object, what: str, *, slash: bool = False) -> None:
    """Raise InvalidPayload unless the value is a valid id or key."""
    if (
        isinstance(value, str)
        and 0 < len(value) <= ID_CHARACTERS_MAX
        and value.isprintable()
        and (slash or "/" not in value)
    ):
        return
    without = "" if slash else " without a slash"
    raise InvalidPayload(
        f"{value!r:.300} is not {what}.",
        why="It is shown in addresses, logs and listings.",
        fix=f"Use 1 to {ID_CHARACTERS_MAX} printable characters{without}.",
    )


def no_workflow(workflow: str) -> WorkflowNotFound:
    """Return the error for an id without a workflow."""
    return WorkflowNotFound(f"there is no workflow {workflow!r:.300}.")


def _exists(row: Row, machine: str) -> WorkflowExists:
    difference = "with other input" if row.machine == machine else f"of the machine {row.machine!r}"
    return WorkflowExists(f"workflow {row.id!r} exists already, {difference}.")


# --- Dead letters ----------------------------------------------------------------------------------------------------
# A retry keeps the idempotency key and resets the count of attempts. Resolving an undo continues with the older
# undos. Resolving a step leaves the workflow in its state, until an event moves it: the run of the step stays in the
# undo log.

PAGE = 1_000
KINDS = ("step", "effect", "undo")


@dataclass(slots=True, eq=False, repr=False)
class _LetterCommand(Report):
    """A command of an operator on one letter."""

    workflow: str = field(init=False)
    letter: Letter

    def __post_init__(self) -> None:
        self.workflow = self.letter.workflow

    def decide(self, group: Group) -> object:
        """Remove the letter and apply the command. Raises WorkflowNotFound for a letter that is not there."""
        staged = group.stage(self.workflow)
        if staged is None or (self.letter.kind != "effect" and staged.live.owed.letter != self.letter.id):
            raise no_letter(self.letter.id)
        staged.letters_gone += (self.letter.id,)
        self.apply(staged, group)
        staged.touch()
        return None


@dataclass(slots=True, eq=False, repr=False)
class TryAgain(_LetterCommand):
    """Retries the step, undo or effect of a letter."""

    def apply(self, staged: Staged, group: Group) -> None:
        """Begin what had given up, with all its attempts."""
        letter = self.letter
        if letter.kind == "effect":
            effect = OwedEffect(
                letter.key, letter.workflow, letter.version, letter.name, 0, group.now_us, letter.context
            )
            if not staged.begin_effect(effect, group.means):
                staged.effects += (effect,)
            return
        owed = replace(staged.live.owed, dead=None, letter="")
        staged.owe(owed.with_current(attempts=0, retry_us=None), group.now_us)
        staged.begin(group.means, called=False)


@dataclass(slots=True, eq=False, repr=False)
class Settle(_LetterCommand):
    """Resolves a letter that an operator has dealt with."""

    def apply(self, staged: Staged, group: Group) -> None:
        """Go on without what had given up."""
        if self.letter.kind == "undo":
            undone(staged, group)
        elif self.letter.kind == "step":
            staged.owe(replace(staged.live.owed, dead="settled", letter=""), group.now_us)


def check_kind(kind: object) -> None:
    """Raise InvalidPayload unless the value is a kind of dead letter, or None."""
    if kind not in {None, *KINDS}:
        raise InvalidPayload(
            f"{kind!r} is not a kind of dead letter.",
            why="Only steps, effects and undos become dead letters.",
            fix=f"Use one of {', '.join(map(repr, KINDS))}, or None for all.",
        )


async def find_letter(store: Store, letter_id: str) -> Letter:
    """Return the letter of that id. Raises WorkflowNotFound if it does not exist."""
    after = None
    while letters := await store.letters(after=after, limit=PAGE):
        for letter in letters:
            if letter.id == letter_id:
                return letter
        after = letters[-1]
    raise no_letter(letter_id)


def no_letter(letter_id: str) -> WorkflowNotFound:
    """Return the error for an id without a dead letter."""
    return WorkflowNotFound(
        f"there is no dead letter {letter_id!r}.",
        why="It was retried or resolved before, its workflow has moved on, or the id is wrong.",
        fix="List the dead letters again.",
    )
