"""A real `interlock serve` on a free port of this machine: in a process of its own, or in a thread."""

import asyncio
import re
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from interlock.engine.engine_settings import Admission
from interlock.server.app_declaration import App, Limits
from interlock.server.lifecycle import Listening, serve
from tests.unit.cli.running import plain_environment, program
from tests.unit.server import shop

ROOT = Path(__file__).resolve().parents[3]
ADDRESS = re.compile(r"at (http://\S+?) ")
END_S = 300
TURNS = 20
"""Of an event loop: what has arrived is read, and what follows from it is under way."""


class Server:
    """A server that runs."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process = process
        self.url = url

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Tell it to stop; returns its exit code and what it said meanwhile."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=END_S)
        return self.process.returncode, said


@contextmanager
def server(home: str, *options: str, target: str = shop.NAME, **settings: str) -> Generator[Server]:
    """Start a server, wait until it listens, and end it whatever happens."""
    process = subprocess.Popen(
        program("serve", target, "--home", home, "--port", "0", *options),
        cwd=ROOT,
        env=plain_environment(**settings),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = ""
        # On a slow machine a warning may come before the line with the address: a blocked loop, a late Redis.
        while (found := ADDRESS.search(said)) is None and (line := process.stderr.readline()):
            said += line
        assert found, said
        yield Server(process, found[1])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


class Hands(asyncio.SelectorEventLoop):
    """The event loop of a server whose time is in the hands of the test, beyond what passes by itself."""

    _passed_s = 0.0

    def time(self) -> float:
        """Since whenever, and what the test has let pass."""
        return super().time() + self._passed_s

    def let_pass(self, seconds: float) -> None:
        """Have so much time passed at once, when everything that was sent before has been read."""

        async def turned() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self._passed_s += seconds

        asyncio.run_coroutine_threadsafe(turned(), self).result()

    @contextmanager
    def held(self) -> Generator[None]:
        """It does nothing in the block: what is sent meanwhile is there before anything of it is looked at."""
        waits, goes_on = threading.Event(), threading.Event()

        def wait() -> None:
            waits.set()
            goes_on.wait()

        self.call_soon_threadsafe(wait)
        waits.wait()
        try:
            yield
        finally:
            goes_on.set()


@contextmanager
def in_thread(
    home: str = "memory:",
    *,
    app: App = shop.app,
    limits: Limits | None = None,
    admission: Admission | None = None,
) -> Generator[str]:
    """Serve in a thread, without steps; gives the address."""
    with in_hands(home, app=app, limits=limits, admission=admission) as (url, _):
        yield url


@contextmanager
def in_hands(
    home: str = "memory:",
    *,
    app: App = shop.app,
    limits: Limits | None = None,
    admission: Admission | None = None,
) -> Generator[tuple[str, Hands]]:
    """The same, with its event loop."""
    found: list[str] = []
    ready = threading.Event()
    ends: list[tuple[Hands, asyncio.Event]] = []

    def told(where: Listening) -> None:
        found.append(where.url)
        ready.set()

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        assert isinstance(loop, Hands)
        ends.append((loop, stop))
        await serve(app, home, port=0, worker=False, limits=limits, admission=admission, listening=told, stop=stop)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=Hands) as runner:
                runner.run(main())
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield found[0], ends[0][0]
    finally:
        for loop, stop in ends:
            with suppress(RuntimeError):  # It has ended by itself, with an error that was told.
                loop.call_soon_threadsafe(stop.set)
        thread.join()
