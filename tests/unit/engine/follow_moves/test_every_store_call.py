"""The mover comes at every call that the engine makes to its store, one after the other, while orders flow through."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from interlock import Engine, MovedElsewhere
from interlock.clock import Clock
from interlock.engine import follow_moves
from interlock.engine.steps.runner import Runner
from interlock.store.records import Change
from interlock.testing.virtual_time import VirtualLoop
from tests.unit.engine.follow_moves.places import Place, World
from tests.unit.engine.follow_moves.shop import Gateway, Shop, order, problems_of, shop
from tests.unit.engine.shared.stores import play

ORDERS, CUSTOMERS = 6, 2
STUCK_S = 300.0
"""Nobody waits that long unless something is lost."""


async def traded(
    world: World, *, moves_at: int, places: Sequence[str] = ("a", "b"), turns: int = 3, clock: Clock | None = None
) -> list[str]:
    """Orders flow while the workflows move from place to place; returns what is wrong in the end."""
    gateway = Gateway(turns)
    machine = shop(gateway)
    first = world.place(places[0])
    problems: list[str] = []
    async with Engine.open(places[0], machines=[machine], clock=clock, stall_check_s=0, drain_s=0) as engine:
        first.looks = 0
        for epoch, (old, new) in enumerate(itertools.pairwise(places), 1):
            world.place(old).moves_at, world.place(old).leaves = moves_at, (new, epoch)
        ids = [f"o-{number}" for number in range(ORDERS)]
        try:
            async with asyncio.timeout(STUCK_S):
                await asyncio.gather(
                    *(customer(engine, machine, ids[at::CUSTOMERS], keyed=bool(at)) for at in range(CUSTOMERS))
                )
                for each in ids:
                    problems += problems_of(await engine.get(each), await engine.history(each), gateway, notes=1)
                await gateway.counted("mail", ORDERS)
        except TimeoutError:
            problems.append("somebody waits for ever")
        assert first.tombstone is not None, "the mover never came"
    problems += gateway.problems()
    problems += [
        f"{each.url} was written to after it was left"
        for each in world.places.values()
        if each.left_as is not None and not each.untouched()
    ]
    return problems


async def customer(engine: Engine, machine: Shop, ids: Sequence[str], *, keyed: bool) -> None:
    """One order after the other."""
    for each in ids:
        await order(engine, machine, each, keyed=keyed)


@pytest.mark.parametrize("moves_at", range(1, 30))
def test_every_order_is_final_and_each_result_is_applied_once(monkeypatch: pytest.MonkeyPatch, moves_at: int) -> None:
    """G1, G3, G5: whatever call it is that finds the tombstone."""
    assert asyncio.run(traded(World(monkeypatch), moves_at=moves_at)) == []


@pytest.mark.parametrize("moves_at", range(2, 12))
def test_a_second_move_is_followed_as_well(monkeypatch: pytest.MonkeyPatch, moves_at: int) -> None:
    """Also one that comes while the first is still being followed."""
    assert asyncio.run(traded(World(monkeypatch), moves_at=moves_at, places=("a", "b", "c"))) == []


@pytest.mark.parametrize("moves_at", range(2, 30))
@pytest.mark.parametrize("places", [("own", "shared"), ("shared", "own"), ("own", "shared", "own-2", "shared-2")])
def test_from_one_owner_to_many_and_back(monkeypatch: pytest.MonkeyPatch, places: Sequence[str], moves_at: int) -> None:
    """The two kinds of stores have engines of two kinds inside; what is claimed at one is owed at the other."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        world = World(monkeypatch, loop.clock)
        assert await traded(world, moves_at=moves_at, places=places, clock=loop.clock) == []

    play(scenario)


def test_a_switch_that_forgets_callers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: what was not decided at the old place is not brought to the new one."""
    monkeypatch.setattr(follow_moves, "_is_handed_over", lambda envelope: envelope.future is None)
    monkeypatch.setattr(f"{__name__}.STUCK_S", 0.5)
    assert "somebody waits for ever" in asyncio.run(traded(World(monkeypatch), moves_at=6))


def test_attempts_that_are_not_ended_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: the old inside goes on with its steps, and the new one begins the same."""
    monkeypatch.setattr(Runner, "abort", lambda self: [])
    found = [asyncio.run(traded(World(monkeypatch), moves_at=moves_at, turns=50)) for moves_at in range(5, 12)]
    assert any("at once" in problem for problems in found for problem in problems)


def test_results_that_are_applied_at_both_places_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: a store that writes first, and says only then that the workflows are elsewhere."""
    commit = Place.commit

    async def twice(self: Place, changes: Sequence[Change]) -> list[str]:
        try:
            return await commit(self, changes)
        except MovedElsewhere:
            tombstone, self.tombstone = self.tombstone, None
            await commit(self, changes)
            self.tombstone = tombstone
            raise

    monkeypatch.setattr(Place, "commit", twice)
    problems = asyncio.run(traded(World(monkeypatch), moves_at=6))
    assert any("written to after it was left" in problem for problem in problems)
