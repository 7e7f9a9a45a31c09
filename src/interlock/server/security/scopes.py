"""What a key may do (scopes) and to what (limits).

Scopes are a ladder: who may send may also read, because a sender has to see the version it sends to; who may operate
may also send, because repairing a workflow is sending it events; an administrator may do everything. Limits narrow a
key to machines and to beginnings of ids. An empty limit means all; several values mean any of them; both must hold.
"""

from enum import StrEnum
from typing import Final

import msgspec

from interlock.errors import BadUsage

LIMITS_MAX = 100
"""Machines or prefixes of one key."""

LIMIT_CHARACTERS_MAX = 200
"""As long as an id may be."""


class Scope(StrEnum):
    """What a key may do."""

    READ = "read"
    """See machines, workflows, their history, and what is owed or stalled."""
    SEND = "send"
    """Also start workflows and send events."""
    OPERATE = "operate"
    """Also retry and resolve dead letters, force breakers, and set limits and admission."""
    ADMIN = "admin"
    """Also remove old workflows and run SQL in databases: everything there is."""


LADDER: Final = tuple(Scope)
"""From the least to the most."""


def covered(scopes: tuple[Scope, ...]) -> frozenset[Scope]:
    """What these scopes allow: each one, and those below it."""
    highest = max((LADDER.index(scope) for scope in scopes), default=-1)
    return frozenset(LADDER[: highest + 1])


class Limits(msgspec.Struct, frozen=True):
    """What a key is limited to."""

    machines: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return bool(self.machines or self.prefixes)

    def allow(self, machine: str | None, workflow: str | None) -> bool:
        """Whether a machine and an id are inside; what is not known (None) is not looked at."""
        if self.machines and machine is not None and machine not in self.machines:
            return False
        return not self.prefixes or workflow is None or workflow.startswith(self.prefixes)

    def cover(self, machine: str | None, workflow: str | None) -> bool:
        """Whether something is inside for certain: what is not about one machine or workflow is about others too."""
        if (self.machines and machine is None) or (self.prefixes and workflow is None):
            return False
        return self.allow(machine, workflow)


def checked_limits(machines: tuple[str, ...], prefixes: tuple[str, ...]) -> Limits:
    """The limits, or BadUsage for one that can be no name of a machine and no beginning of an id."""
    for kind, values in (("machine", machines), ("prefix", prefixes)):
        if len(values) > LIMITS_MAX:
            raise BadUsage(f"a key has at most {LIMITS_MAX} limits of a kind; {len(values)} of {kind} were given.")
        for value in values:
            if not 0 < len(value) <= LIMIT_CHARACTERS_MAX or not value.isprintable() or "/" in value:
                raise BadUsage(
                    f"{value[:100]!r} is not a {kind} that a key can be limited to.",
                    why="An empty or impossible limit would mean another thing than it seems to say.",
                    fix=f"Give 1 to {LIMIT_CHARACTERS_MAX} printable characters without a slash, or no limit.",
                )
    return Limits(tuple(sorted(set(machines))), tuple(sorted(set(prefixes))))
