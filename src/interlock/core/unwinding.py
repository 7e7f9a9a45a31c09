"""The order in which a failed workflow is undone. Pure: from the undo log to the list of undos.

G5: the log has every run that was started and is not known to have failed without effect. Newest first, a run
whose outcome is known is undone by the handler of that outcome, if it has one; a run whose outcome is unknown is
undone by every handler of its step, with `done=None`, because any of the outcomes may be real.
"""

from interlock.core.events import Event, wire_name
from interlock.core.table import Node, Table
from interlock.core.values import Run, Undo
from interlock.errors import LimitReached

UNDO_LOG_MAX = 1_000
"""G6: runs one workflow may accumulate without unwinding or ending."""


def logged(log: tuple[Run, ...], node: Node, visit: int, done: Event | None) -> tuple[Run, ...]:
    """The log after the run of this visit ended with `done`, or with an unknown outcome (None).

    A run that no handler would undo is not logged: an outcome without a handler, a step without any.
    """
    step = node.step
    if step is None or not step.undos:
        return log
    if done is not None and all(type(done) is not undo.event for undo in step.undos):
        return log
    return (*log, Run(step.name, visit, done))


def demand_room(log: tuple[Run, ...], node: Node) -> None:
    """Refuse to enter a state whose run could not be logged any more: at the door, before it happens outside.

    Asked at the end of the run it would be too late (G5), and a full log could never be unwound. When it is the result
    of another undoable step that is refused here, that step has happened: whoever runs the machine then reports it with
    `fail(unknown=True)`, which logs the run and unwinds.
    """
    if node.undoable and len(log) >= UNDO_LOG_MAX:
        raise LimitReached(
            f"state {node.name!r} cannot be entered: the workflow already has {UNDO_LOG_MAX:,} runs "
            "that an unwinding would undo.",
            why="A loop through an undoable step grows the undo log of one workflow without end.",
            fix="Say settle=True on the transition that ends a round, or start a new workflow per round.",
        )


def undos_of(table: Table, log: tuple[Run, ...]) -> tuple[Undo, ...]:
    """What has to be undone, newest first. A step that the machine no longer has is skipped; `plan` warns of it."""
    owed: list[Undo] = []
    for run in reversed(log):
        node = table.steps.get(run.step)
        if node is None or node.step is None:
            continue
        owed += [
            Undo(run.step, undo.name, run.visit, run.done)
            for undo in reversed(node.step.undos)
            if run.done is None or wire_name(type(run.done)) == undo.name
        ]
    return tuple(owed)
