"""Where a database lives that is killed again and again: on a local disk, or in a bucket with a disk that may be lost.

Between two lives a site makes a copy of exactly what the kill left, for examination: of a local database its files, of
one in a bucket what anybody could make of the bucket alone.
"""

import shutil
from pathlib import Path
from typing import Protocol

from interlock.lanes.objectlog.local_file import Cache
from interlock.lanes.objectlog.manifest import read_manifest
from interlock.lanes.objectlog.remote_bucket import open_bucket
from interlock.lanes.objectlog.slots import Position, read_slots
from interlock.urls import parse_bucket_url

REQUEST_TIMEOUT_S = 30.0


class Site(Protocol):
    """The surroundings of one database."""

    url: str
    cache: str | None

    def copy(self, folder: Path) -> Path:
        """What the kill left, as a file that SQLite opens, in this folder."""
        ...

    def crashed(self) -> None:
        """What else a crash does."""
        ...


class LocalSite:
    """Files in a folder, which a kill leaves as they are."""

    cache: str | None = None

    def __init__(self, folder: Path, *, name: str = "x") -> None:
        self.url = f"lanes://{folder}/{name}"
        self._file = folder / f"{name}.lane"

    def copy(self, folder: Path) -> Path:
        for path in (self._file, self._file.with_name(f"{self._file.name}-wal")):
            if path.exists():
                shutil.copy(path, folder / path.name)
        return folder / self._file.name

    def crashed(self) -> None:
        """Nothing else."""


class BucketSite:
    """A bucket, and a local folder that is gone after each crash, unless it is kept."""

    def __init__(self, folder: Path, url: str, *, keeps_disk: bool) -> None:
        self.url = url
        self._folder = folder / "cache"
        self.cache: str | None = str(self._folder)
        self._keeps_disk = keeps_disk

    def copy(self, folder: Path) -> Path:
        bucket = open_bucket(parse_bucket_url(self.url), request_timeout_s=REQUEST_TIMEOUT_S)
        found = read_manifest(bucket)
        assert found is not None
        manifest, copy = found[0], Cache(folder / "copy")
        position = copy.load(bucket, manifest, manifest.snapshots[-1]) if manifest.snapshots else Position()
        for stored in read_slots(bucket, bytes.fromhex(manifest.database), position):
            copy.apply(stored.entry)
        return copy.path

    def crashed(self) -> None:
        if not self._keeps_disk and self._folder.exists():  # A life may be killed before it has made one.
            shutil.rmtree(self._folder)
