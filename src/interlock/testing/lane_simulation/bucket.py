"""Buckets in memory: a correct one, and one with faults in virtual time that records every object ever stored.

`MemoryBucket` is for tests that are not about the bucket. Conditions hold, a read sees the last write, and a listing is
never stale. Several views of one bucket (`below`) share their objects, as several databases and processes share a real
one. The other has a story, which belongs to one seed.

A request is two events: it *lands* (and is executed atomically) and its answer *arrives*. Both belong to the bucket,
not to the sender: requests of a stalled or killed process land all the same. Reads are strongly consistent; a listing
may be stale. Tags are hashes of the content, as on S3: the same bytes have the same tag.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from interlock.lanes.objectlog.bucket_protocol import BucketError, ConditionFailed, Denied, Found, Unclear
from interlock.testing.campaigns import Luck
from interlock.testing.lane_simulation.threads import Baton, Strand, StrandLife

# --- Correct bucket --------------------------------------------------------------------------------------------------


class MemoryBucket:
    """Implements `Bucket`; safe to use from several threads."""

    def __init__(self) -> None:
        self._objects: dict[str, Found] = {}
        self._lock = threading.Lock()
        self._prefix = ""

    def below(self, prefix: str) -> "MemoryBucket":
        """The same bucket, with keys relative to the prefix."""
        view = MemoryBucket()
        view._objects, view._lock = self._objects, self._lock
        view._prefix = f"{self._prefix}{prefix}/"
        return view

    def get(self, key: str) -> Found | None:
        """The object, or None."""
        with self._lock:
            return self._objects.get(self._prefix + key)

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        """Several objects, or their first bytes."""
        found = [self.get(key) for key in keys]
        return [None if one is None else one.data[:bytes_max] for one in found]

    def create(self, key: str, data: bytes) -> object:
        """Store it unless the key is taken."""
        with self._lock:
            if self._prefix + key in self._objects:
                raise ConditionFailed(f"{key} exists already")
            return self._store(key, data)

    def replace(self, key: str, data: bytes, tag: object) -> object:
        """Store it if the object still has that tag."""
        with self._lock:
            found = self._objects.get(self._prefix + key)
            if found is None or found.tag is not tag:
                raise ConditionFailed(f"{key} has changed")
            return self._store(key, data)

    def put(self, key: str, data: bytes) -> None:
        """Store it."""
        with self._lock:
            self._store(key, data)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove the objects."""
        with self._lock:
            for key in keys:
                self._objects.pop(self._prefix + key, None)

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so."""
        with self._lock:
            found = [key for key in self._objects if key.startswith(self._prefix + prefix)]
        return sorted(key.removeprefix(self._prefix) for key in found)

    def _store(self, key: str, data: bytes) -> object:
        tag = object()
        self._objects[self._prefix + key] = Found(data, tag)
        return tag


# --- Story -----------------------------------------------------------------------------------------------------------
# Numbered lines, the calls and answers for the checks, and the faults. A line is formatted only when it is printed.
# Each has *marks*: the names it is about (a transaction, a slot, a life), so that the story of a failure can be reduced
# to the relevant lines.

LINES_MAX = 48
"""Lines of a failing story that are shown."""


class StoryLine(NamedTuple):
    """One thing that happened."""

    time_s: float
    who: str
    what: str
    marks: tuple[str, ...]
    milestone: bool


class Submission:
    """One submitted transaction, and its answer."""

    __slots__ = ("answer", "answered_s", "by", "epoch", "id", "key", "number", "submitted_s", "why")

    def __init__(self, name: str, by: str, epoch: int, submitted_s: float, key: str | None) -> None:
        self.id = name
        self.by = by
        self.epoch = epoch
        self.submitted_s = submitted_s
        self.key = key
        self.answer = "never told"
        """`acknowledged`, `absent`, `unknown`, or `never told`."""
        self.number = 0
        self.answered_s = 0.0
        self.why = ""


class Observed(NamedTuple):
    """A state that a read or a refusal returned to a client: the counter, and the transaction that set it."""

    how: str
    by: str
    asked_s: float
    answered_s: float
    number: int
    id: str | None


class LaneStory:
    """The record of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lines: list[StoryLine] = []
        self.attempts: list[Submission] = []
        self.observed: list[Observed] = []
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.complaints: list[tuple[str, tuple[str, ...]]] = []
        """Broken guarantees, each with its marks."""

    def tell(self, time_s: float, who: str, what: str, *marks: str, milestone: bool = False) -> None:
        """Add a line."""
        self.lines.append(StoryLine(time_s, who, what, marks, milestone))

    def complain(self, what: str, *marks: str) -> None:
        """Record that a guarantee was broken."""
        self.complaints.append((what, marks))

    def text_lines(self, marks: tuple[str, ...] | None = None) -> list[str]:
        """Return the numbered lines; with marks only those about them, and the milestones."""
        chosen = [
            (number, line)
            for number, line in enumerate(self.lines, start=1)
            if marks is None or line.milestone or line.who in marks or any(mark in marks for mark in line.marks)
        ]
        if marks is not None and len(chosen) > LINES_MAX:
            # What names the broken thing itself comes first; milestones and neighbours fill what is left.
            about = [item for item in chosen if any(mark in marks for mark in item[1].marks)][-LINES_MAX:]
            rest = [item for item in chosen if item not in about]
            room = LINES_MAX - len(about)
            chosen = sorted(about + [item for item in rest if item[1].milestone][-room:] if room else about)
        return [f"{number:5d}  {line.time_s:9.3f} s  {line.who:<6} {line.what}" for number, line in chosen]


