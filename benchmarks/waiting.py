"""What workflows that wait weigh in memory: `python -m benchmarks.waiting FOLDER`, for `capacity`.

A process of its own, which loads nothing but an engine: exporters and drivers have a weight too.
"""

import asyncio
import sys
from pathlib import Path

from benchmarks.growth import ALL, Nothing, parked, resident_bytes
from interlock import Engine

WAITING = 10_000


async def weigh_waiting(folder: Path) -> tuple[float, float, float]:
    """The body of a process of its own: its memory when empty, per workflow that waits, and per call that waits."""
    async with Engine.open(f"lanes://{folder}", machines=ALL, snapshots_max=2 * WAITING) as engine:
        for number in range(100):  # What is only made once is not a workflow's.
            await engine.start(parked, f"first-{number}", Nothing())
        empty = resident_bytes()
        for start in range(0, WAITING, 1_000):
            await asyncio.gather(
                *(engine.start(parked, f"w-{number}", Nothing()) for number in range(start, start + 1_000))
            )
        workflows = resident_bytes()
        calls = [asyncio.create_task(engine.wait(f"w-{number}", timeout_s=600)) for number in range(WAITING)]
        await asyncio.wait(calls, timeout=0.5)  # None of them is answered: they have all begun to wait.
        waiting = resident_bytes()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    return empty / 1e6, (workflows - empty) / WAITING, (waiting - workflows) / WAITING


if __name__ == "__main__":
    print(*asyncio.run(weigh_waiting(Path(sys.argv[1]))))
