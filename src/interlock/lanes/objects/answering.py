"""Translation of bucket errors into Interlock's.

It imports none of the packages that a bucket needs, so code can use it before it knows whether a bucket is named.
"""

import contextlib
from collections.abc import Generator

from interlock.errors import UnavailableError
from interlock.lanes.objects.bucket import BucketError


@contextlib.contextmanager
def answering(what: str) -> Generator[None]:
    """Raise UnavailableError for a bucket that does not answer or refuses."""
    try:
        yield
    except BucketError as error:
        raise UnavailableError(
            f"the bucket did not let us {what}: {error}.",
            why="It did not answer, or refused: the network, the credentials, the name of the bucket.",
            fix="Check the address and the credentials, then try again; nothing was acknowledged.",
        ) from error