# --- Faults ----------------------------------------------------------------------------------------------------------
# Every choice is drawn from the seed's own luck. The kinds of fault are those that real buckets were seen to have:
# an answer that is lost after the object was stored looks like an error, like a hang, or like "exists already"; a
# conflict is reported although nothing was stored; a request lands long after its sender gave up.

WRITE_FAULTS = (
    "failed before",
    "stored, answer lost",
    "stored, 'exists already'",
    "stored, then a hang",
    "late landing",
    "late landing",
    "409, nothing stored",
    "sent twice",
)
READ_FAULTS = ("read failed", "read hangs")
STORMS = ("429 storm", "403 for a while")
DRIFT_MAX = 0.001
"""Monotonic clocks go wrong by at most this part."""


class Weather:
    """The faults of one seed."""

    def __init__(self, luck: Luck, *, conditions_ignored: bool = False) -> None:
        self._luck = luck
        self.write_faults = luck.one((0.0, 0.03, 0.1, 0.25))
        self.read_faults = luck.one((0.0, 0.01, 0.05))
        self.stalls = luck.one((0.0, 0.005, 0.03, 0.1))
        self.kills = luck.one((0.0, 0.3, 0.6))
        self.stale_lists = luck.one((0.0, 0.5))
        self.conditions_ignored = conditions_ignored
        """A bad server. The start-up probe refuses it; here it shows that the checks can fail."""
        self._lines: dict[str, tuple[float, str]] = {}
        """Processes whose line to the bucket is bad, until when, and in which way."""
        self._storm = (0.0, 0.0, "")
        if luck.often(0.3):
            begins_s = luck.between(1.0, 60.0)
            self._storm = (begins_s, begins_s + luck.between(2.0, 45.0), luck.one(STORMS))
        self.on = True

    def calm(self) -> None:
        """From now on nothing goes wrong any more; what is on its way still lands."""
        self.on = False

    def for_write(self, now_s: float, who: str) -> str | None:
        """Return the fault of a write that is sent now, or None. A fault often repeats for a while."""
        if not self.on:
            return None
        if self._storm[0] <= now_s < self._storm[1]:
            return self._storm[2]
        until_s, fault = self._lines.get(who, (0.0, ""))
        if now_s < until_s:
            return fault
        if not self._luck.often(self.write_faults):
            return None
        fault = self._luck.one(WRITE_FAULTS)
        if self._luck.often(0.25):
            self._lines[who] = (now_s + self._luck.between(1.0, 30.0), fault)
        return fault

    def for_read(self, now_s: float, who: str) -> str | None:
        """Return the fault of a read that is sent now, or None."""
        if not self.on:
            return None
        if self._storm[0] <= now_s < self._storm[1]:
            return self._storm[2]
        share = 0.5 if now_s < self._lines.get(who, (0.0, ""))[0] else self.read_faults
        return self._luck.one(READ_FAULTS) if self._luck.often(share) else None

    def stall_s(self, lease_s: float, *, append: bool) -> float:
        """How long the process stands still now: mostly not at all, sometimes for longer than its lease.

        Oftener before an append, where it hurts most.
        """
        if self.on and self._luck.often(self.stalls * (4 if append else 1)):
            return self._luck.between(0.3, 4.0) * lease_s
        return 0.0


