"""Orders on DBOS: `python -m benchmarks.peers.dbos_orders URL`, in the environment of the peers.

An async workflow with four async steps, called directly, which is the shortest way DBOS has. It keeps its own journal
and nothing else: no row with the order's state and no history of it.
"""

import asyncio
import itertools
import sys

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]  # Only the peers' environment has it.

from benchmarks.peers.answering import answer, claim_answers


@DBOS.step()  # type: ignore[untyped-decorator]
async def charge(number: str) -> str:
    """The first step; like the others it does nothing."""
    return number


@DBOS.step()  # type: ignore[untyped-decorator]
async def reserve(number: str) -> str:
    """The second."""
    return number


@DBOS.step()  # type: ignore[untyped-decorator]
async def pack(number: str) -> str:
    """The third."""
    return number


@DBOS.step()  # type: ignore[untyped-decorator]
async def ship(number: str) -> str:
    """The last."""
    return number


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def place(number: str) -> str:
    """An order."""
    await charge(number)
    await reserve(number)
    await pack(number)
    await ship(number)
    return number


async def run(url: str) -> None:
    """Launch DBOS and take turns."""
    answers = claim_answers()
    DBOS(config={"name": "orders", "system_database_url": url, "log_level": "WARNING"})
    DBOS.launch()
    counting = itertools.count()

    async def order(client: int) -> None:
        del client
        number = f"order-{next(counting)}"
        with SetWorkflowID(number):
            await place(number)

    try:
        await answer(answers, order)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
