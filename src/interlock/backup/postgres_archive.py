"""Archive of schemas of PostgreSQL: one ZIP file with a manifest.

Each table is a member in the binary form of COPY, so that values of every type are restored exactly. The manifest is
the last member. It has the count and the checksum of the rows of each table, computed by the server, and the digest of
its member. A truncated or changed file is refused before anything is restored.
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
"""Level of compression: a higher one takes longer and saves little."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one table."""

    table: str
    columns: tuple[str, ...]
    """The columns that are written; generated ones are not."""
    member: str
    rows: int
    checksum: str
    """Checksum of the set of rows, by the server: the same after they were restored."""
    sha256: str
    """Digest of the member."""


class Sequence(msgspec.Struct, frozen=True, kw_only=True):
    """Current value of a sequence."""

    table: str = ""
    column: str = ""
    """The identity column that it belongs to; empty for a sequence of its own."""
    name: str = ""
    """Its name, if it does not belong to an identity column."""
    value: int
    called: bool


class ArchivedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One schema: statements before the rows, the rows, and statements after them."""

    name: str
    before: tuple[str, ...]
    """Statements before the rows, for a session whose search_path begins with this schema."""
    rows: tuple[Rows, ...]
    after: tuple[str, ...]
    sequences: tuple[Sequence, ...]


class ArchiveManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Content of an archive, with the checksums."""

    format: int
    source: str
    """Address of the source, without secrets."""
    time: str
    server: str
    """The version of PostgreSQL."""
    schemas: tuple[ArchivedSchema, ...]
    """The database first, then its streams."""

    @property
    def row_count(self) -> int:
        """Number of rows of all tables."""
        return sum(rows.rows for schema in self.schemas for rows in schema.rows)


class ArchiveWriter:
    """Writer of an archive."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file

    @contextlib.contextmanager
    def member(self, name: str) -> "Generator[Member]":
        """Begin a member, to be written piece by piece."""
        with self._file.open(name, "w", force_zip64=True) as stream:
            yield Member(cast("BinaryIO", stream))

    def finish(self, manifest: ArchiveManifest) -> None:
        """Write the manifest, as the last thing."""
        self._file.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))


class Member:
    """Writer of one member, with its digest."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        """Write one more piece. It is a coroutine because the driver of PostgreSQL requires one."""
        self._hash.update(data)
        self._stream.write(data)

    @property
    def sha256(self) -> str:
        """Return the digest of the data that was written so far."""
        return self._hash.hexdigest()


@contextlib.contextmanager
def writing(path: Path) -> Generator[ArchiveWriter]:
    """Create an archive."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as file:
        yield ArchiveWriter(file)


class ArchiveReader:
    """Reader of an archive that was checked."""

    def __init__(self, file: zipfile.ZipFile, manifest: ArchiveManifest) -> None:
        self._file = file
        self.manifest = manifest

    def chunks(self, rows: Rows) -> Iterator[bytes]:
        """Yield the rows of a table, piece by piece."""
        with self._file.open(rows.member) as stream:
            while data := stream.read(CHUNK_BYTES):
                yield data


def is_archive(path: Path) -> bool:
    """Return whether the file begins like an archive; it may be incomplete."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error


@contextlib.contextmanager
def reading(path: Path) -> Generator[ArchiveReader]:
    """Open an archive after a check of all its members. Raises CorruptionError for an incomplete or changed one."""
    try:
        with zipfile.ZipFile(path) as file:
            manifest = _manifest(path, file)
            found = ArchiveReader(file, manifest)
            for schema in manifest.schemas:
                for rows in schema.rows:
                    digest = hashlib.sha256()
                    for data in found.chunks(rows):
                        digest.update(data)
                    if digest.hexdigest() != rows.sha256:
                        raise _damaged_error(
                            path, f"the rows of {schema.name}.{rows.table} are not those that were written"
                        )
            yield found
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise _damaged_error(path, str(error)) from error
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error


def _manifest(path: Path, file: zipfile.ZipFile) -> ArchiveManifest:
    try:
        found = msgspec.json.decode(file.read(MANIFEST), type=ArchiveManifest)
    except KeyError as error:
        raise _damaged_error(path, "it has no manifest, which is written last") from error
    except msgspec.MsgspecError as error:
        raise _damaged_error(path, f"its manifest cannot be read: {error}") from error
    if found.format != FORMAT:
        raise UnusableFile(
            f"{path} has format {found.format}; this version knows {FORMAT}.",
            why="Another version of Interlock wrote it.",
            fix="Use that version, or a later one.",
        )
    return found


def _damaged_error(path: Path, problem: str) -> CorruptionError:
    return CorruptionError(
        f"{path} is not a complete archive: {problem}.",
        why="It was complete when it was written, and was truncated or changed afterwards.",
        fix="Use another copy of it. Nothing was restored.",
    )
