"""The calls of an engine that cannot be made over HTTP: each says why, and what to do instead.

They are here so that whoever moves a program from an engine to a client is told, and not left with an AttributeError.
"""

from typing import NoReturn

from interlock.errors import BadUsage
from interlock.runtime.leases import LEASE_S, WAIT_S


class Elsewhere:
    """What only the process itself can do that has the store open."""

    def transaction(self, connection: object) -> NoReturn:
        """Raises BadUsage: a transaction of your own PostgreSQL connection never passes through a server (B11)."""
        del connection
        raise BadUsage(
            "a client cannot send events inside a transaction of your own.",
            why="The transaction lives on your connection to PostgreSQL, and nothing of it reaches the server.",
            fix="Open an engine on the same database beside the server, Engine.open(url, machines=[…], worker=False), "
            "and use engine.transaction(connection); or send the event with a key after your commit.",
        )

    def lease(self, name: str, *, wait_s: float = WAIT_S, lease_s: float = LEASE_S) -> NoReturn:
        """Raises BadUsage: a lease protects only whoever can see in time that it was lost (C10)."""
        del wait_s, lease_s
        raise BadUsage(
            f"a client cannot hold the lease {name!r:.200}.",
            why="Its holder renews it while the block runs and is stopped when it is lost; over HTTP neither would "
            "be known in time, and two could believe to hold it.",
            fix="Open an engine on the same store, Engine.open(url, machines=[…], worker=False), and use engine.lease.",
        )
