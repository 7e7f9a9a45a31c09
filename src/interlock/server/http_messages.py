"""HTTP messages: `Request`, as handlers use it, and `HttpAnswer`, complete or streamed.

A request is validated before it has an effect. An unknown query parameter is refused as a spelling mistake. A body is
JSON in UTF-8, bounded in size, depth and time; it has no type, or a type of JSON, or one that clients set by default
(curl: a form).

Every answer carries headers that forbid content sniffing. CORS is off: no response allows a page of another origin to
read it. The policy of JSON allows nothing. Pages load scripts and styles from files of this server only, with nothing
inline, and no other page may frame them.
"""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from datetime import datetime
from email.message import Message as EmailMessage
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from interlock.core.codec import DEPTH_MAX
from interlock.core.decide import suggestion
from interlock.errors import (
    InterlockError,
    InvalidPayload,
    NotAuthenticated,
    NotPermitted,
    Overloaded,
    PayloadTooLarge,
    UnavailableError,
)
from interlock.server.app_declaration import Limits
from interlock.server.problems import Headers, HttpProblem, problem_of
from interlock.server.security.guard import Identity
from interlock.wire import Listing, encode

# --- Answers ---------------------------------------------------------------------------------------------------------

_EVERYWHERE: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

API_HEADERS: Headers = (
    *_EVERYWHERE,
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    # Contexts may be private, and a state is outdated a moment later.
    (b"cache-control", b"no-store"),
)

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

