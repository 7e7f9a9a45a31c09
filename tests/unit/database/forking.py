"""A process that forks when it has opened a database, and whose child opens one of its own."""

import asyncio
import os
import signal
from collections.abc import Callable

from interlock.database.database import Database

LIFETIME_S_MAX = 60


def fork(say: Callable[[str], None]) -> None:
    """The threads that open are the parent's: the child needs new ones."""
    asyncio.run(_open())
    say("parent: opened")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(LIFETIME_S_MAX)
            asyncio.run(_open())
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    say(f"child: ended {os.waitstatus_to_exitcode(status)}")
    asyncio.run(_open())
    say("parent: opened")


async def _open() -> None:
    async with Database.open("memory:") as db:
        await db.execute("CREATE TABLE t (id bigint PRIMARY KEY)")
