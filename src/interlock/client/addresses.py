"""Addresses of servers: parsed and validated once.

An address holds no secret: one with a user or a password is refused, without repeating either, because addresses are
shown in errors, logs and listings. Nothing is read from the environment.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from interlock.errors import BadUsage

PORTS = {"http": 80, "https": 443}

_HOST = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)
_ROOT = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of `http://host:port/root`."""

    scheme: str
    host: str
    port: int
    root: str = ""
    """The path under which the server is mounted, without a trailing slash."""

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.root}"


def parse_address(url: str, what: str = "the address of a server") -> Address:
    """Parse an address. Raises BadUsage for an invalid one."""
    text: object = url  # Callers without a type checker may pass anything.
    if not isinstance(text, str):
        raise BadUsage(f"{what} is a {type(text).__name__}, not a text.", fix='Write "http://host:port".')
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError:
        parts, port, host = urlsplit(""), None, None
    if "@" in text:
        raise BadUsage(
            f"{what} has a user or a password in it.",
            why="Addresses are shown in errors and logs, and a secret must not be.",
            fix="Leave them out, and pass the API key as `key=`.",
        )
    root = parts.path.rstrip("/")
    known = parts.scheme in PORTS and host is not None and _HOST.fullmatch(host) and _ROOT.fullmatch(root)
    if not known or host is None or parts.query or parts.fragment or port == 0:
        raise BadUsage(
            f"{what} is invalid: {text!r:.200}.",
            why="It has a scheme (http or https), a host, an optional port and an optional path; nothing else.",
            fix='Write "http://host:port" or "https://host/path".',
        )
    return Address(parts.scheme, host, port or PORTS[parts.scheme], root)


def escaped(segment: str) -> str:
    """Escape an id as a segment of a path. Ids are printable texts of any alphabet; the result is ASCII."""
    # Proxies would resolve a segment of dots alone.
    return segment.replace(".", "%2E") if segment in {".", ".."} else quote(segment, safe="")


def query_of(**parameters: str | float | bool | None) -> str:
    """Return the query string; parameters that are None are left out."""
    texts = {
        name: ("true" if value else "false") if isinstance(value, bool) else value
        for name, value in parameters.items()
        if value is not None
    }
    return f"?{urlencode(texts)}" if texts else ""
