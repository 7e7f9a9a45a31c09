"""HTTP/1.1 connections of a client: messages as bytes, one connection, and the pool of them.

Why not a library: see decision 0015. Invariant: a connection that was left in the middle of an exchange (an error, a
timeout, a cancellation) is aborted immediately and never used again. Everything that a server sends has a bound.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from interlock.urls import ServerAddress

# --- Messages --------------------------------------------------------------------------------------------------------
# An ambiguous answer (two lengths, a length and chunks, an invalid header line) is garbage. Its connection is not
# used again, because the bytes that follow cannot be assigned to a request.

HEAD_BYTES_MAX = 64 * 1024
"""G6: size of an answer's status line and headers."""

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH = re.compile(rb"\d{1,15}")

NO_CONTENT = frozenset({204, 304})


class ExchangeError(Exception):
    """A request without a usable answer; the text is the reason."""


class NotSent(ExchangeError):
    """The server was not reached: nothing was sent."""


class Lost(ExchangeError):
    """The connection ended after part of the request may have been sent, and before the whole answer arrived."""


class Garbage(ExchangeError):
    """The answer is not one that this client understands."""


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


# --- One connection --------------------------------------------------------------------------------------------------

PIECE_BYTES = 64 * 1024

CHUNK_LINE_BYTES_MAX = 256
"""G6: size of the line before a chunk."""

INTERIM_MAX = 8
"""G6: number of interim answers (1xx) before the final one."""


class Connection:
    """An open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.idle_since_s = 0.0
        self.busy = False
        """Whether an exchange is under way."""

    @property
    def dead(self) -> bool:
        """Whether it is known to be unusable: aborted here, or closed by the server."""
        return self.busy or self._writer.is_closing() or self._reader.at_eof()

    async def ask(self, request: bytes) -> "Incoming":
        """Send a request and read the head of its answer. Raises Lost or Garbage."""
        self.busy = True
        # Not drained: a server may refuse a large request before it has read the whole of it. Its answer must be read
        # then, or it is lost with the connection.
        self._writer.write(request)
        return Incoming(self._reader, await self._head(), self)

    async def _head(self) -> Head:
        for _ in range(INTERIM_MAX):
            try:
                head = parse_head(await self._reader.readuntil(b"\r\n\r\n"))
            except asyncio.IncompleteReadError as error:
                if error.partial and not b"HTTP/1.".startswith(error.partial[:7]):
                    raise Garbage("it does not begin like an HTTP/1.1 answer") from error
                raise Lost("the connection was closed before an answer came") from error
            except asyncio.LimitOverrunError as error:
                raise Garbage(f"its headers are longer than {HEAD_BYTES_MAX:,} bytes") from error
            except OSError as error:
                raise Lost(_error_text(error)) from error
            if head.status >= 200:  # noqa: PLR2004 -- below are interim answers.
                return head
            if head.status == 101:  # noqa: PLR2004 -- another protocol, which was not requested.
                break
        raise Garbage("it has too many interim answers")

    def end(self, *, reusable: bool) -> None:
        """Mark the answer as read. The connection can be used again, unless part of the request is still unsent."""
        self.busy = not reusable or self._writer.transport.get_write_buffer_size() > 0

    def cut(self) -> None:
        """Abort the connection immediately; data under way is lost."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close the connection, and wait until it is closed."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            self.cut()  # It was closed already.


