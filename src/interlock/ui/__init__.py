"""The files of the dashboard as answers to HTTP requests, for any server that mounts them.

It depends on no framework: `answer` takes a path and the `If-None-Match` header and returns status, headers and body.
The files need no key, because they hold no workflow data; the page requests that from `/v1`, with the viewer's key.

Invariant: a page may run only the scripts beside it and connect only to its own server. The Content-Security-Policy
enforces it, and Trusted Types forbid markup made from text. Files are revalidated and never cached for a time: modules
import each other without a version, and a page must not be half old after an upgrade.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

from interlock.core.diagrams.svg import Theme, style_sheet

PAGE = "/"
PREFIX = "/ui/"
"""All files but the page itself are below this; the page links relatively, so that it can be mounted anywhere."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types interlock-diagram"
)
SECURITY_HEADERS: tuple[tuple[str, str], ...] = (
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DRAWING_THEMES: tuple[Theme, ...] = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the dashboard."""

    path: str
    """The path of the request, below the server's mount point."""
    body: bytes
    content_type: str
    etag: str

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All headers but the length, names in lower case."""
        return (
            ("content-type", self.content_type),
            ("etag", self.etag),
            ("cache-control", "no-cache"),
            *SECURITY_HEADERS,
        )


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """Status, headers and body of an answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@cache
def assets() -> Mapping[str, Asset]:
    """Return every file by its path: the page at `/`, the rest below `/ui/`."""
    found = dict(_read(resources.files("interlock.ui") / "static", PREFIX))
    found[PAGE] = _asset(PAGE, found.pop(f"{PREFIX}index.html").body, ".html")
    path = f"{PREFIX}diagram.css"
    found[path] = _asset(path, _drawing_styles().encode(), ".css")
    return MappingProxyType(found)


def answer(path: str, if_none_match: str | None = None) -> FileAnswer | None:
    """Return the answer to a GET of a path, or None when there is no such file."""
    asset = assets().get(path or PAGE)
    if asset is None:
        return None
    if if_none_match is not None and _matches(if_none_match, asset.etag):
        return FileAnswer(304, asset.headers, b"")
    return FileAnswer(200, asset.headers, asset.body)


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            yield from _read(entry, f"{path}/")
        else:
            yield path, _asset(path, entry.read_bytes(), f".{entry.name.rpartition('.')[2]}")


def _asset(path: str, body: bytes, suffix: str) -> Asset:
    return Asset(path, body, _TYPES[suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _drawing_styles() -> str:
    """Return the colours of a drawn machine for the page's theme, in a layer below the page's own rules.

    A drawing has them in a style element of its own, which the policy refuses on a page.
    """
    rules = "".join(f':root[data-theme="{theme}"] {{\n{style_sheet(theme)}}}\n' for theme in _DRAWING_THEMES)
    return f"@layer drawing {{\n{rules}}}\n"


def _matches(if_none_match: str, etag: str) -> bool:
    """Return whether the header has the tag. A proxy that compresses may have weakened it; the file is the same."""
    tags = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return etag in tags or tags == ["*"]
