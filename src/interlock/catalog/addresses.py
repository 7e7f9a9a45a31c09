"""Addresses of lanes: `lanes:///var/shop/stock` is a file, `memory:` is lost when it is closed.

A stream's key may be any text (a customer, an article number), so its file name is derived from it.
"""

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from interlock.errors import BadUsage, InvalidPayload
from interlock.lanes.objects.addresses import RESERVED, is_bucket, redacted
from interlock.sql.postgres.address import is_postgres
from interlock.sql.postgres.address import redacted as redacted_postgres

NAME_CHARACTERS_MAX = 100
STREAM_KEY_BYTES_MAX = 4_000
SUFFIX = ".lane"


def stream_name(key: str) -> str:
    """Return the file name of a stream: readable where possible, and never outside of its folder.

    Letters, digits, dash and underscore stand for themselves; everything else makes the name a digest of the key.
    """
    try:
        data = key.encode()
    except (UnicodeEncodeError, AttributeError) as error:
        raise InvalidPayload(f"{key!r} is not the key of a stream: it must be a text.") from error
    if not 0 < len(data) <= STREAM_KEY_BYTES_MAX or "\x00" in key:
        raise InvalidPayload(f"the key of a stream has 1 to {STREAM_KEY_BYTES_MAX} bytes, without NUL.")
    if len(key) <= NAME_CHARACTERS_MAX and re.fullmatch(r"[a-z0-9_-]+", key):
        return key
    return _digest(data)


def refuse_no_address(url: object, home: object) -> None:
    """Raise BadUsage for an address or home that is not even a text, such as a Path."""
    for what, value in (("address or name of a database", url), ("home", home)):
        if not isinstance(value, str) and not (value is None and what == "home"):
            raise BadUsage(
                f"{type(value).__name__} {value!r} is not the {what}: it must be a text.",
                why="The scheme in front of the path says which engine keeps the data.",
                fix='Write "lanes:///var/shop/stock", or f"lanes://{path}" with an absolute path.',
            )


def lane_path(url: str) -> Path | None:
    """Return the file of a lane, or None for a database in memory. Raises BadUsage for anything else."""
    if url == "memory:":
        return None
    path = _path(url)
    if path is not None and path.name and ".." not in path.parts:
        return path.with_name(path.name + SUFFIX)
    if is_postgres(url):
        raise BadUsage(
            f"{redacted_postgres(url)!r} is on PostgreSQL, and this needs a lane.",
            why="It is about the file or the log of a lane; PostgreSQL has tools of its own for that.",
            fix="Name a lane: lanes:///var/shop/stock or s3://bucket/name. PostgreSQL has psql and interlock hot.",
        )
    raise BadUsage(
        f"{redacted(url)!r} is not the address of a database; lanes:///folder/name, s3://bucket/name, "
        "postgresql://host/database and memory: are.",
        why="The scheme says which engine keeps the data.",
        fix="Write three slashes and an absolute path: lanes:///var/shop/stock.",
    )


def stream_url(url: str, key: str) -> str:
    """Return the address of one stream of the database at this address."""
    if url == "memory:":
        return url
    place, mark, options = url.partition("?")
    name = stream_name(key)
    if name in RESERVED and is_bucket(url):
        name = _digest(name.encode())  # No database may have that name there, but a key may be any text.
    return f"{place.rstrip('/')}.streams/{name}{mark}{options}"


def shard_url(url: str, number: int) -> str:
    """Return the address of one shard of the database at this address: a part with its own writer."""
    if url == "memory:":
        return url
    place, mark, options = url.partition("?")
    return f"{place.rstrip('/')}.shards/{number}{mark}{options}"


def _digest(key: bytes) -> str:
    return f"={hashlib.blake2b(key, digest_size=20).hexdigest()}"


def _path(url: str) -> Path | None:
    try:
        parts = urlsplit(url)
        path = unquote(parts.path)
        path.encode()  # A lone surrogate is in no name of a file.
    except ValueError:
        return None
    if parts.scheme != "lanes" or parts.netloc or parts.query or parts.fragment or len(parts.path) <= 1:
        return None
    # Control characters would silently be dropped from the address, and NUL ends a name.
    return None if any(character < " " for character in url + path) else Path(path)
