"""`assert_path`: a sequence of moves of a workflow in one assertion.

The failure message shows the path so far, the refused move, the reason, and the allowed transitions.
"""

from typing import cast

from interlock.core.machine import EventT, Machine
from interlock.core.values import ContextT, Snapshot, StateT
from interlock.errors import InterlockError, Refusal
from interlock.testing.moves import Move, allowed_text, name_of_move, play


def assert_path(
    machine: Machine[StateT, ContextT, EventT],
    context: ContextT | Snapshot[StateT, ContextT],
    *moves: Move[EventT],
    ends_in: StateT | None = None,
) -> Snapshot[StateT, ContextT]:
    """Play the moves from a new workflow (or from a snapshot) and return where they lead.

    A move is an event, `StepFailure(...)` for a step that gave up, `Unwound()` for an unwinding that is done, or
    `Attempted()` for a step that was begun and may be interrupted. Fails when one of them is refused, or when the end
    is not `ends_in`.
    """
    __tracebackhide__ = True
    snapshot = cast("Snapshot[StateT, ContextT]", context) if isinstance(context, Snapshot) else machine.begin(context)
    story = [f"  {snapshot.state.value}"]
    for number, move in enumerate(moves, start=1):
        try:
            decision = play(machine, snapshot, move)
        except Refusal as refusal:
            where = f"{machine.name} stopped in {snapshot.state.value!r} at move {number} of {len(moves)}:"
            story += [f"    {move!r}", "  refused", refusal.what, _allowed(machine, snapshot)]
            raise AssertionError("\n".join([where, *story])) from refusal
        except InterlockError as error:
            error.add_note("\n".join(["The way to it:", *story, f"    {move!r}"]))
            raise
        story.append(f"    {move!r}")
        # An unwinding with nothing to undo ends in the same decision: the state in between is shown too.
        story += [f"  {record.to_state.value}" for record in decision.records]
        snapshot = decision.snapshot
    if ends_in is not None and snapshot.state is not ends_in:
        last = name_of_move(moves[-1]) if moves else "nothing"
        where = f"{machine.name} ended in {snapshot.state.value!r} after {last}, not in {ends_in.value!r}:"
        raise AssertionError("\n".join([where, *story, _allowed(machine, snapshot)]))
    return snapshot


def _allowed(machine: Machine[StateT, ContextT, EventT], snapshot: Snapshot[StateT, ContextT]) -> str:
    allowed = machine.allowed(snapshot)
    if not allowed:
        return f"nothing is allowed from {snapshot.state.value!r}"
    return "\n".join(["allowed from here:", *(f"  {allowed_text(each)}" for each in allowed)])
