"""Rewind: a workflow is set back to the state and the context of an earlier version (F6).

What was done since then and has an undo is undone first, newest first, by the durable compensation of an unwinding: in
an unwinding state of the machine, where events are refused, with retries, keys and dead letters. The target is part of
what the workflow is owed, so that neither a crash nor a pruned history takes it away. Then the workflow enters the
state of that version: its step and timers begin again, its effects do not.

Which runs stay is read from the undo log: those of states that were left at that version. What history cannot tell, and
what a settling move or an earlier unwinding has made final, is refused.

Sections: reading the target; the command; the call of an engine.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from interlock.core import decide
from interlock.core.events import (
    CHILDREN_JOINED,
    FORKED,
    REWIND_NAMES,
    REWOUND,
    STARTED,
    STEP_FAILED,
    UNWOUND,
    wire_name,
)
from interlock.core.table import Transition
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow, RewindTarget
from interlock.engine.path.caller_commands import DIGEST_BYTES, check_id, checked_actor, digest_of, no_workflow
from interlock.engine.path.engine_commands import Report, open_pipeline
from interlock.engine.path.staged_group import Group, Staged, replace
from interlock.engine.views import Rewind, RunToUndo
from interlock.errors import BadUsage, InvalidPayload, KeyReused, VersionConflict, WorkflowNotFound
from interlock.store.protocol import Store
from interlock.store.records import Delivered, HistoryRecord

PAGE: Final = 1_000

NOTE_CHARACTERS_MAX: Final = 10_000

TRIES_MAX: Final = 10
"""How often the target is read again because the workflow has moved meanwhile."""

ENTERING = frozenset({STARTED, FORKED, STEP_FAILED, CHILDREN_JOINED, REWOUND})
"""Moves of the machine itself that enter a state, also the one that the workflow is in."""

_decode_payload = msgspec.json.Decoder(dict[str, int | str]).decode

# --- Reading the target ----------------------------------------------------------------------------------------------


async def record_at(store: Store, workflow: str, version: int) -> HistoryRecord:
    """Return the row of history of a version. Raises WorkflowNotFound without one."""
    records = await store.history(workflow, after=version - 1, limit=1)
    if not records or records[0].version != version:
        raise WorkflowNotFound(
            f"version {version} of workflow {workflow!r} is not in its history.",
            why="It has not been there, or its history was pruned.",
            fix="Choose another version: `interlock history` lists them.",
        )
    return records[0]


async def read_target(store: Store, live: LoadedWorkflow, to_version: int, note: str, by: str | None) -> RewindTarget:
    """Return what a version was, from history. Raises BadUsage if the workflow cannot be set back to it."""
    bound, row = live.bound, live.row
    _check_present(live, to_version)
    aim = await record_at(store, row.id, to_version)
    node = bound.stored.get(aim.to_state)
    if node is None:
        raise _refusal(live, to_version, f"its state {aim.to_state!r} is not one of the machine any more")
    if node.final or node.unwinds_to is not None:
        kind = "final" if node.final else "unwinding"
        raise _refusal(live, to_version, f"its state {node.name!r} is {kind}")
    try:
        bound.codec.decode_context(aim.context)
    except InvalidPayload as error:
        raise _refusal(live, to_version, f"its context is not one of the machine any more ({error.what})") from error
    last = to_version
    async for record in _records(store, row.id, to_version, row.version):
        last += 1
        if record.version != last:
            break
        why = _made_final(bound, record, to_version)
        if why:
            raise _refusal(live, to_version, why)
    if last < row.version:
        raise _refusal(live, to_version, f"its history has no version {last}")
    keep = await _runs_to_keep(store, live, to_version)
    return RewindTarget(to_version, node.name, aim.context, keep, note, by)


def _check_present(live: LoadedWorkflow, to_version: int) -> None:
    """Raise BadUsage if the workflow cannot be rewound from where it is now."""
    bound, node = live.bound, live.bound.node_of(live.row.state)
    taken = sorted(REWIND_NAMES & bound.table.events.keys())
    if taken:
        raise _refusal(live, to_version, f"the machine has an event {taken[0]} of its own, which history uses")
    if node.final:
        raise _refusal(live, to_version, f"it has ended in {node.name!r}, and its undos are forgotten")
    if live.owed.rewind is not None:
        raise _refusal(live, to_version, f"it is being set back to version {live.owed.rewind.version}")
    if node.unwinds_to is not None:
        raise _refusal(live, to_version, f"it is unwinding in {node.name!r}")


def _refusal(live: LoadedWorkflow, to_version: int, why: str) -> BadUsage:
    return BadUsage(
        f"workflow {live.row.id!r} cannot be set back to version {to_version}: {why}.",
        why="A rewind undoes what was done since that version, and nothing else.",
        fix="Choose another version (`interlock history` lists them), or fork that version into a new workflow.",
    )


async def _records(store: Store, workflow: str, after: int, last: int) -> AsyncIterator[HistoryRecord]:
    """Yield the rows of history after a version, up to the last one."""
    while after < last:
        page = await store.history(workflow, after=after, limit=min(PAGE, last - after))
        for record in page:
            if record.version <= last:
                yield record
        if not page:
            return
        after = page[-1].version


def _transitions(bound: BoundMachine, record: HistoryRecord) -> tuple[Transition, ...]:
    """Return the transitions that may have made the move."""
    node = bound.stored.get(record.from_state)
    if node is None:
        return ()
    found = next((moves for event, moves in node.moves.items() if wire_name(event) == record.event), ())
    after = bound.stored.get(record.to_state)
    return tuple(each for each in found if (each.target or each.source) is after)


def _made_final(bound: BoundMachine, record: HistoryRecord, to_version: int) -> str:
    """Return why runs before this move cannot be undone, or are undone already; empty if they are as they were."""
    if record.event == UNWOUND:
        return f"an unwinding that ended at version {record.version} has undone what was done before"
    if record.event == REWOUND:
        target = int(_decode_payload(record.payload)["to_version"])
        if target < to_version:
            return f"at version {record.version} it was set back to version {target}, which is older"
    elif any(each.settles for each in _transitions(bound, record)):
        return f"{record.event} has made final, at version {record.version}, what was done before (settle=True)"
    return ""


async def _runs_to_keep(store: Store, live: LoadedWorkflow, to_version: int) -> int:
    """Return the number of runs in the undo log whose states were left at that version.

    The last one may belong to the state of that version, which is entered again: then it is undone as well.
    """
    log = live.snapshot.undo_log
    keep = sum(run.visit <= to_version for run in log)
    if not keep:
        return 0
    visit = log[keep - 1].visit
    if visit == live.row.visit:
        return keep - 1
    doubtful: HistoryRecord | None = None
    async for record in _records(store, live.row.id, visit, to_version):
        if record.from_state != record.to_state or record.event in ENTERING:
            return keep
        stays = {each.target is None for each in _transitions(live.bound, record)}
        if stays == {False}:
            return keep
        if stays != {True}:
            doubtful = record
    if doubtful is not None:
        move = f"{doubtful.event} at version {doubtful.version}"
        raise _refusal(live, to_version, f"history does not tell whether {move} left {doubtful.to_state!r}")
    return keep - 1


def rewind_view(live: LoadedWorkflow, target: RewindTarget, *, version: int, duplicate: bool = False) -> Rewind:
    """Return the view of a rewind of a workflow that has not begun."""
    keys = {(each.step, each.visit): each.key for each in live.owed.past}
    run = live.owed.run
    undos = decide.runs_to_undo(live.bound.table, live.snapshot, target.keep)
    return Rewind(
        workflow=live.row.id,
        to_version=target.version,
        state=live.bound.node_of(target.state).state,
        version=version,
        undo=tuple(
            RunToUndo(
                step=each.step,
                undo=each.undo,
                key=keys.get((each.step, each.visit), "" if run is None else run.key),
                known=each.done is not None,
            )
            for each in undos
        ),
        duplicate=duplicate,
    )


def _begun_view(live: LoadedWorkflow, to_version: int, version: int) -> Rewind:
    """Return the view of a rewind that has begun before: with the undos that are still owed."""
    target = live.owed.rewind
    pending = live.owed.undos if target is not None and target.version == to_version else ()
    return Rewind(
        workflow=live.row.id,
        to_version=to_version,
        state=live.snapshot.state if target is None else live.bound.node_of(target.state).state,
        version=version,
        undo=tuple(RunToUndo(each.step, each.undo, each.undoes, each.event is not None) for each in pending),
        duplicate=True,
    )


# --- The command -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class BeginRewind(Report):
    """Begins to set a workflow back, or sets it back if nothing is to be undone."""

    target: RewindTarget
    at_version: int
    """The version of the workflow that the target was read for."""
    digest: bytes = field(default=b"", kw_only=True)

    def decide(self, group: Group) -> Rewind:
        """Begin the rewind. Raises WorkflowNotFound if the workflow was pruned meanwhile."""
        staged = group.stage(self.workflow)
        if staged is None:
            raise no_workflow(self.workflow)
        return self.apply(staged, group)

    def apply(self, staged: Staged, group: Group) -> Rewind:
        """Enter the unwinding, with the target beside what is owed. Raises VersionConflict if the workflow moved."""
        live, target = staged.live, self.target
        before = None if self.key is None else group.delivered.get((self.workflow, self.key))
        if before is not None:
            return duplicate_of(live, target.version, before, self.digest)
        if live.row.version != self.at_version:
            raise VersionConflict(
                f"workflow {self.workflow!r} is at version {live.row.version}, not {self.at_version}: it has moved."
            )
        bound = live.bound
        context = bound.codec.decode_context(target.context)
        # An attempt that this group would begin has not happened: `staged.snapshot` leaves it out.
        view = rewind_view(replace(live, snapshot=staged.snapshot), target, version=live.row.version + 1)
        decision = decide.rewind(
            bound.table, staged.snapshot, target.keep, bound.node_of(target.state).state, context, target.payload
        )
        staged.move(decision, group.means, key=self.key, key_digest=self.digest, by=target.by)
        moved = staged.history[-1]
        if view.undo:
            staged.owe(replace(staged.live.owed, rewind=target), group.now_us)
        else:
            open_pipeline(staged, group)
        if self.key is not None:
            group.delivered[self.workflow, self.key] = Delivered(moved.version, moved.to_state, self.digest)
        return view


def duplicate_of(live: LoadedWorkflow, to_version: int, before: Delivered, digest: bytes) -> Rewind:
    """Return the answer to a repeated rewind. Raises KeyReused if its key was used for something else."""
    if before.key_digest[:DIGEST_BYTES] != digest:
        raise KeyReused(
            f"the key of a rewind of workflow {live.row.id!r} was used for something else, at version {before.version}."
        )
    return _begun_view(live, to_version, before.version)


# --- The call of an engine -------------------------------------------------------------------------------------------


class RewindCall:
    """One call of `Engine.rewind`: reads the target, and submits the command until no other event comes between."""

    def __init__(
        self, workflow: str, to_version: int, *, by: str | None, note: str, key: str | None, expect_version: int | None
    ) -> None:
        if key is not None:
            check_id(key, "a delivery key", slash=True)
        if len(note) > NOTE_CHARACTERS_MAX:
            raise InvalidPayload(
                f"note has {len(note):,} characters; at most {NOTE_CHARACTERS_MAX:,} are kept.",
                why="Each row of history of the rewind has it.",
                fix="Shorten it.",
            )
        self.workflow = workflow
        self._to_version = to_version
        self._by = checked_actor(by)
        self._note = note
        self._key = key
        self._expect_version = expect_version
        self._digest = b"" if key is None else digest_of("REWINDING", b"%d" % to_version)

    async def read(self, store: Store, live: LoadedWorkflow) -> tuple[RewindTarget | None, Rewind]:
        """Return the target and the view of what would happen; without a target it has begun already.

        The version of the view is that of the workflow as it was read.
        """
        if self._key is not None:
            before = (await store.delivered([(self.workflow, self._key)])).get((self.workflow, self._key))
            if before is not None:
                return None, duplicate_of(live, self._to_version, before, self._digest)
        if self._expect_version is not None and live.row.version != self._expect_version:
            raise VersionConflict(
                f"workflow {self.workflow!r} is at version {live.row.version}, not {self._expect_version}."
            )
        rewind = live.owed.rewind
        if rewind is not None and rewind.version == self._to_version:
            return None, _begun_view(live, self._to_version, live.row.visit)
        target = await read_target(store, live, self._to_version, self._note, self._by)
        view = rewind_view(live, target, version=live.row.version)
        if view.undo and not live.bound.unwinding():
            raise _refusal(live, self._to_version, f"step {view.undo[0].step!r} is undone in no state of the machine")
        return target, view

    async def run(
        self,
        read: Callable[[], Awaitable[tuple[RewindTarget | None, Rewind]]],
        submit: Callable[[BeginRewind], Awaitable[object]],
    ) -> Rewind:
        """Rewind the workflow. Raises VersionConflict if others move it each time after the target was read."""
        for again in range(TRIES_MAX):
            target, view = await read()
            if target is None:
                return view
            command = BeginRewind(self.workflow, target, view.version, digest=self._digest, key=self._key)
            command.look = True  # A repetition is found by its key, and memory may be older than the store.
            try:
                return cast("Rewind", await submit(command))
            except VersionConflict:
                if self._expect_version is not None or again + 1 == TRIES_MAX:
                    raise
        raise AssertionError("unreachable")
