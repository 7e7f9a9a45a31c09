"""Fresh place for an experiment's databases, removed afterwards without touching the user's data.

An address names a place that does not exist yet: a folder of lanes, a folder of a bucket, schemas of PostgreSQL. An
existing place is refused, so that everything below it at the end belongs to the experiment and can be removed.
Without an address the place is a temporary folder; in memory there is nothing to remove.
"""

import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from interlock.catalog.addresses import SUFFIX, lane_path
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.objects import addresses as objects
from interlock.lanes.objects.addresses import is_bucket, redacted
from interlock.lanes.objects.bucket import BucketError
from interlock.lanes.ownership import lock_path
from interlock.seams import RandomIds
from interlock.sql.postgres import address as postgres
from interlock.sql.postgres.address import is_postgres

Kind = Literal["lane", "memory", "bucket", "postgres"]

PREFIX: Final = "interlock-bench-"
SCHEMA_CHARACTERS_MAX: Final = 40
"""Bound on the schema in an address: the experiment appends its own names to it."""

REQUEST_TIMEOUT_S: Final = 30.0
DELETED_AT_ONCE: Final = 500

SCHEMAS = "SELECT nspname::text FROM pg_namespace WHERE nspname = $1 OR nspname LIKE $2"


@dataclass(frozen=True, slots=True)
class Ground:
    """The place of one run."""

    kind: Kind
    public_url: str
    """The address, without secrets."""
    cache: Path
    """A folder for local files of databases in buckets."""
    before: str
    after: str = ""
    """The parts of an address before and after the name of a database."""

    def address(self, name: str) -> str:
        """Return the address of one of the experiment's databases; its name has letters, digits and underscores."""
        return self.before if self.kind == "memory" else f"{self.before}{name}{self.after}"


@asynccontextmanager
async def ground(url: str | None) -> AsyncGenerator[Ground]:
    """Make a fresh place at the address, and remove it afterwards. Raises BadUsage when the place exists."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        cache = Path(folder) / "cache"
        if url is None:
            yield Ground("lane", "a temporary folder", cache, f"lanes://{folder}/")
        elif url == "memory:":
            yield Ground("memory", url, cache, url)
        elif is_bucket(url):
            async with _folder_of_bucket(url, cache) as found:
                yield found
        elif is_postgres(url):
            async with _schemas(url, cache) as found:
                yield found
        else:
            with_suffix = lane_path(url)
            assert with_suffix is not None, "memory was asked for above"
            path = with_suffix.with_name(with_suffix.name.removesuffix(SUFFIX))
            if path.exists() or with_suffix.exists() or lock_path(with_suffix).exists():
                raise _place_exists(url)
            try:
                yield Ground("lane", url, cache, f"{url.rstrip('/')}/")
            finally:
                shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def _folder_of_bucket(url: str, cache: Path) -> AsyncGenerator[Ground]:
    address = objects.parse(url)
    place, mark, options = url.partition("?")
    from interlock.lanes.objects.remote import open_bucket  # noqa: PLC0415 -- an extra, which may not be installed.

    bucket = open_bucket(address, request_timeout_s=REQUEST_TIMEOUT_S)
    with _bucket_errors(url):
        taken = bool(bucket.keys(""))
    if taken:
        raise _place_exists(url)
    try:
        yield Ground("bucket", redacted(url), cache, f"{place.rstrip('/')}/", mark + options)
    finally:
        with _bucket_errors(url):
            left = bucket.keys("")
            for begin in range(0, len(left), DELETED_AT_ONCE):
                bucket.delete(left[begin : begin + DELETED_AT_ONCE])


@contextmanager
def _bucket_errors(url: str) -> Generator[None]:
    try:
        yield
    except BucketError as error:
        raise UnavailableError(
            f"the bucket of {redacted(url)} cannot be listed or cleaned: {error}.",
            why="The experiment looks whether its folder is empty, and empties it at the end.",
            fix="Check the address, the network, and the rights to list and to delete.",
        ) from error


@asynccontextmanager
async def _schemas(url: str, cache: Path) -> AsyncGenerator[Ground]:
    address = postgres.parsed(url)
    place, _, query = url.partition("?")
    options = [option for option in filter(None, query.split("&")) if not option.startswith("schema=")]
    chosen = len(options) < len(list(filter(None, query.split("&"))))
    base = address.schema if chosen else f"interlock_bench_{RandomIds().new().hex[:8]}"
    if len(base) > SCHEMA_CHARACTERS_MAX:
        raise BadUsage(
            f"the schema {base!r} is too long a name for the experiment: at most {SCHEMA_CHARACTERS_MAX} characters.",
            why="The experiment makes several schemas, whose names begin with this one.",
            fix="Name a shorter one, or none at all.",
        )
    if await _existing_schemas(address, base):
        raise _place_exists(url)
    try:
        yield Ground("postgres", address.shown, cache, f"{place}?{'&'.join([*options, f'schema={base}_'])}")
    finally:
        await _drop(address, base)


async def _existing_schemas(address: postgres.Address, base: str) -> list[str]:
    from interlock.sql.postgres.link import connected  # noqa: PLC0415 -- an extra, which may not be installed.

    link = await connected(address)
    try:
        rows = await link.read(SCHEMAS, (base, base.replace("_", r"\_") + r"\_%"))
        return [str(row[0]) for row in rows]
    finally:
        await link.end(address.connect_timeout_s)


async def _drop(address: postgres.Address, base: str) -> None:
    from interlock.sql.postgres.link import connected  # noqa: PLC0415 -- an extra, which may not be installed.

    for schema in await _existing_schemas(address, base):
        # One transaction each: it locks every table of the schema, and a server bounds its number of locks.
        link = await connected(address)
        try:
            await link.script(f"DROP SCHEMA {schema} CASCADE")
        finally:
            await link.end(address.connect_timeout_s)


def _place_exists(url: str) -> BadUsage:
    address = postgres.redacted(url) if is_postgres(url) else redacted(url)
    return BadUsage(
        f"there is something at {address} already.",
        why="The experiment makes databases of its own there and removes them afterwards; yours are not touched.",
        fix="Name a place that does not exist yet, on the disk, bucket or server to be measured.",
    )
