"""`Readers`: choose the types of answers: the machine's if the client knows it, plain values otherwise.

A client knows the machines that were passed to it: to its constructor, or to any call that takes one (`start`, `of`,
`find`, `stalled`). `client.get(id)` then returns the same types as `engine.get(id)`.
"""

from collections.abc import Iterable

from interlock.client.reading import Reader
from interlock.core.events import Event
from interlock.runtime.bound import AnyMachine

READERS_MAX = 1_000
"""Machines whose readers are kept."""


class Readers:
    """The machines that one client knows."""

    def __init__(self, machines: Iterable[AnyMachine] = ()) -> None:
        self.plain = Reader()
        self._of: dict[AnyMachine, Reader] = {}
        self._named: dict[str, Reader] = {}
        for machine in machines:
            self.of(machine)

    def __bool__(self) -> bool:
        """Whether any machine is known."""
        return bool(self._of)

    def of(self, machine: AnyMachine) -> Reader:
        """Return the reader of a machine, which is known from now on."""
        reader = self._of.get(machine)
        if reader is None:
            if len(self._of) >= READERS_MAX:
                self._of.clear()
                self._named.clear()
            reader = self._of[machine] = self._named[machine.name] = Reader(machine)
        return reader

    def named(self, machine: str) -> Reader:
        """Return the reader of the machine of that name; a plain one when it is not known."""
        return self._named.get(machine, self.plain)

    def taking(self, event: Event | str) -> Reader:
        """Return the reader of the known machine that takes this event; a plain one unless there is exactly one."""
        found = [reader for reader in self._named.values() if reader.takes(event)] if self._of else []
        return found[0] if len(found) == 1 else self.plain
