"""Which types an answer has: those of the machine, where the client knows it, and plain ones elsewhere.

A client knows the machines that it was given: when it was made, or by any call that takes one (`start`, `of`, `find`,
`stalled`). So `client.get(id)` answers as `engine.get(id)` does in a program that has the machine, and with plain
values in one that has not.
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
        """The reader of a machine, which is known from now on."""
        reader = self._of.get(machine)
        if reader is None:
            if len(self._of) >= READERS_MAX:
                self._of.clear()
                self._named.clear()
            reader = self._of[machine] = self._named[machine.name] = Reader(machine)
        return reader

    def named(self, machine: str) -> Reader:
        """The reader of the machine of that name; a plain one when it is not known."""
        return self._named.get(machine, self.plain)

    def taking(self, event: Event | str) -> Reader:
        """The reader of the one known machine that takes such an event; a plain one when there is none, or another."""
        found = [reader for reader in self._named.values() if reader.takes(event)] if self._of else []
        return found[0] if len(found) == 1 else self.plain
