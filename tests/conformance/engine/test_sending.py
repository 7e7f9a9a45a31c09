"""A3, B2, B3, B5, Keys: an event is applied once, or refused with nothing changed, and the answer is durable."""

import asyncio

import pytest

from interlock import (
    GuardRejected,
    InvalidPayload,
    InvalidTransition,
    KeyReused,
    Moved,
    Refused,
    UserCodeError,
    VersionConflict,
    WorkflowNotFound,
)
from interlock.core.events import Event
from tests.conformance.engine.places import Place, run
from tests.conformance.engine.shop import (
    Again,
    Broken,
    Held,
    Note,
    Order,
    Outside,
    Ship,
    State,
    Submit,
    World,
    shop,
)


def test_an_event_moves_the_workflow_and_says_where_it_stands(place: Place) -> None:
    async def scenario() -> None:
        order = shop(World(charge=Outside(Held()))).machine
        async with place.engine(order, drain_s=0) as engine:
            await engine.start(order, "o-1", Order())
            moved = await engine.send("o-1", Submit(cents=9))
            assert moved == Moved(state=State.CHARGING, version=2)
            view = await engine.of(order).get("o-1")
            assert (view.state, view.version, view.context.cents) == (State.CHARGING, 2, 9)

    run(scenario)


def test_an_event_without_transition_is_refused_at_once_and_changes_nothing(place: Place) -> None:
    """A3: it names the state, the event and what is allowed."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            before = await engine.start(order, "o-1", Order())
            with pytest.raises(InvalidTransition) as refused:
                await engine.send("o-1", Ship())
            error = refused.value
            assert (error.machine, error.state, error.event) == ("order", "draft", "SHIP")
            assert "SUBMIT" in error.allowed
            assert await engine.get("o-1") == before
            assert len(await engine.history("o-1")) == 1

    run(scenario)


def test_a_guard_that_says_no_is_named_with_its_reason(place: Place) -> None:
    """A3."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            before = await engine.start(order, "o-1", Order())
            with pytest.raises(GuardRejected, match="between 1 cent and 100 euros") as refused:
                await engine.send("o-1", Submit(cents=0))
            assert refused.value.guard == "affordable"
            assert await engine.get("o-1") == before

    run(scenario)


def test_if_allowed_answers_an_event_without_transition_as_ignored(place: Place) -> None:
    """B5."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            moved = await engine.send("o-1", Ship(), if_allowed=True)
            assert moved == Moved(state=State.DRAFT, version=1, ignored=True)

    run(scenario)


def test_if_allowed_does_not_cover_a_guard_that_says_no(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(GuardRejected):
                await engine.send("o-1", Submit(cents=0), if_allowed=True)

    run(scenario)


def test_another_version_than_expected_is_a_conflict_and_changes_nothing(place: Place) -> None:
    """B2."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(VersionConflict, match="at version 1, not 2"):
                await engine.send("o-1", Note("x"), expect_version=2)
            assert (await engine.send("o-1", Note("x"), expect_version=1)).version == 2

    run(scenario)


def test_of_two_that_expect_the_same_version_one_wins(place: Place) -> None:
    """B2: no lost update."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            sent = [engine.send("o-1", Note(text), expect_version=1) for text in "ab"]
            answers = await asyncio.gather(*sent, return_exceptions=True)
            assert sorted(type(answer).__name__ for answer in answers) == ["Moved", "VersionConflict"]
            assert (await engine.get("o-1")).version == 2

    run(scenario)


def test_several_events_of_one_workflow_in_one_group_are_applied_in_order(place: Place) -> None:
    """B3: versions are dense, and history is ordered by version."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            letters = "abcdefghijklmnopqrstuvwxyz"
            answers = await asyncio.gather(*(engine.send("o-1", Note(each)) for each in letters))
            assert [moved.version for moved in answers] == list(range(2, 28))
            rows = await engine.of(order).history("o-1")
            assert [row.version for row in rows] == list(range(1, 28))
            assert [row.context.note for row in rows] == [letters[:at] for at in range(27)]

    run(scenario)


