"""The calls of an engine that cannot be made over HTTP: each raises an error with the reason and the alternative.

A program that changes from an engine to a client thus gets a helpful error instead of an AttributeError.
"""

from typing import NoReturn

from interlock.errors import BadUsage
from interlock.runtime.leases import LEASE_S, WAIT_S


class Elsewhere:
    """Calls that only a process with the open store can make."""

    def transaction(self, connection: object) -> NoReturn:
        """Raise BadUsage: a transaction of your own PostgreSQL connection never passes through a server (B11)."""
        del connection
        raise BadUsage(
            "a client cannot send events inside a transaction of your own.",
            why="The transaction is on your own connection to PostgreSQL, which the server does not use.",
            fix="Open an engine on the same database beside the server, Engine.open(url, machines=[…], worker=False), "
            "and use engine.transaction(connection); or send the event with a key after your commit.",
        )

    def lease(self, name: str, *, wait_s: float = WAIT_S, lease_s: float = LEASE_S) -> NoReturn:
        """Raise BadUsage: a lease protects only a holder that notices its loss in time (C10)."""
        del wait_s, lease_s
        raise BadUsage(
            f"a client cannot hold the lease {name!r:.200}.",
            why="Its holder renews it while the block runs and is stopped when it is lost. Over HTTP neither would "
            "happen in time, and two processes could believe that they hold it.",
            fix="Open an engine on the same store, Engine.open(url, machines=[…], worker=False), and use engine.lease.",
        )
