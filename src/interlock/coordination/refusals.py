"""The reasons why a Redis cannot be used: the error of Redis or of the driver, with the remedy where it is known.

Most outages end by themselves. The rest are mistakes in the address or in the rights of its user, which waiting does
not correct. No text contains a password: neither Redis nor the driver repeats one.
"""

KNOWN = (
    ("AuthenticationError", "", "it refuses the user or the password of the address"),
    ("NoPermissionError", "", "the user of the address lacks rights; docs/how-to/redis.md lists what it needs"),
    ("", "cluster mode is not enabled", "it is not a node of a Redis Cluster: take cluster=yes out of the address"),
    ("", "cluster support disabled", "it is not a node of a Redis Cluster: take cluster=yes out of the address"),
    ("ReadOnlyError", "", "it is a replica: give the address of its primary"),
    ("OutOfMemoryError", "", "its memory is full: raise maxmemory, or give Interlock a Redis of its own"),
    ("BusyLoadingError", "", "it is still loading its data"),
)
"""The kind of the error and a part of its text, either of which may be empty, and what to say."""

NODE = "it is a node of a Redis Cluster: add cluster=yes to the address"
STRAY = ("MovedError", "AskError", "ClusterCrossSlotError", "ClusterDownError")


def why_gone(error: Exception, *, cluster: bool) -> str:
    """Return one line: the known cause, and the error itself."""
    if isinstance(error.__cause__, Exception):
        error = error.__cause__  # The driver has wrapped what happened while it connected.
    kind, text = type(error).__name__, " ".join(str(error).split()).rstrip(".")
    error_line = f"{kind}: {text}" if text else kind
    if not cluster and (kind in STRAY or text.startswith(("MOVED ", "ASK "))):
        return f"{NODE} ({error_line})"
    for name, part, meaning in KNOWN:
        if (name and kind == name) or (part and part in text.lower()):
            return f"{meaning} ({error_line})"
    return error_line
