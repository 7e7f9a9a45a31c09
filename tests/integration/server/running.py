"""A real `interlock serve` on a free port of this machine: in a process of its own, or in a thread."""

import asyncio
import re
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.runtime.settings import Admission
from interlock.server.app import App
from interlock.server.limits import Limits
from interlock.server.running import Listening, serve
from tests.unit.cli.running import plain_environment, program
from tests.unit.server import shop

ROOT = Path(__file__).resolve().parents[3]
ADDRESS = re.compile(r"at (http://\S+?) ")
END_S = 60


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
        said = process.stderr.readline()
        found = ADDRESS.search(said)
        assert found, said + process.stderr.read()
        yield Server(process, found[1])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@contextmanager
def in_thread(
    home: str = "memory:",
    *,
    app: App = shop.app,
    limits: Limits | None = None,
    admission: Admission | None = None,
) -> Generator[str]:
    """Serve in a thread, without steps; gives the address."""
    found: list[str] = []
    ready = threading.Event()
    ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def told(where: Listening) -> None:
        found.append(where.url)
        ready.set()

    async def main() -> None:
        stop = asyncio.Event()
        ends.append((asyncio.get_running_loop(), stop))
        try:
            await serve(app, home, port=0, worker=False, limits=limits, admission=admission, listening=told, stop=stop)
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        loop, stop = ends[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join()
