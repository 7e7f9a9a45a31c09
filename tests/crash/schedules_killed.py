"""The program of `test_schedules_killed`: one process that serves schedules which are due each second.

It prints a line when it is open, and then serves until it is killed.
"""

import asyncio
import sys

from interlock import Engine
from interlock.engine.schedules import Schedule
from tests.conformance.engine.test_schedules import Report, ReportMachine, report


def secondly(machine: ReportMachine, count: int) -> list[Schedule]:
    """So many schedules, each due every second."""
    return [
        Schedule(f"s{number}", machine, every=1, context=Report(), overlap="allow", catch_up="all")
        for number in range(count)
    ]


async def main(url: str, count: int) -> None:
    """Serve the schedules."""
    machine = report()
    async with Engine.open(url, machines=[machine], schedules=secondly(machine, count), lease_s=2.0):
        sys.stdout.write("open\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
