"""A real server on a free port of this machine, in a thread, while commands run in the main one."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager

from interlock.server.app_declaration import App
from interlock.server.lifecycle import Listening, serve

END_S = 300


@contextmanager
def serving(app: App, home: str = "memory:", *, worker: bool = False) -> Generator[str]:
    """The address of a server of the app; it has stopped when the block ends."""
    ready = threading.Event()
    urls: list[str] = []
    failed: list[BaseException] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def listening(where: Listening) -> None:
        urls.append(where.url)
        ready.set()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve(app, home, port=0, worker=worker, listening=listening, stop=stop))
        except BaseException as error:  # noqa: BLE001 -- it is raised in the main thread.
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(END_S)
        if failed:
            raise failed[0]
        yield urls[0]
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(END_S)
        assert not thread.is_alive()
    if failed:
        raise failed[0]
