"""What runs in this context: the workflow and the step, for whoever writes a log line in the middle of it."""

from contextvars import Context, ContextVar, copy_context

import msgspec


class Current(msgspec.Struct, frozen=True, gc=False):
    """An attempt under way."""

    workflow: str
    machine: str
    state: str
    step: str


CURRENT: ContextVar[Current | None] = ContextVar("interlock_current", default=None)


def outside() -> Context:
    """The context of whoever opens an engine. A group decides for many, and is in the context of none of them."""
    found = copy_context()
    found.run(CURRENT.set, None)
    return found
