"""The holder of a lock is frozen with it, and wakes up when others have had it.

Nothing can keep a process from being frozen between looking at its lease and writing. What is promised is that the
write does no harm: the resource refuses whoever comes with a lower token than it has seen.
"""

import functools
from collections.abc import Iterator

from interlock.chaos.locks import SECONDS, Locks, run_locks
from interlock.chaos.scenario import REDIS, Played, Scenario
from interlock.chaos.stage import Stage
from interlock.chaos.threads import in_thread
from interlock.chaos.words import times

CONTENDERS, PROCESSES, LEASE_S = 50, 5, 1.0
SECONDS_MIN = 2.0


class FreezeHolder(Scenario):
    """Many want one lease, and whoever has it is frozen."""

    name = "freeze-lock-holder"
    promise = f"{CONTENDERS} want one lock, its holder is frozen and wakes up late: what it writes then is refused"
    needs = (REDIS,)

    async def play(self, stage: Stage) -> Played:
        """Let them contend, in processes of their own."""
        stage.doing = "disturbed: the holder of a lock is frozen"
        seconds = min(SECONDS, max(SECONDS_MIN, stage.load.seconds))
        contended = functools.partial(
            run_locks,
            stage.redis.url,
            stage.folder,
            contenders=CONTENDERS,
            processes=PROCESSES,
            seconds=seconds,
            lease_s=LEASE_S,
        )
        locks = await in_thread(contended)
        fair = locks.fairness
        turns = (
            f"{locks.acquisitions:,} turns in {locks.processes} processes, {fair.least} to {fair.most} per contender"
        )
        late = f"late writes were refused {times(locks.refused_late_writes)}"
        return Played(f"{turns}; {late}; a clock an hour ahead changed nothing", list(wrong(locks)))


def wrong(locks: Locks) -> Iterator[str]:
    """Everything that is not as it was promised."""
    if locks.violations:
        yield f"the resource took {locks.violations} writes that another holder had overtaken: nobody checked the fence"
    if not locks.holder_frozen:
        yield "nobody had the lock while its holder was frozen: it was never given to anybody else"
    elif not locks.frozen_write_refused:
        yield "what the frozen holder wrote when it woke up was not refused"
    elif not locks.holder_knew:
        yield "the frozen holder was not told by its own lease that it is lost"
    if not locks.wrong_clock_acquisitions:
        yield "the process whose clock is an hour ahead never had the lock"
