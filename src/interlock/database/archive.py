"""An archive of schemas of PostgreSQL: one file, with a manifest that says what is in it and how it is checked.

It is a ZIP: any tool lists it. Each table is a member, in the binary form of COPY, so that every value comes back as it
was, whatever its type. The manifest comes last, with the count and the checksum of the rows of each table as the server
computed them, and the digest of its member: a file that was cut off or changed is refused before anything is restored.
"""

import contextlib
import hashlib
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from interlock.errors import CorruptionError, UnusableFile

MANIFEST = "manifest.json"
FORMAT = 1
CHUNK_BYTES = 262_144
LEVEL = 1
"""Of compression: more takes longer and saves little."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one table."""

    table: str
    columns: tuple[str, ...]
    """Those that are written; a generated one is not."""
    member: str
    rows: int
    checksum: str
    """Of the set of rows, by the server: the same after they were restored."""
    sha256: str
    """Of the member."""


class Sequence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sequence stands."""

    table: str = ""
    column: str = ""
    """It numbers this column, and was made with it."""
    name: str = ""
    """It stands by itself."""
    value: int
    called: bool


class ArchivedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One schema: what makes it, its rows, and what comes after them."""

    name: str
    before: tuple[str, ...]
    """Statements before the rows, for a session that looks into this schema first."""
    rows: tuple[Rows, ...]
    after: tuple[str, ...]
    sequences: tuple[Sequence, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive says of itself."""

    format: int
    source: str
    """The address that it was made from, without secrets."""
    time: str
    server: str
    """The version of PostgreSQL."""
    schemas: tuple[ArchivedSchema, ...]
    """The database first, then its streams."""

    @property
    def row_count(self) -> int:
        """Of all tables."""
        return sum(rows.rows for schema in self.schemas for rows in schema.rows)

    @property
    def table_count(self) -> int:
        """Of all schemas."""
        return sum(len(schema.rows) for schema in self.schemas)


class Writing:
    """An archive that is being written."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file

    @contextlib.contextmanager
    def member(self, name: str) -> "Generator[Member]":
        """One member, to be written piece by piece."""
        with self._file.open(name, "w", force_zip64=True) as stream:
            yield Member(cast("BinaryIO", stream))

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, as the last thing."""
        self._file.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))


class Member:
    """A member that is being written, and its digest."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        """One piece more. It is awaited because the driver of PostgreSQL asks for that."""
        self._hash.update(data)
        self._stream.write(data)

    @property
    def sha256(self) -> str:
        """Of what was written so far."""
        return self._hash.hexdigest()


@contextlib.contextmanager
def writing(path: Path) -> Generator[Writing]:
    """A new archive."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as file:
        yield Writing(file)


class Reading:
    """An archive that was checked."""

    def __init__(self, file: zipfile.ZipFile, manifest: Manifest) -> None:
        self._file = file
        self.manifest = manifest

    def chunks(self, rows: Rows) -> Iterator[bytes]:
        """The rows of a table, piece by piece."""
        with self._file.open(rows.member) as stream:
            while data := stream.read(CHUNK_BYTES):
                yield data


def is_archive(path: Path) -> bool:
    """Whether the file is an archive, whole or not: it begins as one."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error


@contextlib.contextmanager
def reading(path: Path) -> Generator[Reading]:
    """An archive, after all of it was checked. Raises CorruptionError for one that is not whole."""
    try:
        with zipfile.ZipFile(path) as file:
            manifest = _manifest(path, file)
            found = Reading(file, manifest)
            for schema in manifest.schemas:
                for rows in schema.rows:
                    digest = hashlib.sha256()
                    for data in found.chunks(rows):
                        digest.update(data)
                    if digest.hexdigest() != rows.sha256:
                        raise _damaged(path, f"the rows of {schema.name}.{rows.table} are not those that were written")
            yield found
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error


def _manifest(path: Path, file: zipfile.ZipFile) -> Manifest:
    try:
        found = msgspec.json.decode(file.read(MANIFEST), type=Manifest)
    except KeyError as error:
        raise _damaged(path, "it has no manifest, which is written last") from error
    except msgspec.MsgspecError as error:
        raise _damaged(path, f"its manifest cannot be read: {error}") from error
    if found.format != FORMAT:
        raise UnusableFile(
            f"{path} has format {found.format}; this version knows {FORMAT}.",
            why="Another version of Interlock wrote it.",
            fix="Use that version, or a later one.",
        )
    return found


def _damaged(path: Path, told: str) -> CorruptionError:
    return CorruptionError(
        f"{path} is no whole archive: {told}.",
        why="It was cut off or changed after it was written; then it was checked.",
        fix="Use another copy of it. Nothing was restored.",
    )
