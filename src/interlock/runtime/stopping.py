"""The answers of an engine that cannot do it: not with that workflow, or not any more."""

from interlock.errors import InterlockError, UnavailableError
from interlock.store.values import Row


def unknown_machine(row: Row) -> InterlockError:
    """The answer about a workflow whose machine this engine was not given."""
    return UnavailableError(
        f"workflow {row.id!r} belongs to the machine {row.machine!r}, which was not given to this engine.",
        why="Only the machine knows what an event means for it.",
        fix=f"Open the engine with it: Engine.open(url, machines=[{row.machine}, …]).",
    )


def stopped(error: BaseException) -> UnavailableError:
    """The answer of an engine that cannot go on."""
    told = error.what if isinstance(error, InterlockError) else repr(error)
    return UnavailableError(
        f"the engine has stopped: {told}",
        why="Nobody can know whether the last group became durable; going on could do things twice.",
        fix="Close the engine and open it again: what is durable is taken up, and nothing else.",
    )


def closed() -> UnavailableError:
    """The answer of an engine that was closed."""
    return UnavailableError(
        "the engine is closed.",
        why="It was left or closed before.",
        fix="Use it inside `async with`, or open it again.",
    )