class DriftingClock:
    """The clocks of one process: they have their own zero, their own speed, and the wall clock jumps."""

    def __init__(self, luck: Luck, baton: Baton) -> None:
        self._baton = baton
        self.rate = 1.0 + luck.between(-DRIFT_MAX, DRIFT_MAX)
        self._zero_s = luck.between(0.0, 100_000.0)
        self._wall_s = 1_800_000_000.0 + luck.between(-300.0, 300.0)
        self._jump = (luck.between(0.0, 120.0), luck.between(-90.0, 90.0)) if luck.often(0.3) else (0.0, 0.0)

    def wall_s(self) -> float:
        """Return the wall-clock time of this machine."""
        now_s = self._baton.now_s
        jumps_at_s, by_s = self._jump
        return self._wall_s + now_s + (by_s if now_s > jumps_at_s else 0.0)

    def monotonic_s(self) -> float:
        """Return the monotonic time of this machine."""
        return self._zero_s + self._baton.now_s * self.rate


# --- Bucket ----------------------------------------------------------------------------------------------------------

REQUEST_TIMEOUT_S = 5.0
LATE_MAX_S = 90.0

Effect = Callable[[], object]


class ObjectVersion(NamedTuple):
    """An object that was stored at some time."""

    time_s: float
    data: bytes
    by: str


class _Request:
    __slots__ = ("answered", "error", "strand", "value")

    def __init__(self, strand: Strand) -> None:
        self.strand = strand
        self.answered = False
        self.value: object = None
        self.error: BucketError | None = None


class Server:
    """The objects of the bucket, and the faults of its requests."""

    def __init__(self, baton: Baton, luck: Luck, weather: Weather, story: LaneStory) -> None:
        self.baton = baton
        self.luck = luck
        self.weather = weather
        self.story = story
        self.objects: dict[str, bytes] = {}
        self.written: dict[str, list[ObjectVersion]] = {}
        """Everything ever stored under each key of the log, deleted or not, in the order of landing."""
        self._listed: list[str] = []
        self._manifest = (0, 0)

    # --- what a request does when it lands -----------------------------------------------------------------------

    def create(self, key: str, data: bytes, by: str) -> object:
        """Store it unless the key is taken."""
        if key in self.objects and not self.weather.conditions_ignored:
            raise ConditionFailed(f"{key} exists already")
        return self.store(key, data, by)

    def replace(self, key: str, data: bytes, tag: object, by: str) -> object:
        """Store it if the content is still the one of that tag."""
        there = self.objects.get(key)
        if (there is None or tag_of(there) != tag) and not self.weather.conditions_ignored:
            raise ConditionFailed(f"{key} has changed")
        return self.store(key, data, by)

    def store(self, key: str, data: bytes, by: str) -> object:
        """Store it, whatever is there."""
        self.objects[key] = data
        if key == "manifest":
            self._check_manifest(data, by)
        elif key.startswith("snapshot/"):
            self.story.counts["parts of snapshots"] += 1
        elif key.startswith("log/"):
            self.story.counts["landed in a collected slot"] += key in self.written
            self.written.setdefault(key, []).append(ObjectVersion(self.baton.now_s, data, by))
            self.story.tell(self.baton.now_s, "bucket", f"stores {short(key)} from {by}", key, by)
        return tag_of(data)

    def _check_manifest(self, data: bytes, by: str) -> None:
        """G4: each manifest is made of the one before it, and no epoch comes back."""
        manifest = json.loads(data)
        before, self._manifest = self._manifest, (manifest["revision"], manifest["epoch"])
        if manifest["revision"] != before[0] + 1 or manifest["epoch"] < before[1]:
            self.story.complain(f"G4: the manifest went from revision and epoch {before} to {self._manifest}", by)
        if manifest["epoch"] > before[1]:
            self.story.tell(self.baton.now_s, by, f"takes epoch {manifest['epoch']}", milestone=True)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove them, or some of them, and fail then."""
        broken = self.weather.on and self.luck.often(self.weather.write_faults)
        if broken:
            self.story.faults["deleted in part"] += 1
            keys = [key for key in keys if self.luck.often(0.5)]
        for key in keys:
            self.objects.pop(key, None)
        self.story.counts["objects deleted"] += len(keys)
        if keys:
            self.story.tell(self.baton.now_s, "bucket", f"deletes {short(keys[0])} to {short(keys[-1])}", *keys)
        if broken:
            raise Unclear("some were deleted, some were not")

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, as they are or were."""
        before = self._listed
        self._listed = sorted(self.objects)
        if self.weather.on and self.luck.often(self.weather.stale_lists):
            self.story.faults["stale list"] += 1
            return [key for key in before if key.startswith(prefix)]
        return [key for key in self._listed if key.startswith(prefix)]


