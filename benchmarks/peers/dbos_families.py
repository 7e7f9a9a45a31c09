"""A parent with many children on DBOS: `python -m benchmarks.peers.dbos_families URL`, in the environment of the peers.

The parent starts each child as a workflow and waits for all of them, which is how DBOS fans out. A child does nothing.
"""

import asyncio
import gc
import itertools
import json
import sys
import time

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]  # Only the peers' environment has it.

from benchmarks.peers.answering import claim_answers


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def child(number: int) -> int:
    """A child."""
    return number


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def parent(count: int) -> int:
    """Start the children, and wait for all."""
    handles = [await DBOS.start_workflow_async(child, number) for number in range(count)]
    return len([await handle.get_result() for handle in handles])


async def run(url: str) -> None:
    """Launch DBOS and take turns: one family for each line, whose `in_flight` is the number of children."""
    answers = claim_answers()
    DBOS(config={"name": "families", "system_database_url": url, "log_level": "WARNING"})
    DBOS.launch()
    counting = itertools.count()
    loop = asyncio.get_running_loop()
    try:
        print(json.dumps({"ready": True}), file=answers)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            count = json.loads(line)["in_flight"]
            gc.collect()
            cpu, begun = time.process_time(), time.perf_counter()
            with SetWorkflowID(f"family-{next(counting)}"):
                assert await parent(count) == count
            passed = time.perf_counter() - begun
            answer = {"seconds": passed, "cpu_seconds": time.process_time() - cpu, "latencies_s": [passed]}
            print(json.dumps(answer), file=answers)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
