"""The probe of a bucket: whether it keeps the promises that a log relies on. Runs once per process and folder.

Many servers that speak S3 take a conditional write and ignore the condition; two owners of a lane would then both win.
So a bucket is trusted only after it has shown what it does: it creates, refuses to create again, replaces, refuses a
stale replacement, and lets exactly one of sixteen concurrent writers win. Each time the stored bytes are read back. All
of it happens below `probe/` beside the databases, and is deleted again.

There are three verdicts. "Unknown" is what remains when the answers were unclear, after a few attempts with new keys;
it refuses as surely as "no" does. Only a full "yes" is remembered.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NamedTuple

from interlock.errors import UnavailableError
from interlock.lanes.objectlog.bucket_protocol import Bucket, BucketError, ConditionFailed, Denied, Environment, Unclear

CONTENDERS: Final = 16
ATTEMPTS_MAX: Final = 3
ATTEMPTS_S_MAX: Final = 60.0
"""No attempt begins later than this."""

PAUSE_S: Final = 0.5
REQUEST_TIMEOUT_S_MIN: Final = 30.0
"""The least timeout of the probe's requests: some servers let contenders wait a second for each other."""

ROOTS_MAX: Final = 10_000
"""Folders that are remembered; the oldest is probed again."""

Verdict = Literal["yes", "no", "unknown"]


class PromiseCheck(NamedTuple):
    """One promise of a bucket, and whether it keeps it."""

    code: str
    promise: str
    verdict: Verdict
    evidence: str = ""
    """The finding that breaks the promise, or the reason why there is no verdict."""

    @property
    def unreached(self) -> bool:
        """Whether not even the first request was answered: then the way to the bucket is at fault, not a promise."""
        return self.verdict == "unknown" and self.code == next(iter(_PROMISES))

    @property
    def why(self) -> str:
        """The consequence of a broken promise."""
        if self.unreached:
            return "The network is down, or the endpoint, the bucket's name or the credentials are not right."
        return _PROMISES[self.code].why

    @property
    def fix(self) -> str:
        """The remedy."""
        if self.verdict == "no":
            return _PROMISES[self.code].fix
        if "169.254.169.254" in self.evidence:  # The clouds' metadata service: the last source of credentials tried.
            return "Give credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS."
        if self.unreached:
            return "Check the network, the endpoint, that a bucket of that name is there, and the credentials."
        return "Check the address, the credentials and the network, then open it again; nothing was written to a log."


class _Promise(NamedTuple):
    promise: str
    why: str
    fix: str


_ONE_WINNER = "Two owners of one lane would both believe that they have won, and acknowledged writes would be lost."
_OTHER_SERVER = (
    "Use a bucket with conditional writes: Amazon S3, Google Cloud Storage, Azure, a recent Ceph or SeaweedFS."
)
_NO_CACHE = "Use the server itself, not a cache or a mirror in front of it."

_PROMISES: Final = {
    "absent": _Promise(
        "an object that is not there reads as not there",
        "The end of the log is the first slot that is empty.",
        "Read from the server itself, and give the credentials the right to list: s3:ListBucket.",
    ),
    "create": _Promise("a new object can be created", "Every group is a new object.", _OTHER_SERVER),
    "read": _Promise("what was written is what is read", "What was acknowledged has to be there.", _NO_CACHE),
    "create-again": _Promise("a key that is taken is refused", _ONE_WINNER, _OTHER_SERVER),
    "replace": _Promise("an object is replaced by its tag", "The lease is an object that is replaced.", _OTHER_SERVER),
    "replace-stale": _Promise("a stale replacement is refused", _ONE_WINNER, _OTHER_SERVER),
    "create-race": _Promise(f"of {CONTENDERS} concurrent creations one wins", _ONE_WINNER, _OTHER_SERVER),
    "replace-race": _Promise(f"of {CONTENDERS} concurrent replacements one wins", _ONE_WINNER, _OTHER_SERVER),
    "delete": _Promise(
        "an object can be deleted",
        "What the history no longer needs has to go.",
        "Give the credentials the right to delete: s3:DeleteObject.",
    ),
}


def examine(folder: Bucket, world: Environment) -> list[PromiseCheck]:
    """Test every promise of the bucket. Never raises; an undecided one is "unknown"."""
    begun_s = world.clock.monotonic_s()
    attempt = 0
    while True:
        attempt += 1
        trial = _Trial(folder, world)
        try:
            checks = trial.run()
        finally:
            trial.clean()
        late = world.clock.monotonic_s() - begun_s >= ATTEMPTS_S_MAX
        if trial.settled or late or attempt == ATTEMPTS_MAX:
            return checks
        world.pause(PAUSE_S * attempt)


def prove(folder: Bucket, root: str, world: Environment, *, server: str = "") -> None:
    """Prove once that the bucket can carry logs. Raises UnavailableError when it cannot, or when that is unknown.

    `root` names the folder, without secrets; `server` is what else says where it is, and is never shown. A caller that
    comes while another one probes waits, and shares the result.
    """
    memory = _memory_of((root, server))
    runs = memory.runs
    with memory.lock:
        if not memory.proven and memory.runs == runs:
            checks = examine(folder, world)
            memory.failed = next((check for check in checks if check.verdict != "yes"), None)
            memory.proven = memory.failed is None
            memory.runs += 1
        if memory.failed is not None:
            raise _refusal(root, memory.failed)


def remember_proven(root: str, *, server: str = "") -> None:
    """Accept the parent process's proof that the folder keeps its promises."""
    _memory_of((root, server)).proven = True


@dataclass(slots=True)
class _Memory:
    lock: threading.Lock = field(default_factory=threading.Lock)
    runs: int = 0
    proven: bool = False
    failed: PromiseCheck | None = None


