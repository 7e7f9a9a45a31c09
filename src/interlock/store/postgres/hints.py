"""Hints: a notification that something is due. It saves the time until somebody looks by himself, and no more.

PostgreSQL delivers it when the transaction commits, and never when it is rolled back.
"""

import hashlib

CHANNEL_BYTES_MAX = 63
"""PostgreSQL's bound for the name of a channel."""

DIGEST_BYTES = 8


def channel(schema: str) -> str:
    """The channel of a schema's hints."""
    name = f"interlock_{schema}"
    if len(name) <= CHANNEL_BYTES_MAX:
        return name
    # Two long names may begin alike, so a digest of the whole takes the place of the end.
    digest = hashlib.blake2b(schema.encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{name[: CHANNEL_BYTES_MAX - len(digest) - 1]}_{digest}"
