"""`serve`: opens an engine for an app, listens on a socket, and stops gracefully.

Order of stopping: `/readyz` fails, so that a load balancer stops sending requests. The socket is closed. Requests under
way are answered, and streams end. Steps get `drain_s` to finish. The store is closed. A second signal does not wait.

Without keys every client may do everything. The server then listens on loopback only, and refuses any other address.
"""

import asyncio
import contextlib
import gc
import importlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Self, cast

import msgspec

from interlock.clock import SystemClock
from interlock.engine.alerts.receivers import receivers_in
from interlock.engine.engine import Engine
from interlock.engine.engine_settings import Admission
from interlock.errors import BadUsage, MissingExtra
from interlock.observe.metrics import installed
from interlock.server.app_declaration import App, Limits
from interlock.server.asgi import AsgiApp, asgi
from interlock.server.security.guard import Audit, Guard, check_address
from interlock.server.security.stores import security_at
from interlock.server.service import SIGNALS
from interlock.server.worker_metrics import Siblings
from interlock.signals import Observer

if TYPE_CHECKING:
    import uvicorn

HOST = "127.0.0.1"
PORT = 8080
RATE_PER_S = 10_000.0
BURST = 15_000.0
BACKLOG = 2_048
FINISH_S = 30
"""How long requests under way may take after the signal to stop, in seconds."""

COLLECT = (20_000, 20, 20)
"""Thresholds of the garbage collector: new objects per collection, and collections per collection of older objects."""


class Listening(msgspec.Struct, frozen=True):
    """The address on which a server listens."""

    host: str
    port: int

    @classmethod
    def at(cls, listener: socket.socket) -> Self:
        """Return the address of a listening socket."""
        host, port = listener.getsockname()[:2]
        return cls(str(host), int(port))

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def admission_from(environment: Mapping[str, str] | None = None) -> Admission:
    """Return the admission limits of a server (C7): 10,000 calls a second, a burst of 15,000, or the environment's."""
    variables = os.environ if environment is None else environment
    rate = _number(variables, "INTERLOCK_RATE_PER_S", RATE_PER_S)
    burst = _number(variables, "INTERLOCK_BURST", max(BURST, rate) if rate == RATE_PER_S else rate * BURST / RATE_PER_S)
    in_flight = _number(variables, "INTERLOCK_IN_FLIGHT_MAX", float(Admission().in_flight_max))
    return Admission(rate_per_s=rate, burst=burst, in_flight_max=int(in_flight))


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 1e9:  # noqa: PLR2004 -- more than any machine can do.
        raise BadUsage(
            f"{name} is {text!r}; it must be a number from 1 up.",
            why="It limits admission to the server.",
            fix=f"Correct or unset {name}.",
        )
    return value


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises BadUsage when the address is not available."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host or HOST, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # With its protocol given explicitly, or asyncio would not set TCP_NODELAY, which sends small answers
        # immediately.
        found = socket.socket(family, kind, socket.IPPROTO_TCP)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(BACKLOG)
            found.setblocking(False)  # noqa: FBT003 -- as the standard library has it.
        except BaseException:
            found.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadUsage(
            f"the server cannot listen on {host}, port {port}: {reason}.",
            why="Another program uses the port, or the address does not belong to this machine.",
            fix="Choose another port (--port 0 finds a free one), or stop the other program.",
        ) from error
    return found


async def open_guard(home: str, host: str, stack: contextlib.AsyncExitStack) -> tuple[Guard, Audit]:
    """Return the guard and the audit log of a home, closed with the stack. Raises BadUsage for an unguarded host."""
    clock = SystemClock()
    security = security_at(home, clock=clock)
    guard = Guard(security.keys, clock=clock)
    stack.push_async_callback(security.audit.close)
    stack.push_async_callback(guard.close)
    await guard.fresh()
    check_address(host, keyed=guard.has_keys)
    return guard, security.audit