PAGE_HEADERS: Headers = (
    *_EVERYWHERE,
    (b"content-security-policy", PAGE_POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-cache"),
)

JSON: Headers = ((b"content-type", b"application/json"),)
NDJSON: Headers = ((b"content-type", b"application/x-ndjson"), (b"x-accel-buffering", b"no"))
EVENTS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))
SVG: Headers = (
    (b"content-type", b"image/svg+xml; charset=utf-8"),
    *(header for header in PAGE_HEADERS if header[0] != b"content-security-policy"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; sandbox"),
)
PAGE: Headers = ((b"content-type", b"text/html; charset=utf-8"), *PAGE_HEADERS)

PROBLEM: Headers = ((b"content-type", b"application/problem+json"),)

RETRY_S = 1
"""Seconds after which to retry when the server is unavailable, where nothing better is known."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes = b""
    headers: Headers = JSON
    secured: bool = False
    """Whether it sets its own browser security headers, as a page does."""


class StreamedAnswer(msgspec.Struct, frozen=True):
    """An answer that is sent in pieces."""

    status: int
    pieces: AsyncGenerator[bytes, None]
    headers: Headers


def json_answer(value: object, *, status: int = 200, headers: Headers = ()) -> HttpAnswer:
    """Encode a value as a JSON answer."""
    return HttpAnswer(status, encode(value), JSON + headers)


def listing(items: Sequence[object], cursor: str | None = None) -> HttpAnswer:
    """Encode one page of items, with the cursor of the next page."""
    return HttpAnswer(200, encode(Listing(tuple(items), cursor)))


def etag(version: int) -> Headers:
    """Return the ETag header of a workflow: its version in quotes."""
    return ((b"etag", b'"%d"' % version),)


def answer_to(error: InterlockError, *, status: int | None = None) -> HttpAnswer:
    """Build the answer that reports an error."""
    problem = problem_of(error, status=status)
    headers = PROBLEM
    if isinstance(error, HttpProblem):
        headers += error.headers
    if isinstance(error, NotAuthenticated | NotPermitted):
        headers += (challenge(error),)
    retry_s = retry_after(error)
    if retry_s is not None:
        headers += ((b"retry-after", str(retry_s).encode()),)
    return HttpAnswer(problem.status, encode(problem), headers)


def retry_after(error: InterlockError) -> int | None:
    """Return the whole seconds, at least 1, after which to retry; None when that is not known."""
    if isinstance(error, Overloaded):
        return max(RETRY_S, math.ceil(error.retry_after_s))
    if isinstance(error, HttpProblem):
        return error.retry_s
    return RETRY_S if isinstance(error, UnavailableError) else None


def challenge(error: NotAuthenticated | NotPermitted) -> tuple[bytes, bytes]:
    """Return the WWW-Authenticate header of an error (RFC 6750)."""
    if isinstance(error, NotPermitted):
        detail = ', error="insufficient_scope"'
    else:
        detail = ', error="invalid_token"' if error.presented else ""
    return b"www-authenticate", f'Bearer realm="interlock"{detail}'.encode()


# --- Media types -----------------------------------------------------------------------------------------------------
# Other types and encodings are refused with 415. Compressed bodies are refused because a small one could expand to a
# huge one.

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
    message = EmailMessage()
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
    return HttpProblem("unsupported-media-type", what, why=why, fix=fix)


# --- Requests --------------------------------------------------------------------------------------------------------

Message = MutableMapping[str, Any]
AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

ValueT = TypeVar("ValueT")

CLOSE: Headers = ((b"connection", b"close"),)

REST_BYTES_MAX = 65_536
"""Unread bytes of a body above which the connection ends after the answer."""

WHERE = "where"

PARAMETERS_MAX = 50
NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
TRUTH = {"true": True, "1": True, "": True, "false": False, "0": False}


class Disconnected(Exception):
    """The client disconnected before its request was complete: there is no client to answer."""


class Request:
    """One HTTP request, as handlers use it."""

    __slots__ = (
        "_receive",
        "headers",
        "identity",
        "limits",
        "method",
        "parts",
        "query",
        "query_string",
        "read_bytes",
        "reads",
        "scope",
        "where",
    )

    def __init__(self, scope: AsgiScope, receive: Receive, limits: Limits) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.headers = headers_of(scope["headers"])
        self.query_string: bytes = scope.get("query_string", b"")
        self.query: Mapping[str, str] = NO_QUERY
        """The parameters of the query, which the app has checked against those of the route."""
        self.where: Sequence[str] = ()
        """The conditions of a search: the one parameter that a query may have several times."""
        self.limits = limits
        self.parts: tuple[str, ...] = ()
        """The variable parts of the path, in order."""
        self.identity: Identity
        self._receive = receive
        self.read_bytes: int | None = 0
        """Bytes of the body that have been read; None when it is complete."""
        self.reads = False
        """Whether a handler waits for the next piece of the body."""

    # --- headers -----------------------------------------------------------------------------------------------------

    def header(self, name: bytes) -> str | None:
        """Return the text of a header; None if it is missing."""
        value = self.headers.get(name)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.decode("latin-1")

    def idempotency_key(self) -> str | None:
        """Return the key in the header. Raises InvalidPayload for one that is not ASCII."""
        value = self.headers.get(b"idempotency-key")
        if value is None or value.isascii():
            return None if value is None else value.decode("ascii")
        raise InvalidPayload(
            f"Idempotency-Key is {value.decode('latin-1')!r:.100}, which is not ASCII.",
            why="Two encodings of it would be two keys, and an event sent twice would be applied twice.",
            fix='Use 1 to 200 printable ASCII characters, or send the key in the body, as its member "key".',
        )

    def expected_version(self) -> int | None:
        """Return the version in If-Match; 0, which no workflow has, for a tag that is not a version."""
        text = self.header(b"if-match")
        if text is None or text.strip() == "*":
            return None
        tag = text.strip()
        if "," in tag or tag.count('"') not in {0, 2}:
            raise InvalidPayload(
                f"If-Match is {text!r:.100}.",
                why="A workflow has one version at a time, and its ETag is that version in quotes.",
                fix='Send the ETag that a GET of the workflow gave: If-Match: "3".',
            )
        number = tag.strip('"')
        return int(number) if number.isascii() and number.isdigit() and len(number) <= 18 else 0  # noqa: PLR2004 -- 64 bits.

    # --- query -------------------------------------------------------------------------------------------------------

    def parse_query(self, known: Sequence[str]) -> None:
        """Set `query`. Raises InvalidPayload for a parameter that is not in `known`."""
        self.query, self.where = _parse_query(self.query_string)
        for name in self.query:
            if name not in known:
                allowed = ", ".join(known) or "none"
                raise InvalidPayload(
                    f"there is no query parameter {name!r:.100} here; there is {allowed}.{suggestion(name, known)}",
                    why="An unknown parameter is a spelling mistake.",
                    fix="Correct or remove it.",
                )

    @property
    def person(self) -> str:
        """The person whom the client names in the query; empty without one."""
        return self.query.get("by", "")

    @property
    def actor(self) -> str:
        """The actor of the request, for history and logs (F1)."""
        return self.identity.acting(self.person) if self.query else self.identity.actor

    # --- body --------------------------------------------------------------------------------------------------------

    async def body(self) -> bytes:
        """Return the whole body. Raises PayloadTooLarge as soon as it is known to be too large."""
        most = self.limits.body_bytes_max
        announced = self.headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            raise too_large("the body of the request", int(announced), most)
        message = await self._piece()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            pieces, size = [body], len(body)
            while message.get("more_body", False):
                if size > most:
                    break
                message = await self._piece()
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
            body = b"".join(pieces)
        if len(body) > most:
            raise too_large("the body of the request", len(body), most)
        return body

    async def json(self, decoder: msgspec.json.Decoder[ValueT]) -> ValueT:
        """Decode the body. Raises InvalidPayload, and 415 for a type other than JSON."""
        self.check_media()
        return decode_json(await self.body(), decoder)

    def check_media(self) -> None:
        """Refuse a body whose headers name another type than JSON. Raises 415."""
        kind = self.headers.get(b"content-type")
        if kind not in USUAL or b"content-encoding" in self.headers:
            check_media(kind, self.headers.get(b"content-encoding"))

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of the body as they arrive."""
        more = True
        while more:
            message = await self._piece()
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]

    async def disconnected(self) -> None:
        """Wait until the client disconnects."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _piece(self) -> Message:
        self.reads = True
        try:
            async with asyncio.timeout(self.limits.body_s):
                message = await self._receive()
        except TimeoutError:
            raise slow_body(f"no piece of the body arrived for {self.limits.body_s:g} s (body_s).") from None
        if message["type"] == "http.disconnect":
            raise Disconnected
        self.reads = False
        if not message.get("more_body", False):
            self.read_bytes = None
        elif self.read_bytes is not None:
            self.read_bytes += len(message.get("body", b""))
        return message

    def ends_connection(self) -> bool:
        """Return whether so much of the body is unread that the connection has to end with the answer."""
        if self.read_bytes is None or self.scope.get("http_version", "1.1") not in {"1.0", "1.1"}:
            return False
        return is_rest_large(self.headers, self.read_bytes)


def slow_body(what: str) -> HttpProblem:
    """Build the error for a body that takes too long: no part of the request was carried out."""
    return HttpProblem(
        "request-timeout",
        what,
        why="A silent connection would occupy a slot for ever.",
        fix="Send the request again; one with an idempotency key applies once.",
        headers=CLOSE,
    )


def is_rest_large(headers: Mapping[bytes, bytes], read_bytes: int, *, most_bytes: int = REST_BYTES_MAX) -> bool:
    """Return whether the unread rest of a body is too large to drop, or the client waits for 100 Continue."""
    if b"transfer-encoding" in headers:
        return True
    announced = headers.get(b"content-length", b"0")
    rest_bytes = int(announced) - read_bytes if announced.isdigit() else 0
    return rest_bytes > most_bytes or (rest_bytes > 0 and read_bytes == 0 and b"expect" in headers)


def headers_of(sent: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by name. Repeated headers are joined, as HTTP has it: two API keys then match no key."""
    pairs = list(sent)
    found = dict(pairs)
    if len(found) < len(pairs):
        found = {}
        for name, value in pairs:
            # A newline is not allowed in a key, so two joined idempotency keys are refused as invalid.
            between = b"\n" if name == b"idempotency-key" else b", "
            found[name] = found[name] + between + value if name in found else value
    return found


