"""Where a server without keys may listen: on this machine, and nowhere else.

An address is either known to be this machine's own or it is refused; names are not looked up, because what a name means
can change after the question.
"""

import ipaddress
import re
from typing import Final

from interlock.errors import BadUsage

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,@/\[\]]+)(?::[0-9]{1,5})?")


def check_address(host: str, *, keyed: bool) -> None:
    """Raise BadUsage for an address that others can reach while there is no key."""
    if keyed or is_loopback(host):
        return
    raise BadUsage(
        f"the server has no API keys, so it does not listen on {host!r}.",
        why="Without keys whoever reaches it may do everything; only 127.0.0.1, ::1 and localhost reach no further.",
        fix="Make a key first, interlock keys create --scope admin --home …, or leave --host out.",
    )


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine's own for certain."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def name_of_host(header: str) -> str:
    """The host in a Host header, without its port; empty for what is no such header."""
    found = _HOST.fullmatch(header)
    return found[1] if found else ""
