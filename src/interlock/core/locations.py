"""Source locations of declarations: the file and line that every definition error starts with."""

import sys
from types import FrameType

_OURS = __name__.rpartition(".")[0]


def declaring_frame() -> FrameType:
    """Return the innermost frame outside the core: the user's declaration."""
    frame = sys._getframe(1)  # noqa: SLF001 -- there is no public API for the caller's frame, and inspect reads files.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType) -> str:
    """Return `file:line`, as compilers write it and editors open it."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def declared_at() -> str:
    """Return `file:line` of the user's declaration that is being executed."""
    return line_of(declaring_frame())
