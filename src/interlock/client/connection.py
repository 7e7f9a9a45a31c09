"""One connection to a server, and one exchange at a time on it.

Why not a library: see decision 0015. The invariant: a connection that was left in the middle of anything (an error, a
time-out, a cancellation) is cut at once and never used again.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator

from interlock.client.addresses import Address
from interlock.client.messages import HEAD_BYTES_MAX, Garbage, Head, Lost, NotSent, parse_head

PIECE_BYTES = 64 * 1024

CHUNK_LINE_BYTES_MAX = 256
"""G6: of the line above a chunk."""

INTERIM_MAX = 8
"""G6: interim answers (1xx) before the real one."""


class Connection:
    """An open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.idle_since_s = 0.0
        self.busy = False
        """In the middle of an exchange."""

    @property
    def dead(self) -> bool:
        """Whether it is known to be of no use: cut from here, or closed from there."""
        return self.busy or self._writer.is_closing() or self._reader.at_eof()

    async def ask(self, request: bytes) -> "Incoming":
        """Send a request and read the head of its answer. Raises Lost or Garbage."""
        self.busy = True
        # Nobody waits until all of it has left: a server may refuse a large request before it has read the whole of it,
        # and its answer has to be read then, or it is lost with the connection.
        self._writer.write(request)
        return Incoming(self._reader, await self._head(), self)

    async def _head(self) -> Head:
        for _ in range(INTERIM_MAX):
            try:
                head = parse_head(await self._reader.readuntil(b"\r\n\r\n"))
            except asyncio.IncompleteReadError as error:
                if error.partial and not b"HTTP/1.".startswith(error.partial[:7]):
                    raise Garbage("it does not begin as an answer of HTTP/1.1 does") from error
                raise Lost("the connection was closed before an answer came") from error
            except asyncio.LimitOverrunError as error:
                raise Garbage(f"its headers are longer than {HEAD_BYTES_MAX:,} bytes") from error
            except OSError as error:
                raise Lost(_told(error)) from error
            if head.status >= 200:  # noqa: PLR2004 -- below are interim answers.
                return head
            if head.status == 101:  # noqa: PLR2004 -- another protocol, which was not asked for.
                break
        raise Garbage("it has no end of interim answers")

    def end(self, *, reusable: bool) -> None:
        """The answer is read. The next exchange may come, unless something of the request has still not left."""
        self.busy = not reusable or self._writer.transport.get_write_buffer_size() > 0

    def cut(self) -> None:
        """End it at once; what is on the way is given up."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """End it, and wait until the other side has been told."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            self.cut()  # It was gone already.


class Incoming:
    """The answer to one request: its head is here, its body comes."""

    def __init__(self, reader: asyncio.StreamReader, head: Head, connection: Connection) -> None:
        self.head = head
        self._reader = reader
        self._connection = connection

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises Garbage when it is longer than the limit."""
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
        """The body as it comes. Raises Lost when it ends too early."""
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
            raise Garbage("its chunks are not as they should be") from error
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
            raise Garbage("its chunks are not as they should be")
        return line

    async def _chunk_size(self) -> int:
        digits = (await self._line()).partition(b";")[0].strip()
        if not 1 <= len(digits) <= 12 or not all(each in b"0123456789abcdefABCDEF" for each in digits):  # noqa: PLR2004 -- a terabyte.
            raise Garbage("its chunks are not as they should be")
        return int(digits, 16)


async def connect(address: Address, tls: ssl.SSLContext | None) -> Connection:
    """A new connection. Raises NotSent when there is none to be had."""
    try:
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=tls if address.secure else None, limit=HEAD_BYTES_MAX
        )
    except (OSError, ssl.CertificateError, UnicodeError) as error:  # The last for a name that no name server takes.
        raise NotSent(_told(error)) from error
    return Connection(reader, writer)


def _told(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told or type(error).__name__
