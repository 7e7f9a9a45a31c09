"""Errors of an engine that cannot act: the machine is unknown, or the engine has stopped."""

from interlock.errors import InterlockError, UnavailableError
from interlock.store.values import Row


def unknown_machine(row: Row) -> InterlockError:
    """Return the error for a workflow whose machine this engine does not have."""
    return UnavailableError(
        f"workflow {row.id!r} belongs to the machine {row.machine!r}, which was not given to this engine.",
        why="Only the machine knows what an event means for it.",
        fix=f"Open the engine with it: Engine.open(url, machines=[{row.machine}, …]).",
    )


def stopped(error: BaseException) -> UnavailableError:
    """Return the error of an engine that has stopped."""
    reason = error.what if isinstance(error, InterlockError) else repr(error)
    return UnavailableError(
        f"the engine has stopped: {reason}",
        why="It is unknown whether the last group became durable; going on could do things twice.",
        fix="Close the engine and open it again: what is durable is taken up, and nothing else.",
    )


def closed() -> UnavailableError:
    """Return the error of a closed engine."""
    return UnavailableError(
        "the engine is closed.",
        why="It was left or closed before.",
        fix="Use it inside `async with`, or open it again.",
    )
