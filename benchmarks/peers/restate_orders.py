"""Orders on Restate, the client: `python -m benchmarks.peers.restate_orders PORT`, with the port of the ingress.

Every client has its own connection, kept open, and speaks HTTP/1.1 with so little code that Restate is not charged for
the price of an HTTP library.
"""

import asyncio
import itertools
import sys

from benchmarks.peers.answering import answer, claim_answers

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def run(port: int) -> None:
    """Connect as clients come, and take turns."""
    connections: dict[int, Connection] = {}
    counting = itertools.count()

    async def order(client: int) -> None:
        if client not in connections:
            connections[client] = await asyncio.open_connection("127.0.0.1", port)
        await call(connections[client], f'"order-{next(counting)}"'.encode())

    await answer(claim_answers(), order)


async def call(connection: Connection, body: bytes) -> bytes:
    """Place one order and wait for its result."""
    reader, writer = connection
    writer.write(
        b"POST /Orders/place HTTP/1.1\r\nhost: restate\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).lower().splitlines()
    headers = dict(line.split(b": ", 1) for line in lines if line)
    if b"content-length" in headers:
        answered = await reader.readexactly(int(headers[b"content-length"]))
    else:
        answered = await _chunks(reader)
    assert b" 200 " in status, f"{status!r}: {answered!r}"
    assert answered == body, f"{answered!r} is not {body!r}"
    return answered


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    whole = b""
    while size := int(await reader.readline(), 16):
        whole += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return whole


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1])))