def test_a_workflow_can_be_started_and_sent_to_in_one_group(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            view, moved = await asyncio.gather(engine.start(order, "o-1", Order()), engine.send("o-1", Note("a")))
            assert (view.version, moved.version) == (1, 2)

    run(scenario)


def test_send_many_answers_each_item_in_order(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            for each in ("o-1", "o-2"):
                await engine.start(order, each, Order())
            answers = await engine.send_many(
                [
                    ("o-1", Note("a"), "k1"),
                    ("nobody", Note("a"), None),
                    ("o-2", Ship(), None),
                    ("o-1", Note("b"), None),
                    ("a/b", Note("a"), None),
                    ("o-1", Note("a"), "k1"),
                    ("o-2", Submit(cents=0), None),
                    ("o-1", Note("c"), "k1"),
                    ("o-1", Note("c"), "\x00"),
                    ("o-2", Note("z"), None),
                ]
            )
            told = [
                type(each.error) if isinstance(each, Refused) else (each.version, each.duplicate) for each in answers
            ]
            assert told == [
                (2, False), WorkflowNotFound, InvalidTransition, (3, False), InvalidPayload,
                (2, True), GuardRejected, KeyReused, InvalidPayload, (2, False),
            ]  # fmt: skip
            assert await engine.send_many([]) == []

    run(scenario)


def test_what_was_sent_is_counted(place: Place) -> None:
    """B5: applied, duplicate, ignored and refused."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await _send_of_every_kind(engine)
            counts = await engine.stats("o-1")
            assert (counts.applied, counts.duplicate, counts.ignored, counts.refused) == (2, 3, 2, 2)

    run(scenario)


async def _send_of_every_kind(engine: object) -> None:
    send = engine.send  # type: ignore[attr-defined]
    for _ in range(4):
        await send("o-1", Note("a"), key="k")
    await send("o-1", Ship(), if_allowed=True)
    await send("o-1", Ship(), if_allowed=True, key="other")
    with pytest.raises(InvalidTransition):
        await send("o-1", Ship())
    with pytest.raises(GuardRejected):
        await send("o-1", Submit(cents=0))
    await send("o-1", Note("b"))


def test_what_is_decided_again_is_counted_once(place: Place) -> None:
    """B5: a delivery that comes again is known by its key alone, and the group in which it is found out is repeated."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("a"), key="k")
            sent = [engine.send("o-1", Ship()), engine.send("o-1", Ship(), if_allowed=True)]
            refused, ignored, again = await asyncio.gather(
                *sent, engine.send("o-1", Note("a"), key="k"), return_exceptions=True
            )
            assert isinstance(refused, InvalidTransition)
            assert isinstance(ignored, Moved)
            assert isinstance(again, Moved)
            assert again.duplicate
            counts = await engine.stats("o-1")
            assert (counts.applied, counts.duplicate, counts.ignored, counts.refused) == (1, 1, 1, 1)

    run(scenario)


def test_counts_are_there_in_another_life_without_another_move(kept: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with kept.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await _send_of_every_kind(engine)
            with pytest.raises(InvalidTransition):
                await engine.send("o-1", Ship())
        async with kept.engine(order) as engine:
            counts = await engine.stats("o-1")
            assert (counts.applied, counts.duplicate, counts.ignored, counts.refused) == (2, 3, 2, 3)
            assert (await engine.get("o-1")).version == 3

    run(scenario)


@pytest.mark.parametrize("how", ["raises", "returns", "guard raises", "guard returns"])
def test_a_guard_or_action_that_is_wrong_is_an_error_of_user_code_with_its_cause(place: Place, how: str) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            before = await engine.start(order, "o-1", Order())
            with pytest.raises(UserCodeError) as wrong:
                await engine.send("o-1", Broken(how))
            assert isinstance(wrong.value.__cause__, ZeroDivisionError) == ("raises" in how)
            assert await engine.get("o-1") == before
            assert (await engine.send("o-1", Note("still here"))).version == 2

    run(scenario)


class Elsewhere(Event):
    pass


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("wrong", [Elsewhere(), "SUBMIT", None, Submit], ids=["elsewhere", "text", "none", "class"])
def test_what_is_no_event_of_the_machine_is_refused(place: Place, wrong: Event, key: str | None) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(InvalidPayload):
                await engine.send("o-1", wrong, key=key)
            [refused] = await engine.send_many([("o-1", wrong, key)])
            assert isinstance(refused, Refused)
            assert (await engine.send("o-1", Note("still here"))).version == 2

    run(scenario)


def test_an_event_for_nobody_is_not_found(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            with pytest.raises(WorkflowNotFound, match="nobody"):
                await engine.send("nobody", Submit())
            with pytest.raises(WorkflowNotFound):
                await engine.send("nobody", Submit(), key="k", if_allowed=True)

    run(scenario)


def test_a_caller_who_goes_away_does_not_take_the_event_back(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            task = asyncio.create_task(engine.send("o-1", Note("a")))
            await asyncio.sleep(0)
            task.cancel()
            await engine.send("o-1", Again())
            assert [row.event for row in await engine.history("o-1")] == ["STARTED", "NOTE", "AGAIN"]

    run(scenario)