async def serve(
    app: App,
    home: str,
    *,
    host: str = HOST,
    port: int = PORT,
    limits: Limits | None = None,
    admission: Admission | None = None,
    worker: bool = True,
    leave_s: float = 0.0,
    listener: socket.socket | None = None,
    observers: Sequence[Observer | str] | None = None,
    siblings: Siblings | None = None,
    listening: Callable[[Listening], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve an app until a signal arrives or `stop` is set; return when everything is closed.

    `leave_s` is how long the server still answers after `/readyz` began to fail. `listener` is a socket that listens
    already; it is closed here too. Without `observers` it uses those whose packages are installed. With `siblings`
    it is one of several workers, each of which reports the metrics of all.
    """
    make = server_maker()
    async with contextlib.AsyncExitStack() as stack:
        guard, audit = await open_guard(home, host, stack)
        found = stack.enter_context(contextlib.closing(listener or bound_socket(host, port)))
        async with Engine.open(
            home,
            machines=app.machines,
            dependencies=app.dependencies,
            schedules=app.schedules,
            provide=app.provide,
            admission=admission or admission_from(),
            worker=worker,
            alerts=receivers_in(os.environ),
            observers=installed() if observers is None else observers,
        ) as engine:
            served = asgi(engine, home=home, webhooks=app.webhooks, guard=guard, audit=audit, limits=limits)
            try:
                server = make(served)
                if siblings is not None:
                    await stack.enter_async_context(served.service.join_workers(siblings))
                with stop_on_signals(served, server, stop or asyncio.Event(), leave_s):
                    if listening is not None:
                        listening(Listening.at(found))
                    await server.serve(sockets=[found])
            finally:
                await served.close()


def run_until_stopped(main: Coroutine[object, object, None]) -> None:
    """Run a server in an event loop of its own: uvloop's if it is installed, which takes a third less CPU time."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        factory = cast("Callable[[], asyncio.AbstractEventLoop]", importlib.import_module("uvloop").new_event_loop)
    with asyncio.Runner(loop_factory=factory) as runner, _rare_collections():
        runner.run(main)


@contextlib.contextmanager
def _rare_collections() -> Generator[None, None, None]:
    """Collect garbage less often: requests under way are live, and collections examined thousands again and again."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*COLLECT)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def server_maker() -> "Callable[[AsgiApp], uvicorn.Server]":
    """Return a function that makes a server for an app. Raises MissingExtra without uvicorn."""
    try:
        import uvicorn  # noqa: PLC0415 -- an extra, which may not be installed.

        from interlock.server.uvicorn_protocol import bounded_protocol  # noqa: PLC0415 -- as above.
    except ImportError as error:
        raise MissingExtra(
            "`interlock serve` needs uvicorn and httptools, which are not installed.", extra="server"
        ) from error

    class Server(uvicorn.Server):
        """uvicorn without its signal handlers: `stop_on_signals` handles them."""

        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            """Install no handlers."""
            yield

    def make(app: AsgiApp) -> uvicorn.Server:
        config = uvicorn.Config(
            app,
            http=bounded_protocol(app),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=FINISH_S,
            ws="none",
        )
        return Server(config)

    return make


@contextlib.contextmanager
def stop_on_signals(
    app: AsgiApp, server: "uvicorn.Server", stop: asyncio.Event, leave_s: float
) -> Generator[None, None, None]:
    """Handle signals: stop gracefully at the first, and immediately at the second."""
    loop = asyncio.get_running_loop()

    async def leave() -> None:
        await stop.wait()
        app.leave()
        if leave_s:
            await asyncio.sleep(leave_s)
        server.should_exit = True

    def request_stop() -> None:
        if stop.is_set():
            server.force_exit = True
            server.should_exit = True
        stop.set()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        loop.call_soon_threadsafe(request_stop)

    app.service.announces_stop = True
    before = {}
    with contextlib.suppress(ValueError):  # Only the main thread can handle signals; other threads use `stop`.
        before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    leaving = loop.create_task(leave())
    try:
        yield
    finally:
        leaving.cancel()
        for number, handler in before.items():
            signal.signal(number, cast("signal.Handlers", handler))
