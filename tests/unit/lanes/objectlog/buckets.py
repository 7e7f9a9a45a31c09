"""A bucket in memory whose answers can be scripted, and lanes' logs upon it, for tests."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from interlock.clock import SeededIds, SystemChance
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import BucketError, ConditionFailed, Environment, Found
from interlock.lanes.objectlog.log import ObjectLog, open_log

Fault = Callable[["ScriptedBucket", str, str, bytes], None]
"""Called before a write is carried out, with the bucket, the call, the key and the bytes; may raise, may store."""


def tag_of(data: bytes) -> str:
    """A tag is a hash of the content, as with most servers."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class ScriptedBucket:
    """Objects in a dictionary. Each entry of `faults` takes the place of one write, in turn; None lets it pass."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault | None] = []
        self.unreadable: list[BucketError | None] = []
        """What the next reads raise; None lets one pass."""
        self.calls: list[tuple[str, str]] = []

    def get(self, key: str) -> Found | None:
        self.calls.append(("get", key))
        if self.unreadable and (error := self.unreadable.pop(0)) is not None:
            raise error
        data = self.objects.get(key)
        return None if data is None else Found(data, tag_of(data))

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        found = [self.get(key) for key in keys]
        return [None if each is None else each.data[:bytes_max] for each in found]

    def create(self, key: str, data: bytes) -> object:
        self._meet("create", key, data)
        return self.store(key, data)

    def store(self, key: str, data: bytes) -> object:
        """Carry out a create."""
        if key in self.objects:
            raise ConditionFailed(f"{key} exists")
        self.objects[key] = data
        return tag_of(data)

    def replace(self, key: str, data: bytes, tag: object) -> object:
        self._meet("replace", key, data)
        if key not in self.objects or tag_of(self.objects[key]) != tag:
            raise ConditionFailed(f"{key} has changed")
        self.objects[key] = data
        return tag_of(data)

    def put(self, key: str, data: bytes) -> None:
        self._meet("put", key, data)
        self.objects[key] = data

    def delete(self, keys: Sequence[str]) -> None:
        self._meet("delete", ",".join(keys), b"")
        for key in keys:
            self.objects.pop(key, None)

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))

    def _meet(self, call: str, key: str, data: bytes) -> None:
        self.calls.append((call, key))
        if self.faults and (fault := self.faults.pop(0)) is not None:
            fault(self, call, key, data)


def lost(error: BucketError) -> Fault:
    """The request never arrived."""

    def fault(_bucket: ScriptedBucket, _call: str, _key: str, _data: bytes) -> None:
        raise error

    return fault


def stored_and_lost(error: BucketError) -> Fault:
    """The request was carried out, and its answer got lost."""

    def fault(bucket: ScriptedBucket, _call: str, key: str, data: bytes) -> None:
        bucket.objects[key] = data
        raise error

    return fault


def told(sent: list[bytes], fault: Fault | None) -> Fault:
    """Note what is sent, then let the fault happen."""

    def noted(bucket: ScriptedBucket, call: str, key: str, data: bytes) -> None:
        sent.append(data)
        if fault is not None:
            fault(bucket, call, key, data)

    return noted


class StillClock:
    """Time passes only when somebody pauses."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds + 0.001


def still_world(seed: int = 1, clock: StillClock | None = None) -> Environment:
    """A world without threads and without waiting; every seed has its own identities."""
    clock = clock or StillClock()

    def beside(work: Callable[[], None]) -> Callable[[], None]:
        work()
        return lambda: None

    return Environment(clock=clock, chance=SystemChance(seed), ids=SeededIds(seed), pause=clock.pause, beside=beside)


class Owner:
    """A process that owns a lane's log, with SQLite beneath it and no lane around it."""

    def __init__(
        self,
        bucket: ScriptedBucket,
        folder: Path,
        seed: int = 1,
        *,
        clock: StillClock | None = None,
        boot: str = "this machine",
        **knobs: float,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "x.lane"
        settings = LaneSettings(**knobs)  # type: ignore[arg-type]  # LaneSettings checks them itself.
        world = dataclasses.replace(still_world(seed, clock), boot=boot)
        self.log: ObjectLog = open_log(bucket, self.path, settings=settings, world=world)
        self.connection = apsw.Connection(str(self.path))
        self.connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0")
        self.frames = 0
        self.connection.set_wal_hook(self._committed)
        self.run("CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b)")

    def run(self, sql: str, *values: int | str) -> None:
        """One group of one statement, made durable."""
        self.log.renew()
        self.frames = 0
        self.connection.execute(sql, values)
        self.log.append(self.frames, 0)

    def rows(self) -> list[tuple[object, ...]]:
        """What is in the table."""
        return self.connection.execute("SELECT a, b FROM t ORDER BY a").fetchall()

    def close(self, *, clean: bool = True) -> None:
        """Close SQLite, then the log."""
        self.connection.close()
        self.log.close(clean=clean)

    def _committed(self, _connection: apsw.Connection, _database: str, frames: int) -> int:
        self.frames = frames
        return apsw.SQLITE_OK
