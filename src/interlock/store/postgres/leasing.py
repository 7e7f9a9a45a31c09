"""Leases that are taken in the very commit that makes a workflow owe something.

Whoever commits a step runs it at once if it has room. Were the workflow only committed and claimed afterwards, that
would be a second write, and somebody else could be faster. So a change may be marked to be held: the workflow is leased
to the committer in the same statement. The same is true of effects, each for itself.

A lease belongs to one visit of a state. A commit that leaves the state ends it; one that stays, such as an event that
another node was sent, leaves it to whoever holds it, also when it asks to hold the workflow itself.
"""

from typing import NamedTuple

LEASE = ("lease_owner", "lease_until", "lease_token")

GIVEN_UP = "lease_until = CASE WHEN w.visit = l.visit THEN w.lease_until END"
"""What a move does to a lease when nobody holds anything."""

GIVEN_UP_ASIDE = {"lease_owner": "NULL", "lease_until": "NULL"}
"""The lease of an effect that is owed, or owed again."""


class Lease(NamedTuple):
    """The parameters of a group that is held: who, and for how long."""

    owner: str
    seconds: str

    def of_move(self) -> str:
        """What a move from `w` to `l` does to the lease."""
        theirs = f"((w.visit = l.visit AND w.lease_owner <> {self.owner} AND w.lease_until > now()) IS TRUE)"
        mine = f"((w.visit = l.visit AND w.lease_owner = {self.owner} AND w.lease_until IS NOT NULL) IS TRUE)"
        return f"""lease_owner = CASE WHEN l.hold AND NOT {theirs} THEN {self.owner} ELSE w.lease_owner END,
    lease_token = w.lease_token + CASE WHEN l.hold AND NOT {theirs} AND NOT {mine} THEN 1 ELSE 0 END,
    lease_until = CASE WHEN l.hold AND NOT {theirs} THEN {self._end()}
        WHEN w.visit = l.visit THEN w.lease_until END"""

    def of_start(self) -> list[str]:
        """The columns `LEASE` of a workflow that begins, from `n`."""
        return [
            f"CASE WHEN n.hold THEN {self.owner} END",
            f"CASE WHEN n.hold THEN {self._end()} END",
            "CASE WHEN n.hold THEN 1 ELSE 0 END",
        ]

    def aside(self) -> dict[str, str]:
        """The lease of an effect that is owed, or owed again, from `p`."""
        return {
            "lease_owner": f"CASE WHEN p.hold THEN {self.owner} END",
            "lease_until": f"CASE WHEN p.hold THEN {self._end()} END",
        }

    def returned(self, row: str) -> str:
        """The token of a row that was written, if the committer holds it now."""
        held = f"{row}.lease_owner = {self.owner} AND {row}.lease_until IS NOT NULL"
        return f", CASE WHEN {held} THEN {row}.lease_token END AS token"

    def _end(self) -> str:
        return f"now() + {self.seconds} * interval '1 second'"


def taken(won: str) -> str:
    """The ids and tokens of what the committer holds now, as two arrays in the same order."""
    rows = won.replace("SELECT id", "SELECT id, token")
    chosen = f"FROM ({rows}) h WHERE h.token IS NOT NULL ORDER BY h.id"
    return f"ARRAY(SELECT h.id {chosen}), ARRAY(SELECT h.token {chosen})"
