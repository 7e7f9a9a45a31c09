"""E1 to E7 in virtual time: children, messages, schedules and pauses, with kills before and after random commits."""

import os
import random
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from interlock import OutcomeUnknown, WorkflowNotFound
from interlock.engine.schedules import Schedule, start_id
from interlock.store.memory import MemoryStore
from interlock.store.records import Change
from interlock.testing import Harness
from interlock.testing.virtual_time import never
from tests.conformance.engine.families import (
    Cart,
    Lose,
    Order,
    OrderState,
    Packed,
    ParcelState,
    Pay,
    carts,
    orders,
    parcels,
)
from tests.conformance.engine.test_schedules import Report, report

SEEDS = 20 * int(os.environ.get("INTERLOCK_CRASHES", "1"))
ORDERS = 4
KILL_SHARE = 0.1


class World:
    """A shop in virtual time whose engine is killed at random commits."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)
        self.kill_share = KILL_SHARE
        self.kills = 0
        self.parcel, self.cart, self.report = parcels(), carts(), report()
        self.order = orders(self.parcel)
        self.sizes = [self.chance.randint(0, 6) for _ in range(ORDERS)]
        schedule = Schedule("s", self.report, every=60, context=Report(), overlap="allow", catch_up="all")
        self.harness: Harness[Any, Any, Any] = Harness(
            self.order, self.parcel, self.cart, self.report, schedules=[schedule]
        )
        commit = MemoryStore.commit

        async def killing(store: MemoryStore, changes: Sequence[Change]) -> list[str]:
            await self._kill_perhaps()
            conflicts = await commit(store, changes)
            await self._kill_perhaps()
            return conflicts

        monkeypatch.setattr(MemoryStore, "commit", killing)

    async def _kill_perhaps(self) -> None:
        if self.chance.random() < self.kill_share / 2:
            self.kills += 1
            self.harness._kill()
            await never()

    def insist(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Repeat a call until it is answered, or its child exists."""
        while True:
            try:
                self.harness.run(call())
            except OutcomeUnknown:
                continue
            except WorkflowNotFound:
                self.harness.advance(seconds=1)
                continue
            return

    def play(self) -> None:
        """Place orders, pause and resume, end parcels in any order, and let everything come to rest."""
        h = self.harness
        for number, size in enumerate(self.sizes):
            items = tuple(f"i{item}" for item in range(size))
            self.insist(lambda number=number: h.engine.start(self.cart, f"c-{number}", Cart()))  # type: ignore[misc]
            order = Order(items, cart=f"c-{number}")
            self.insist(lambda number=number, order=order: h.engine.start(self.order, f"o-{number}", order))  # type: ignore[misc]
            self.insist(lambda number=number: h.engine.send(f"o-{number}", Pay(), key="pay"))  # type: ignore[misc]
        ends = [f"o-{number}.i{item}" for number, size in enumerate(self.sizes) for item in range(size)]
        self.chance.shuffle(ends)
        for parcel in ends:
            if self.chance.random() < 0.2:
                self.insist(lambda: h.engine.pause(machine=self.order))
            event = Lose() if parcel == "o-0.i0" else Packed()
            self.insist(lambda parcel=parcel, event=event: h.engine.send(parcel, event, key="end", if_allowed=True))  # type: ignore[misc]
            if self.chance.random() < 0.3:
                self.insist(lambda: h.engine.resume(machine=self.order))
            h.advance(seconds=self.chance.uniform(0, 90))
        self.insist(lambda: h.engine.resume(machine=self.order))
        h.advance(minutes=3)
        self.kill_share = 0.0
        h.advance(minutes=5)

    def check(self) -> None:
        """Every child, message and due time counts once."""
        h = self.harness
        assert h.run(h.engine.dead_letters()) == []
        for number, size in enumerate(self.sizes):
            is_lost = number == 0 and size > 0
            view = h.run(h.engine.get(f"o-{number}"))
            assert view.state is (OrderState.CANCELLED if is_lost else OrderState.SHIPPED), view
            events = [row.event for row in h.run(h.engine.history(f"o-{number}"))]
            assert events == ["STARTED", "PAY", "CHILDREN_JOINED"]
            children = h.run(h.engine.children(f"o-{number}", limit=100)).items
            assert sorted(each.id for each in children) == [f"o-{number}.i{item}" for item in range(size)]
            states = [each.state for each in children]
            if is_lost:
                assert states.count(ParcelState.LOST) == 1
                assert ParcelState.PACKING not in states
            else:
                assert isinstance(view.context, Order)
                assert (view.context.sent, states.count(ParcelState.SENT)) == (size, size)
            told = h.run(h.engine.get(f"c-{number}")).context
            assert told == Cart(() if is_lost else ("order",))
        started = [each.id for each in h.run(h.engine.find(self.report, limit=1_000)).items]
        first = datetime.fromisoformat(started[0].partition(".")[2])
        assert started == [start_id("s", first + timedelta(minutes=each)) for each in range(len(started))]
        assert h.run(h.engine.schedules.get("s")).started == len(started)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_killed_anywhere_counts_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(seed, monkeypatch)
    with world.harness:
        world.play()
        world.check()
    assert world.kills > 0
