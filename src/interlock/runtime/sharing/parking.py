"""Workflows that this worker parked in the store until their dependency can be called.

A parked workflow is a time in its row, at which any worker claims it. That alone would be late, or often in vain. So
each worker remembers the names that it has parked. As soon as the breaker is closed, it claims them by name, a full
queue at a time. If the worker dies, others claim them at their time.
"""

from collections.abc import Iterator

from interlock.runtime.resilience.lines import Line

PARKED_MAX = 20_000
"""Names remembered for each dependency; the others come back by their time."""

TAKEN_MAX = 500
"""Names taken up together: as many as a store claims. More would be forgotten."""


class Parking:
    """The names of workflows that were parked here."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        """Queues with parked workflows. Each queue has its own, the oldest first."""
        self._names: set[tuple[Line, str]] = set()

    def add(self, line: Line, workflow: str, machine: str, born_us: int = 0) -> None:
        """Remember a parked workflow."""
        if line not in self._lines:
            self._lines.append(line)
        if len(line.parked) < PARKED_MAX and (line, workflow) not in self._names:
            self._names.add((line, workflow))
            line.parked.put((workflow, machine), born_us)

    def __len__(self) -> int:
        """Return the number of parked workflows."""
        return len(self._names)

    @property
    def ready(self) -> bool:
        """Whether a parked workflow can be taken up."""
        return any(line.parked and _room(line) > 0 for line in self._lines)

    def taken(self) -> Iterator[tuple[str, list[str]]]:
        """Yield names that can be taken up now, by machine, and forget them: the others come by their time."""
        for line in list(self._lines):  # A workflow may be parked while others are claimed.
            parked = line.parked
            machines: dict[str, list[str]] = {}
            for _ in range(min(TAKEN_MAX, _room(line), len(parked))):
                (name, machine), _ = parked.take()
                self._names.discard((line, name))
                machines.setdefault(machine, []).append(name)
            yield from machines.items()


def _room(line: Line) -> int:
    """Return the free room of a queue; 0 unless half of it is empty, to fill many at a time."""
    if line.outlet.phase != "closed" or 2 * len(line) > line.held_max:
        return 0
    return line.held_max - len(line)
