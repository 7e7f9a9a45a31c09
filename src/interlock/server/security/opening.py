"""Open the keys and the audit log of a home by its address. Nothing is created before something is written.

They are stored beside the workflows, and not in their database, which has one owner: the command line can use them
while a server runs.
"""

from typing import Final, NamedTuple

from interlock.catalog.addresses import lane_path
from interlock.catalog.defaults import below
from interlock.catalog.folder import FolderCatalog
from interlock.errors import BadUsage
from interlock.lanes.objects.addresses import is_bucket, parse, redacted
from interlock.lanes.settings import LaneSettings
from interlock.redaction import redacted_text
from interlock.seams import Clock
from interlock.server.security.audit import Audit, MemoryTrail, Trail
from interlock.server.security.documents import Document, FileDocument, MemoryDocument
from interlock.server.security.keystore import KeyStore
from interlock.server.security.trails import FileTrail
from interlock.sql.postgres.address import is_postgres, parsed

FILE: Final = "interlock-keys.json"
"""File name, in the folder of a home on a disk."""

FOLDER: Final = "interlock-security"
"""Folder name, in a home in a bucket."""


class Security(NamedTuple):
    """The keys and the audit log of a home."""

    keys: KeyStore
    audit: Audit

    async def close(self) -> None:
        """Close connections."""
        await self.keys.close()
        await self.audit.close()


def security_at(home: str, *, clock: Clock) -> Security:
    """Return the keys and the audit log of a home. Raises BadUsage, without secrets, for an invalid address."""
    document, trail, address = _open_parts(home)
    return Security(KeyStore(document, address), Audit(trail, clock=clock))


def _open_parts(home: str) -> tuple[Document, Trail, str]:
    if home == "memory:":
        return MemoryDocument(), MemoryTrail(), home
    if is_postgres(home):
        from interlock.server.security.in_postgres import (  # noqa: PLC0415 -- an extra, which may be missing.
            PostgresDocument,
            PostgresTrail,
        )

        return PostgresDocument(home), PostgresTrail(home), parsed(home).shown
    if is_bucket(home):
        from interlock.lanes.objects import remote  # noqa: PLC0415 -- an extra, which may not be installed.
        from interlock.server.security.in_bucket import BucketDocument, BucketTrail  # noqa: PLC0415 -- as above.

        address = parse(below(home, FOLDER))
        # Without the probe, which opening the workflows makes: it would write each time keys are listed.
        bucket = remote.open_bucket(address, request_timeout_s=LaneSettings().request_timeout_s)
        return BucketDocument(bucket), BucketTrail(bucket), redacted(home)
    if not home.startswith("lanes:///"):
        raise BadUsage(
            f"{redacted_text(redacted(home))!r} is not a home that can have API keys.",
            why="Keys are stored beside the workflows: in a folder, in a bucket, or in PostgreSQL.",
            fix="Write lanes:///var/shop, s3://bucket/shop or postgresql://host/shop.",
        )
    path = lane_path(f"{FolderCatalog(home).home}/{FILE}")
    assert path is not None, "a folder has files"
    return FileDocument(path.with_name(FILE)), FileTrail(path.parent), home
