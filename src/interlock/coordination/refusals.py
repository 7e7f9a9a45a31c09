"""Why a Redis cannot be used, for people: what it or the driver says, and what to do about it where that is known.

Most of it is not there, and comes back by itself. The rest is a mistake in the address or in the rights of its user,
which nobody finds by waiting. None of it has a password in it: neither Redis nor the driver repeats one.
"""

KNOWN = (
    ("AuthenticationError", "", "it refuses the user or the password of the address"),
    ("NoPermissionError", "", "the user of the address lacks rights; docs/how-to/redis.md lists what it needs"),
    ("", "cluster mode is not enabled", "it is no node of a Redis Cluster: take cluster=yes out of the address"),
    ("", "cluster support disabled", "it is no node of a Redis Cluster: take cluster=yes out of the address"),
    ("ReadOnlyError", "", "it is a replica: give the address of its primary"),
    ("OutOfMemoryError", "", "its memory is full: raise maxmemory, or give Interlock a Redis of its own"),
    ("BusyLoadingError", "", "it is still loading its data"),
)
"""The kind of the error and a part of its text, either of which may be empty, and what to say."""

NODE = "it is a node of a Redis Cluster: add cluster=yes to the address"
STRAY = ("MovedError", "AskError", "ClusterCrossSlotError", "ClusterDownError")


def why_gone(error: Exception, *, cluster: bool) -> str:
    """In one line: what is known about the cause, and the error itself."""
    if isinstance(error.__cause__, Exception):
        error = error.__cause__  # The driver has wrapped what happened while it connected.
    kind, text = type(error).__name__, " ".join(str(error).split()).rstrip(".")
    said = f"{kind}: {text}" if text else kind
    if not cluster and (kind in STRAY or text.startswith(("MOVED ", "ASK "))):
        return f"{NODE} ({said})"
    for name, part, meaning in KNOWN:
        if (name and kind == name) or (part and part in text.lower()):
            return f"{meaning} ({said})"
    return said
