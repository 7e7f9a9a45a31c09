"""Leases that are taken in the commit that begins a step or effect.

An engine that commits a step runs it immediately if it has a free slot. A claim afterwards would be a second write, and
another engine could be faster. So a change may hold its workflow: the same statement leases it to the committing
engine. Effects are leased in the same way, each for itself.

A lease belongs to one visit of a state. A commit that leaves the state ends it. One that stays, such as an event that
another node received, leaves it to its holder. Only an unwinding keeps it beyond the visit: the engine that runs the
undone step must end it first, or die, so that no undo overtakes its step (G5).

The committing engine counts the tokens: every new lease changes the row's revision too, so a commit that is not lost
knew the last one.
"""

from typing import NamedTuple

from interlock.store.values import HOLD, KEEP, STAYS

LEASE = ("lease_owner", "lease_until")


class Lease(NamedTuple):
    """The lease parameters of a group: the committing owner, and the length of its leases."""

    owner: str
    seconds: str

    def of_move(self) -> str:
        """Return the assignments to the lease in a move from `w` to `l`."""
        stays = f"WHEN l.hold = {KEEP} OR (l.hold = {STAYS} AND w.visit = l.visit) THEN"
        return f"""lease_owner = CASE WHEN l.hold = {HOLD} THEN {self.owner} {stays} w.lease_owner END,
    lease_until = CASE WHEN l.hold = {HOLD} THEN {self._end()} {stays} w.lease_until END"""

    def of_start(self) -> list[str]:
        """The columns `LEASE` of a workflow that begins, from `n`."""
        when_held = f"CASE WHEN n.hold = {HOLD} THEN"
        return [f"{when_held} {self.owner} END", f"{when_held} {self._end()} END"]

    def aside(self) -> dict[str, str]:
        """The lease of an effect that is owed, or owed again, from `p`."""
        return {
            "lease_owner": f"CASE WHEN p.hold THEN {self.owner} END",
            "lease_until": f"CASE WHEN p.hold THEN {self._end()} END",
        }

    def _end(self) -> str:
        return f"now() + {self.seconds} * interval '1 second'"
