"""Decision 0006 on a shared store: an undo begins only when the attempt that it may have to undo has ended."""

from interlock import Engine
from tests.conformance.store.samples import run
from tests.integration.postgres.review.shop import Cancel, Order, Outside, State, Submit, shop


def test_a_refund_does_not_overtake_the_charge_that_runs_in_another_process(postgres_url: str) -> None:
    """G5: the event that unwinds arrives at one engine, the step is under way in another, and both are well."""

    async def scenario() -> None:
        outside = Outside()
        machine = shop(outside)
        async with Engine.open(postgres_url, machines=[machine], poll_s=60, drain_s=0) as one:
            await one.start(machine, "o-1", Order())
            await one.send("o-1", Submit())
            await outside.charging.get()
            async with Engine.open(postgres_url, machines=[machine], poll_s=0.05, drain_s=0) as two:
                await two.send("o-1", Cancel())
                await two.wait("o-1", State.CANCELLED, timeout_s=60)
                assert outside.log == ["charge ended", "refunded"]

    run(scenario)
