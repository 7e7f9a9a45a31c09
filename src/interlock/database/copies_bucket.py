"""Streams and shards of a database in a bucket: their addresses, and their files in a copy.

Only a listing finds them. A stream that is created during the call may be missing. Its writes were not acknowledged
before the call, so the copy is still complete.
"""

from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

from interlock.catalog.addresses import SUFFIX, stream_url
from interlock.database.copies import FOLDERS
from interlock.lanes.objects.addresses import RESERVED, parse
from interlock.lanes.objects.answering import answering


class BucketPart(NamedTuple):
    """A stream or a shard."""

    url: str
    below: PurePosixPath
    """Its file in a copy, relative to the folder of the database and without the database's name."""


def parts_in_bucket(url: str) -> list[BucketPart]:
    """Return all streams and shards of the database at an address. Raises UnavailableError."""
    from interlock.lanes.objects.door import folder_of  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objects.manifest import KEY  # noqa: PLC0415 -- the same.

    address = parse(url)
    place, mark, options = url.partition("?")
    with answering("list its streams"):
        bucket = folder_of(address)
        keys = [key for folder in FOLDERS for key in bucket.keys(f"{address.name}.{folder}/")]
    found: list[BucketPart] = []
    for key in sorted(keys):
        name, slash, last = key.rpartition("/")
        if slash and last == KEY:
            below = name.removeprefix(address.name)
            *above, final = (_folder_name(part) for part in below.split("/"))
            found.append(
                BucketPart(f"{place.rstrip('/')}{quote(below)}{mark}{options}", PurePosixPath(*above, final + SUFFIX))
            )
    return found


def bucket_name(name: str) -> str:
    """Return the name of a stream in a bucket, as a part of an address."""
    taken = next((there for there, here in _TAKEN.items() if here == name), None)
    return taken or quote(name)


def _folder_name(name: str) -> str:
    """Return the name of a stream in a folder: names that are reserved in a bucket are escaped there."""
    return _TAKEN.get(name, name)


_TAKEN = {stream_url("s3://bucket/database", name).rpartition("/")[2]: name for name in RESERVED}
