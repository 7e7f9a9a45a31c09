"""Leases: one holder of a name at a time, across processes (C10). The contract, which a store keeps and others may too.

A lease ends when it is released or when its time is over, by the clock of whoever keeps it and by no other (C11): the
database's on PostgreSQL, the store's own where one process has the store. Each time a name is given away its token is
higher than ever before, also after a release and in another life: whoever is handed a token refuses all lower ones, and
a former holder can do no harm however late it is (G4).

Each call is one atomic step and keeps nothing between two of them, so that it works behind any pooler. Waiting,
renewing and giving up are not here: they are the same for every keeper, and `interlock.runtime.leases` has them.
"""

from typing import Protocol

import msgspec


class Granted(msgspec.Struct, frozen=True):
    """The lease was given."""

    token: int
    """Of the name: each grant has a higher one."""


class Held(msgspec.Struct, frozen=True):
    """Somebody else has the lease."""

    owner: str
    since_us: int
    """When it was given to them, by the keeper's clock."""
    now_us: int
    """When the keeper said so."""


class Leases(Protocol):
    """A keeper of leases."""

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Give the lease to the owner for so long, unless somebody else has it.

        An owner who has it already is given the same token again, with the whole time: what may have happened can be
        repeated. Whoever is to be kept apart has an owner's name of its own.
        """
        ...

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Have it for so long from now on. False when it was released or given to somebody else since this token.

        One whose time is over is had again if nobody has asked for it meanwhile.
        """
        ...

    async def release(self, name: str, token: int) -> bool:
        """Give it up. False when it was released or given to somebody else since this token. The token stays known."""
        ...
