"""Metrics across the workers of one server: a scrape of any worker returns the metrics of all.

A scrape reaches one worker of several, and another one the next time: counters would jump. Each worker therefore also
answers on a Unix socket in a folder of the supervisor, which is private to its user. `/metrics` asks all workers,
including itself. A place keeps its number when its worker is replaced, so only its own series are reset.

A successor takes over the socket name of its place atomically when it serves: no place is counted twice, and a worker
that is about to stop is not asked. A worker that does not answer in time is left out and counted, so that a scrape
never waits for a worker that hangs.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

from interlock.redaction import logger_of

SIBLINGS = "INTERLOCK_SIBLINGS"
"""Environment variable of a worker: the number of its place, the number of places, and the folder."""

HEARD_S = 1.0
"""How long a worker may take to answer, in seconds."""

ANSWER_BYTES_MAX = 64 * 2**20
FOLDER_CHARACTERS_MAX = 60
"""The path of a socket may have about a hundred characters."""

log = logger_of("interlock.server")


@contextlib.contextmanager
def meeting_place() -> Generator[Path, None, None]:
    """Create a folder for the sockets of all workers, and remove it on exit."""
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= FOLDER_CHARACTERS_MAX else "/tmp"  # noqa: S108 -- a private folder is made in it.
    with tempfile.TemporaryDirectory(prefix="interlock-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class Siblings:
    """The workers of a server, as one of them sees them."""

    def __init__(self, folder: Path, place: int, count: int) -> None:
        self.place = place
        self.count = count
        self._folder = folder

    def for_environment(self) -> dict[str, str]:
        """Return the environment variables of a worker at this place."""
        return {SIBLINGS: f"{self.place} {self.count} {self._folder}"}

    @classmethod
    def from_environment(cls) -> "Siblings | None":
        """Read and remove this worker's variable: steps may start programs, which must not inherit it."""
        text = os.environ.pop(SIBLINGS, None)
        if text is None:
            return None
        place, count, folder = text.split(" ", 2)
        return cls(Path(folder), int(place), int(count))

    @contextlib.asynccontextmanager
    async def answering(self, render: Callable[[], bytes]) -> AsyncGenerator[None, None]:
        """Answer the other workers in the block. If that is impossible, the worker serves without reporting metrics."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            del reader
            try:
                with contextlib.suppress(OSError):
                    writer.write(render())
                    await writer.drain()
            finally:
                writer.close()

        new = self._folder / f"{self.place}.{os.getpid()}"
        try:
            server = await asyncio.start_unix_server(answer, new)
            new.replace(self._at(self.place))
        except OSError as error:
            log.warning(
                "worker %d cannot report its metrics to the other workers: %s.", self.place, error.strerror or error
            )
            yield
            return
        try:
            yield
        finally:
            server.close()

    async def collect(self) -> list[bytes]:
        """Return the answers of all workers by place, without those that do not answer in time."""
        answers = await asyncio.gather(*(self._ask(place) for place in range(self.count)))
        return [each for each in answers if each is not None]

    def forget(self) -> None:
        """Remove the folder after the supervisor has ended without removing it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _ask(self, place: int) -> bytes | None:
        try:
            async with asyncio.timeout(HEARD_S):
                reader, writer = await asyncio.open_unix_connection(self._at(place), limit=ANSWER_BYTES_MAX)
                try:
                    return await _read_all(reader)
                finally:
                    writer.close()
        except (TimeoutError, OSError):
            return None

    def _at(self, place: int) -> Path:
        return self._folder / str(place)


async def _read_all(reader: asyncio.StreamReader) -> bytes | None:
    """Read until the end; return None for too much data, or for none."""
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(2**16):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            return None
    return b"".join(parts) or None
