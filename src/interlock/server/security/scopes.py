"""Permissions of a client: scopes (permitted actions), limits (permitted machines and ids), and its `Identity`.

Scopes are a ladder. A sender may read, because it needs the version it sends to. An operator may send, because a
workflow is repaired by events. An administrator may do everything. Limits narrow a key to machines and to prefixes of
ids. An empty limit means all, several values mean any of them, and both limits must hold.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from interlock.errors import BadUsage, NotPermitted

LIMITS_MAX = 100
"""Machines or prefixes of one key."""

LIMIT_CHARACTERS_MAX = 200
"""Length of a machine or prefix: that of an id."""


class Scope(StrEnum):
    """A set of permitted actions."""

    READ = "read"
    """Read machines, workflows, their history, pending undos and stalled workflows."""
    SEND = "send"
    """Also start workflows and send events."""
    OPERATE = "operate"
    """Also retry and resolve dead letters, force breakers, and set limits and admission."""
    ADMIN = "admin"
    """Also prune workflows and run SQL in databases: every action."""


LADDER: Final = tuple(Scope)
"""Scopes from the least to the most."""


def covered(scopes: tuple[Scope, ...]) -> frozenset[Scope]:
    """Return these scopes and all scopes below them."""
    highest = max((LADDER.index(scope) for scope in scopes), default=-1)
    return frozenset(LADDER[: highest + 1])


class Limits(msgspec.Struct, frozen=True):
    """The machines and id prefixes to which a key is limited."""

    machines: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return bool(self.machines or self.prefixes)

    def allow(self, machine: str | None, workflow: str | None) -> bool:
        """Return whether a machine and an id are inside; an unknown one (None) is not checked."""
        if self.machines and machine is not None and machine not in self.machines:
            return False
        return not self.prefixes or workflow is None or workflow.startswith(self.prefixes)

    def cover(self, machine: str | None, workflow: str | None) -> bool:
        """Return whether a machine and an id are certainly inside; an unknown one (None) is outside if limited."""
        if (self.machines and machine is None) or (self.prefixes and workflow is None):
            return False
        return self.allow(machine, workflow)


def checked_limits(machines: tuple[str, ...], prefixes: tuple[str, ...]) -> Limits:
    """Return the limits. Raises BadUsage for a value that cannot be a machine's name or an id's prefix."""
    for kind, values in (("machine", machines), ("prefix", prefixes)):
        if len(values) > LIMITS_MAX:
            raise BadUsage(f"a key has at most {LIMITS_MAX} limits of a kind; {len(values)} of {kind} were passed.")
        for value in values:
            if not 0 < len(value) <= LIMIT_CHARACTERS_MAX or not value.isprintable() or "/" in value:
                raise BadUsage(
                    f"{value[:100]!r} is not a {kind} that a key can be limited to.",
                    why="An empty limit would mean all, and an invalid one would match nothing.",
                    fix=f"Pass 1 to {LIMIT_CHARACTERS_MAX} printable characters without a slash, or no limit.",
                )
    return Limits(tuple(sorted(set(machines))), tuple(sorted(set(prefixes))))


@dataclass(frozen=True, slots=True)
class Identity:
    """The client of a request: its key, scopes and limits. It holds no secret, so it may be logged."""

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
