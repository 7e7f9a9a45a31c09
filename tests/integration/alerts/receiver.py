"""A receiver of alerts on a loopback port of its own, which answers by a script and remembers what it was sent."""

import datetime
import http.server
import ipaddress
import json
import queue
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

WAIT_S = 300.0
"""How long a test waits for a signal before it calls it lost."""


@dataclass(frozen=True)
class Received:
    """One request, as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded


class LocalReceiver:
    """What was received, and what is answered: a status, a status with headers, raw bytes, or what a function does."""

    def __init__(self, answers: Sequence["Answer"]) -> None:
        self.received: queue.Queue[Received] = queue.Queue()
        self.released = threading.Event()
        self.reached = threading.Event()
        """A request has arrived."""
        self.url = ""
        self._answers = list(answers)

    def next(self) -> Received:
        """The next request, waited for."""
        return self.received.get(timeout=WAIT_S)

    def all(self) -> list[Received]:
        """Every request that has arrived and was not taken yet."""
        return [self.received.get_nowait() for _ in range(self.received.qsize())]

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Give the next answer of the script; at its end, 202 for ever."""
        answer: Answer = self._answers.pop(0) if self._answers else 202
        if callable(answer):
            answer(self, handler)
        elif isinstance(answer, bytes):
            handler.wfile.write(answer)
        else:
            status, headers = answer if isinstance(answer, tuple) else (answer, {})
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", "0")
            handler.end_headers()


Answer = int | bytes | tuple[int, dict[str, str]] | Callable[[LocalReceiver, http.server.BaseHTTPRequestHandler], None]


def hang(receiver: LocalReceiver, handler: http.server.BaseHTTPRequestHandler) -> None:
    """Answer nothing until the receiver is released."""
    receiver.released.wait(WAIT_S)
    handler.close_connection = True


def drip(receiver: LocalReceiver, handler: http.server.BaseHTTPRequestHandler) -> None:
    """Answer one byte at a time, each sooner than any timeout between two bytes."""
    handler.wfile.write(b"HTTP/1.1 202 Accepted\r\nX: ")
    while not receiver.released.wait(0.02):
        try:
            handler.wfile.write(b"x")
        except OSError:
            return


@contextmanager
def receiving(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[LocalReceiver]:
    """Run a receiver on an ephemeral loopback port while the block lasts."""
    receiver = LocalReceiver(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = self.rfile.read(length)
            receiver.reached.set()
            receiver.received.put(Received(self.command, self.path, dict(self.headers), body))
            receiver.answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name is the standard library's.
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- as above, untyped.
            try:
                wire = request if tls is None else tls.wrap_socket(request, server_side=True)
            except OSError:
                return  # The other side did not accept the certificate: it sent nothing, and nothing is received.
            with wire:
                super().finish_request(wire, client_address)

        def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- as above.
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.released.set()
            server.shutdown()
            thread.join()


def certificate(folder: Path, address: str) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for an IP address: the file to trust it by, and the server's side of it."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "interlock test")])
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(day)
        .not_valid_after(day.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(secret, hashes.SHA256())
    )
    trusted, private = folder / "trusted.pem", folder / "private.pem"
    trusted.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(trusted, private)
    return trusted, tls
