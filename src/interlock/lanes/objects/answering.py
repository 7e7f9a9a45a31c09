"""A bucket that does not answer, in words for people.

It needs none of the packages that a bucket needs, so whoever looks for a bucket only when an address names one has it.
"""

import contextlib
from collections.abc import Generator

from interlock.errors import UnavailableError
from interlock.lanes.objects.bucket import BucketError


@contextlib.contextmanager
def answering(what: str) -> Generator[None]:
    """Turn a bucket that does not answer into an error for people."""
    try:
        yield
    except BucketError as error:
        raise UnavailableError(
            f"the bucket did not let us {what}: {error}.",
            why="It did not answer, or refused: the network, the credentials, the name of the bucket.",
            fix="Check the address and the credentials, then try again; nothing was acknowledged.",
        ) from error
