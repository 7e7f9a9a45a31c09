"""`interlock route` as an operator runs it: again until it has moved, and then the undo that it prints."""

import asyncio
import shlex
from collections.abc import Generator, Iterator, Sequence
from itertools import cycle
from pathlib import Path

from tests.unit.cli.running import run_program

OK, UNAVAILABLE = 0, 5
ATTEMPTS_MAX = 10
UNDO = "To undo it: interlock "


async def run_route(words: Sequence[str], folder: Path) -> list[str]:
    """Run a command that moves, repeat it while it cannot be done yet, and return the words of its undo, if any."""
    refused = ""
    for _ in range(ATTEMPTS_MAX):
        done = await asyncio.to_thread(run_program, *words, folder=folder)
        if done.code == OK:
            [*undo] = [line.removeprefix(UNDO) for line in done.out.splitlines() if line.startswith(UNDO)]
            return shlex.split(undo[0]) if undo else []
        refused = done.err
        assert done.code == UNAVAILABLE, refused
    raise AssertionError(refused)


def deaths(turn: Iterator[str], points: Sequence[str], crashes: int) -> Generator[str]:
    """Return the points of one case: the next one; of a campaign as many as it has crashes, and random instants."""
    if crashes == 1:
        yield next(turn)
        return
    yield from (next(turn) for _ in range(min(crashes, len(points))))
    yield from (f"random {seed}" for seed in range(crashes))


def endless(points: Sequence[str]) -> Iterator[str]:
    """Return all points and one random instant, again and again."""
    return cycle((*points, "random 0"))
