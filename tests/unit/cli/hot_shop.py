"""A shop that keeps a row and a workflow hot, as a process of its own: `python -m tests.unit.cli.hot_shop HOME`.

It says `told` when its lanes have told what they know, and ends when its input does.
"""

import asyncio
import sys
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from uuid import UUID

from interlock import Database, Engine, Event, Machine
from interlock.clock import SystemClock
from interlock.lanes.hot_rows import read_report


class State(Enum):
    OPEN = "open"


@dataclass(frozen=True)
class Bids:
    n: int = 0


class AuctionEvent(Event):
    pass


@dataclass(frozen=True)
class Bid(AuctionEvent):
    pass


auction = Machine("auction", states=State, context=Bids, events=AuctionEvent, initial=State.OPEN, resting={State.OPEN})


@auction.on(Bid, State.OPEN)
def bid(bids: Bids, event: Bid) -> Bids:
    del event
    return replace(bids, n=bids.n + 1)


def tells(file: Path) -> bool:
    """Whether a row stands there. What is told first may be from before anybody was hot, and the next comes later."""
    report = read_report(file, now_s=SystemClock().wall_s())
    return report is not None and bool(report.rows)


async def keep_hot(home: str) -> None:
    """Buyers of one seat and many others of their own, bidders in one auction, until the input ends."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)
    async with Engine.open(home, machines=[auction]) as engine, Database.open("stock", home=home) as db:
        await db.execute("CREATE TABLE seat (id uuid PRIMARY KEY, n bigint NOT NULL)")
        for number in range(8):
            await db.execute("INSERT INTO seat VALUES ($1, 0)", UUID(int=number))
        await engine.start(auction, "a-1", Bids())
        folder = Path(home.removeprefix("lanes://"))
        files = [folder / f"{name}.lane.hot" for name in ("stock", "workflows")]
        told = False
        while not over.is_set():
            hot = [db.execute("UPDATE seat SET n = n + 1 WHERE id = $1", UUID(int=seat)) for seat in (7, 7, 7, 1, 2, 3)]
            await asyncio.gather(*hot, *(engine.send("a-1", Bid()) for _ in range(3)))
            if not told and all(map(tells, files)):
                told = True
                sys.stdout.write("told\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(keep_hot(sys.argv[1]))
