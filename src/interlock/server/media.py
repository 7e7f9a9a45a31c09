"""Check of a body's media type: JSON in UTF-8, and not compressed, or 415.

A body without a type is read as JSON, and so is one with a type that clients set by default: curl sends a form type,
others application/octet-stream. Other types and encodings are refused. Compressed bodies are refused because a small
one could expand to a huge one.
"""

from email.message import Message
from typing import Final

from interlock.server.problems import HttpProblem

USUAL: Final = frozenset({b"application/json", b"application/x-ndjson", b"application/json; charset=utf-8"})
"""Types that need no parsing."""

_READ: Final = frozenset(
    {
        "application/json",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "text/json",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
    }
)
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})


def check_media(kind: bytes | None, coding: bytes | None) -> None:
    """Refuse a body by its Content-Type and its Content-Encoding. Raises 415."""
    if coding is not None and coding.strip().lower() not in {b"", b"identity"}:
        raise _unsupported(
            f"the body is compressed ({coding.decode('latin-1')!r:.50}).",
            why="A small compressed body could expand to a huge one.",
            fix="Send it uncompressed, without Content-Encoding.",
        )
    if kind is None or kind in USUAL or not kind.strip():
        return
    message = Message()
    message["content-type"] = kind.decode("latin-1").replace("\r", " ").replace("\n", " ")
    name, charset = message.get_content_type(), message.get_param("charset", "utf-8")
    if name not in _READ and not name.endswith("+json"):
        raise _unsupported(
            f"the body has the type {kind.decode('latin-1')!r:.100}.",
            why="Bodies are JSON here.",
            fix="Send JSON, with Content-Type: application/json.",
        )
    if str(charset).lower() not in _CHARSETS:
        raise _unsupported(
            f"the body is in {str(charset)!r:.50}.",
            why="JSON between programs is in UTF-8 (RFC 8259).",
            fix="Encode it as UTF-8.",
        )


def _unsupported(what: str, *, why: str, fix: str) -> HttpProblem:
    return HttpProblem(415, what, code="unsupported-media-type", why=why, fix=fix)
