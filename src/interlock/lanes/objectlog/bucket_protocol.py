"""The bucket of a lane: its protocol of seven calls, three ways in which a call can fail, and the retries.

Only success can be trusted, no other answer to a write. A lost response to a stored object comes back as "exists
already", and so does a conflict without a rival; a hang is an error although the object is there. So a writer reads
(`get`) before it believes, and these three classes say no more than what is certain.

Every call blocks. Implementations: obstore in production, a fake with scripted faults in the simulator. Nothing here
imports a package that a bucket needs, so code can use it before it knows whether a bucket is named.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from interlock.clock import Chance, Clock, Ids, RandomIds, SystemChance, SystemClock
from interlock.errors import MissingExtra, OutcomeUnknown, UnavailableError


class BucketError(Exception):
    """A call did not succeed. Never leaves the layer: users see the classes of `interlock.errors`."""


class ConditionFailed(BucketError):
    """The server reported that the object exists, or has changed. It may have met our own earlier write."""


class Unclear(BucketError):
    """The answer is missing or means nothing: the call may have happened, or not, or may happen yet."""


class Denied(BucketError):
    """The server refused for good: credentials, permissions, no such bucket. A retry changes nothing."""


class Found(NamedTuple):
    """An object as it was read."""

    data: bytes
    tag: object
    """The version, for `replace`; only the bucket that gave it understands it."""


class Bucket(Protocol):
    """A place for objects, below one prefix. Keys are relative to it. Safe to use from several threads."""

    def get(self, key: str) -> Found | None:
        """Return the object, or None when it is certainly not there now. Raises Unclear or Denied."""
        ...

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        """Return several objects, fetched concurrently, or their first bytes, in the order of the keys.

        Raises Unclear or Denied when one of them cannot be read.
        """
        ...

    def create(self, key: str, data: bytes) -> object:
        """Store the object unless the key is taken; return its tag. Sent once, never repeated inside.

        Raises ConditionFailed, Unclear or Denied.
        """
        ...

    def replace(self, key: str, data: bytes, tag: object) -> object:
        """Store the object if the stored one still has that tag; return the new tag. Otherwise as `create`."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store the object under a key that no other writer uses; may be repeated inside. Raises Unclear or Denied."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects; a missing one is not an error. Raises Unclear or Denied."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """Return the keys with this prefix, in order. A hint only: a listing may be outdated."""
        ...


Watch = Callable[[str, int, int], None]
"""A progress callback: the activity, how much of it is done, and how much there is."""


def silent(_what: str, _done: int, _of: int) -> None:
    """Ignore all progress."""


@contextlib.contextmanager
def answering(what: str) -> Generator[None]:
    """Raise UnavailableError for a bucket that does not answer or refuses."""
    try:
        yield
    except BucketError as error:
        raise UnavailableError(
            f"the bucket did not let us {what}: {error}.",
            why="It did not answer, or refused: the network, the credentials, the name of the bucket.",
            fix="Check the address and the credentials, then try again; nothing was acknowledged.",
        ) from error


def missing_extra(package: str) -> MissingExtra:
    """Return the error for a package that is not installed, with the command that installs it."""
    return MissingExtra(f"a database in a bucket needs {package}, which is not installed.", extra="objects")


# --- Environment -----------------------------------------------------------------------------------------------------
# A simulation replaces it. The protocol itself is plain blocking code. The simulator runs each writer in a thread of
# its own and lets exactly one of them run at a time. So it tests the production code itself, and not a model of it.

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
class Environment:
    """The environment of a lane on a bucket: time, chance, ids, pauses, threads."""

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

    def __init__(self, world: Environment, limit_s: float, what: str) -> None:
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
