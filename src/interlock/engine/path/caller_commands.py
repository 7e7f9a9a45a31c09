"""Commands of callers: a start and an event, and the retry or resolution of a dead letter by an operator.

Each decides on the staged state of its group. Starts and events are idempotent: a start by its id and input (B4), an
event by its delivery key (B5). A repetition gets the first answer, from the store.
"""

import asyncio
import hashlib
import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, cast

import msgspec

from interlock.core import decide
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import Decision, StoredJson
from interlock.engine.bound_machine import (
    NOTHING,
    AnyMachine,
    BoundMachine,
    LoadedWorkflow,
    Owed,
    ParentRef,
    event_text,
)
from interlock.engine.path.engine_commands import Report, open_pipeline, undone
from interlock.engine.path.staged_group import Group, LookFirst, Staged, count, replace
from interlock.engine.views import Moved, View, view_of
from interlock.errors import (
    BadUsage,
    InvalidPayload,
    InvalidTransition,
    KeyReused,
    Refusal,
    VersionConflict,
    WorkflowExists,
    WorkflowNotFound,
)
from interlock.store.protocol import Store
from interlock.store.records import ChildRecord, Delivered, HistoryRecord, Letter, OwedEffect, Row

ID_CHARACTERS_MAX = 200

DOT_SEGMENTS = frozenset({".", ".."})
"""Path segments that clients remove from a URL (RFC 3986), so no URL can name such a workflow."""

DIGEST_BYTES = 16

Beginning = tuple[AnyMachine, object]
"""The machine and the context of a workflow that an event starts, if it does not exist (E5)."""


class Start:
    """Starts a workflow. Idempotent on its id (B4)."""

    __slots__ = (
        "admitted", "birth", "bound", "by", "conflicts", "context", "digest", "encoded", "found", "future", "key",
        "look", "origin", "since_s", "trace", "workflow",
    )  # fmt: skip

    begins = True
    found: bool
    """Whether the workflow existed, once it is decided."""
    since_s: float
    """When it was admitted. Not set inside a transaction of the caller."""

    def __init__(
        self,
        bound: BoundMachine,
        workflow: str,
        context: object,
        birth: ParentRef | None = None,
        *,
        by: str | None = None,
        trace: str = "",
        origin: "Origin | None" = None,
    ) -> None:
        check_id(workflow, "the id of a workflow")
        if workflow in DOT_SEGMENTS:
            raise InvalidPayload(
                f"{workflow!r} is not the id of a new workflow.",
                why="An address cannot name it: clients remove such a part before they send it.",
                fix="Use another id, of 1 to 200 printable characters without a slash.",
            )
        self.bound = bound
        self.birth = birth
        """The parent that starts it; None: a caller does."""
        self.trace = trace
        """The tracer's text of the parent: the first pass of the child links to the pass that starts it."""
        self.by = None if by is None else checked_actor(by)
        self.admitted = birth is None
        if birth is not None:
            self.since_s = math.inf
        self.workflow = workflow
        self.encoded = bound.codec.checked_context(context)
        # A mutable context stays with the caller: the workflow begins with a copy of what is stored.
        self.context = context if bound.table.copy_context is None else bound.codec.decode_context(self.encoded)
        self.origin = origin
        """What it is forked from; None: it begins at the beginning."""
        self.digest = digest_of(bound.name if origin is None else origin.named(bound.name), self.encoded)
        self.key: str | None = None
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0
        self.look = False

    def decide(self, group: Group) -> View[Enum, object]:
        """Start the workflow, or return the one that exists. Raises WorkflowExists for other input."""
        staged = group.stage(self.workflow)
        self.found = staged is not None
        if staged is None:
            staged = group.staged[self.workflow] = self.begin(group)
        elif self.birth is not None:
            _check_birth(staged.live, self.birth)
        elif staged.live.row.digest != self.digest:
            raise _exists(staged.live.row, self.bound.name)
        return view_of(staged.live)

    def begin(self, group: Group) -> Staged:
        """Return the new workflow. It is not part of the group yet."""
        bound = self.bound
        initial = bound.table.initial
        assert initial is not None
        decision: Decision[Enum, object]
        if self.origin is None:
            decision = decide.start(bound.table, initial.state, self.context)
        else:
            decision = decide.fork(bound.table, self.origin.state, self.context, self.origin.payload)
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
        owed = NOTHING if self.birth is None else Owed(parent=self.birth, trace=self.trace)
        staged = Staged(LoadedWorkflow(bound, empty, replace(decision.snapshot, version=0, visit=0), owed), 0, NOTHING)
        staged.entered_us = group.now_us
        if self.birth is not None:
            staged.children = (ChildRecord(self.workflow, self.birth.id, self.birth.visit, self.birth.position),)
        staged.move(decision, group.means, by=self.by)
        open_pipeline(staged, group)
        return staged


class Origin(NamedTuple):
    """What a workflow is forked from (F6): a version of another one, of the same machine."""

    workflow: str
    version: int
    state: Enum

    def named(self, machine: str) -> str:
        """Return a name by which a repeated fork is distinguished from other starts of the machine."""
        return f"{machine}\0{self.workflow}\0{self.version}"

    @property
    def payload(self) -> StoredJson:
        """Return the payload of the first row of history."""
        text = msgspec.json.encode({"workflow": self.workflow, "version": self.version}).decode()
        return StoredJson(text, "the workflow and the version that it begins with")


