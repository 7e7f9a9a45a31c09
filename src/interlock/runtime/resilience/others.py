"""The protocol between an outlet and the other processes of a cluster.

An outlet without a cluster has none. `shared` implements it with Redis.
"""

from typing import Literal, Protocol

Forced = Literal["open", "closed"]


class Others(Protocol):
    """The other processes that call one dependency."""

    @property
    def up(self) -> bool:
        """Whether the other processes can be reached."""
        ...

    def may_probe(self) -> bool:
        """Whether a probe may be made here; if not, the users are stirred when one may."""
        ...

    def announce(self, *, opened: bool, reset_s: float, reason: str) -> None:
        """Announce that the breaker has opened here, or was closed by a probe."""
        ...

    def probed(self, *, announced: bool) -> None:
        """End a probe; `announced`: its result was sent with `announce`."""
        ...

    def forced(self, forced: Forced | None, reason: str) -> None:
        """Announce that a person has forced the breaker here, or released it."""
        ...

    def token(self, now_s: float, *, take: bool) -> float | None:
        """Return 0.0 for a call within the shared rate, else the seconds to wait; None: there is no shared rate."""
        ...
