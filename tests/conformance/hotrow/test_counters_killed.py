"""Counters and kill -9: what was acknowledged is counted, what is unknown is resolved by its key, nothing counts twice.

INTERLOCK_CRASHES multiplies the number of lives; INTERLOCK_SEED starts from another seed. A failure names its seed.
"""

import os
from collections.abc import Iterator

import pytest

from interlock.clock import SystemChance
from interlock.hotrow.counters import Counters
from interlock.testing.faults import Process, Processes
from tests.conformance.hotrow.counting import NEVER_S
from tests.conformance.hotrow.places import Place, run

LIVES = 8 * int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


class Lives:
    """The lives of one database, and what is known after each of them."""

    def __init__(self, processes: Processes, place: Place) -> None:
        self._processes = processes
        self._place = place
        self._number = 0
        self.asked: set[str] = set()
        self.done: set[str] = set()

    def begin(self, rounds: int | None) -> Process:
        self._number += 1
        unknown = sorted(name for name in self.asked - self.done if name.startswith("k"))
        life = "i" * self._number
        return self._processes.start("tests.conformance.hotrow.adding:add", self._place.url("x"), life, unknown, rounds)

    def heard(self, lines: Iterator[str]) -> None:
        for line in lines:
            if line.startswith("?"):
                self.asked.add(line[1:])
            elif line.startswith("+"):
                self.done.add(line[1:])

    def bounds(self, first: str) -> tuple[int, int]:
        """How many adds are certain, and how many there can be."""
        return tuple(sum(name.startswith(first) for name in names) for names in (self.done, self.asked))  # type: ignore[return-value]

    def values(self) -> tuple[int, int]:
        """What the counters with and without keys say now."""

        async def read() -> tuple[int, int]:
            async with self._place.opened() as db:
                counters = Counters(db, roll_up_every_s=NEVER_S)
                return await counters.open("keyed").value(), await counters.open("plain").value()

        return run(read)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["local", "postgres"], indirect=True)
def test_counters_survive_kills(kept: Place, processes: Processes) -> None:
    """D5, D6, D7, G2, G3."""
    chance, lives = SystemChance(SEED), Lives(processes, kept)
    told = f"seed {SEED}"
    for _ in range(LIVES):
        life = lives.begin(None)
        lives.heard(life.lines(1 + int(chance.fraction() * 300)))
        lives.heard(life.lines_for(chance.fraction() * 0.01))
        life.kill()
        lives.heard(life.lines())
        assert life.end() == -9, f"{told}: it ended by itself, so it was not killed"
        life.close()
        for name, value in zip("kp", lives.values(), strict=True):
            least, most = lives.bounds(name)
            assert least <= value <= most, told
    life = lives.begin(1)
    lives.heard(life.lines())
    assert life.end() == 0, told
    life.close()
    keyed, _ = lives.values()
    assert lives.bounds("k") == (keyed, keyed), told
