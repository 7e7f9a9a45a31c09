"""G1, G3, G5, B6: whatever is sent and however often the engine dies, nobody is stuck and no money is lost.

Orders are poked at random by several callers, with few slots and little memory, over lives that end by a crash or by
closing. The seed is the test's; a failure repeats as far as the event loop's own order does.
"""

import asyncio
from random import Random

import pytest

from interlock import Engine, Event, KeyReused, NonRetryable, Refusal, StepContext
from tests.conformance.engine.places import Place, crash, run, settled
from tests.conformance.engine.shop import Again, Cancel, Charged, Note, Order, Pause, Ship, Shop, State, Submit, shop

IDS = [f"o-{number}" for number in range(40)]
LIVES = 4
EVENTS: list[Event] = [Submit(), Submit(), Note("x"), Again(), Cancel(), Ship(), Pause()]


class Bank:
    """Takes money now and then, and does not always say so."""

    def __init__(self, luck: Random) -> None:
        self.luck = luck
        self.taken: dict[str, set[str]] = {}
        """The keys of charges that have happened, by workflow."""

    async def charge(self, order: Order, ctx: StepContext) -> Event:
        luck = self.luck.random()
        if luck < 0.05:
            raise NonRetryable("nothing was taken")
        if luck < 0.95:
            self.taken.setdefault(ctx.workflow, set()).add(ctx.key)
        for _ in range(self.luck.randrange(4)):
            await asyncio.sleep(0)
        if luck < 0.2 or luck >= 0.95:
            raise OSError("the answer was lost")
        return Charged(ctx.key)


async def poke(engine: Engine, luck: Random) -> None:
    """Send at random; what is refused is refused."""
    for _ in range(40):
        key = luck.choice([None, None, f"k{luck.randrange(5)}"])
        try:
            await engine.send(luck.choice(IDS), luck.choice(EVENTS), if_allowed=luck.random() < 0.5, key=key)
        except (Refusal, KeyReused):
            continue


async def live(kept: Place, sold: Shop, bank: Bank, luck: Random) -> Engine:
    """One life, until everybody has said what they had to say."""
    bounds = {"steps_max": 3, "effects_max": 2, "group_max": 7, "snapshots_max": 20, "drain_s": 0}
    engine = await kept.engine(sold.machine, steps={sold.charge: bank.charge}, **bounds)  # type: ignore[arg-type]
    for each in IDS:
        await engine.start(sold.machine, each, Order())
    await asyncio.gather(*(poke(engine, luck) for _ in range(4)))
    return engine


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(3))
def test_every_order_comes_to_rest_and_what_was_taken_for_nothing_is_given_back(kept: Place, seed: int) -> None:
    async def scenario() -> None:
        luck = Random(seed)
        sold, bank = shop(attempts=4), Bank(luck)
        for _ in range(LIVES - 1):
            engine = await live(kept, sold, bank, luck)
            await (crash(engine) if luck.random() < 0.6 else engine.close())
        engine = await live(kept, sold, bank, luck)
        for each in IDS:
            await engine.send(each, Submit(), if_allowed=True)
            await engine.wait(each)
        given_back = {call.ctx.undoes for call in sold.world.refund.calls}
        for each in IDS:
            view = await engine.of(sold.machine).get(each)
            rows = await engine.of(sold.machine).history(each)
            assert [row.version for row in rows] == list(range(1, view.version + 1))
            if view.state is State.CANCELLED:
                assert bank.taken.get(each, set()) <= given_back
            elif view.state in {State.DONE, State.SHIPPED}:
                assert view.context.receipt in bank.taken[each]
                assert view.context.receipt not in given_back
        while await engine._store.effects(limit=1):
            await settled(engine)
        await settled(engine)
        runner = engine._inside.runner
        assert (runner.slots.free, runner.effect_slots.free, runner.under_way) == (3, 2, 0)
        assert engine._inside.gate.in_flight == 0
        assert await engine.dead_letters() == []
        assert await engine.compensations() == []
        await engine.close()

    run(scenario)