class SimulatedBucket:
    """The bucket as one process sees it: an `interlock.lanes.objectlog.bucket_protocol.Bucket`."""

    def __init__(self, server: Server, life: StrandLife, lease_s: float) -> None:
        self._server = server
        self._baton = server.baton
        self._life = life
        self._lease_s = lease_s

    def get(self, key: str) -> Found | None:
        """The object, or None."""

        def landed() -> Found | None:
            data = self._server.objects.get(key)
            return None if data is None else Found(data, tag_of(data))

        found = self._read(key, landed)
        assert found is None or isinstance(found, Found)
        return found

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        """Read several objects concurrently; some are read earlier than others."""
        luck, objects = self._server.luck, self._server.objects
        bodies: dict[str, bytes | None] = {}
        early = [key for key in keys if luck.often(0.5)]
        self._baton.at(self._baton.now_s, lambda: bodies.update((key, objects.get(key)) for key in early))

        def landed() -> list[bytes | None]:
            bodies.update((key, objects.get(key)) for key in keys if key not in bodies)
            return [None if (body := bodies[key]) is None else body[:bytes_max] for key in keys]

        return cast("list[bytes | None]", self._read(keys[0] if keys else "", landed))

    def create(self, key: str, data: bytes) -> object:
        """Store it unless the key is taken."""
        return self._write("create", key, lambda: self._server.create(key, data, self._life.name))

    def replace(self, key: str, data: bytes, tag: object) -> object:
        """Store it if it is still the one with that tag."""
        return self._write("replace", key, lambda: self._server.replace(key, data, tag, self._life.name))

    def put(self, key: str, data: bytes) -> None:
        """Store it."""
        self._write("put", key, lambda: self._server.store(key, data, self._life.name))

    def delete(self, keys: Sequence[str]) -> None:
        """Remove them, or some of them."""
        if keys:
            self._write("delete", keys[0], lambda: self._server.delete(keys))

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, as they are or were."""
        return cast("list[str]", self._read(prefix, lambda: self._server.keys(prefix)))

    # --- the way there and back ----------------------------------------------------------------------------------

    def _read(self, key: str, effect: Effect) -> object:
        self._stall()
        server, luck, now_s = self._server, self._server.luck, self._baton.now_s
        fault = server.weather.for_read(now_s, self._life.name)
        request = _Request(self._baton.current)
        if fault is None:
            self._land(request, luck.between(0.002, 0.03), effect)
        else:
            server.story.faults[fault] += 1
            server.story.tell(now_s, self._life.name, f"reads {short(key)}: {fault}", key)
            if fault != "read hangs":
                self._refuse(request, luck.between(0.002, 0.03), _failure(fault))
        return self._answer(request)

    def _write(self, call: str, key: str, effect: Effect) -> object:
        self._stall(append=key.startswith("log/") and call == "create")
        server, luck, now_s = self._server, self._server.luck, self._baton.now_s
        fault = server.weather.for_write(now_s, self._life.name)
        request = _Request(self._baton.current)
        lands_s = luck.between(0.002, 0.05)
        conditional = call in {"create", "replace"}
        if fault is not None:
            if not conditional and fault in {"stored, 'exists already'", "409, nothing stored"}:
                fault = "stored, answer lost"
            server.story.faults[fault] += 1
            server.story.tell(now_s, self._life.name, f"{call}s {short(key)}: {fault}", key)
        match fault:
            case None:
                self._land(request, lands_s, effect)
            case "failed before" | "429 storm" | "403 for a while":
                self._refuse(request, lands_s, _failure(fault))
            case "409, nothing stored":
                self._refuse(request, lands_s, ConditionFailed(fault))
            case "stored, answer lost":
                self._land(request, lands_s, effect, Unclear(fault))
            case "stored, 'exists already'":
                self._land(request, lands_s, effect, ConditionFailed(fault))
            case "sent twice":
                self._land(request, lands_s, effect)
                self._land(None, luck.between(lands_s, LATE_MAX_S), effect)
            case "stored, then a hang":
                self._land(None, lands_s, effect)
            case _:  # A late landing; the sender gets a connection error immediately, or no answer.
                self._land(None, luck.between(0.05, luck.one((0.5, 5.0, LATE_MAX_S))), effect, late=True)
                if luck.often(0.5):
                    self._refuse(request, lands_s, Unclear("connection reset"))
        return self._answer(request)

    def _land(
        self,
        request: _Request | None,
        seconds: float,
        effect: Effect,
        lost: BucketError | None = None,
        *,
        late: bool = False,
    ) -> None:
        back_s = self._server.luck.between(0.001, 0.03)

        def landed() -> None:
            value: object = None
            error = lost
            try:
                value = effect()
            except BucketError as refused:
                error = lost or refused
            else:
                if late or self._life.killed:
                    self._server.story.counts["landed late" if late else "landed after the kill"] += 1
            if request is not None:
                request.value, request.error = value, error
                self._answer_at(self._baton.now_s + back_s, request)

        self._baton.at(self._baton.now_s + seconds, landed)

    def _refuse(self, request: _Request, seconds: float, error: BucketError) -> None:
        request.error = error
        self._answer_at(self._baton.now_s + seconds, request)

    def _answer_at(self, time_s: float, request: _Request) -> None:
        def arrived() -> None:
            request.answered = True
            self._baton.wake(request.strand)

        self._baton.at(time_s, arrived)

    def _answer(self, request: _Request) -> object:
        until_s = self._baton.now_s + REQUEST_TIMEOUT_S
        while not request.answered:
            if self._baton.now_s >= until_s:
                raise Unclear("no answer in time")
            self._baton.park(until_s - self._baton.now_s)
        if request.error is not None:
            raise request.error
        return request.value

    def _stall(self, *, append: bool = False) -> None:
        """Now and then the whole process stands still, before its request is sent."""
        stall_s = self._server.weather.stall_s(self._lease_s, append=append)
        if stall_s:
            story = self._server.story
            story.counts["stalls"] += 1
            story.counts["stalls longer than the lease"] += stall_s > self._lease_s
            story.tell(self._baton.now_s, self._life.name, f"stands still for {stall_s:.1f} s", milestone=True)
            self._life.stalled_until_s = self._baton.now_s + stall_s
            self._baton.park(stall_s)


def _failure(fault: str) -> BucketError:
    return Denied(fault) if fault.startswith("403") else Unclear(fault)


def tag_of(data: bytes) -> object:
    """A hash of the content."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def short(key: str) -> str:
    """A key without its zeros."""
    folder, _, name = key.partition("/")
    if folder != "log":
        return key[:28]
    return f"log/{int(name)}"