def fork_of(bound: BoundMachine, record: HistoryRecord, workflow: str, by: str | None) -> Start:
    """Return the start of a workflow with the state and context after a row of history. Raises BadUsage."""
    node = bound.stored.get(record.to_state)
    why = None
    if node is None:
        why = f"its state {record.to_state!r} is not one of the machine any more"
    elif node.final:
        why = f"its state {node.name!r} is final: the new workflow would have ended already"
    elif node.unwinds_to is not None:
        why = f"in its state {node.name!r} steps are undone, and those belong to the other workflow"
    else:
        try:
            context = bound.codec.decode_context(record.context)
        except InvalidPayload as error:
            why = f"its context is not one of the machine any more ({error.what})"
        else:
            return Start(bound, workflow, context, by=by, origin=Origin(record.workflow, record.version, node.state))
    raise BadUsage(
        f"workflow {record.workflow!r} cannot be forked at version {record.version}: {why}.",
        why="A fork begins where the other workflow was, with its own steps and timers.",
        fix="Choose another version: `interlock history` lists them.",
    )


class SendEvent:
    """One event for one workflow. With `first` it starts a workflow that does not exist, in the same commit (E5)."""

    __slots__ = (
        "by", "conflicts", "event", "expect_version", "first", "future", "if_allowed", "key", "look", "since_s",
        "workflow",
    )  # fmt: skip

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
        first: Start | None = None,
        by: str | None = None,
    ) -> None:
        if key is not None:
            check_id(key, "a delivery key", slash=True)
        self.by = None if by is None else checked_actor(by)
        self.workflow = workflow
        self.first = first
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
            return self._begin(group)
        live = staged.live
        if self.first is not None and live.bound is not self.first.bound:
            raise _exists(live.row, self.first.bound.name)
        key, digest = self.key, b""
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
            decision = decide.decide(live.bound.table, staged.snapshot, self.event, at=group.at(live.bound))
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
        return self._apply(staged, decision, group, digest)

    def _apply(self, staged: Staged, decision: Decision[Enum, object], group: Group, digest: bytes) -> Moved[Enum]:
        key = self.key
        if key is not None:
            # One byte more for each further transition: a duplicate returns the final state of the first delivery.
            digest += bytes(len(decision.records) - 1)
        staged.move(decision, group.means, key=key, key_digest=digest, by=self.by)
        if key is not None:
            moved = staged.history[-len(decision.records)]
            group.delivered[self.workflow, key] = Delivered(moved.version, moved.to_state, digest)
        after = staged.live
        return Moved(state=after.snapshot.state, version=after.row.version)

    def _begin(self, group: Group) -> Moved[Enum]:
        """Start the workflow and apply the event. A refused event creates nothing: only then it joins the group."""
        first = self.first
        if first is None:
            raise no_workflow(self.workflow)
        if self.expect_version:
            raise VersionConflict(f"there is no workflow {self.workflow!r}, so no version {self.expect_version} of it.")
        staged = first.begin(group)
        bound = first.bound
        try:
            decision = decide.decide(bound.table, staged.snapshot, self.event, at=group.at(bound))
            digest = b""
            if self.key is not None:
                digest = digest_of(event_text(self.event), bound.codec.encode_event(self.event))
            moved = self._apply(staged, decision, group, digest)
        except BaseException as error:
            staged.give_up()
            if self.if_allowed and isinstance(error, InvalidTransition):
                return Moved(state=staged.live.snapshot.state, version=0, ignored=True)
            raise
        group.staged[self.workflow] = staged
        return moved

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


def start_of(start: object) -> Beginning:
    """Return the machine and the context of `start=`. Raises BadUsage for another value."""
    match start:
        case (Machine(), object()):
            return cast("Beginning", start)
        case _:
            raise BadUsage(
                f"start={start!r:.300} is not a machine and a context.",
                why="A workflow that does not exist is started with both.",
                fix="Pass a pair: engine.send(id, event, start=(order, Order())).",
            )


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


def checked_actor(by: str | None) -> str | None:
    """Return the name of an actor (F1); None for an empty one. Raises InvalidPayload unless it can be shown."""
    if not by:
        return None
    check_id(by, "the name of an actor", slash=True)
    return by


def no_workflow(workflow: str) -> WorkflowNotFound:
    """Return the error for an id without a workflow."""
    return WorkflowNotFound(f"there is no workflow {workflow!r:.300}.")


def _check_birth(live: LoadedWorkflow, birth: ParentRef) -> None:
    """Raise WorkflowExists unless the workflow is this child of its parent: an earlier attempt has started it."""
    parent = live.owed.parent
    if parent is not None and parent.id == birth.id and parent.visit == birth.visit:
        return
    whose = "of no parent" if parent is None else f"a child of {parent.id!r}, of its visit {parent.visit}"
    raise WorkflowExists(
        f"child {live.row.id!r} of workflow {birth.id!r} exists already, and is {whose}.",
        why="Each visit of a state starts children of its own, and an id belongs to one workflow.",
        fix="Give the children of each round names of their own, such as f'{round}-{name}', or rename the workflow.",
    )


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
    by: str | None = None

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
            undone(staged, group, by=self.by)
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


async def find_letter(store: Store, letter_id: str, workflow: str | None = None) -> Letter:
    """Return the letter of that id. Raises WorkflowNotFound if it does not exist, or is of another workflow."""
    after = None
    while letters := await store.letters(workflow=workflow, after=after, limit=PAGE):
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
