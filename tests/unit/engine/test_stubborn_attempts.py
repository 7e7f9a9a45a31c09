"""Attempts that ignore that they were cancelled: what observers are told of them."""

import asyncio

from interlock import ResultLate, StepAttempted, StepContext
from interlock.testing import Harness
from tests.unit.engine.test_recovery import Begin, Job, State, Worked, jobs


def test_an_attempt_that_is_given_up_is_told_as_a_timeout_and_its_answer_as_late() -> None:
    """A9, C2: it was counted as a timeout, so nobody is told that it was done."""
    signals: list[object] = []

    async def work(ctx: StepContext) -> Worked:
        answered = asyncio.Event()
        asyncio.get_running_loop().call_later(70 if ctx.attempt == 1 else 0, answered.set)
        while not answered.is_set():
            try:
                await answered.wait()
            except asyncio.CancelledError:
                continue
        return Worked()

    with Harness(jobs(work), observers=[signals.append]) as h:
        h.start("w-1", Job())
        h.send("w-1", Begin())
        h.advance(seconds=100)
        assert h.view("w-1").state is State.DONE
    told = [(each.attempt, each.outcome) for each in signals if isinstance(each, StepAttempted)]
    assert told == [(1, "timeout"), (2, "done")]
    assert len([each for each in signals if isinstance(each, ResultLate)]) == 1