def too_large(what: str, size_bytes: int, limit_bytes: int) -> PayloadTooLarge:
    """Build the error for more than `body_bytes_max` bytes."""
    error = PayloadTooLarge(what, size_bytes=size_bytes, limit_bytes=limit_bytes)
    error.why = "The memory of a request is bounded."
    error.fix = "Send less, or send many events as lines of a batch, or raise Limits(body_bytes_max=…) of the server."
    return error


def decode_json(data: bytes, decoder: msgspec.json.Decoder[ValueT], what: str = "the body") -> ValueT:
    """Decode JSON. Raises InvalidPayload, also for values that are nested too deeply."""
    try:
        value = decoder.decode(data)
    except RecursionError:
        raise _too_deep(what) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _decode_error(data, what, error) from error
    # Each level has two brackets, so short data cannot be deep.
    if len(data) > 2 * DEPTH_MAX and data.count(b"{") + data.count(b"[") > DEPTH_MAX:
        _refuse_deep(data, what)
    return value


def _decode_error(data: bytes, what: str, error: Exception) -> InvalidPayload:
    """Describe invalid JSON. For empty data and for half a character the decoder's own message misleads."""
    if not data.strip():
        return InvalidPayload(
            f"{what} is empty.",
            why="It must hold the request.",
            fix="Send JSON as the page /docs shows it for this request.",
        )
    if _HALF.search(_WHOLE.sub(b"", data)):
        return InvalidPayload(
            f"{what} has text that is not valid Unicode (a lone surrogate).",
            why="A lone surrogate is half a character, which no store can keep.",
            fix="Send both halves, \\ud83d\\ude00, or the character itself in UTF-8.",
        )
    return InvalidPayload(
        f"{what} does not fit: {error}.", fix="Send JSON as the page /docs shows it for this request."
    )


