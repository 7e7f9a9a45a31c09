"""Heat levels: the visits of a state on a scale of a few levels.

Shared by everything that colours by visits, so that a state has the same heat in an SVG, in Mermaid and in DOT.
The invariant: level 0 means never visited, and only that. The odd choice is the square root: visits differ by orders
of magnitude, so a linear scale would leave all but the busiest state cold, and a logarithm would make all of them hot.
"""

import math
from collections.abc import Mapping

from interlock.core.description import MachineDescription

HEAT_LEVELS = 6


def busiest(description: MachineDescription, visits: Mapping[str, int]) -> int:
    """Return the most visits that any state of the machine has."""
    return max((visits.get(state.name, 0) for state in description.states), default=0)


def share(count: int, most: int) -> float:
    """Return a count on a scale from 0 to 1."""
    return math.sqrt(count / most) if 0 < count <= most else 0.0


def level(count: int, most: int) -> int:
    """Return a count as one of `HEAT_LEVELS`."""
    return math.ceil(share(count, most) * (HEAT_LEVELS - 1))
