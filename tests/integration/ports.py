"""Ports of loopback that stay ours, from the moment they are found until the server that was told them has ended.

A port that was free a moment ago is somebody else's sooner or later: tests in other processes ask for ports too, every
connection goes out from one, and whoever connects to a port of which nobody makes use may even meet itself there. So
each is kept by a socket that is bound to it and never listens. On Linux a server that sets SO_REUSEADDR, as they all
do, listens beside it; nobody is given the port by chance meanwhile, and whoever connects to it before that is refused.
"""

import contextlib
import random
import socket
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
SERVERS = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections: none of these is left over when a server was killed."""


class HeldPorts:
    """Some ports, kept until they are closed. `beside` are distances at which a server has another one of its own."""

    def __init__(self, count: int = 1, *, beside: tuple[int, ...] = ()) -> None:
        self.numbers: list[int] = []
        self._held = contextlib.ExitStack()
        try:
            while len(self.numbers) < count:
                number = random.choice(SERVERS)
                if self._hold([number, *(number + distance for distance in beside)]):
                    self.numbers.append(number)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give them up."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hold(self, numbers: list[int]) -> bool:
        """All of them, or none."""
        with contextlib.ExitStack() as found:
            for number in numbers:
                each = found.enter_context(socket.socket())
                try:
                    each.bind((LOOPBACK, number))
                except OSError:
                    return False
                # Only now, or whoever else holds it in this way would not be noticed.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.push(found.pop_all())
        return True
