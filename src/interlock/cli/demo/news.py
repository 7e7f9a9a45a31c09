"""The worker's report to its parent process: one line per fact, in order, and only of durable facts."""

import asyncio
import os

FLUSH_EVERY_S = 0.01


class News:
    """A buffer of lines, written to a pipe every 10 ms."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._later: asyncio.TimerHandle | None = None

    def tell(self, *words: object) -> None:
        """Queue a line of tab-separated words."""
        self._lines.append("\t".join(map(str, words)))
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self.flush)

    def flush(self) -> None:
        """Write all queued lines. Ends the process when the parent has closed the pipe."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        data = "".join(f"{line}\n" for line in self._lines).encode()
        self._lines.clear()
        try:
            while data:
                data = data[os.write(self._pipe, data) :]
        except BrokenPipeError:
            os._exit(0)  # The parent process has ended.
