"""What the worker tells whoever watches: a line per piece of news, in order, and only of what is certain."""

import asyncio
import os

TOLD_EVERY_S = 0.01


class News:
    """Gathered for an instant, then written in one piece."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._later: asyncio.TimerHandle | None = None

    def tell(self, *words: object) -> None:
        """Tell something soon."""
        self._lines.append("\t".join(map(str, words)))
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(TOLD_EVERY_S, self.flush)

    def flush(self) -> None:
        """Tell it now."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        data = "".join(f"{line}\n" for line in self._lines).encode()
        self._lines.clear()
        try:
            while data:
                data = data[os.write(self._pipe, data) :]
        except BrokenPipeError:
            os._exit(0)  # Nobody is there any more to be told.
