"""F1: who started, sent, paused, scheduled or resolved it stands in history; moves of the machine have no actor."""

import logging
from datetime import UTC, datetime

import pytest

from interlock import Engine, NonRetryable
from interlock.engine.schedules import PREFIX, schedule_machine
from interlock.errors import InvalidPayload
from interlock.store.protocol import Store
from tests.conformance.engine.places import Place, run, settled
from tests.conformance.engine.shop import Cancel, Note, Order, Outside, State, Submit, World, shop
from tests.conformance.engine.test_schedules import hourly, report


async def actors(engine: Engine, workflow: str) -> list[tuple[str, str | None]]:
    """Each event of a workflow, with its actor."""
    return [(row.event, row.by) for row in await engine.history(workflow)]


def test_the_actor_of_a_start_and_of_an_event_stands_in_history(place: Place) -> None:
    async def scenario() -> None:
        made = shop()
        async with place.engine(made.machine, worker=False) as engine:
            await engine.start(made.machine, "o-1", Order(), by="ada")
            await engine.send("o-1", Note("a"), by="grace")
            await engine.send("o-1", Note("b"), by="")
            await engine.of(made.machine).send("o-1", Note("c"), by="linus", key="k")
            again = await engine.send("o-1", Note("c"), by="another", key="k")
            assert again.duplicate
            await engine.send("o-2", Note("d"), start=(made.machine, Order()), by="ken")
            await engine.of(made.machine).start("o-3", Order(), by="dennis")
            answers = await engine.send_many([("o-2", Note("e")), ("o-3", Note("f"), "k")], by="barbara")
            assert len(answers) == 2
            assert await actors(engine, "o-1") == [
                ("STARTED", "ada"),
                ("NOTE", "grace"),
                ("NOTE", None),
                ("NOTE", "linus"),
            ]
            assert await actors(engine, "o-2") == [("STARTED", "ken"), ("NOTE", "ken"), ("NOTE", "barbara")]
            assert await actors(engine, "o-3") == [("STARTED", "dennis"), ("NOTE", "barbara")]

    run(scenario)


def test_the_moves_of_the_machine_have_no_actor(place: Place) -> None:
    async def scenario() -> None:
        made = shop()
        async with place.engine(made.machine) as engine:
            await engine.start(made.machine, "o-1", Order())
            await engine.send("o-1", Submit(5), by="ada")
            await settled(engine)
            events = await actors(engine, "o-1")
            assert events[:2] == [("STARTED", None), ("SUBMIT", "ada")]
            assert len(events) > 2
            assert {by for _, by in events[2:]} == {None}

    run(scenario)


@pytest.mark.parametrize("by", ["x" * 201, "two\nlines", 5])
def test_a_name_that_cannot_be_shown_is_refused(place: Place, by: str) -> None:
    async def scenario() -> None:
        made = shop()
        async with place.engine(made.machine, worker=False) as engine:
            with pytest.raises(InvalidPayload, match="is not the name of an actor"):
                await engine.start(made.machine, "o-1", Order(), by=by)
            await engine.start(made.machine, "o-1", Order())
            with pytest.raises(InvalidPayload, match="is not the name of an actor"):
                await engine.send("o-1", Note("a"), by=by)
            with pytest.raises(InvalidPayload, match="is not the name of an actor"):
                await engine.resolve_dead_letter("none", note="", by=by)

    run(scenario)


def test_pauses_and_schedules_have_the_actor_in_their_history(place: Place) -> None:
    async def scenario() -> None:
        machine = report()
        async with place.engine(machine, worker=False) as engine:
            await engine.schedules.put(hourly(machine), by="ada")
            await engine.schedules.pause("hourly", by="grace")
            await engine.schedules.resume("hourly", by="linus")
            await engine.schedules.trigger("hourly", by="ken")
            since, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=UTC)
            await engine.schedules.backfill("hourly", since, until, by="dennis")
            await engine.schedules.delete("hourly", by="barbara")
            rows = await engine.of(schedule_machine).history(f"{PREFIX}hourly")
            assert [(row.event, row.by) for row in rows] == [
                ("STARTED", "ada"), ("PUT", "ada"), ("PAUSE", "grace"), ("RESUME", "linus"), ("TRIGGER", "ken"),
                ("TRIGGER", "dennis"), ("DELETE", "barbara"),
            ]  # fmt: skip
            await engine.pause(machine=machine, by="ada", note="the bank")
            await engine.resume(machine=machine, by="grace")
            store: Store = engine._store
            [pause] = (await store.find("interlock.pause", None, after=None, limit=9)).rows
            assert [row.by for row in await store.history(pause.id)] == ["ada", "ada", "grace"]

    run(scenario)


def test_who_resolves_the_last_undo_has_moved_the_workflow(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "interlock.operators")

    async def scenario() -> None:
        made = shop(World(refund=Outside(NonRetryable("no such charge"))))
        async with place.engine(made.machine) as engine:
            await engine.start(made.machine, "o-1", Order())
            await engine.send("o-1", Submit(5))
            await settled(engine)
            await engine.send("o-1", Cancel())
            await settled(engine)
            [letter] = await engine.dead_letters("undo")
            await engine.retry_dead_letter(letter.id, by="ada")
            await settled(engine)
            [letter] = await engine.dead_letters("undo")
            await engine.resolve_dead_letter(letter.id, note="refunded by hand", by="grace")
            view = await engine.wait("o-1", State.CANCELLED)
            [last] = await engine.history("o-1", after=view.version - 1)
            assert last.by == "grace"

    run(scenario)
    assert "is retried, by ada" in caplog.text
    assert "is resolved: refunded by hand, by grace" in caplog.text
