"""The undo log of a workflow, and the ordered list of undos of an unwinding. Pure functions.

G5: the log has every run that was started and is not known to have failed without effect. Runs are undone newest
first. A run with a known outcome is undone by the handler of that outcome, if there is one. A run with an unknown
outcome is undone by every handler of its step, with `done=None`, because any of the outcomes may be real.
"""

from interlock.core.events import Event, wire_name
from interlock.core.table import Node, Table
from interlock.core.values import Run, Undo
from interlock.errors import LimitReached

UNDO_LOG_MAX = 1_000
"""G6: runs one workflow may accumulate without unwinding or ending."""


def logged(log: tuple[Run, ...], node: Node, visit: int, done: Event | None) -> tuple[Run, ...]:
    """Return the log after the run of this visit ended with `done`, or with an unknown outcome (None).

    A run that no handler would undo is not logged: an outcome without a handler, a step without any.
    """
    step = node.step
    if step is None or not step.undos:
        return log
    if done is not None and all(type(done) is not undo.event for undo in step.undos):
        return log
    return (*log, Run(step.name, visit, done))


def demand_room(log: tuple[Run, ...], node: Node) -> None:
    """Refuse to enter a state whose run would not fit into the undo log.

    The check comes before the run, because after it the effect outside exists (G5). When the refused event is the
    result of another undoable step, that step has happened: the caller then reports it with `fail(unknown=True)`,
    which logs the run and unwinds.
    """
    if node.undoable and len(log) >= UNDO_LOG_MAX:
        raise LimitReached(
            f"state {node.name!r} cannot be entered: the workflow already has {UNDO_LOG_MAX:,} runs "
            "that an unwinding would undo.",
            why="A loop through an undoable step grows the undo log of one workflow without end.",
            fix="Say settle=True on the transition that ends a round, or start a new workflow per round.",
        )


def undos_of(table: Table, log: tuple[Run, ...]) -> tuple[Undo, ...]:
    """Return the undos of the log, newest first. A step that the machine no longer has is skipped; `plan` warns."""
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
