"""The workers of one server, among each other: whichever of them is scraped tells the figures of all.

A scrape reaches one worker of several, and another one the next time: counters would jump. So each worker also
answers on a Unix socket in a folder of the supervisor's, which is private to its user, and `/metrics` asks all of them,
itself included. A place keeps its number when its worker is replaced, so the end of one resets its own series only.

A successor takes over the name of its place when it serves, in one step: nobody is heard twice, and one that is about
to stop is not heard any more. One that does not answer in time is left out, and counted: a scrape never waits for a
worker that hangs.
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
"""In the environment of a worker: the number of its place, how many there are, and the folder."""

HEARD_S = 1.0
"""So long a worker may take to answer."""

ANSWER_BYTES_MAX = 64 * 2**20
FOLDER_CHARACTERS_MAX = 60
"""A socket's path may have about a hundred."""

log = logger_of("interlock.server")


@contextlib.contextmanager
def meeting_place() -> Generator[Path, None, None]:
    """A folder for the sockets of all workers, gone on exit."""
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= FOLDER_CHARACTERS_MAX else "/tmp"  # noqa: S108 -- a private folder is made in it.
    with tempfile.TemporaryDirectory(prefix="interlock-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class Siblings:
    """The workers of a server, as one of them knows them."""

    def __init__(self, folder: Path, place: int, count: int) -> None:
        self.place = place
        self.count = count
        self._folder = folder

    def for_environment(self) -> dict[str, str]:
        """What a worker at this place is told."""
        return {SIBLINGS: f"{self.place} {self.count} {self._folder}"}

    @classmethod
    def from_environment(cls) -> "Siblings | None":
        """What this worker was told, once: steps may start programs."""
        told = os.environ.pop(SIBLINGS, None)
        if told is None:
            return None
        place, count, folder = told.split(" ", 2)
        return cls(Path(folder), int(place), int(count))

    @contextlib.asynccontextmanager
    async def answering(self, tell: Callable[[], bytes]) -> AsyncGenerator[None, None]:
        """Answer whoever asks, in the block. A worker that cannot serves all the same, and is not heard."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            del reader
            try:
                with contextlib.suppress(OSError):
                    writer.write(tell())
                    await writer.drain()
            finally:
                writer.close()

        new = self._folder / f"{self.place}.{os.getpid()}"
        try:
            server = await asyncio.start_unix_server(answer, new)
            new.replace(self._at(self.place))
        except OSError as error:
            log.warning("worker %d cannot tell the others its figures: %s.", self.place, error.strerror or error)
            yield
            return
        try:
            yield
        finally:
            server.close()

    async def asked(self) -> list[bytes]:
        """What all of them tell, in the order of their places; without those who do not answer in time."""
        answers = await asyncio.gather(*(self._ask(place) for place in range(self.count)))
        return [each for each in answers if each is not None]

    def forget(self) -> None:
        """The supervisor is gone, however that came about: remove the folder in its place."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _ask(self, place: int) -> bytes | None:
        try:
            async with asyncio.timeout(HEARD_S):
                reader, writer = await asyncio.open_unix_connection(self._at(place), limit=ANSWER_BYTES_MAX)
                try:
                    return await _all_of(reader)
                finally:
                    writer.close()
        except (TimeoutError, OSError):
            return None

    def _at(self, place: int) -> Path:
        return self._folder / str(place)


async def _all_of(reader: asyncio.StreamReader) -> bytes | None:
    """Everything until the end; None for what is too much, or nothing."""
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(2**16):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            return None
    return b"".join(parts) or None
