"""E5: an event starts the workflow if there is none, in one commit; a refused first event starts nothing."""

import asyncio

import pytest

from interlock import (
    Engine,
    GuardRejected,
    InvalidTransition,
    KeyReused,
    Moved,
    Refused,
    UserCodeError,
    VersionConflict,
    WorkflowExists,
    WorkflowNotFound,
)
from interlock.errors import BadUsage
from tests.conformance.engine.places import Place, run
from tests.conformance.engine.shop import Broken, Note, Order, Ship, State, Submit, shop


async def refuse_missing(engine: Engine, workflow: str = "o-1") -> None:
    with pytest.raises(WorkflowNotFound):
        await engine.get(workflow)
    assert (await engine.stats("o-0")).refused == 0


def test_the_first_event_starts_and_later_ones_apply(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order, worker=False) as engine:
            begin = (order, Order(cents=7))
            assert await engine.send("o-1", Note("a"), start=begin) == Moved(state=State.DRAFT, version=2)
            assert await engine.send("o-1", Note("b"), start=(order, Order(cents=8))) == Moved(
                state=State.DRAFT, version=3
            )
            rows = await engine.history("o-1")
            assert [(row.version, row.event, row.context) for row in rows] == [
                (1, "STARTED", Order(cents=7)),
                (2, "NOTE", Order(cents=7, note="a")),
                (3, "NOTE", Order(cents=7, note="ab")),
            ]
            assert rows[0].created_at == rows[1].created_at
            # B4: the start is the one that a plain start would have made.
            assert (await engine.start(order, "o-1", Order(cents=7))).version == 3
            with pytest.raises(WorkflowExists, match="other input"):
                await engine.start(order, "o-1", Order(cents=8))

    run(scenario)


def test_the_first_event_may_owe_a_step_and_the_same_key_starts_once(place: Place) -> None:
    async def scenario() -> None:
        made = shop()
        order = made.machine
        async with place.engine(order) as engine:
            first = await engine.send("o-1", Submit(5), key="k", start=(order, Order()))
            again = await engine.send("o-1", Submit(5), key="k", start=(order, Order()))
            assert (first.state, first.version, first.duplicate) == (State.CHARGING, 2, False)
            assert (again.state, again.version, again.duplicate) == (State.CHARGING, 2, True)
            with pytest.raises(KeyReused):
                await engine.send("o-1", Submit(6), key="k", start=(order, Order()))
            assert (await engine.wait("o-1")).state is State.DONE
            assert len(made.world.charge.calls) == 1

    run(scenario)


def test_a_refused_first_event_starts_nothing(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-0", Order())
            begin = (order, Order())
            with pytest.raises(InvalidTransition):
                await engine.send("o-1", Ship(), start=begin)
            with pytest.raises(GuardRejected):
                await engine.send("o-1", Submit(0), key="k", start=begin)
            with pytest.raises(UserCodeError):
                await engine.send("o-1", Broken("guard raises"), start=begin)
            with pytest.raises(VersionConflict, match="no version 4"):
                await engine.send("o-1", Note(), expect_version=4, start=begin)
            ignored = await engine.send("o-1", Ship(), if_allowed=True, start=begin)
            assert ignored == Moved(state=State.DRAFT, version=0, ignored=True)
            await refuse_missing(engine)
            # The key of a refused event is free, and version 0 is that of a workflow that does not exist.
            assert (await engine.send("o-1", Note(), key="k", expect_version=0, start=begin)).version == 2
            with pytest.raises(VersionConflict):
                await engine.send("o-1", Note(), expect_version=0, start=begin)

    run(scenario)


def test_a_workflow_of_another_machine_is_refused(place: Place) -> None:
    async def scenario() -> None:
        order, other = shop().machine, shop(name="other").machine
        async with place.engine(order, other) as engine:
            await engine.start(other, "o-1", Order())
            with pytest.raises(WorkflowExists, match="of the machine 'other'"):
                await engine.send("o-1", Note("x"), start=(order, Order()))
            with pytest.raises(WorkflowExists):
                await engine.of(order).send("o-1", Note("x"), start=Order())
            assert (await engine.get("o-1")).version == 1
            assert (await engine.of(order).send("o-2", Note("x"), start=Order())).version == 2
            with pytest.raises(BadUsage, match="not a machine and a context"):
                await engine.send("o-3", Note("x"), start=order)  # type: ignore[arg-type]

    run(scenario)


def test_many_senders_start_one_workflow(place: Place) -> None:
    """Two engines where the store is shared, else one: every event applies, and one of them has started it."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            engines = [engine]
            if engine._store.shared:
                engines.append(await place.engine(order))
            sent = await asyncio.gather(
                *(
                    each.send("o-1", Note(f"{number}"), key=f"k-{number}", start=(order, Order(cents=number)))
                    for number, each in enumerate(engines * 10)
                )
            )
            assert sorted(moved.version for moved in sent) == list(range(2, len(sent) + 2))
            rows = await engine.history("o-1")
            assert [row.event for row in rows] == ["STARTED"] + ["NOTE"] * len(sent)
            assert len({row.context.note for row in rows[1:]}) == len(sent)  # type: ignore[attr-defined]
            for other in engines[1:]:
                await other.close()

    run(scenario)


def test_many_items_may_start(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order, worker=False) as engine:
            begin = (order, Order())
            answers = await engine.send_many(
                [
                    ("o-1", Note("a"), None, begin),
                    ("o-2", Note("a")),
                    ("o-1", Submit(5), "k", begin),
                    ("o-3", Ship(), "k", begin),
                    ("o-1", Submit(5), "k"),
                ]
            )
            assert answers[0] == Moved(state=State.DRAFT, version=2)
            assert isinstance(answers[1], Refused)
            assert isinstance(answers[1].error, WorkflowNotFound)
            assert answers[2] == Moved(state=State.CHARGING, version=3)
            assert isinstance(answers[3], Refused)
            assert isinstance(answers[3].error, InvalidTransition)
            assert answers[4] == Moved(state=State.CHARGING, version=3, duplicate=True)

    run(scenario)


def test_it_is_there_after_a_crash_and_its_step_runs(kept: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with kept.engine(order, worker=False) as engine:
            await engine.send("o-1", Submit(5), key="k", start=(order, Order()))
        async with kept.engine(order) as engine:
            assert (await engine.send("o-1", Submit(5), key="k", start=(order, Order()))).duplicate
            assert (await engine.wait("o-1")).state is State.DONE

    run(scenario)
