"""B17: every attempt of a step, an undo or an effect can be read, and costs no commit of its own."""

import os
import socket
from enum import Enum

import pytest

from interlock import Engine, Event, Machine, NonRetryable, StepContext
from interlock.engine.operators.attempts import ROWS_LOOKED_MAX, Attempt
from interlock.errors import InvalidPayload, WorkflowNotFound
from tests.conformance.engine.places import Place, SetClock, crash, run, settled, turns
from tests.conformance.engine.shop import (
    Cancel,
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Pause,
    Ship,
    State,
    Submit,
    World,
    shop,
)

HERE = f"{socket.gethostname()}:{os.getpid()}"


async def submitted(engine: Engine, order: OrderMachine, workflow: str = "o-1") -> None:
    await engine.start(order, workflow, Order())
    await engine.send(workflow, Submit())


async def tried(engine: Engine, workflow: str = "o-1") -> list[Attempt]:
    """All attempts, page by page."""
    found: list[Attempt] = []
    cursor = None
    while True:
        page = await engine.attempts(workflow, limit=2, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


def brief(attempts: list[Attempt]) -> list[tuple[str, str, int, str]]:
    return [(each.kind, each.name, each.number, each.outcome) for each in attempts]


def test_steps_that_succeed_and_their_effect_are_attempts(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            while len(await tried(engine)) < 3 or (await tried(engine))[-1].ended_at is None:
                await settled(engine)
            attempts = await tried(engine)
            assert brief(attempts) == [
                ("step", "charge", 1, "completed"),
                ("step", "reserve", 1, "completed"),
                ("effect", "mail", 1, "completed"),
            ]
            assert [each.key for each in attempts] == [*world.charge.keys, *world.reserve.keys, *world.mail.keys]
            assert {each.worker for each in attempts} == {HERE}
            rows = await engine.history("o-1")
            charge = attempts[0]
            assert charge.ended_at == rows[2].created_at
            assert rows[1].created_at <= charge.begun_at <= rows[2].created_at
            assert {(each.error, each.traceback) for each in attempts} == {("", "")}
            assert (await engine.attempts("o-1")).items == tuple(attempts)
            # They stay when the workflow moves on.
            await engine.send("o-1", Ship())
            assert await tried(engine) == attempts

    run(scenario)


def test_failures_are_kept_with_their_error_and_the_last_with_its_traceback(place: Place) -> None:
    async def scenario() -> None:
        secret = OSError("no answer, password=hunter2")
        order, world, _ = shop(World(charge=Outside(secret, TimeoutError("slow"), OSError("away"))))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.CANCELLED)
            attempts = await tried(engine)
            assert brief(attempts) == [
                ("step", "charge", 1, "failed"),
                ("step", "charge", 2, "failed"),
                ("step", "charge", 3, "failed"),
                ("undo", "charge", 1, "completed"),
            ]
            assert [each.error for each in attempts[:3]] == [
                "OSError: no answer, password=***", "TimeoutError: slow", "OSError: away",
            ]  # fmt: skip
            assert [bool(each.traceback) for each in attempts] == [False, False, True, False]
            assert "OSError: away" in attempts[2].traceback
            assert {each.key for each in attempts[:3]} == {world.charge.keys[0]}
            assert attempts[3].key == world.refund.keys[0]

    run(scenario)


def test_a_retry_that_succeeds_stands_after_the_failures(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop(World(charge=Outside(OSError("away"), Charged())))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            found = brief(await tried(engine))
            assert found[:2] == [("step", "charge", 1, "failed"), ("step", "charge", 2, "completed")]

    run(scenario)


def test_an_attempt_under_way_is_running_and_then_cancelled_by_the_move(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, _, _ = shop(World(charge=Outside(held)))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await held.begun.wait()
            await engine.send("o-1", Note("it stays where it is"))
            [running] = await tried(engine)
            assert (running.outcome, running.ended_at, running.number) == ("running", None, 1)
            await engine.send("o-1", Pause())
            [cancelled] = await tried(engine)
            assert (cancelled.outcome, cancelled.error) == ("cancelled", "the workflow moved on")
            assert (cancelled.key, cancelled.begun_at) == (running.key, running.begun_at)
            assert cancelled.ended_at == (await engine.history("o-1"))[-1].created_at

    run(scenario)


def test_a_dead_letter_has_its_attempts_and_a_retry_adds_more(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop(World(charge=Outside(NonRetryable("refused"), Charged())), failed=None)
        async with place.engine(order) as engine:
            await submitted(engine, order)
            while not (letters := await engine.dead_letters()):
                await settled(engine)
            [failed] = await tried(engine)
            assert (failed.outcome, failed.number) == ("failed", 1)
            assert failed.traceback == letters[0].traceback != ""
            await engine.retry_dead_letter(letters[0].id)
            await engine.wait("o-1", State.DONE)
            assert brief(await tried(engine))[:2] == [
                ("step", "charge", 1, "failed"),
                ("step", "charge", 1, "completed"),
            ]

    run(scenario)


def test_a_timeout_and_the_attempts_of_an_undo(place: Place) -> None:
    async def scenario() -> None:
        world = World(charge=Outside(Held(), Charged()), release=Outside(OSError("away"), None))
        order, _, _ = shop(world, timeout_s=0.01)
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            await engine.wait("o-1", State.CANCELLED)
            steps = [each for each in brief(await tried(engine)) if each[0] != "effect"]
            assert steps == [
                ("step", "charge", 1, "timed_out"),
                ("step", "charge", 2, "completed"),
                ("step", "reserve", 1, "completed"),
                ("undo", "reserve", 1, "failed"),
                ("undo", "reserve", 2, "completed"),
                ("undo", "charge", 1, "completed"),
            ]

    run(scenario)


def test_an_effect_that_is_under_way_fails_and_dies(place: Place) -> None:
    async def scenario() -> None:
        held = Held(OSError("away"))
        order, _, _ = shop(World(mail=Outside(held, NonRetryable("no such box"))))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await held.begun.wait()
            await engine.wait("o-1", State.DONE)
            running = (await tried(engine))[-1]
            assert (running.kind, running.name, running.outcome) == ("effect", "mail", "running")
            await engine.send("o-1", Ship())  # The attempt of an effect is not cancelled by a move.
            assert (await tried(engine))[-1] == running
            held.go.set()
            while not await engine.dead_letters():
                await settled(engine)
            found = [each for each in await tried(engine) if each.kind == "effect"]
            assert [(each.number, each.outcome) for each in found] == [(1, "failed"), (2, "failed")]

    run(scenario)


def test_what_a_dead_process_had_begun_has_crashed(kept: Place) -> None:
    async def scenario() -> None:
        charge, mail = Held(), Held()
        order, _, _ = shop(World(charge=Outside(Charged(), charge, Charged()), mail=Outside(mail, None)))
        engine = await kept.engine(order)
        await submitted(engine, order, "o-1")
        await mail.begun.wait()
        await submitted(engine, order, "o-2")
        await charge.begun.wait()
        before = {each: (await tried(engine, each))[-1] for each in ("o-1", "o-2")}
        await crash(engine)
        async with kept.engine(order) as engine:
            await engine.wait("o-2", State.DONE)
            while (await tried(engine, "o-1"))[-1].outcome != "completed":
                await settled(engine)
            for workflow, kind in (("o-1", "effect"), ("o-2", "step")):
                found = [each for each in await tried(engine, workflow) if each.key == before[workflow].key]
                crashed, completed = found
                assert (crashed.kind, crashed.outcome, crashed.number) == (kind, "crashed", 1)
                assert crashed.error.endswith("the process ended during the attempt")
                assert (crashed.begun_at, crashed.worker) == (before[workflow].begun_at, HERE)
                assert (completed.outcome, completed.number) == ("completed", 2)

    run(scenario)


def test_an_attempt_that_a_stop_has_cancelled_is_not_counted_and_is_kept(kept: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, _, _ = shop(World(charge=Outside(held, Charged())))
        engine = await kept.engine(order, drain_s=0)
        await submitted(engine, order)
        await held.begun.wait()
        await engine.close()
        async with kept.engine(order) as engine:
            await engine.wait("o-1", State.DONE)
            first, second = (await tried(engine))[:2]
            assert (first.outcome, first.error, first.number) == ("cancelled", "the engine stopped", 1)
            assert (second.outcome, second.number, second.key) == ("completed", 1, first.key)

    run(scenario)


def test_the_oldest_of_many_attempts_are_dropped(place: Place) -> None:
    async def scenario() -> None:
        failures = [OSError(f"away {number}") for number in range(6)]
        order, _, _ = shop(World(charge=Outside(*failures, Charged())), attempts=9)
        async with place.engine(order, attempts_max=3) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            found = [each for each in await tried(engine) if each.name == "charge"]
            assert [(each.number, each.outcome) for each in found] == [
                (5, "failed"), (6, "failed"), (7, "completed"),
            ]  # fmt: skip

    run(scenario)


def test_long_errors_are_cut(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop(World(charge=Outside(OSError("x" * 5_000), Charged())))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            assert len((await tried(engine))[0].error) == 500

    run(scenario)


def test_they_are_pruned_with_the_history(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            while (await tried(engine))[-1].ended_at is None:
                await settled(engine)
            await engine.send("o-1", Ship())
            assert len(await tried(engine)) == 3
            await engine.start(order, "o-2", Order())
            pruned = await engine.prune(older_than_s=0, history_only=True)
            assert pruned.workflows == 1
            assert await tried(engine) == []

    run(scenario)


def test_a_page_ends_where_few_moves_have_attempts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ROWS_LOOKED_MAX >= 1_000

    async def scenario() -> None:
        held = Held(Charged())
        order, _, _ = shop(World(charge=Outside(held)))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await held.begun.wait()
            for number in range(9):
                await engine.send("o-1", Note(str(number)))
            held.go.set()
            await engine.wait("o-1", State.DONE)
            whole = brief(await tried(engine))[:2]
            monkeypatch.setattr("interlock.engine.operators.attempts.PAGE", 4)
            monkeypatch.setattr("interlock.engine.operators.attempts.ROWS_LOOKED_MAX", 4)
            page = await engine.attempts("o-1")
            assert (page.items, page.cursor is None) == ((), False)
            found: list[Attempt] = []
            cursor = None
            while True:
                page = await engine.attempts("o-1", cursor=cursor)
                found += page.items
                cursor = page.cursor
                if cursor is None:
                    break
            assert brief(found)[:2] == whole == [
                ("step", "charge", 1, "completed"), ("step", "reserve", 1, "completed"),
            ]  # fmt: skip

    run(scenario)


def test_a_wrong_cursor_and_a_missing_workflow_are_refused(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            assert await tried(engine) == []
            with pytest.raises(InvalidPayload):
                await engine.attempts("o-1", cursor="x")
            with pytest.raises(WorkflowNotFound):
                await engine.attempts("o-2")
            assert (await engine.of(order).attempts("o-1")).items == ()

    run(scenario)


def test_two_moves_in_one_group_leave_no_attempt_that_did_not_begin(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order, clock=SetClock()) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send_many([("o-1", Submit()), ("o-1", Pause())])
            await turns()
            assert (await engine.get("o-1")).state is State.PAUSED
            assert len(await tried(engine)) == len(world.charge.calls)

    run(scenario)


class Stage(Enum):
    OPEN = "open"
    DONE = "done"


class FileEvent(Event):
    pass


class Read(FileEvent):
    pass


@pytest.mark.parametrize("name", ["\udcff", "\0"])
def test_an_action_may_raise_with_a_text_that_no_store_can_take(place: Place, name: str) -> None:
    """Python reads names of files as half of a surrogate where they are no Unicode."""
    machine = Machine("files", states=Stage, context=Order, events=FileEvent, initial=Stage.OPEN, final={Stage.DONE})

    @machine.on(Read, Stage.OPEN, to=Stage.DONE)
    def read(order: Order, event: Read) -> Order:
        raise OSError(f"no file {name}")

    @machine.step(Stage.OPEN, timeout_s=5)
    async def find(order: Order, ctx: StepContext) -> Read:
        return Read()

    async def scenario() -> None:
        async with place.engine(machine) as engine:
            await engine.start(machine, "o-1", Order())
            while not (letters := await engine.dead_letters()):
                await settled(engine)
            assert "raised OSError: no file" in letters[0].error
            assert brief(await tried(engine)) == [("step", "find", 1, "failed")]

    run(scenario)
