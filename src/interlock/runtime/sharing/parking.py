"""What this worker has left in the store because its dependency could not be called, and takes up when that is over.

A workflow that is parked is a time in its row: whoever is there at that time claims it. Without more that would be
late, or often for nothing. So each worker remembers the names of those it has parked, and claims them by name, a line
full at a time, as soon as the breaker is closed. If the worker dies nothing is lost but the hurry.
"""

from collections.abc import Iterator

from interlock.runtime.resilience.lines import Line

PARKED_MAX = 20_000
"""Names that are remembered for each dependency; those beyond come back by their time."""

TAKEN_MAX = 500
"""Names that are taken up at once: as many as a store claims. More would be forgotten."""


class Parking:
    """The names of workflows that were parked here."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        """Where somebody was parked. A line has those who belong to it, the oldest first."""
        self._names: set[tuple[Line, str]] = set()

    def add(self, line: Line, workflow: str, machine: str, born_us: int = 0) -> None:
        """It was parked."""
        if line not in self._lines:
            self._lines.append(line)
        if len(line.parked) < PARKED_MAX and (line, workflow) not in self._names:
            self._names.add((line, workflow))
            line.parked.put((workflow, machine), born_us)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._names)

    @property
    def ready(self) -> bool:
        """Whether somebody can be taken up."""
        return any(line.parked and _room(line) > 0 for line in self._lines)

    def taken(self) -> Iterator[tuple[str, list[str]]]:
        """Those who can be taken up now, by machine. They are forgotten: whoever is not claimed comes by its time."""
        for line in list(self._lines):  # While one is claimed, another may be parked.
            parked = line.parked
            machines: dict[str, list[str]] = {}
            for _ in range(min(TAKEN_MAX, _room(line), len(parked))):
                (name, machine), _ = parked.take()
                self._names.discard((line, name))
                machines.setdefault(machine, []).append(name)
            yield from machines.items()


def _room(line: Line) -> int:
    """How many more its line should have: many at a time, when half of those it can hold have gone."""
    if line.outlet.phase != "closed" or 2 * len(line) > line.held_max:
        return 0
    return line.held_max - len(line)
