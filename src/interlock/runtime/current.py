"""The workflow and step that run in the current context, for log lines written inside a step."""

from contextvars import Context, ContextVar, copy_context

import msgspec


class Current(msgspec.Struct, frozen=True, gc=False):
    """The running attempt of a context."""

    workflow: str
    machine: str
    state: str
    step: str


CURRENT: ContextVar[Current | None] = ContextVar("interlock_current", default=None)


def outside() -> Context:
    """Return a copy of this context without an attempt. A group decides for many workflows and runs in this one."""
    found = copy_context()
    found.run(CURRENT.set, None)
    return found
