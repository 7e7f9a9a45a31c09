"""Print what the search sees: `python -m tests.model [SABOTAGE...]`. Without names: the sizes, then all stories.

INTERLOCK_MODEL=large adds the larger sizes.
"""

# ruff: noqa: T201 - a table and the stories are what it is for.

import sys
import time

from tests.model.protocol import Protocol
from tests.model.search import search
from tests.model.sizes import SABOTAGES, SIZES
from tests.model.world import Sabotage


def main(names: list[str]) -> None:
    for size in () if names else SIZES:
        began = time.process_time()
        outcome = search(Protocol(size))
        print(
            f"{outcome.states:9,} states, {outcome.depth:2} deep, {time.process_time() - began:5.1f} s  {size}",
            flush=True,
        )
        if outcome.broken:
            print(outcome)
    for sabotage in [Sabotage[name.upper()] for name in names] or Sabotage:
        size = SABOTAGES[sabotage].size
        print(f"\n{sabotage.name.lower()}: {sabotage.value} ({size})\n{search(Protocol(size, sabotage))}")


if __name__ == "__main__":
    main(sys.argv[1:])
