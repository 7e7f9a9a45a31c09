"""What wants to move a workflow from outside: a start and an event. Each decides on the staged state of its group."""

import asyncio
import hashlib
from typing import Any

from interlock.core import decide
from interlock.core.events import Event
from interlock.errors import (
    InvalidPayload,
    InvalidTransition,
    KeyReused,
    Refusal,
    VersionConflict,
    WorkflowExists,
    WorkflowNotFound,
)
from interlock.runtime.bound import Bound, Live, event_text, state_text
from interlock.runtime.owed import NOTHING
from interlock.runtime.pipeline import Group
from interlock.runtime.staging import Staged, replace
from interlock.runtime.views import Moved, View, view_of
from interlock.store.values import Delivered, Row

ID_CHARACTERS_MAX = 200


class Start:
    """The beginning of a workflow. Idempotent on its id (B4)."""

    __slots__ = ("bound", "conflicts", "context", "digest", "encoded", "future", "key", "workflow")

    def __init__(self, bound: Bound, workflow: str, context: object) -> None:
        check_id(workflow)
        self.bound = bound
        self.workflow = workflow
        self.context = context
        self.encoded = bound.codec.checked_context(context)
        self.digest = digest_of(bound.name, self.encoded)
        self.key: str | None = None
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0

    def decide(self, group: Group) -> View[Any, Any]:
        """Begin, or find that it has begun."""
        staged = group.stage(self.workflow)
        if staged is not None:
            if staged.live.row.digest != self.digest:
                raise WorkflowExists(f"workflow {self.workflow!r} exists, with another machine or other input.")
            return view_of(staged.live)
        bound, now_us = self.bound, group.now_us
        decision = bound.machine.start(self.context)
        state = state_text(decision.snapshot.state)
        empty = Row(
            id=self.workflow,
            machine=bound.name,
            machine_version=bound.table.version,
            state=state,
            context=self.encoded,
            version=0,
            visit=0,
            active=True,
            created_us=now_us,
            updated_us=now_us,
            entered_us=now_us,
            digest=self.digest,
        )
        staged = Staged(Live(bound, empty, replace(decision.snapshot, version=0, visit=0), NOTHING), 0)
        staged.move(decision, group.ids, group.slots, now_us)
        group.staged[self.workflow] = staged
        return view_of(staged.live)


class Send:
    """One event for one workflow."""

    __slots__ = ("conflicts", "event", "expect_version", "future", "if_allowed", "key", "machine", "workflow")

    def __init__(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> None:
        self.workflow = workflow
        self.event = event
        self.key = key
        self.if_allowed = if_allowed
        self.expect_version = expect_version
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0

    def decide(self, group: Group) -> Moved[Any]:
        """Apply the event, or say why not."""
        staged = group.stage(self.workflow)
        if staged is None:
            raise WorkflowNotFound(f"there is no workflow {self.workflow!r}.")
        key, digest = self.key, b""
        if key is not None:
            digest = digest_of(event_text(self.event), staged.live.bound.codec.encode_event(self.event))
            before = group.delivered.get((self.workflow, key))
            if before is not None:
                return self._duplicate(staged, before, digest)
        live = staged.live
        if self.expect_version is not None and live.row.version != self.expect_version:
            raise VersionConflict(
                f"workflow {self.workflow!r} is at version {live.row.version}, not {self.expect_version}."
            )
        try:
            decision = decide.decide(live.bound.table, live.snapshot, self.event)
        except InvalidTransition:
            if not self.if_allowed:
                _count(staged, 2)
                raise
            _count(staged, 1)
            return Moved(state=live.snapshot.state, version=live.row.version, ignored=True)
        except Refusal:
            _count(staged, 2)
            raise
        staged.move(decision, group.ids, group.slots, group.now_us, key=key, key_digest=digest)
        if key is not None:
            moved = staged.history[-len(decision.records)]
            group.delivered[self.workflow, key] = Delivered(moved.version, moved.to_state, digest)
        after = staged.live
        return Moved(state=after.snapshot.state, version=after.row.version)

    def _duplicate(self, staged: Staged, before: Delivered, digest: bytes) -> Moved[Any]:
        if before.key_digest != digest:
            raise KeyReused(f"key {self.key!r} of workflow {self.workflow!r} was used before for another event.")
        _count(staged, 0)
        return Moved(state=staged.live.bound.node_of(before.to_state).state, version=before.version, duplicate=True)


def _count(staged: Staged, which: int) -> None:
    """Count a duplicate, an ignored or a refused event. Written with the workflow's next change, not for itself."""
    live = staged.live
    counts = tuple(count + (at == which) for at, count in enumerate(live.row.counts))
    live.row = replace(live.row, counts=counts)


def digest_of(name: str, data: bytes) -> bytes:
    """A digest of what was asked, to tell a repetition from a mistake."""
    return hashlib.blake2b(name.encode() + b"\\0" + data, digest_size=16).digest()


def check_id(workflow: object) -> None:
    """Refuse what is no id of a workflow."""
    if (
        isinstance(workflow, str)
        and 0 < len(workflow) <= ID_CHARACTERS_MAX
        and workflow.isprintable()
        and "/" not in workflow
    ):
        return
    raise InvalidPayload(
        f"{workflow!r} is not the id of a workflow.",
        why="Ids are shown in addresses, logs and listings.",
        fix=f"Use 1 to {ID_CHARACTERS_MAX} printable characters without a slash.",
    )
