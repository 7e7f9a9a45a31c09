"""Names and where they live, kept at a home: `Database.open("stock", home="lanes:///var/shop")`.

A name that nobody has placed lives below the home, in a database of its own, so unrelated writers never wait for each
other (D4). The catalog writes down every name that was opened, which makes them listable, and where a name lives if it
is somewhere else. It is one small file, replaced as a whole under a lock: readers see the old one or the new one.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from interlock.errors import BadUsage, CorruptionError, UnusableFile
from interlock.lanes.objects.addresses import is_bucket

FILE = "interlock-catalog.json"
FORMAT = 1
NAME_CHARACTERS_MAX = 100
NAME_BYTES_MAX = 200
"""File systems take names of up to 255 bytes, and a lane's files have endings."""


class Place(msgspec.Struct, frozen=True):
    """Where a database lives. An empty `url` means: below the home, under its own name."""

    url: str = ""


class _Written(msgspec.Struct, frozen=True):
    format: int
    databases: dict[str, Place]


class Catalog:
    """The catalog of one home."""

    def __init__(self, home: str) -> None:
        self._folder = None if home == "memory:" or is_bucket(home) else _folder_of(home)
        self.home = home.rstrip("/")

    def locate(self, name: str) -> str:
        """The URL of the database of that name, which is written down if it is new."""
        _check_name(name)
        if self._folder is None:
            return "memory:" if self.home == "memory:" else _below_bucket(self.home, name)
        place = self.names().get(name)
        if place is None:
            place = Place()
            self.place(name, "")
        return place.url or f"{self.home}/{quote(name)}"

    def place(self, name: str, url: str) -> None:
        """Write down where a database lives; an empty URL is its own place below the home."""
        _check_name(name)
        if self._folder is None:
            raise BadUsage(
                f"{name!r} cannot be placed at a home in memory or in a bucket.",
                why="Where a database lives is written down in a file of the home; these two have none.",
                fix="Name a home on a disk: lanes:///var/shop. At a bucket every name lives below the home.",
            )
        with _usable(self._folder / FILE), _locked(self._folder):
            databases = {**self.names(), name: Place(url)}
            _replace(self._folder / FILE, msgspec.json.encode(_Written(FORMAT, databases)))

    def names(self) -> dict[str, Place]:
        """Every name that was ever opened here, and its place."""
        if self._folder is None:
            return {}
        path = self._folder / FILE
        with _usable(path):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return {}
        try:
            written = msgspec.json.decode(data, type=_Written)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CorruptionError(
                f"the catalog {path} cannot be read: {error}.",
                why="It is replaced as a whole, so something else has written to it or damaged it.",
                fix="Put it back from a backup. The databases themselves are whole, and open by their URLs.",
            ) from error
        if written.format != FORMAT:
            raise CorruptionError(
                f"the catalog {path} has format {written.format}; this version knows {FORMAT}.",
                why="Another version of Interlock wrote it, and guessing at its meaning could lose a database.",
                fix="Use the version of Interlock that wrote it, or a later one.",
            )
        return dict(sorted(written.databases.items()))


def _below_bucket(home: str, name: str) -> str:
    folder, mark, options = home.partition("?")
    return f"{folder.rstrip('/')}/{quote(name)}{mark}{options}"


def _folder_of(home: object) -> Path:
    if isinstance(home, str) and home.startswith("lanes:///") and not {"?", "#"} & set(home):
        path = unquote(home.removeprefix("lanes://"))
        if path.strip("/") and path.isprintable() and ".." not in Path(path).parts:
            return Path(path)
    raise BadUsage(
        f"{home!r} is not a home; lanes:///folder, s3://bucket/folder and memory: are.",
        why="The catalog is kept there, beside the databases.",
        fix="Write three slashes and an absolute path: lanes:///var/shop.",
    )


def _check_name(name: object) -> None:
    if (
        isinstance(name, str)
        and name.isprintable()
        and "/" not in name
        and not name.startswith(".")
        and 0 < len(name) <= NAME_CHARACTERS_MAX
        and len(name.encode()) <= NAME_BYTES_MAX
    ):
        return
    raise BadUsage(
        f"{name!r} is not the name of a database.",
        why="The name becomes the name of a file.",
        fix=f"Use a text of 1 to {NAME_CHARACTERS_MAX} printable characters ({NAME_BYTES_MAX} bytes), without a slash, "
        "not starting with a dot.",
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
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
