"""The checkout pipeline by hand: one that succeeds, and one that fails and is undone, newest first.

The loop below is the smallest imaginable runner: it runs the step that is owed, decides with its result, and undoes
what must be undone. It keeps nothing and times nothing: it shows only who decides and who acts.
"""

import asyncio

from interlock import NonRetryable, Snapshot, StepContext, StepFailure
from interlock.core import decide
from interlock.core.pipeline import PipelineState
from interlock.core.values import Decision, RunStep, RunUndos, Undo
from interlock.examples.checkout import Checkout, charge, checkout, reserve, validate
from interlock.examples.world import FakeWarehouse, world

__all__ = ["Checkout", "charge", "checkout", "reserve", "validate"]

CheckoutDecision = Decision[PipelineState, Checkout]


async def run_step(snapshot: Snapshot[PipelineState, Checkout], name: str) -> CheckoutDecision:
    """Run the owed step and decide what follows from its result."""
    table = checkout.compiled
    step = table.steps[name].step
    assert step is not None
    assert step.result is not None
    try:
        context = await step.function(snapshot.context, StepContext(key=f"{name}-{snapshot.visit}"))
    except NonRetryable as error:
        print(f"     {name} failed: {error.what}")
        failure = StepFailure(step=name, error=error.code, message=error.what, unknown=False)
        decision = decide.fail(table, snapshot, failure)
        assert decision is not None
        return decision
    return decide.decide(table, snapshot, step.result(context), result=True)


async def undo_all(snapshot: Snapshot[PipelineState, Checkout], undos: tuple[Undo, ...]) -> CheckoutDecision:
    """Run the owed undos one after the other and decide that the unwinding is over."""
    table = checkout.compiled
    for undo in undos:
        print(f"     undoing {undo.step}")
        step = table.steps[undo.step].step
        assert step is not None
        ctx = StepContext(key=f"undo-{undo.step}-{undo.visit}", undoes=f"{undo.step}-{undo.visit}")
        await step.undos[0].function(snapshot.context, undo.done, ctx)
    return decide.unwound(table, snapshot)


async def run(title: str, context: Checkout) -> Checkout:
    """Run one checkout to its end."""
    print(title)
    decision: CheckoutDecision | None = checkout.decide(checkout.begin(context), checkout.Begin())
    snapshot = checkout.begin(context)
    while decision is not None:
        for record in decision.records:
            print(f"{record.version:3}  {record.from_state.value:>12} --{record.event}--> {record.to_state.value}")
        snapshot, owed, decision = decision.snapshot, decision.commands, None
        for command in owed:
            if isinstance(command, RunStep):
                decision = await run_step(snapshot, command.step)
            elif isinstance(command, RunUndos):
                decision = await undo_all(snapshot, command.undos)
    print(f"     {snapshot.context}\n")
    return snapshot.context


async def main() -> None:
    """One checkout that works, and one whose last step fails."""
    await run("A checkout that works:", Checkout(order_id="o-1", items={"book": 1}, cents=999))
    world.warehouse = FakeWarehouse(sold_out={"chair"})
    await run("A checkout whose goods are sold out:", Checkout(order_id="o-2", items={"chair": 1}, cents=999))


if __name__ == "__main__":
    asyncio.run(main())
