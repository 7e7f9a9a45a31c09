"""Requests and answers of HTTP/1.1 as bytes: written and parsed strictly, with a bound on everything.

An ambiguous answer (two lengths, a length and chunks, an invalid header line) is garbage. Its connection is not used
again, because the bytes that follow cannot be assigned to a request.
"""

import re
from dataclasses import dataclass, field

HEAD_BYTES_MAX = 64 * 1024
"""G6: size of an answer's status line and headers."""

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH = re.compile(rb"\d{1,15}")

NO_CONTENT = frozenset({204, 304})


class NotSent(Exception):
    """The server was not reached: nothing was sent."""


class Lost(Exception):
    """The connection ended after part of the request may have been sent, and before the whole answer arrived."""


class Garbage(Exception):
    """The answer is not one that this client understands."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, without the headers that all requests of a client share."""

    method: str
    target: str
    """Path and query, below the address."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def written(self, root: str, shared: bytes) -> bytes:
        """Return the request as bytes. `shared` are the headers that every request of this client has."""
        lines = [f"{self.method} {root}{self.target} HTTP/1.1\r\n".encode("ascii"), shared]
        lines += [f"{name}: {value}\r\n".encode() for name, value in self.headers]
        if self.body is not None:
            lines.append(b"Content-Length: %d\r\n" % len(self.body))
        lines += [b"\r\n", self.body or b""]
        return b"".join(lines)


@dataclass(slots=True)
class Head:
    """The status and the headers of an answer; names in lower case."""

    status: int
    headers: dict[str, str] = field(default_factory=dict[str, str])
    old: bool = False
    """Whether it is HTTP/1.0."""

    @property
    def kind(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "transfer-encoding" in self.headers

    @property
    def length(self) -> int | None:
        """The length of the body, if it is known."""
        if self.status in NO_CONTENT:
            return 0
        length = self.headers.get("content-length")
        return None if length is None or self.chunked else int(length)

    @property
    def reusable(self) -> bool:
        """Whether the connection may be used again once the body is read."""
        option = self.headers.get("connection", "").lower()
        kept = "keep-alive" in option if self.old else "close" not in option
        return kept and (self.chunked or self.length is not None)


def parse_head(data: bytes) -> Head:
    """Parse the head of an answer, up to its empty line. Raises Garbage."""
    first, *lines = data.removesuffix(b"\r\n\r\n").split(b"\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise Garbage("it does not begin like an HTTP/1.1 answer")
    head = Head(int(status[2]), old=status[1] == b"0")
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name):
            raise Garbage("a line of its head is not a header")
        key, text = name.decode("ascii").lower(), value.strip(b" \t").decode("utf-8", "replace")
        if key in head.headers:
            if key in {"content-length", "transfer-encoding"}:
                raise Garbage(f"it has {key} twice")
            text = f"{head.headers[key]}, {text}"
        head.headers[key] = text
    _check_framing(head)
    return head


def _check_framing(head: Head) -> None:
    length, coding = head.headers.get("content-length"), head.headers.get("transfer-encoding")
    if length is not None and not _LENGTH.fullmatch(length.encode()):
        raise Garbage("its length is not a number")
    if coding is not None and (coding.lower() != "chunked" or length is not None or head.old):
        raise Garbage("its length is ambiguous")
    if head.headers.get("content-encoding", "identity").lower() != "identity":
        raise Garbage("it is compressed, which was not requested")
