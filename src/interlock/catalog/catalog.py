"""Names and where they live, kept at a home: `Database.open("stock", home="lanes:///var/shop")`.

A name that nobody has placed lives below the home, in a database of its own, so unrelated writers never wait for each
other (D4). The catalog writes down every name that was opened, which makes them listable, and where a name lives if it
is somewhere else. It is one small file, replaced as a whole under a lock: readers see the old one or the new one.
"""

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec

from interlock.errors import BadUsage, CorruptionError

FILE = "interlock-catalog.json"
FORMAT = 1
NAME_CHARACTERS_MAX = 100


class Place(msgspec.Struct, frozen=True):
    """Where a database lives. An empty `url` means: below the home, under its own name."""

    url: str = ""


class _Written(msgspec.Struct, frozen=True):
    format: int
    databases: dict[str, Place]


class Catalog:
    """The catalog of one home."""

    def __init__(self, home: str) -> None:
        parts = urlsplit(home)
        if home != "memory:" and (parts.scheme != "lanes" or parts.netloc or len(parts.path) < 2):  # noqa: PLR2004
            raise BadUsage(
                f"{home!r} is not a home; lanes:///folder and memory: are.",
                why="The catalog is kept there, beside the databases.",
                fix="Write three slashes and an absolute path: lanes:///var/shop.",
            )
        self.home = home.rstrip("/")
        self._folder = None if home == "memory:" else Path(unquote(parts.path))

    def locate(self, name: str) -> str:
        """The URL of the database of that name, which is written down if it is new."""
        if not name.isprintable() or "/" in name or name.startswith(".") or not 0 < len(name) <= NAME_CHARACTERS_MAX:
            raise BadUsage(
                f"{name!r} is not the name of a database.",
                why="The name becomes the name of a file.",
                fix=f"Use 1 to {NAME_CHARACTERS_MAX} printable characters without a slash, not starting with a dot.",
            )
        if self._folder is None:
            return "memory:"
        place = self.names().get(name)
        if place is None:
            place = Place()
            self.place(name, "")
        return place.url or f"{self.home}/{quote(name)}"

    def place(self, name: str, url: str) -> None:
        """Write down where a database lives; an empty URL is its own place below the home."""
        assert self._folder is not None
        with _locked(self._folder):
            databases = {**self.names(), name: Place(url)}
            _replace(self._folder / FILE, msgspec.json.encode(_Written(FORMAT, databases)))

    def names(self) -> dict[str, Place]:
        """Every name that was ever opened here, and its place."""
        if self._folder is None or not (self._folder / FILE).exists():
            return {}
        data = (self._folder / FILE).read_bytes()
        try:
            written = msgspec.json.decode(data, type=_Written)
        except (msgspec.MsgspecError, json.JSONDecodeError) as error:
            raise CorruptionError(f"the catalog {self._folder / FILE} cannot be read: {error}.") from error
        if written.format != FORMAT:
            raise CorruptionError(
                f"the catalog {self._folder / FILE} has format {written.format}; this version knows {FORMAT}.",
                fix="Use the version of Interlock that wrote it, or a later one.",
            )
        return dict(sorted(written.databases.items()))


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
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
