"""Check of the listen address: a server without keys listens only on loopback.

An address that is not known to be loopback is refused. Names are not resolved, because a name's address can change
after the check.
"""

import ipaddress
import re
from typing import Final

from interlock.errors import BadUsage

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,@/\[\]]+)(?::[0-9]{1,5})?")


def check_address(host: str, *, keyed: bool) -> None:
    """Raise BadUsage for an address that other machines can reach while there are no keys."""
    if keyed or is_loopback(host):
        return
    raise BadUsage(
        f"the server has no API keys, so it does not listen on {host!r}.",
        why="Without keys every client may do everything; only 127.0.0.1, ::1 and localhost are loopback.",
        fix="Make a key first, interlock keys create --scope admin --home …, or leave --host out.",
    )


def is_loopback(host: str) -> bool:
    """Return whether the name or address is certainly loopback."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def name_of_host(header: str) -> str:
    """Return the host in a Host header, without its port; empty for an invalid header."""
    found = _HOST.fullmatch(header)
    return found[1] if found else ""
