"""Security headers of every response. CORS is off: no response allows a page of another origin to read it.

The policy of JSON allows nothing. Pages load scripts and styles from files of this server only, with nothing inline,
and no other page may frame them.
"""

from typing import Final

from interlock.access import NotAuthenticated, NotPermitted

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
