"""How long callers wait ends when a program that follows has written, and not when it could have."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from interlock.clock import SystemClock
from interlock.relocate import local_lane
from interlock.relocate.local_lane import DraftPlace, LaneTarget
from interlock.relocate.postgres import PostgresTarget
from interlock.relocate.postgres_link import MoverLink
from interlock.relocate.postgres_rows import MoverConnections
from interlock.relocate.stages import Unit, nowhere, run_stages


class Counted(SystemClock):
    """A clock that a test sets."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


class Arrived:
    """A place that a program opens after some looks; a second passes with each."""

    location = "lanes:///there"

    def __init__(self, looks: int) -> None:
        self.clock = Counted()
        self._looks = looks

    async def is_used(self) -> bool:
        self.clock.now_s += 1.0
        self._looks -= 1
        return self._looks <= 0


@pytest.mark.parametrize(("looks", "waited_s"), [(1, 1.0), (3, 3.0), (99, 0.0)], ids=["immediately", "later", "never"])
def test_callers_wait_until_a_program_writes_to_the_lane(
    looks: int, waited_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_lane, "FOLLOWED_S_MAX", 5.0)
    monkeypatch.setattr(local_lane, "LOOK_S", 0.0)
    place = Arrived(looks)
    reached_s = asyncio.run(LaneTarget(cast("DraftPlace", place)).reached())
    assert reached_s == waited_s


def test_a_server_that_the_mover_cannot_log_in_to_again_ends_the_wait() -> None:
    mine = MoverConnections("postgresql://127.0.0.1:1/none", SystemClock())
    before_s = mine.clock.monotonic_s()
    target = PostgresTarget(mine, cast("MoverLink", None))
    assert asyncio.run(target.reached()) >= before_s


class Waits:
    """A move whose writers wait for the triggers, for a seal that is given up, and for the last one."""

    rounds_max = 1

    def __init__(self, watch_s: float, given_up_s: float, last_s: float) -> None:
        self.clock = Counted()
        self._watch_s = watch_s
        self._seals_s = [given_up_s, last_s]

    async def begin(self) -> float:
        return self._watch_s

    async def step(self) -> None:
        self.clock.now_s += 100.0  # While the source serves.

    copy = compare = step
    leave = arrive = finish = staticmethod(lambda: asyncio.sleep(0))

    async def bring_noted(self, _number: int) -> bool:
        await self.step()
        return True

    @asynccontextmanager
    async def sealed(self) -> AsyncGenerator[float]:
        yield self.clock.now_s

    async def end(self) -> bool:
        self.clock.now_s += self._seals_s.pop(0)
        return not self._seals_s

    async def reached(self) -> float:
        return self.clock.now_s


@pytest.mark.parametrize(
    "waits_s", [(3.0, 1.0, 2.0), (1.0, 3.0, 2.0), (1.0, 2.0, 3.0)], ids=["watch", "given up", "last"]
)
def test_the_longest_wait_of_writers_is_what_is_reported(waits_s: tuple[float, float, float]) -> None:
    unit = Waits(*waits_s)

    def ignore(_what: str, _done: int, _total: int) -> None:
        """Ignore the progress."""

    found = asyncio.run(run_stages(cast("Unit", unit), clock=unit.clock, watch=ignore, at=nowhere))
    assert found.seal_ms == 3_000.0
