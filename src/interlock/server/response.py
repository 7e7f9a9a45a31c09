"""HTTP answers: a status, headers and a body, either complete or streamed.

Every answer carries headers that forbid content sniffing. A page also carries a Content-Security-Policy that allows
only what the server itself serves.
"""

from collections.abc import AsyncGenerator, Sequence

import msgspec

from interlock.server.security.headers import PAGE_HEADERS

Headers = tuple[tuple[bytes, bytes], ...]

JSON: Headers = ((b"content-type", b"application/json"),)
NDJSON: Headers = ((b"content-type", b"application/x-ndjson"), (b"x-accel-buffering", b"no"))
EVENTS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))
SVG: Headers = (
    (b"content-type", b"image/svg+xml; charset=utf-8"),
    *(header for header in PAGE_HEADERS if header[0] != b"content-security-policy"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; sandbox"),
)
PAGE: Headers = ((b"content-type", b"text/html; charset=utf-8"), *PAGE_HEADERS)

_encoder = msgspec.json.Encoder(decimal_format="string")
encode, encode_lines = _encoder.encode, _encoder.encode_lines


class Answer(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes = b""
    headers: Headers = JSON
    secured: bool = False
    """Whether it sets its own browser security headers, as a page does."""


class Streamed(msgspec.Struct, frozen=True):
    """An answer that is sent in pieces."""

    status: int
    pieces: AsyncGenerator[bytes, None]
    headers: Headers


class Listing(msgspec.Struct, frozen=True):
    """The body of every listing: one page of items, and the cursor of the next page."""

    items: tuple[object, ...]
    cursor: str | None = None


def json_answer(value: object, *, status: int = 200, headers: Headers = ()) -> Answer:
    """Encode a value as a JSON answer."""
    return Answer(status, encode(value), JSON + headers)


def listing(items: Sequence[object], cursor: str | None = None) -> Answer:
    """Encode one page of items, with the cursor of the next page."""
    return Answer(200, encode(Listing(tuple(items), cursor)))


def tagged(version: int) -> Headers:
    """Return the ETag header of a workflow: its version in quotes."""
    return ((b"etag", b'"%d"' % version),)
