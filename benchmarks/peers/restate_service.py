"""Orders on Restate, the service: granian serves `app` over HTTP/2, as Restate's documentation has it.

A plain service with four journaled steps: the cheapest form Restate has, without a key and without state of its own.
"""

import restate  # type: ignore[import-not-found]  # Only the peers' environment has it.

orders = restate.Service("Orders")


async def nothing() -> str:
    """What every step does."""
    return "done"


@orders.handler()  # type: ignore[untyped-decorator]
async def place(ctx: restate.Context, number: str) -> str:
    """An order."""
    await ctx.run_typed("charge", nothing)
    await ctx.run_typed("reserve", nothing)
    await ctx.run_typed("pack", nothing)
    await ctx.run_typed("ship", nothing)
    return number


app = restate.app([orders])
