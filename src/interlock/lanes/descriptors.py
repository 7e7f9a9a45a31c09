"""Room for thousands of lanes: the process's soft limit of open files is raised when it is met.

An idle lane holds one open file, its lock, and most systems let a process have 1,024 of them until it asks for more.
It asks here, once it has to, up to the hard limit that the system allows.
"""

import errno
import resource
from collections.abc import Callable
from typing import TypeVar

import apsw

from interlock.errors import UnavailableError

OpenedT = TypeVar("OpenedT")


def with_room(opens: Callable[[], OpenedT]) -> OpenedT:
    """Open something; when the process has too many open files already, raise its limit and try once more."""
    try:
        return opens()
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        refused: Exception = error
    except apsw.CantOpenError as error:
        # SQLite does not say why it could not open one of its files.
        refused = error
    if not _raised():
        raise UnavailableError(
            f"a file of the lane could not be opened: {refused}.",
            why=f"The file cannot be opened, or the process has its {_limits()[0]:,} open files already.",
            fix="Check the folder and its permissions, close databases, or raise the hard limit (ulimit -Hn).",
        ) from refused
    return opens()


def _limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _raised() -> bool:
    soft, hard = _limits()
    if soft in {hard, resource.RLIM_INFINITY}:
        return False
    # Without a hard limit the system still has one, which it does not report: so double the soft one, each time.
    most = 2 * soft if hard == resource.RLIM_INFINITY else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):
        return False
    return True
