"""A bucket with faults, in virtual time, that records every object ever stored.

A request is two events: it *lands* (and is executed atomically) and its answer *arrives*. Both belong to the bucket,
not to the sender: requests of a stalled or killed process land all the same. Reads are strongly consistent; a listing
may be stale. Tags are hashes of the content, as on S3: the same bytes have the same tag.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from interlock.lanes.objectlog.bucket_protocol import BucketError, ConditionFailed, Denied, Found, Unclear
from interlock.testing.campaigns import Luck
from interlock.testing.lane_simulation.record import LaneStory, Weather
from interlock.testing.lane_simulation.threads import Baton, Strand, StrandLife

REQUEST_TIMEOUT_S = 5.0
LATE_MAX_S = 90.0

Effect = Callable[[], object]


class StoredObject(NamedTuple):
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
        self.written: dict[str, list[StoredObject]] = {}
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
            self.written.setdefault(key, []).append(StoredObject(self.baton.now_s, data, by))
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
