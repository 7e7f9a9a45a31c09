"""The dashboard of the demo: one address for all lives of the worker.

The socket belongs to the parent process, which passes it to every worker. Between a kill and the next worker,
connections wait in the socket's backlog, so a browser sees only a pause.
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
"""The descriptor that stands for "no dashboard"."""


@contextlib.contextmanager
def listening() -> Generator[tuple[socket.socket, Listening] | None, None, None]:
    """Yield a loopback socket at a free port, and its address; None when uvicorn is not installed."""
    if find_spec("uvicorn") is None:
        yield None
        return
    with contextlib.closing(bound_socket(HOST, 0)) as found:
        host, port = found.getsockname()[:2]
        yield found, Listening(host=host, port=port)


@contextlib.asynccontextmanager
async def serving(engine: Engine, databases: dict[str, Database], descriptor: int) -> AsyncGenerator[None, None]:
    """Serve an engine at the socket with this descriptor until the block ends."""
    if descriptor == NONE:
        yield
        return
    app = asgi(engine, databases=databases)
    server = server_maker()(app)
    task = asyncio.create_task(server.serve(sockets=[socket.socket(fileno=descriptor)]))
    try:
        yield
    finally:
        # Do not wait for open connections: the next life serves those browsers, or the demo is over.
        app.leave()
        server.should_exit = server.force_exit = True
        await task
        await app.close()
