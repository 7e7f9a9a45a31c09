"""Entries of a catalog, one per name: their rule of replacement, their document, their default addresses.

An entry has the epoch of the move that made it, and only a higher epoch replaces it. So any process may write it, any
number of times and in any order: the mover, one that finishes its move, or one that opened the old place and found the
tombstone. As a document the catalog is one JSON object; format 1 had no epochs and no workflows.

A name without an entry lives below the home, in a database of its own (D4).
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import quote

import msgspec

from interlock.errors import BadUsage, CorruptionError
from interlock.urls import (
    DEFAULT_SCHEMA,
    IDENTIFIER_BYTES_MAX,
    is_bucket_url,
    is_postgres_url,
    parse_postgres_url,
    redact_secrets,
    with_schema,
)

FORMAT: Final = 2
FORMATS: Final = (1, FORMAT)
"""Formats that can be read; the last one is written."""

NAME_CHARACTERS_MAX: Final = 100
NAME_BYTES_MAX: Final = 200
"""File systems take names of up to 255 bytes, and a lane's files have endings."""

Kind = Literal["databases", "workflows"]
"""Kind of an entry: a database by its name, or the workflows of a machine by the machine's name."""

Epoch = Annotated[int, msgspec.Meta(ge=0)]


class CatalogEntry(msgspec.Struct, frozen=True):
    """The address of a name, and the epoch of its last move. An empty `url`: at the home, never moved away."""

    url: str = ""
    """Without secrets."""
    epoch: Epoch = 0


class CatalogDocument(msgspec.Struct, frozen=True):
    """The whole catalog, as it is written to a file or an object."""

    format: int = FORMAT
    databases: dict[str, CatalogEntry] = {}
    workflows: dict[str, CatalogEntry] = {}

    def of(self, kind: Kind) -> Mapping[str, CatalogEntry]:
        """Return the entries of one kind."""
        return self.databases if kind == "databases" else self.workflows

    def after(self, kind: Kind, name: str, entry: CatalogEntry) -> "CatalogDocument":
        """Return a copy with this entry, unless there is a higher epoch; itself when nothing changes."""
        known = self.of(kind)
        if name in known and newer(name, known[name], entry) is known[name]:
            return self
        changed = {**known, name: entry}
        if kind == "databases":
            return msgspec.structs.replace(self, format=FORMAT, databases=changed)
        return msgspec.structs.replace(self, format=FORMAT, workflows=changed)


def newer(name: str, known: CatalogEntry, entry: CatalogEntry) -> CatalogEntry:
    """Return the entry with the higher epoch. Raises CorruptionError for two places with one epoch."""
    if known.epoch == entry.epoch and known.url != entry.url:
        raise CorruptionError(
            f"{name!r} lives at {_place(known)} since epoch {known.epoch}, and now at {_place(entry)} with the same.",
            why="Each move has an epoch of its own, so one of the two is not true.",
            fix="Open the database at both addresses: only one of them is not sent on to another place.",
        )
    return entry if entry.epoch > known.epoch else known


def decode_document(data: bytes | None, where: str) -> CatalogDocument:
    """Return the document in these bytes; an empty one for None. Raises CorruptionError."""
    if data is None:
        return CatalogDocument()
    try:
        document = msgspec.json.decode(data, type=CatalogDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptionError(
            f"the catalog {where} cannot be read: {error}.",
            why="It is replaced as a whole, so something else has written to it or damaged it.",
            fix="Put it back from a backup. The databases themselves are whole, and open by their URLs.",
        ) from error
    if document.format not in FORMATS:
        raise CorruptionError(
            f"the catalog {where} has format {document.format}; this version knows {FORMAT} and those before it.",
            why="Another version of Interlock wrote it, and guessing at its meaning could lose a database.",
            fix="Use the version of Interlock that wrote it, or a later one.",
        )
    return document


def check_name(name: object) -> None:
    """Raise BadUsage for an invalid name."""
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


def _place(entry: CatalogEntry) -> str:
    return redact_secrets(entry.url) if entry.url else "its home"


# --- Default addresses -----------------------------------------------------------------------------------------------
# On a disk and in a bucket that is a place with its name; on PostgreSQL a schema beside the home's own. A name that
# no schema can have, or that another schema has already, becomes a digest: no two names ever share a place.

DIGEST_PREFIX: Final = "db_"

_TAKEN = frozenset({DEFAULT_SCHEMA, "public", "information_schema"})
"""Workflows live in the first, databases without a schema in their address in the second."""


def below(home: str, name: str) -> str:
    """Return the address of a name at its home."""
    if home == "memory:":
        return home
    if is_postgres_url(home):
        return with_schema(home, _schema(name, parse_postgres_url(home).schema))
    folder, mark, options = home.partition("?") if is_bucket_url(home) else (home, "", "")
    folder = folder if folder.endswith("://") else folder.rstrip("/")  # Without a bucket it stays without one.
    return f"{folder}/{quote(name)}{mark}{options}"


def _schema(name: str, of_home: str) -> str:
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and len(name) <= IDENTIFIER_BYTES_MAX
    # Two underscores separate a database from its streams, and precede the remains of a move.
    own = name not in _TAKEN | {of_home} and "__" not in name and not name.startswith(("pg_", DIGEST_PREFIX))
    if plain and own:
        return name
    return DIGEST_PREFIX + hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
