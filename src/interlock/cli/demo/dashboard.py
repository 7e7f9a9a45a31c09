"""The dashboard of the demo: the same address for all lives of the worker.

The socket belongs to the process that watches, which hands it to every worker. While none is there, between a kill and
the next one, connections wait in its queue: a browser that looks does not even notice more than a pause.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from importlib.util import find_spec

from interlock.database.database import Database
from interlock.runtime.engine import Engine
from interlock.server.asgi import asgi
from interlock.server.running import HOST, Listening, bound_socket, server_maker

NONE = -1
"""Instead of a descriptor: there is no dashboard."""


@contextlib.contextmanager
def listening() -> Generator[tuple[socket.socket, Listening] | None, None, None]:
    """A socket on loopback, at a port that is free, and its address; None when there is no server to serve it."""
    if find_spec("uvicorn") is None:
        yield None
        return
    with contextlib.closing(bound_socket(HOST, 0)) as found:
        host, port = found.getsockname()[:2]
        yield found, Listening(host=host, port=port)


@contextlib.asynccontextmanager
async def serving(engine: Engine, databases: dict[str, Database], descriptor: int) -> AsyncGenerator[None, None]:
    """Serve an engine at the socket with this descriptor for as long as it takes."""
    if descriptor == NONE:
        yield
        return
    app = asgi(engine, databases=databases)
    server = server_maker()(app)
    task = asyncio.create_task(server.serve(sockets=[socket.socket(fileno=descriptor)]))
    try:
        yield
    finally:
        # Whoever looks is served again by the next life, or the demo is over: nobody is waited for.
        app.leave()
        server.should_exit = server.force_exit = True
        await task
        await app.close()