_memories: dict[tuple[str, str], _Memory] = {}
_memories_lock = threading.Lock()


def _memory_of(place: tuple[str, str]) -> _Memory:
    with _memories_lock:
        if place not in _memories and len(_memories) >= ROOTS_MAX:
            del _memories[next(iter(_memories))]
        return _memories.setdefault(place, _Memory())


def _refusal(root: str, check: PromiseCheck) -> UnavailableError:
    if check.verdict == "no":
        what = f"{root} cannot carry a log: it must guarantee that {check.promise}, but {check.evidence}."
    elif check.unreached:
        what = f"the bucket {root} cannot be reached: {check.evidence}."
    else:
        what = f"{root} could not be probed: whether {check.promise} is unknown ({check.evidence})."
    return UnavailableError(what, why=check.why, fix=check.fix)


class _Trial:
    """One run of all checks, on fresh keys. A step returns the fault, or an empty text."""

    def __init__(self, folder: Bucket, world: Environment) -> None:
        self._bucket = folder
        self._world = world
        name = f"probe/{world.nonce().hex()}"
        self._single, self._contended = f"{name}/single", f"{name}/contended"
        self._first, self._second = self._body(), self._body()
        self._tag: object = None
        self.settled = False
        """Whether another attempt would give the same result."""

    def run(self) -> list[PromiseCheck]:
        """Run all checks in order; the first that fails leaves the rest unknown."""
        steps: dict[str, Callable[[], str]] = {
            "absent": self._absent,
            "create": self._create,
            "read": self._read,
            "create-again": self._create_again,
            "replace": self._replace,
            "replace-stale": self._replace_stale,
            "create-race": self._create_race,
            "replace-race": self._replace_race,
            "delete": self._delete,
        }
        checks: list[PromiseCheck] = []
        verdict: Verdict = "yes"
        evidence = ""
        for code, step in steps.items():
            if verdict == "yes":
                verdict, evidence = self._tried(step)
            else:
                verdict, evidence = "unknown", f"not tried after {checks[-1].code}"
            checks.append(PromiseCheck(code, _PROMISES[code].promise, verdict, evidence))
        return checks

    def clean(self) -> None:
        """Delete the probe's objects, if the bucket allows it."""
        with contextlib.suppress(BucketError):
            self._bucket.delete([self._single, self._contended])

    def _tried(self, step: Callable[[], str]) -> tuple[Verdict, str]:
        try:
            wrong = step()
        except BucketError as error:
            self.settled = isinstance(error, Denied)
            return "unknown", str(error)
        self.settled = True
        return ("no", wrong) if wrong else ("yes", "")

    def _body(self) -> bytes:
        return b"interlock probe " + self._world.nonce().hex().encode()

    def _absent(self) -> str:
        return "" if self._bucket.get(self._single) is None else "it has an object under a key that was never used"

    def _create(self) -> str:
        try:
            self._tag = self._bucket.create(self._single, self._first)
        except ConditionFailed:
            found = self._bucket.get(self._single)
            if found is None or found.data != self._first:
                return "it says that a key is taken which was never used"
            self._tag = found.tag
        return ""

    def _read(self) -> str:
        return self._unless(self._single, self._first, "it does not give back what was just written")

    def _create_again(self) -> str:
        try:
            self._bucket.create(self._single, self._second)
        except ConditionFailed:
            return self._unless(self._single, self._first, "it refused the second object and stored it all the same")
        return "it accepted a second object under the same key"

    def _replace(self) -> str:
        try:
            self._bucket.replace(self._single, self._second, self._tag)
        except ConditionFailed as error:
            wrong = f"it refused the tag that it had given itself ({error})"
        else:
            wrong = "it does not give back what the object was replaced by"
        return self._unless(self._single, self._second, wrong)

    def _replace_stale(self) -> str:
        try:
            self._bucket.replace(self._single, self._body(), self._tag)
        except ConditionFailed:
            wrong = "it refused the stale replacement and stored it all the same"
            return self._unless(self._single, self._second, wrong)
        return "it accepted a replacement of a version that was gone"

    def _create_race(self) -> str:
        return self._race(partial(self._bucket.create, self._contended))

    def _replace_race(self) -> str:
        found = self._bucket.get(self._contended)
        if found is None:
            return "an object is gone that was not deleted"
        return self._race(partial(self._bucket.replace, self._contended, tag=found.tag))

    def _delete(self) -> str:
        self._bucket.delete([self._single, self._contended])
        is_deleted = self._bucket.get(self._single) is None and self._bucket.get(self._contended) is None
        return "" if is_deleted else "the object is still there"

    def _unless(self, key: str, expected: bytes, wrong: str) -> str:
        found = self._bucket.get(key)
        return "" if found is not None and found.data == expected else wrong

    def _race(self, write: Callable[[bytes], object]) -> str:
        bodies = [self._body() for _ in range(CONTENDERS)]
        outcomes: list[BucketError | None] = [Unclear("a request never came back")] * CONTENDERS

        def contend(number: int) -> None:
            try:
                write(bodies[number])
            except BucketError as error:
                outcomes[number] = error
            else:
                outcomes[number] = None

        for wait in [self._world.beside(partial(contend, number)) for number in range(CONTENDERS)]:
            wait()
        winners = [body for body, outcome in zip(bodies, outcomes, strict=True) if outcome is None]
        if len(winners) > 1:
            return f"{len(winners)} of {CONTENDERS} writes were accepted"
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, ConditionFailed):
                raise outcome
        if not winners:
            raise Unclear(f"none of {CONTENDERS} writes was accepted")
        return self._unless(self._contended, winners[0], "it stored another object than that of the winner")
