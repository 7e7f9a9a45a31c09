"""Single thread for the files of one end: SQLite blocks on the disk, which an event loop must not do."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from interlock.errors import CorruptionError, UnavailableError

ResultT = TypeVar("ResultT")


class Alone:
    """Runs one function after the other in a thread of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="interlock-move")

    async def run(self, function: Callable[[], ResultT]) -> ResultT:
        """Run the function in the thread, and wait for its end even if cancelled."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, _told, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # The next call may use or close the same connection.
            _ = await asyncio.wait([future])
            raise

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown(wait=True)


def _told(function: Callable[[], ResultT]) -> ResultT:
    try:
        return function()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise CorruptionError(f"the file of a lane that moves is damaged: {error}.") from error
    except (apsw.Error, OSError) as error:
        raise UnavailableError(
            f"the file of a lane that moves could not be used: {error}.",
            why="The disk is full or failed, or another process keeps the file locked. Nothing has moved by this.",
            fix="Run the same command again: it goes on where it ended.",
        ) from error
