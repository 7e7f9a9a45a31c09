"""The contract of leases: one holder of a name at a time, across processes (C10).

A lease ends when it is released or expires, only by the clock of its keeper (C11): the database's on PostgreSQL, the
store's own where one process has the store. Each grant of a name has a higher token than all before, also after a
release or restart. A resource refuses tokens lower than the highest it got, so a late former holder does no harm (G4).

Each call is one atomic step without state between calls, so that it works through any pooler. Waiting, renewing and
giving up are the same for every keeper; `interlock.runtime.leases` has them.
"""

from typing import Protocol

import msgspec


class Granted(msgspec.Struct, frozen=True):
    """The lease was granted."""

    token: int
    """Fencing token: each grant of the name has a higher one."""


class Held(msgspec.Struct, frozen=True):
    """Another owner has the lease."""

    owner: str
    since_us: int
    """When it was granted, by the keeper's clock."""
    now_us: int
    """The keeper's time of this answer."""


class Leases(Protocol):
    """A keeper of leases."""

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner for `lease_s`, unless another owner has it.

        An owner that has it already gets the same token again, with the whole time, so that a call with an unknown
        outcome can be repeated. Tasks that must exclude each other need different owner names.
        """
        ...

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Extend the lease to `lease_s` from now. Return False when it was released or granted again since this token.

        An expired lease is extended if no other owner has acquired it meanwhile.
        """
        ...

    async def release(self, name: str, token: int) -> bool:
        """Release the lease. Return False when it was released or granted again since this token. The token is kept."""
        ...
