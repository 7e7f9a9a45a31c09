"""The catalog of a home, from names to addresses: `Database.open("stock", home="lanes:///var/shop")`.

A name that was never moved lives below the home, in a database of its own, so unrelated writers never wait for each
other (D4). The catalog writes down every name that was opened, which makes them listable, and where a name lives since
which move (D11). It is kept where the home is: in a file of its folder, an object of its bucket, a table of its schema.

It is a cache and never decides: a database that was moved away keeps a tombstone with its new address. So an entry may
be missing or old; the process that finds this out while opening updates it.
"""

import contextlib
from collections.abc import Sequence
from typing import Final, Protocol

from interlock.catalog.backends import FILE, BucketCatalog, FolderCatalog
from interlock.catalog.entries import Entry, Kind, below, check_name
from interlock.errors import BadUsage, UnavailableError
from interlock.urls import is_bucket_url, is_postgres_url, redact_secrets, with_secrets, without_secrets


class CatalogStorage(Protocol):
    """The storage of a catalog."""

    async def names(self, kind: Kind) -> dict[str, Entry]:
        """Return all entries of one kind, sorted by name."""
        ...

    async def entry(self, name: str, kind: Kind) -> Entry | None:
        """Return the entry of a name; None without one."""
        ...

    async def enter(self, name: str, entry: Entry, kind: Kind) -> Entry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        ...


class Catalog:
    """The catalog of one home. No network is used before a coroutine is awaited."""

    def __init__(self, home: str) -> None:
        self.folder = None if home == "memory:" or is_bucket_url(home) or _is_postgres(home) else FolderCatalog(home)
        """The blocking catalog, for a home that is a folder."""
        self.home = home if self.folder is None else self.folder.home
        self._storage = _storage_of(home, self.folder)

    async def names(self, kind: Kind = "databases") -> dict[str, Entry]:
        """Return every name that was ever opened or placed here, with its entry."""
        return await self._storage.names(kind)

    async def entry(self, name: str, *, kind: Kind = "databases") -> Entry:
        """Return the entry of a name; an unknown name lives at the home, with epoch 0."""
        self._check(name)
        return await self._storage.entry(name, kind) or Entry()

    async def enter(self, name: str, url: str, epoch: int, *, kind: Kind = "databases") -> Entry:
        """Write the address of a name since a move; an empty URL is its own place at the home.

        A lower epoch never replaces a higher one; the entry with the highest is returned. The call is idempotent.
        Raises CorruptionError for two places with one epoch. Secrets in the address are left out.
        """
        self._check(name)
        url = without_secrets(url)
        own = self.home if kind == "workflows" else below(self.home, name)
        return await self._storage.enter(name, Entry("" if url == without_secrets(own) else url, epoch), kind)

    async def locate(self, name: str) -> str:
        """Return the address of the database of that name; a new name is written to the catalog."""
        return self.address(name, await self.noted(name))

    def at_once(self, name: str) -> str:
        """Return the address without network I/O: exact for a folder, elsewhere that of an unmoved database."""
        self._check(name)
        return below(self.home, name) if self.folder is None else self.folder.locate(name)

    async def noted(self, name: str) -> Entry:
        """Return the entry of a database; a new name is written to the catalog."""
        self._check(name)
        entry = await self._storage.entry(name, "databases")
        if entry is None and self.home != "memory:":
            # A user with read-only rights to a bucket or schema cannot write the entry: then the name is not listed.
            with contextlib.suppress(UnavailableError):
                entry = await self._storage.enter(name, Entry(), "databases")
        return entry or Entry()

    def address(self, name: str, entry: Entry) -> str:
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

    async def names(self, kind: Kind) -> dict[str, Entry]:
        return self._folder.names(kind)

    async def entry(self, name: str, kind: Kind) -> Entry | None:
        return self._folder.entry(name, kind=kind)

    async def enter(self, name: str, entry: Entry, kind: Kind) -> Entry:
        return self._folder.enter(name, entry, kind=kind)


class _InMemory:
    """The catalog of a home in memory: always empty."""

    async def names(self, kind: Kind) -> dict[str, Entry]:
        del kind
        return {}

    async def entry(self, name: str, kind: Kind) -> Entry | None:
        del name, kind
        return None

    async def enter(self, name: str, entry: Entry, kind: Kind) -> Entry:
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
    from interlock.catalog.postgres_backend import PostgresCatalog  # noqa: PLC0415 -- an extra, which may not be installed.

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
    others = known.get(ALL, Entry())
    places = {name: known.get(name, others).url for name in machines} or {ALL: others.url}
    (first, place), *rest = places.items()
    for name, another in rest:
        if another != place:
            raise BadUsage(
                f"the workflows of {first!r} live at {_shown(home, place)}, and those of {name!r} at "
                f"{_shown(home, another)}.",
                why="An engine has one store, and one of the two was moved without the other.",
                fix="Open an engine for each of them, or move the other one too, with `interlock route`.",
            )
    return catalog.address(first, Entry(place)) if place else home


def _shown(home: str, place: str) -> str:
    return redact_secrets(place or home)