class Incoming:
    """The answer to one request: its head is read, its body is not."""

    def __init__(self, reader: asyncio.StreamReader, head: Head, connection: Connection) -> None:
        self.head = head
        self._reader = reader
        self._connection = connection

    async def read(self, limit: int) -> bytes:
        """Return the whole body. Raises Garbage when it is longer than the limit."""
        length = self.head.length
        if length is not None and length <= limit:
            try:
                data = await self._reader.readexactly(length) if length else b""
            except (asyncio.IncompleteReadError, OSError) as error:
                raise Lost("the connection was closed in the middle of the answer") from error
            self._end()
            return data
        if length is not None:
            raise Garbage(f"it is {length:,} bytes long; the limit here is {limit:,}")
        pieces: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            size += len(piece)
            if size > limit:
                raise Garbage(f"it is longer than the limit here, {limit:,} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces. Raises Lost when it ends too early."""
        try:
            if self.head.chunked:
                while size := await self._chunk_size():
                    while size:
                        piece = await self._some(size)
                        size -= len(piece)
                        yield piece
                    await self._reader.readuntil(b"\r\n")
                while await self._line():
                    pass  # Trailers.
            elif (left := self.head.length) is not None:
                while left:
                    piece = await self._some(left)
                    left -= len(piece)
                    yield piece
            else:
                while piece := await self._reader.read(PIECE_BYTES):
                    yield piece
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Lost("the connection was closed in the middle of the answer") from error
        except asyncio.LimitOverrunError as error:
            raise Garbage("its chunks are invalid") from error
        self._end()

    def _end(self) -> None:
        self._connection.end(reusable=self.head.reusable)

    async def _some(self, size: int) -> bytes:
        piece = await self._reader.read(min(size, PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        return piece

    async def _line(self) -> bytes:
        line = (await self._reader.readuntil(b"\r\n"))[:-2]
        if len(line) > CHUNK_LINE_BYTES_MAX:
            raise Garbage("its chunks are invalid")
        return line

    async def _chunk_size(self) -> int:
        digits = (await self._line()).partition(b";")[0].strip()
        if not 1 <= len(digits) <= 12 or not all(each in b"0123456789abcdefABCDEF" for each in digits):  # noqa: PLR2004 -- a terabyte.
            raise Garbage("its chunks are invalid")
        return int(digits, 16)


async def connect(address: ServerAddress, tls: ssl.SSLContext | None) -> Connection:
    """Open a connection. Raises NotSent when that fails."""
    try:
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=tls if address.secure else None, limit=HEAD_BYTES_MAX
        )
    except (OSError, ssl.CertificateError, UnicodeError) as error:  # The last for an invalid host name.
        raise NotSent(_error_text(error)) from error
    return Connection(reader, writer)


def _error_text(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


# --- Pool ------------------------------------------------------------------------------------------------------------
# A server closes idle connections, and its FIN may be under way while a request is sent. A request that may not be
# repeated therefore uses a connection that has just been used, or a new one; any other uses any idle connection.

IDLE_S_MAX = 30.0
"""A connection that was idle for longer is closed instead of used."""

FRESH_S = 1.0
"""A connection that was idle for less may be used for requests that cannot be repeated."""

Connect = Callable[[ServerAddress, ssl.SSLContext | None], Awaitable[Connection]]


class RequestProgress:
    """The progress of one attempt."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = False
        """Whether part of the request may have been sent."""


class ConnectionPool:
    """Connections to one address, of one event loop."""

    def __init__(
        self, address: ServerAddress, *, connections_max: int, tls: ssl.SSLContext | None, connect: Connect
    ) -> None:
        self._address = address
        self._tls = tls
        self._connect = connect
        self.loop = asyncio.get_running_loop()
        """The event loop to which all connections belong."""
        self._connections_max = connections_max
        self._places = asyncio.Semaphore(connections_max)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self.closed = False

    @property
    def open_count(self) -> int:
        """Number of open connections, in use or idle."""
        return len(self._open)

    @asynccontextmanager
    async def exchange(
        self, request: bytes, attempt: RequestProgress, *, repeatable: bool
    ) -> AsyncGenerator[Incoming, None]:
        """Send a request; its answer is read in the block. Leaving the block early drops the connection only."""
        async with self._places:
            connection = self._take_idle(IDLE_S_MAX if repeatable else FRESH_S)
            if connection is None:
                # G6: idle connections count too.
                while self._idle and self.open_count >= self._connections_max:
                    self._drop(self._idle.pop(0))
                connection = await self._new()
            try:
                attempt.sent = True
                yield await connection.ask(request)
            finally:
                self._give_back(connection)

    @asynccontextmanager
    async def apart(self, request: bytes, attempt: RequestProgress) -> AsyncGenerator[Incoming, None]:
        """Exchange on a connection of its own, for an endless answer: it takes no slot from other requests."""
        connection = await self._new()
        try:
            attempt.sent = True
            yield await connection.ask(request)
        finally:
            self._drop(connection)

    async def close(self) -> None:
        """Close idle connections and abort those in use: their callers get Lost."""
        self.closed = True
        idle = set(self._idle)
        self._idle.clear()
        for connection in self._open - idle:
            connection.cut()
        for connection in idle:
            self._open.discard(connection)
            await connection.close()

    def abandon(self) -> None:
        """Forget connections whose event loop has ended; nothing can be awaited there any more."""
        self.closed = True
        self._idle.clear()
        self._open.clear()

    async def _new(self) -> Connection:
        if self.closed:
            raise NotSent("the client was closed")
        connection = await self._connect(self._address, self._tls)
        if self.closed:
            connection.cut()  # The client was closed meanwhile, and must not send anything.
            raise NotSent("the client was closed")
        self._open.add(connection)
        return connection

    def _take_idle(self, idle_s_max: float) -> Connection | None:
        now_s = self.loop.time()
        while self._idle:
            connection = self._idle[-1]
            if not connection.dead and now_s - connection.idle_since_s > idle_s_max:
                if idle_s_max < IDLE_S_MAX:
                    return None  # Kept for repeatable requests; the others have been idle for longer still.
                self._idle.pop()
                self._drop(connection)
                continue
            self._idle.pop()
            if not connection.dead:
                return connection
            self._drop(connection)
        return None

    def _give_back(self, connection: Connection) -> None:
        if self.closed or connection.dead:
            self._drop(connection)
            return
        connection.idle_since_s = self.loop.time()
        self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.cut()
