"""The catalog of a home, from names to addresses: `Database.open("stock", home="lanes:///var/shop")`.

A name that was never moved lives below the home, in a database of its own, so unrelated writers never wait for each
other (D4). The catalog writes down every name that was opened, which makes them listable, and where a name lives since
which move (D11). It is kept where the home is: in a file of its folder, an object of its bucket, a table of its schema.

It is a cache and never decides: a database that was moved away keeps a tombstone with its new address. So an entry may
be missing or old; the process that finds this out while opening updates it.

Sections: homes on a disk, in a bucket and in PostgreSQL; catalogs; workflows.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `parse_postgres_url` has checked.

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import unquote

import msgspec

from interlock.catalog.catalog_entries import (
    CatalogDocument,
    CatalogEntry,
    Kind,
    below,
    check_name,
    decode_document,
    newer,
)
from interlock.catalog.open_lane import opening_thread
from interlock.clock import SystemClock
from interlock.errors import BadUsage, CorruptionError, OutcomeUnknown, TransactionError, UnavailableError, UnusableFile
from interlock.lanes.file import put_in_place
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Bucket, ConditionFailed, Found, Unclear, answering
from interlock.urls import (
    is_bucket_url,
    is_lane_url,
    is_postgres_url,
    parse_bucket_url,
    parse_postgres_url,
    redact_secrets,
    resolve_url,
    unknown_url,
    with_secrets,
    without_secrets,
)

if TYPE_CHECKING:
    from interlock.postgres.pool import Pool, PostgresRow

# --- Folders ---------------------------------------------------------------------------------------------------------
# On a disk the catalog is a file, replaced under a lock. Readers see the old one or the new one, and need no lock. All
# calls are short and block, so that a caller with the address of a folder can locate a name without awaiting.

FILE: Final = "interlock-catalog.json"


class FolderCatalog:
    """The catalog in the folder of a home."""

    def __init__(self, home: str) -> None:
        home = resolve_url(home)
        self.folder = _folder_of(home)
        self.home = home.rstrip("/")

    def names(self, kind: Kind = "databases") -> dict[str, CatalogEntry]:
        """Return every name that was ever opened or placed here, with its entry."""
        return dict(sorted(self._read().of(kind).items()))

    def entry(self, name: str, *, kind: Kind = "databases") -> CatalogEntry | None:
        """Return the entry of a name; None without one."""
        check_name(name)
        return self._read().of(kind).get(name)

    def locate(self, name: str) -> str:
        """Return the address of the database of that name; a new name is written to the catalog."""
        entry = self.entry(name) or self.enter(name, CatalogEntry())
        return entry.url or below(self.home, name)

    def enter(self, name: str, entry: CatalogEntry, *, kind: Kind = "databases") -> CatalogEntry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        check_name(name)
        entry = CatalogEntry(without_secrets(entry.url), entry.epoch)
        path = self.folder / FILE
        with _usable(path), _locked(self.folder):
            before = self._read()
            after = before.after(kind, name, entry)
            if after is not before:
                new = path.with_name(path.name + ".new")
                new.write_bytes(msgspec.json.encode(after))
                put_in_place(new, path, force=True)
        return after.of(kind)[name]

    def _read(self) -> CatalogDocument:
        path = self.folder / FILE
        with _usable(path):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                data = None
        return decode_document(data, str(path))


def _folder_of(home: object) -> Path:
    if isinstance(home, str) and is_lane_url(home) and not {"?", "#"} & set(home):
        path = unquote(home.removeprefix("lanes://"))
        if path.strip("/") and path.isprintable() and ".." not in Path(path).parts:
            return Path(path)
    raise unknown_url(home, "a home")


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


# --- Buckets ---------------------------------------------------------------------------------------------------------
# In a bucket the catalog is an object, swapped by its tag; every call blocks, in a thread of its own.
#
# Only a successful answer to a write is certain: after any other answer the object is read again, and its content
# decides. Entries only ever go to higher epochs, so no content comes twice, and a write that arrives late finds
# another tag.

ATTEMPTS_MAX: Final = 20

ResultT = TypeVar("ResultT")


class Buckets(Protocol):
    """The folder of a home, opened when it is needed."""

    def __call__(self, *, writing: bool) -> Bucket:
        """Open the folder; for writing, first prove that the bucket swaps objects atomically."""
        ...


class BucketCatalog:
    """The catalog in the folder of a bucket."""

    def __init__(self, home: str, open_folder: Buckets | None = None) -> None:
        self._redacted_home = redact_secrets(home)
        self._open = open_folder or folder_opener(home)

    async def names(self, kind: Kind) -> dict[str, CatalogEntry]:
        """Return all entries of one kind."""
        return dict(sorted((await _in_thread(self._read, "read the catalog")).of(kind).items()))

    async def entry(self, name: str, kind: Kind) -> CatalogEntry | None:
        """Return the entry of a name; None without one."""
        return (await _in_thread(self._read, "read the catalog")).of(kind).get(name)

    async def enter(self, name: str, entry: CatalogEntry, kind: Kind) -> CatalogEntry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        return await _in_thread(lambda: self._enter(name, entry, kind), "change the catalog")

    def _read(self) -> CatalogDocument:
        return self._decoded(self._open(writing=False).get(FILE))

    def _enter(self, name: str, entry: CatalogEntry, kind: Kind) -> CatalogEntry:
        bucket = self._open(writing=True)
        for _ in range(ATTEMPTS_MAX):
            found = bucket.get(FILE)
            before = self._decoded(found)
            after = before.after(kind, name, entry)
            if after is before or _is_written(bucket, found, msgspec.json.encode(after)):
                return after.of(kind)[name]
        raise UnavailableError(
            f"the catalog of {self._redacted_home} was changed by others {ATTEMPTS_MAX} times in a row.",
            why="A change is made only upon the newest catalog.",
            fix="Try again.",
        )

    def _decoded(self, found: Found | None) -> CatalogDocument:
        return decode_document(None if found is None else found.data, f"of {self._redacted_home}")


def _is_written(bucket: Bucket, found: Found | None, data: bytes) -> bool:
    try:
        _ = bucket.create(FILE, data) if found is None else bucket.replace(FILE, data, found.tag)
    except (ConditionFailed, Unclear):
        return False
    return True


def folder_opener(home: str) -> Buckets:
    """Return the function that opens the folder of a home."""
    address = parse_bucket_url(below(home, FILE))
    from interlock.lanes.objectlog import log as objectlog_log  # noqa: PLC0415 -- an extra, which may not be installed.

    def opened(*, writing: bool) -> Bucket:
        if writing:  # Asked once per process and folder, as by every database there.
            _ = objectlog_log.proven_bucket_of(address, settings=LaneSettings(), clock=SystemClock())
        return objectlog_log.folder_of(address)

    return opened


async def _in_thread(call: Callable[[], ResultT], what: str) -> ResultT:
    def ask() -> ResultT:
        with answering(what):
            return call()

    return await asyncio.wrap_future(opening_thread(ask))


# --- PostgreSQL ------------------------------------------------------------------------------------------------------
# In PostgreSQL the catalog is a table beside the workflows, made when the first entry is written. It is not part of the
# store's migrations: names of a home without a catalog have their default addresses, and an older version of Interlock
# still opens a schema that has one. The rule of `catalog_entries` is the statement's own condition, so writers need no
# coordination: the higher epoch wins in any order.

TABLE: Final = "interlock_catalog"

PRESENT = "SELECT to_regclass($1) IS NOT NULL"
SCHEMA_PRESENT = "SELECT to_regnamespace($1) IS NOT NULL"
CREATE = f"""
CREATE TABLE IF NOT EXISTS {{schema}}.{TABLE} (
    kind text NOT NULL,
    name text NOT NULL,
    url text NOT NULL,
    epoch bigint NOT NULL CHECK (epoch >= 0),
    PRIMARY KEY (kind, name)
);
"""


class PostgresCatalog:
    """The catalog in a schema."""

    def __init__(self, home: str) -> None:
        from interlock.postgres.pool import Pool  # noqa: PLC0415 -- an extra, which may not be installed.

        address = parse_postgres_url(home)
        self._make_pool = Pool
        self._address = address._replace(connections_max=1)
        self._schema = address.schema
        self._table = f"{address.schema}.{TABLE}"

    async def names(self, kind: Kind) -> dict[str, CatalogEntry]:
        """Return all entries of one kind."""
        async with self._pool() as pool:
            if not await self._is_there(pool):
                return {}
            rows = await pool.read(f"SELECT name, url, epoch FROM {self._table} WHERE kind = $1 ORDER BY name", kind)
            return dict(sorted((str(row[0]), self._decoded(row[1], row[2])) for row in rows))

    async def entry(self, name: str, kind: Kind) -> CatalogEntry | None:
        """Return the entry of a name; None without one."""
        async with self._pool() as pool:
            return await self._found(pool, name, kind) if await self._is_there(pool) else None

    async def enter(self, name: str, entry: CatalogEntry, kind: Kind) -> CatalogEntry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        async with self._pool() as pool:
            await self._make(pool)
            try:
                await self._write(pool, name, entry, kind)
            except OutcomeUnknown:
                await self._write(pool, name, entry, kind)  # Idempotent.
            found = await self._found(pool, name, kind)
        return entry if found is None else newer(name, found, entry)

    async def _write(self, pool: "Pool", name: str, entry: CatalogEntry, kind: Kind) -> None:
        _ = await pool.write(
            f"INSERT INTO {self._table} AS known (kind, name, url, epoch) VALUES ($1, $2, $3, $4) "
            "ON CONFLICT (kind, name) DO UPDATE SET url = excluded.url, epoch = excluded.epoch "
            "WHERE known.epoch < excluded.epoch",
            (kind, name, entry.url, entry.epoch),
        )

    async def _found(self, pool: "Pool", name: str, kind: Kind) -> CatalogEntry | None:
        rows: list[PostgresRow] = await pool.read(
            f"SELECT url, epoch FROM {self._table} WHERE kind = $1 AND name = $2", kind, name
        )
        return self._decoded(rows[0][0], rows[0][1]) if rows else None

    def _decoded(self, url: object, epoch: object) -> CatalogEntry:
        try:
            return msgspec.convert({"url": url, "epoch": epoch}, CatalogEntry)
        except msgspec.ValidationError as error:
            raise CorruptionError(
                f"the catalog {self._table} of {self._address.redacted_url} cannot be read: {error}.",
                why="Something else has written to the table, or changed it.",
                fix="Put the row back. The databases themselves are whole, and open by their URLs.",
            ) from error

    async def _is_there(self, pool: "Pool") -> bool:
        [(there,)] = await pool.read(PRESENT, self._table)
        return bool(there)

    async def _make(self, pool: "Pool") -> None:
        if await self._is_there(pool):
            return
        [(there,)] = await pool.read(SCHEMA_PRESENT, self._schema)
        # Where the schema is there the user needs no right to make one, which PostgreSQL would ask for all the same.
        schema = "" if there else f"CREATE SCHEMA IF NOT EXISTS {self._schema};"
        lock = f"SELECT pg_advisory_xact_lock(hashtextextended('interlock catalog {self._schema}', 0));"
        try:
            async with pool.link() as link:
                await link.script(f"{lock}{schema}{CREATE.format(schema=self._schema)}")
        except TransactionError as error:
            raise UnavailableError(
                f"the table {self._table} could not be made: {error.what}",
                why="The user of the home's address may not make tables there.",
                fix="Run `interlock route` once as a user with that right, and grant this user the table.",
            ) from error

    @contextlib.asynccontextmanager
    async def _pool(self) -> "AsyncGenerator[Pool]":
        # A catalog is read when something is opened, and then not for a long time: it keeps no connection.
        pool = self._make_pool(self._address)
        try:
            yield pool
        finally:
            await pool.close()


# --- Catalogs --------------------------------------------------------------------------------------------------------


class CatalogStorage(Protocol):
    """The storage of a catalog."""

    async def names(self, kind: Kind) -> dict[str, CatalogEntry]:
        """Return all entries of one kind, sorted by name."""
        ...

    async def entry(self, name: str, kind: Kind) -> CatalogEntry | None:
        """Return the entry of a name; None without one."""
        ...

    async def enter(self, name: str, entry: CatalogEntry, kind: Kind) -> CatalogEntry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        ...


class Catalog:
    """The catalog of one home. No network is used before a coroutine is awaited."""

    def __init__(self, home: str) -> None:
        home = resolve_url(home)
        self.folder = None if home == "memory:" or is_bucket_url(home) or _is_postgres(home) else FolderCatalog(home)
        """The blocking catalog, for a home that is a folder."""
        self.home = home if self.folder is None else self.folder.home
        self._storage = _storage_of(home, self.folder)

    async def names(self, kind: Kind = "databases") -> dict[str, CatalogEntry]:
        """Return every name that was ever opened or placed here, with its entry."""
        return await self._storage.names(kind)

    async def entry(self, name: str, *, kind: Kind = "databases") -> CatalogEntry:
        """Return the entry of a name; an unknown name lives at the home, with epoch 0."""
        self._check(name)
        return await self._storage.entry(name, kind) or CatalogEntry()

    async def enter(self, name: str, url: str, epoch: int, *, kind: Kind = "databases") -> CatalogEntry:
        """Write the address of a name since a move; an empty URL is its own place at the home.

        A lower epoch never replaces a higher one; the entry with the highest is returned. The call is idempotent.
        Raises CorruptionError for two places with one epoch. Secrets in the address are left out.
        """
        self._check(name)
        url = without_secrets(url)
        own = self.home if kind == "workflows" else below(self.home, name)
        return await self._storage.enter(name, CatalogEntry("" if url == without_secrets(own) else url, epoch), kind)

    async def locate(self, name: str) -> str:
        """Return the address of the database of that name; a new name is written to the catalog."""
        return self.address(name, await self.ensure_entry(name))

    def at_once(self, name: str) -> str:
        """Return the address without network I/O: exact for a folder, elsewhere that of an unmoved database."""
        self._check(name)
        return below(self.home, name) if self.folder is None else self.folder.locate(name)

    async def ensure_entry(self, name: str) -> CatalogEntry:
        """Return the entry of a database; a new name is written to the catalog."""
        self._check(name)
        entry = await self._storage.entry(name, "databases")
        if entry is None and self.home != "memory:":
            # A user with read-only rights to a bucket or schema cannot write the entry: then the name is not listed.
            with contextlib.suppress(UnavailableError):
                entry = await self._storage.enter(name, CatalogEntry(), "databases")
        return entry or CatalogEntry()

    def address(self, name: str, entry: CatalogEntry) -> str:
        """Return the address of an entry, with the secrets of the home where it is on the same server."""
        return with_secrets(entry.url, self.home) if entry.url else below(self.home, name)

    def _check(self, name: object) -> None:
        check_name(name)
        if name == FILE and is_bucket_url(self.home):
            raise BadUsage(
                f"{name!r} is not the name of a database in a bucket.",
                why="The catalog of the home has that name.",
                fix="Use another name.",
            )


class _InFolder:
    def __init__(self, folder: FolderCatalog) -> None:
        self._folder = folder

    async def names(self, kind: Kind) -> dict[str, CatalogEntry]:
        return self._folder.names(kind)

    async def entry(self, name: str, kind: Kind) -> CatalogEntry | None:
        return self._folder.entry(name, kind=kind)

    async def enter(self, name: str, entry: CatalogEntry, kind: Kind) -> CatalogEntry:
        return self._folder.enter(name, entry, kind=kind)


class _InMemory:
    """The catalog of a home in memory: always empty."""

    async def names(self, kind: Kind) -> dict[str, CatalogEntry]:
        del kind
        return {}

    async def entry(self, name: str, kind: Kind) -> CatalogEntry | None:
        del name, kind
        return None

    async def enter(self, name: str, entry: CatalogEntry, kind: Kind) -> CatalogEntry:
        del entry, kind
        raise BadUsage(
            f"{name!r} cannot be placed at a home in memory.",
            why="The catalog is kept at the home, and this one is lost when it is closed.",
            fix="Name a home that stays: lanes:///var/shop, s3://bucket/shop or postgresql://host/shop.",
        )


def _storage_of(home: str, folder: FolderCatalog | None) -> CatalogStorage:
    if folder is not None:
        return _InFolder(folder)
    if home == "memory:":
        return _InMemory()
    if is_bucket_url(home):
        return BucketCatalog(home)
    return PostgresCatalog(home)


def _is_postgres(home: object) -> bool:
    return isinstance(home, str) and is_postgres_url(home)


# --- Workflows -------------------------------------------------------------------------------------------------------
# The workflows of an engine are at its home, or where they were moved to. A machine is looked up by its name, and after
# that under `workflows`, which stands for all machines of the home. One engine has one store, so machines that live at
# different places cannot be served by one engine.

ALL: Final = "workflows"
"""The entry for every machine of the home that has none of its own."""


async def workflows_at(home: str, machines: Sequence[str]) -> str:
    """Return the address of the store with these machines' workflows. Raises BadUsage for several stores."""
    if home == "memory:":
        return home
    catalog = Catalog(home)
    known = await catalog.names("workflows")
    others = known.get(ALL, CatalogEntry())
    places = {name: known.get(name, others).url for name in machines} or {ALL: others.url}
    (first, place), *rest = places.items()
    for name, another in rest:
        if another != place:
            raise BadUsage(
                f"the workflows of {first!r} live at {_place_text(home, place)}, and those of {name!r} at "
                f"{_place_text(home, another)}.",
                why="An engine has one store, and one of the two was moved without the other.",
                fix="Open an engine for each of them, or move the other one too, with `interlock route`.",
            )
    return catalog.address(first, CatalogEntry(place)) if place else home


def _place_text(home: str, place: str) -> str:
    return redact_secrets(place or home)
