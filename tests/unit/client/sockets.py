"""The server in memory behind a real socket on loopback, in a thread of its own, with TLS if wanted."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Coroutine, Generator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from interlock.engine.blocking_engine import Portal
from interlock.testing.faults import stop_listening
from tests.unit.client.server import Server
from tests.unit.client.wires import Cut, Got, Reply, read_request


class Listening:
    """A server that listens; `open` are its connections."""

    def __init__(self, server: Server, listener: asyncio.Server) -> None:
        self.server = server
        self.port = int(listener.sockets[0].getsockname()[1])
        self.open: set[asyncio.StreamWriter] = set()
        self.made = 0
        self.got: list[Got] = []
        self.none_open = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        self.open.add(writer)
        self.none_open.clear()
        try:
            while True:
                got = await read_request(reader, self.made)
                self.got.append(got)
                reply = await _or_gone(self.server.handle(got), reader)
                writer.write(reply.written() if isinstance(reply, Reply) else reply)
        except (asyncio.IncompleteReadError, ConnectionError, Cut):
            pass
        finally:
            writer.transport.abort()  # Also of a client that was still there when the server was told to end.
            self.open.discard(writer)
            if not self.open:
                self.none_open.set()


async def _or_gone(answer: Coroutine[Any, Any, Reply | bytes], reader: asyncio.StreamReader) -> Reply | bytes:
    """The answer, unless the client goes before it is there."""
    answering, going = asyncio.ensure_future(answer), asyncio.ensure_future(reader.read(1))
    await asyncio.wait({answering, going}, return_when=asyncio.FIRST_COMPLETED)
    if not answering.done():
        answering.cancel()
        await asyncio.wait({answering, going})
        raise ConnectionError("the client has gone") from going.exception()
    going.cancel()
    await asyncio.wait({going})
    return answering.result()


async def _listen(tls: ssl.SSLContext | None) -> tuple[Listening, asyncio.Server]:
    found: list[Listening] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await found[0].serve(reader, writer)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    found.append(Listening(Server(), listener))
    return found[0], listener


@contextlib.asynccontextmanager
async def listening_here(tls: ssl.SSLContext | None = None) -> AsyncGenerator[Listening, None]:
    """The same in the event loop that runs."""
    listening, listener = await _listen(tls)
    try:
        yield listening
    finally:
        await stop_listening(listener)
        await listening.none_open.wait()


@contextlib.contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Generator[tuple[Listening, Portal], None, None]:
    """A server in a thread."""
    portal = Portal("test-server")
    try:
        found, listener = portal.call(_listen, tls)
        try:
            yield found, portal
        finally:
            portal.call(stop_listening, listener)
    finally:
        portal.stop()


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A context for a server on 127.0.0.1, and the file with the certificate that vouches for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shop.test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "public.pem", folder / "private.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return context, public
