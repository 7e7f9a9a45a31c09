"""The stages of every move (decision 0018), in order, and the plan, progress and result of a move.

What moves is a unit: the rows of a database, or workflows with their histories. A unit knows its source, its target and
how its parts are brought over; the order of the stages, the rounds and the seals are the same for all units. Until
`leave` has returned nothing has moved, and the draft is continued or removed; afterwards only `arrive` is left.

A test may end the mover at every point that `at` gets.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from interlock.clock import Clock
from interlock.errors import UnavailableError

# --- Plan, progress and result of a move -----------------------------------------------------------------------------

Stage = Literal["watch", "copy", "catch up", "seal", "verify", "leave", "arrive", "enter", "done"]
"""`watch`: the source records changes from now on. `copy`: all existing rows. `catch up`: the recorded changes,
repeatedly, until few are left. `seal`: writers wait. `verify`: counts and checksums of both places agree.
`leave`: the source commits its tombstone, which decides. `arrive`: the target may be opened. `enter`: the catalog gets
the new address. `done`: no remains are left."""

Watch = Callable[[str, int, int], None]
"""Progress callback: the current work, the amount done, and the total (0: unknown)."""

At = Callable[[str], None]
"""Called at every point where a mover may die, with the name of the point: `copy/3`, `seal`, `leave/before`. Nothing in
production; tests end the mover there."""


def nowhere(_point: str) -> None:
    """The `At` of production."""


class Amount(msgspec.Struct, frozen=True):
    """The size of one table."""

    table: str
    rows: int
    bytes: int
    """As the copy counts them: bytes read from the source."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of a move, for `--dry-run`. Nothing was changed."""

    name: str
    source: str
    """Addresses are shown without their secrets."""
    target: str
    epoch: int
    """The number that the move would have: every move of one thing has a higher one."""
    amounts: tuple[Amount, ...]
    copy_s: float
    """Expected, measured on a sample of this source and this target."""
    seal_ms: float
    notes: tuple[str, ...] = ()
    """Warnings: what is moved in addition, and what will be slower meanwhile."""

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(each.rows for each in self.amounts)

    @property
    def bytes(self) -> int:
        """Of all tables."""
        return sum(each.bytes for each in self.amounts)


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a completed move."""

    name: str
    source: str
    target: str
    epoch: int
    amounts: tuple[Amount, ...]
    checksum: str
    """Of everything that was moved, the same at both places."""
    copy_s: float
    seal_ms: float
    """How long writers waited."""
    resumed: bool = False
    """It was begun by a mover that did not finish it."""

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(each.rows for each in self.amounts)


# --- Order of the stages ---------------------------------------------------------------------------------------------

SEALS_MAX: Final = 10
"""Seals that are given up in a row because too much was written since the last round."""


class Unit(Protocol):
    """What moves, between one source and one target."""

    @property
    def rounds_max(self) -> int:
        """Rounds of catching up."""
        ...

    async def begin(self) -> float:
        """Note every write at the source from now on; create the draft at the target, or continue with it.

        Returns for how many seconds writers waited for that.
        """
        ...

    async def copy(self) -> None:
        """Copy everything that exists."""
        ...

    async def bring_noted(self, number: int) -> bool:
        """Bring over what was noted since the last round. Return whether so little was left that a seal is short.

        It reports its point `catch up/…` with the number of the round.
        """
        ...

    async def compare(self) -> None:
        """Compare both places while the source serves, unless that was done and is still valid."""
        ...

    def never_catches_up(self) -> None:
        """Raise after the last round, or return to seal all the same."""
        ...

    def sealed(self) -> AbstractAsyncContextManager[float]:
        """Block the writers of the source; yield when that began. Without `leave` nothing has happened at its end."""
        ...

    async def end(self) -> bool:
        """Bring over the last notes, verify, and record it at the target. Return False to give up the seal."""
        ...

    async def leave(self) -> None:
        """Write the tombstone: this decides."""
        ...

    async def arrive(self) -> None:
        """Make the draft the truth at the target. A second call changes nothing."""
        ...

    async def reached(self) -> float:
        """Return when programs that follow have the target open, by the monotonic clock: their callers wait so long."""
        ...

    async def finish(self) -> None:
        """Complete what does not delay the callers."""
        ...


class Durations(NamedTuple):
    """How long a move took."""

    copy_s: float
    """Until the seal."""
    seal_ms: float
    """The longest wait of writers: from the seal until programs that follow have the target open, or before it."""


async def run_stages(unit: Unit, *, clock: Clock, watch: Watch, at: At) -> Durations:
    """Run all stages. Raises whatever is in the way; then nothing has moved yet."""
    waited_s = await unit.begin()
    begun_s = clock.monotonic_s()
    await unit.copy()
    await _catch_up(unit)
    copied_s = clock.monotonic_s()
    sealed_s, given_up_s = await _seal(unit, clock=clock, watch=watch, at=at)
    reached_s = await arrive(unit, watch=watch, at=at)
    return Durations(copied_s - begun_s, max(waited_s, given_up_s, reached_s - sealed_s) * 1_000)


async def _catch_up(unit: Unit) -> None:
    """Bring over what is noted until little is left, compare, and bring over what was noted meanwhile."""
    await _rounds(unit)
    await unit.compare()
    await _rounds(unit)


async def _rounds(unit: Unit) -> None:
    for number in range(unit.rounds_max):
        if await unit.bring_noted(number):
            return
    unit.never_catches_up()


async def _seal(unit: Unit, *, clock: Clock, watch: Watch, at: At) -> tuple[float, float]:
    """Seal, verify and leave; return when the seal began, and how long the longest one took that was given up."""
    longest_s = 0.0
    for number in range(SEALS_MAX):
        watch("seal", 0, 0)
        at(f"seal/{number}/before")
        async with unit.sealed() as since_s:
            at(f"seal/{number}")
            if await unit.end():
                at("leave/before")
                await unit.leave()
                at("leave")
                return since_s, longest_s
        longest_s = max(longest_s, clock.monotonic_s() - since_s)
        await _catch_up(unit)
    raise UnavailableError(
        f"the move cannot catch up: {SEALS_MAX} times more was written than fits into a seal.",
        why="Writers change more than can be brought over while they wait.",
        fix="Run the command again when there is less to do: it goes on where it ended.",
    )


async def arrive(unit: Unit, *, watch: Watch, at: At) -> float:
    """Let the draft arrive, after the source has left; return when programs that follow have the target open."""
    watch("arrive", 0, 0)
    at("arrive/before")
    await unit.arrive()
    at("arrive")
    reached_s = await unit.reached()
    await unit.finish()
    watch("done", 1, 1)
    at("done")
    return reached_s
