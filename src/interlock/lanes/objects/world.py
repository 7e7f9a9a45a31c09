"""The injected environment of the object log, which a simulation replaces: time, chance, ids, pauses, threads.

The protocol itself is plain blocking code. The simulator runs each writer in a thread of its own and lets exactly one
of them run at a time. So it tests the production code itself, and not a model of it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from interlock.errors import OutcomeUnknown
from interlock.lanes.objects.bucket import BucketError
from interlock.seams import Chance, Clock, Ids, RandomIds, SystemChance, SystemClock

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _beside(work: Callable[[], None]) -> Callable[[], None]:
    thread = threading.Thread(target=work, name="interlock-snapshot", daemon=True)
    thread.start()
    return thread.join


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class World:
    """The environment of a lane on a bucket."""

    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=SystemChance)
    ids: Ids = field(default_factory=RandomIds)
    pause: Callable[[float], None] = _pause
    """Wait for this number of seconds."""
    beside: Callable[[Callable[[], None]], Callable[[], None]] = _beside
    """Run the function in the background; the returned function waits for its end."""
    boot: str = field(default_factory=_boot)
    """The machine since its last start; empty when that cannot be known."""

    def nonce(self) -> bytes:
        """Sixteen random bytes: no two bodies are ever the same."""
        return self.ids.new().bytes


class Patience:
    """The retries of a call with an unclear result: growing, jittered pauses, until a deadline."""

    def __init__(self, world: World, limit_s: float, what: str) -> None:
        self._world = world
        self._limit_s = limit_s
        self._what = what
        self._deadline_s = world.clock.monotonic_s() + limit_s
        self._next_s = BACKOFF_FIRST_S

    def pause(self, last: BucketError | None) -> None:
        """Pause before the next attempt. Raises OutcomeUnknown when there is no time left."""
        left_s = self._deadline_s - self._world.clock.monotonic_s()
        if left_s <= 0:
            raise OutcomeUnknown(
                f"{self._what} had no clear answer within {self._limit_s:g} s: {last}.",
                why="The bucket may have stored it, or may yet; it cannot be known from here (G9).",
                fix="Open the database again and repeat the transaction with the same key: it is applied at most once.",
            ) from last
        self._world.pause(min(left_s, self._next_s * self._world.chance.fraction()))
        self._next_s = min(BACKOFF_MAX_S, self._next_s * 2)
