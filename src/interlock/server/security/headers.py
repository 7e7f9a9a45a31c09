"""Security headers of every response, and the check of the address that a server listens on.

CORS is off: no response allows a page of another origin to read it. The policy of JSON allows nothing. Pages load
scripts and styles from files of this server only, with nothing inline, and no other page may frame them.
"""

import ipaddress
import re
from typing import Final

from interlock.errors import BadUsage, NotAuthenticated, NotPermitted

Header = tuple[bytes, bytes]

_EVERYWHERE: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

API_HEADERS: Final[tuple[Header, ...]] = (
    *_EVERYWHERE,
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    # Contexts may be private, and a state is outdated a moment later.
    (b"cache-control", b"no-store"),
)

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

PAGE_HEADERS: Final[tuple[Header, ...]] = (
    *_EVERYWHERE,
    (b"content-security-policy", PAGE_POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-cache"),
)


def challenge(error: NotAuthenticated | NotPermitted) -> Header:
    """Return the WWW-Authenticate header of an error (RFC 6750)."""
    if isinstance(error, NotPermitted):
        detail = ', error="insufficient_scope"'
    else:
        detail = ', error="invalid_token"' if error.presented else ""
    return b"www-authenticate", f'Bearer realm="interlock"{detail}'.encode()


_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,@/\[\]]+)(?::[0-9]{1,5})?")


def check_address(host: str, *, keyed: bool) -> None:
    """Raise BadUsage for an address that other machines can reach while there are no keys.

    Names are not resolved, because a name's address can change after the check.
    """
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
