"""B7: on a shared store one worker at a time looks for stalled workflows, and each alert is sent once."""

from interlock import StepContext
from interlock.signals import AlertRaised, Signal
from tests.unit.engine.calls import Go, Job, jobs
from tests.unit.engine.shared.stores import SharedMemory, engine_on, passed, play


async def is_wrong(_ctx: StepContext) -> None:
    raise TypeError("a mistake of the program")


def test_each_alert_is_raised_once_and_resolved_once_by_all_workers_together() -> None:
    async def scenario() -> None:
        store, job = SharedMemory(), jobs(is_wrong)
        told: list[Signal] = []
        async with (
            engine_on(store, job, observers=[told.append], stall_check_s=30.0) as here,
            engine_on(store, job, observers=[told.append], stall_check_s=30.0, seed=2),
        ):
            await here.start(job, "o-1", Job())
            await here.send("o-1", Go())
            await passed(200)
            alerts = [each for each in told if isinstance(each, AlertRaised)]
            assert [(each.kind, each.resolved) for each in alerts] == [("dead_letter", False)]
            [letter] = await here.dead_letters()
            await here.resolve_dead_letter(letter.id, note="by hand")
            await passed(200)
            alerts = [each for each in told if isinstance(each, AlertRaised)]
            assert [(each.kind, each.resolved) for each in alerts] == [("dead_letter", False), ("dead_letter", True)]

    play(scenario)
