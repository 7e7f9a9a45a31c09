"""B12, C4, C8: effects pass the breaker and the limits of what they call, like steps do."""

from contextlib import AbstractAsyncContextManager

import pytest

from interlock import Breaker, Dependency, Engine, Retry, Retryable, StepContext
from interlock.engine.dependencies import wait_queue
from tests.conformance.engine.places import settled
from tests.unit.engine.calls import Job, JobMachine, Plain, State, engine_of, jobs, nothing
from tests.unit.engine.shared.stores import SharedMemory, engine_on, now_s, passed, play

MAIL = Dependency("mail", 1, breaker=Breaker(failures=1, reset_s=30))


class Mail:
    """A mail server that is down until a time."""

    def __init__(self, *, up_s: float) -> None:
        self.up_s = up_s
        self.calls: list[tuple[float, int]] = []
        self.sent: list[str] = []

    def machine(self, attempts: int) -> JobMachine:
        """Done jobs are told by mail."""
        machine = jobs(nothing)

        @machine.effect(State.DONE, retry=Retry(attempts=attempts), dependency="mail")
        async def told(job: Job, ctx: StepContext) -> None:
            self.calls.append((now_s(), ctx.attempt))
            if now_s() < self.up_s:
                raise Retryable("down")
            self.sent.append(ctx.workflow)

        return machine


def opened(machine: JobMachine, store: SharedMemory | None) -> AbstractAsyncContextManager[Engine]:
    if store is None:
        return engine_of(machine, dependencies=[MAIL], effects_max=3)
    return engine_on(store, machine, dependencies=[MAIL], effects_max=3)


@pytest.mark.parametrize("held_min", [0, 100])
@pytest.mark.parametrize("shared", [False, True])
def test_effects_wait_for_an_open_breaker_and_burn_no_attempt(
    *, shared: bool, held_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, in line, or in the store: all are sent in the end, and none becomes a dead letter."""
    monkeypatch.setattr(wait_queue, "HELD_MIN", held_min)

    async def scenario() -> None:
        mail = Mail(up_s=100)
        machine = mail.machine(attempts=2)
        names = [f"j-{each}" for each in range(8)]
        async with opened(machine, SharedMemory() if shared else None) as engine:
            for name in names:
                await engine.start(machine, name, Job())
                await engine.send(name, Plain())
                await engine.wait(name)
            await passed(20)
            assert len(mail.calls) == 1
            assert engine.breakers()["mail"].state == "open"
            await passed(200)
            assert sorted(mail.sent) == names
            assert max(attempt for _, attempt in mail.calls) == 2
            assert len([each for each, _ in mail.calls if each < 100]) <= 4
            assert await engine.dead_letters() == []
            await settled(engine)
            places = engine._inside.places
            line = places.lines["mail"]
            assert (line.outlet.under_way, line.kept, len(line), places.effects.free) == (0, 0, 0, 3)

    play(scenario)


def test_effects_that_wait_for_a_place_take_no_slot_from_others() -> None:
    async def scenario() -> None:
        mail = Mail(up_s=0)
        machine = mail.machine(attempts=2)
        async with opened(machine, None) as engine:
            engine.force_breaker("mail", "open")
            for name in ("j-1", "j-2", "j-3", "j-4"):
                await engine.start(machine, name, Job())
                await engine.send(name, Plain())
                await engine.wait(name)
            await settled(engine)
            places = engine._inside.places
            assert (places.effects.free, engine.breakers()["mail"].waiting, mail.calls) == (3, 4, [])
            engine.force_breaker("mail", "auto")
            await passed(1)
            assert len(mail.sent) == 4

    play(scenario)
