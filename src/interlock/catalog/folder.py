"""The catalog of a home on a disk: one small file, replaced as a whole under a lock.

Readers see the old one or the new one, and need no lock. All calls are short and block, so that a caller with the
address of a folder can locate a name without awaiting.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from interlock.catalog.defaults import below
from interlock.catalog.entries import Entry, Kind, Written, check_name, decoded, encoded
from interlock.catalog.secrets import shown, without_secrets
from interlock.errors import BadUsage, UnusableFile
from interlock.lanes.placing import sync_folder

FILE: Final = "interlock-catalog.json"


class FolderCatalog:
    """The catalog in the folder of a home."""

    def __init__(self, home: str) -> None:
        self.folder = _folder_of(home)
        self.home = home.rstrip("/")

    def names(self, kind: Kind = "databases") -> dict[str, Entry]:
        """Return every name that was ever opened or placed here, with its entry."""
        return dict(sorted(self._read().of(kind).items()))

    def entry(self, name: str, *, kind: Kind = "databases") -> Entry | None:
        """Return the entry of a name; None without one."""
        check_name(name)
        return self._read().of(kind).get(name)

    def locate(self, name: str) -> str:
        """Return the address of the database of that name; a new name is written to the catalog."""
        entry = self.entry(name) or self.enter(name, Entry())
        return entry.url or below(self.home, name)

    def enter(self, name: str, entry: Entry, *, kind: Kind = "databases") -> Entry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        check_name(name)
        entry = Entry(without_secrets(entry.url), entry.epoch)
        path = self.folder / FILE
        with _usable(path), _locked(self.folder):
            before = self._read()
            after = before.after(kind, name, entry)
            if after is not before:
                _replace(path, encoded(after))
        return after.of(kind)[name]

    def _read(self) -> Written:
        path = self.folder / FILE
        with _usable(path):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                data = None
        return decoded(data, str(path))


def _folder_of(home: object) -> Path:
    if isinstance(home, str) and home.startswith("lanes:///") and not {"?", "#"} & set(home):
        path = unquote(home.removeprefix("lanes://"))
        if path.strip("/") and path.isprintable() and ".." not in Path(path).parts:
            return Path(path)
    raise BadUsage(
        f"{shown(str(home))!r} is not a home; lanes:///folder, s3://bucket/folder, postgresql://host/database "
        "and memory: are.",
        why="The catalog is kept there, beside the databases.",
        fix="Write three slashes and an absolute path: lanes:///var/shop.",
    )


@contextmanager
def _usable(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UnusableFile(
            f"the catalog {path} cannot be used: {error.strerror}.",
            fix="Check that the home is a folder on a disk with room, and its permissions.",
        ) from error


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / (FILE + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durably: the content first, then the name."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)
