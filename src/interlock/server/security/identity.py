"""`Identity`: the authenticated client of a request, and its permissions.

It is frozen and holds no secret: it may be logged, kept with a request, and written to the audit log.
"""

from dataclasses import dataclass, field
from typing import Final

from interlock.access import NotPermitted
from interlock.server.security.scopes import LADDER, Limits, Scope


@dataclass(frozen=True, slots=True)
class Identity:
    """The client of a request: its key, scopes and limits."""

    key: str
    """The id of the key; empty without one."""
    name: str
    scopes: frozenset[Scope]
    """All scopes that the key's scopes cover."""
    limits: Limits = field(default_factory=Limits)

    @property
    def limited(self) -> bool:
        """Whether limits restrict it to some machines or ids."""
        return self.limits.limited

    def allows(self, machine: str | None, workflow: str | None) -> bool:
        """Return whether a workflow is visible to it, as an item of a listing or a stream."""
        return self.limits.allow(machine, workflow)

    def require(
        self, scope: Scope, *, machine: str | None = None, workflow: str | None = None, whole: bool = False
    ) -> None:
        """Raise NotPermitted unless it may act on this workflow; `whole` is for the whole home, without limits."""
        if scope not in self.scopes:
            raise NotPermitted(
                f"{self} has no scope {scope}; it has {', '.join(each for each in LADDER if each in self.scopes)}.",
                fix=f"Use a key of scope {scope}: interlock keys create --scope {scope}.",
            )
        if not self.limits.allow(machine, workflow):
            raise NotPermitted(f"{self} is limited to {self._limited_to()}, and this is not among them.")
        if whole and self.limits.limited:
            raise NotPermitted(
                f"{self} is limited to {self._limited_to()}, and this is about all workflows.",
                why="The request concerns the whole home, which cannot be shown or changed in part.",
                fix="Use a key without limits.",
            )

    def __str__(self) -> str:
        if not self.key:
            return self.name
        return f"the key {self.key} ({self.name})" if self.name else f"the key {self.key}"

    def _limited_to(self) -> str:
        machines = f"machines {', '.join(self.limits.machines)}" if self.limits.machines else ""
        prefixes = f"ids that begin with {', '.join(self.limits.prefixes)}" if self.limits.prefixes else ""
        return " and ".join(filter(None, (machines, prefixes)))


LOCAL: Final = Identity("", "local", frozenset(Scope))
"""Any client of a server without keys, which listens on loopback only."""

MOUNTED: Final = Identity("", "mounted", frozenset(Scope))
"""Any client that is admitted by the program into which the server is mounted."""
