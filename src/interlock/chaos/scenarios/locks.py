"""Scenario in which the holder of a lock is frozen, and wakes up after others have held it.

No lock can keep a process from being frozen between the check of its lease and its write. The promise is that the
write does no harm: the resource refuses a token that is lower than the highest it has accepted.
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
    """Many contenders compete for one lease, and its holder is frozen."""

    name = "freeze-lock-holder"
    promise = f"{CONTENDERS} want one lock, its holder is frozen and wakes up late: what it writes then is refused"
    needs = (REDIS,)

    async def play(self, stage: Stage) -> Played:
        """Run the contenders in processes of their own."""
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
    """Yield every broken promise."""
    if locks.violations:
        yield f"the resource took {locks.violations} writes that another holder had overtaken: the fence is missing"
    if not locks.holder_frozen:
        yield "no other contender had the lock while its holder was frozen"
    elif not locks.frozen_write_refused:
        yield "the late write of the frozen holder was not refused"
    elif not locks.holder_knew:
        yield "the lease of the frozen holder did not report that it is lost"
    if not locks.wrong_clock_acquisitions:
        yield "the process whose clock is an hour ahead never had the lock"
