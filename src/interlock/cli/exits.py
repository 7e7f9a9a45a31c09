"""The exit codes of every command, and the one place that maps errors to them.

A script acts on the number, a person reads the text: the codes are fixed, documented in the reference, and never
reused. An error that is not an InterlockError is not mapped; it keeps its traceback, and Python exits with 1.
"""

from enum import IntEnum

from interlock.access import NotAuthenticated, NotPermitted
from interlock.errors import (
    BadUsage,
    InterlockError,
    KeyReused,
    Refusal,
    TargetNotFound,
    UnavailableError,
    VersionConflict,
    WorkflowExists,
    WorkflowNotFound,
)


class Exit(IntEnum):
    """The exit codes of commands."""

    OK = 0
    ERROR = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130
    """128 + SIGINT, as shells expect it after Ctrl-C."""


MEANINGS = {
    Exit.OK: "done, and nothing to complain about",
    Exit.ERROR: "an error, or the answer is no: findings of severity error, a plan that is not safe",
    Exit.USAGE: "the command line is wrong: a word, an option, or a value that does not fit the machine",
    Exit.REFUSED: "the event, the start or the API key was refused; nothing was changed",
    Exit.NOT_FOUND: "there is no such workflow, dead letter, module, attribute, file or database",
    Exit.UNAVAILABLE: "not now or not here; try again later, or at the owner that is named",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}

_BY_CLASS: tuple[tuple[type[InterlockError], Exit], ...] = (
    (BadUsage, Exit.USAGE),
    (Refusal, Exit.REFUSED),
    (VersionConflict, Exit.REFUSED),
    (WorkflowExists, Exit.REFUSED),
    (KeyReused, Exit.REFUSED),
    (NotAuthenticated, Exit.REFUSED),
    (NotPermitted, Exit.REFUSED),
    (WorkflowNotFound, Exit.NOT_FOUND),
    (TargetNotFound, Exit.NOT_FOUND),
    (UnavailableError, Exit.UNAVAILABLE),
)


def exit_for(error: InterlockError) -> Exit:
    """Return the exit code for an error."""
    return next((code for cls, code in _BY_CLASS if isinstance(error, cls)), Exit.ERROR)
