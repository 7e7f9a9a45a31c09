"""A server that answers each request as the test says: with a status, with half an answer, with a reset, or never.

Whatever it does, it has read the whole request first and kept it: a write that is answered by silence has happened.
"""

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple, Self


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """An answer, of which `cut` bytes are missing at the end."""

    status: int
    body: bytes = b""
    headers: tuple[str, ...] = ('ETag: "tag"', "Last-Modified: Mon, 02 Mar 2026 10:00:00 GMT")
    cut: int = 0


class Eof(NamedTuple):
    """The connection is closed without an answer."""


class Reset(NamedTuple):
    """The connection is reset."""


class Hang(NamedTuple):
    """Nothing happens, until the server is closed."""


Answer = Reply | Eof | Reset | Hang
Script = Callable[[Request], Answer]


def xml(status: int, code: str, message: str = "said the server") -> Reply:
    text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Reply(status, text.encode())


class ScriptedServer:
    """Answers by a script: a function of the request, or answers in turn, the last one for ever."""

    def __init__(self, *answers: Answer, script: Script | None = None) -> None:
        self.requests: list[Request] = []
        self._answers: Sequence[Answer] = answers
        self._script = script or self._in_turn
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._over = threading.Event()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def url(self, path: str) -> str:
        return f"s3://bucket/{path}?endpoint={self.endpoint}&access_key_id=id&secret_access_key=hidden"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads[1:]:
            thread.join()

    def _in_turn(self, _: Request) -> Answer:
        return self._answers[min(len(self.requests), len(self._answers)) - 1]

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reading:
            try:
                while (request := _read(reading.readline, reading.read)) is not None:
                    self.requests.append(request)
                    if not self._answer(connection, self._script(request)):
                        return
            except OSError:
                return

    def _answer(self, connection: socket.socket, answer: Answer) -> bool:
        """Whether the connection goes on."""
        match answer:
            case Reply(status, body, headers, cut):
                lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body)}", *headers, "", ""]
                data = "\r\n".join(lines).encode() + (b"" if self.requests[-1].method == "HEAD" else body)
                connection.sendall(data[: len(data) - cut])
                return cut == 0
            case Eof():
                return False
            case Reset():
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case Hang():
                self._over.wait()
                return False


def _read(line: Callable[[], bytes], read: Callable[[int], bytes]) -> Request | None:
    first = line().decode()
    if not first:
        return None
    method, path, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    while header := line().decode().strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return Request(method, path, headers, read(int(headers.get("content-length", "0"))))