_WHOLE = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def _refuse_deep(data: bytes, what: str) -> None:
    try:
        waiting = [(cast("object", msgspec.json.decode(data)), 1)]
    except RecursionError:
        raise _too_deep(what) from None
    while waiting:
        value, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise _too_deep(what)
        if isinstance(value, dict):
            waiting += [(each, depth + 1) for each in cast("dict[str, object]", value).values()]
        elif isinstance(value, list):
            waiting += [(each, depth + 1) for each in cast("list[object]", value)]


def _too_deep(what: str) -> InvalidPayload:
    return InvalidPayload(
        f"{what} is nested too deeply.",
        why="A value nested without end could not be read back.",
        fix=f"Flatten it; {DEPTH_MAX} levels are allowed.",
    )


def _parse_query(query: bytes) -> tuple[dict[str, str], list[str]]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except ValueError as error:
        raise InvalidPayload(
            f"the query cannot be read: {error}.",
            why="It has to be percent-encoded UTF-8, with a bounded number of parameters.",
            fix="Encode it as forms do: name=value&name=value.",
        ) from error
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found and name != WHERE:
            raise InvalidPayload(
                f"the query parameter {name!r:.100} appears twice.",
                why="Only one of the two could be meant.",
                fix="Send it once.",
            )
        found[name] = value
    return found, [value for name, value in pairs if name == WHERE]


def whole_number(query: Mapping[str, str], name: str, *, default: int, most: int, least: int = 1) -> int:
    """Return a whole number in the query. Raises InvalidPayload outside its range."""
    text = query.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= 18 and least <= int(text) <= most:  # noqa: PLR2004 -- 64 bits.
        return int(text)
    raise InvalidPayload(
        f"{name} is {text!r:.100}; it must be a whole number from {least} to {most:,}.",
        why="Every answer has a bound.",
        fix=f"Send {name} within its range.",
    )


def instant(query: Mapping[str, str], name: str) -> datetime | None:
    """Return a time in the query; None if it is missing."""
    text = query.get(name)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text.replace(" ", "+"))  # A plus that was not encoded is a space.
    except ValueError:
        at = None
    if at is not None and at.tzinfo is not None:
        return at
    raise InvalidPayload(
        f"{name} is {text!r:.100}; it must be a time with its timezone.",
        why="A time without a timezone is another instant on another machine.",
        fix=f"Write it as {name}=2026-01-31T12:00:00Z.",
    )


def seconds(query: Mapping[str, str], name: str) -> float | None:
    """Return a number of seconds in the query; None if it is missing."""
    text = query.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0 <= value <= 1e10 and text.isascii() and "_" not in text:  # noqa: PLR2004 -- three hundred years.
        return value
    raise InvalidPayload(
        f"{name} is {text!r:.100}; it must be a number of seconds.",
        why="It is a duration in seconds.",
        fix=f"Write it as {name}=7200.",
    )


def switch(query: Mapping[str, str], name: str) -> bool:
    """Return a truth value in the query; False if it is missing."""
    text = query.get(name)
    if text is None:
        return False
    if text.lower() in TRUTH:  # `True`, as Python writes it, is accepted too.
        return TRUTH[text.lower()]
    raise InvalidPayload(
        f"{name} is {text!r:.100}; it must be true or false.",
        why="Anything else could be meant either way.",
        fix=f"Write {name}=true, or leave it out.",
    )
