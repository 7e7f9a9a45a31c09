"""Leases that are taken in the very commit that makes a workflow owe something.

Whoever commits a step runs it at once if it has room. Were the workflow only committed and claimed afterwards, that
would be a second write, and somebody else could be faster. So a change may say that it is held: the workflow is leased
to the committer in the same statement. The same is true of effects, each for itself.

A lease belongs to one visit of a state. A commit that leaves the state ends it; one that stays, such as an event that
another node was sent, leaves it to whoever holds it. Only an unwinding keeps it beyond the visit: whoever runs the step
that is undone has to end it first, or to die, so that no undo overtakes what it undoes (G5).

Tokens are counted by whoever commits: every new lease changes the row's revision too, so a commit that is not lost knew
the last one.
"""

from typing import NamedTuple

from interlock.store.values import HOLD, KEEP, STAYS

LEASE = ("lease_owner", "lease_until")


class Lease(NamedTuple):
    """The parameters of a group: who commits it, and for how long it holds what it holds."""

    owner: str
    seconds: str

    def of_move(self) -> str:
        """What a move from `w` to `l` does to the lease."""
        stays = f"WHEN l.hold = {KEEP} OR (l.hold = {STAYS} AND w.visit = l.visit) THEN"
        return f"""lease_owner = CASE WHEN l.hold = {HOLD} THEN {self.owner} {stays} w.lease_owner END,
    lease_until = CASE WHEN l.hold = {HOLD} THEN {self._end()} {stays} w.lease_until END"""

    def of_start(self) -> list[str]:
        """The columns `LEASE` of a workflow that begins, from `n`."""
        held = f"CASE WHEN n.hold = {HOLD} THEN"
        return [f"{held} {self.owner} END", f"{held} {self._end()} END"]

    def aside(self) -> dict[str, str]:
        """The lease of an effect that is owed, or owed again, from `p`."""
        return {
            "lease_owner": f"CASE WHEN p.hold THEN {self.owner} END",
            "lease_until": f"CASE WHEN p.hold THEN {self._end()} END",
        }

    def _end(self) -> str:
        return f"now() + {self.seconds} * interval '1 second'"
