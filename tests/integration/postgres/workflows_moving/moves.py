"""Moves for tests: a mover that tells nobody, and one that dies at a point."""

from collections.abc import Callable

from interlock.clock import Clock, SystemClock
from interlock.relocate.stages import Moved, nowhere
from interlock.relocate.workflow_move import move_workflows


class Died(Exception):
    """The mover is gone."""


def unwatched(_what: str, _done: int, _total: int) -> None:
    """Nobody looks."""


def dying(*, after: int) -> Callable[[str], None]:
    """Die at the point that comes so many points after the first."""
    left = after

    def at(_point: str) -> None:
        nonlocal left
        if left == 0:
            raise Died
        left -= 1

    return at


def dying_at(point: str) -> Callable[[str], None]:
    """Die at this point."""

    def at(reached: str) -> None:
        if reached == point:
            raise Died

    return at


async def move(
    home: str,
    target: str,
    *,
    epoch: int = 1,
    clock: Clock | None = None,
    at: Callable[[str], None] = nowhere,
    watch: Callable[[str, int, int], None] = unwatched,
) -> Moved:
    """Move the workflows of a home."""
    return await move_workflows(home, target, epoch=epoch, clock=clock or SystemClock(), watch=watch, at=at)
