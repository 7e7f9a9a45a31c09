"""The files of the dashboard as answers to HTTP requests, for whichever server mounts them.

It knows no framework: `answer` takes a path and the `If-None-Match` header and returns status, headers and body.
Nothing here needs a key, because nothing here says anything of a workflow; the page asks `/v1` for that, with the
reader's key.

The invariant: a page may run the scripts beside it and talk to the server it came from, and nothing else. The policy
says so to the browser, and Trusted Types forbid markup made from text. The odd choice is that files are revalidated and
never kept for a time: modules name each other without a version, and a page must not be half old after an upgrade.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

from interlock.core.diagrams.theme import Theme, style_sheet

PAGE = "/"
PREFIX = "/ui/"
"""Everything but the page itself lies below this; the page names it relatively, so that it can be mounted anywhere."""

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
    """Where it is asked for, below the place where the server is mounted."""
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
class Answer:
    """What to send for a request."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@cache
def assets() -> Mapping[str, Asset]:
    """Every file by its path: the page at `/`, the rest below `/ui/`."""
    found = dict(_read(resources.files("interlock.ui") / "static", PREFIX))
    found[PAGE] = _asset(PAGE, found.pop(f"{PREFIX}index.html").body, ".html")
    path = f"{PREFIX}diagram.css"
    found[path] = _asset(path, _drawing_styles().encode(), ".css")
    return MappingProxyType(found)


def answer(path: str, if_none_match: str | None = None) -> Answer | None:
    """The answer to a GET of a path, or None when there is no such file."""
    asset = assets().get(path or PAGE)
    if asset is None:
        return None
    if if_none_match is not None and _matches(if_none_match, asset.etag):
        return Answer(304, asset.headers, b"")
    return Answer(200, asset.headers, asset.body)


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
    """The colours of a drawn machine in the theme that the page says it has, in a layer below the page's own rules.

    A drawing has them in a style element of its own, which the policy refuses on a page.
    """
    rules = "".join(f':root[data-theme="{theme}"] {{\n{style_sheet(theme)}}}\n' for theme in _DRAWING_THEMES)
    return f"@layer drawing {{\n{rules}}}\n"


def _matches(if_none_match: str, etag: str) -> bool:
    """A proxy that compresses may have weakened the tag; the file is the same."""
    given = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return etag in given or given == ["*"]
