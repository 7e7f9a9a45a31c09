"""The other processes of a cluster, as an outlet sees them: what it tells them, and what it asks before a call.

Without a cluster there are none. `shared` is what they are with Redis.
"""

from typing import Literal, Protocol

Forced = Literal["open", "closed"]


class Others(Protocol):
    """The other processes, as far as they say something about one dependency."""

    @property
    def up(self) -> bool:
        """Whether they can be asked."""
        ...

    def may_probe(self) -> bool:
        """Whether a probe may be made here; if not, the users are stirred when one may."""
        ...

    def told(self, *, opened: bool, reset_s: float, reason: str) -> None:
        """The breaker has opened here, or was closed by a probe."""
        ...

    def probed(self, *, said: bool) -> None:
        """A probe has ended."""
        ...

    def forced(self, forced: Forced | None, reason: str) -> None:
        """A person has said something here."""
        ...

    def token(self, now_s: float, *, take: bool) -> float | None:
        """0.0 when a call is within the rate of all, else how long to wait; None: there is no such rate."""
        ...
