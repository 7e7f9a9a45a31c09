"""Where in the user's source something was declared: the file and line every definition error starts with."""

import sys
from types import FrameType

_OURS = __name__.rpartition(".")[0]


def declaring_frame() -> FrameType:
    """The innermost frame outside the core: the line of the user's declaration."""
    frame = sys._getframe(1)  # noqa: SLF001 -- there is no public way to ask who calls, and inspect reads files.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType) -> str:
    """`file:line`, as compilers write it and editors open it."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def declared_at() -> str:
    """`file:line` of the user's declaration that is being executed."""
    return line_of(declaring_frame())
