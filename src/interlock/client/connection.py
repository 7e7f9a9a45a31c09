"""One connection to a server, with one exchange at a time.

Why not a library: see decision 0015. Invariant: a connection that was left in the middle of an exchange (an error, a
timeout, a cancellation) is aborted immediately and never used again.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator

from interlock.client.addresses import Address
from interlock.client.messages import HEAD_BYTES_MAX, Garbage, Head, Lost, NotSent, parse_head

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
        # then,
        # or it is lost with the connection.
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


async def connect(address: Address, tls: ssl.SSLContext | None) -> Connection:
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
