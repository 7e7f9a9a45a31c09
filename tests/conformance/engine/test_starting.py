"""B4, Ids: starting a workflow is idempotent on its id and its input, and an id is something people can read."""

import pytest

from interlock import InvalidPayload, PayloadTooLarge, UnavailableError, WorkflowExists, WorkflowNotFound
from interlock.engine.path import caller_commands
from tests.conformance.engine.places import Place, run
from tests.conformance.engine.shop import Note, Order, State, Submit, shop


def test_a_start_returns_the_workflow_at_version_1_in_its_initial_state(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            view = await engine.start(order, "o-1", Order(cents=7))
            assert (view.id, view.machine, view.state, view.version) == ("o-1", "order", State.DRAFT, 1)
            assert view.context == Order(cents=7)
            assert view.created_at == view.updated_at
            assert view.created_at.tzinfo is not None
            assert await engine.get("o-1") == view

    run(scenario)


def test_a_start_writes_a_row_of_history_named_started_from_and_to_the_initial_state(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order(cents=7))
            [row] = await engine.history("o-1")
            assert (row.version, row.from_state, row.to_state) == (1, State.DRAFT, State.DRAFT)
            assert (row.event, row.payload, row.key) == ("STARTED", None, None)
            assert row.context == Order(cents=7)

    run(scenario)


def test_the_same_start_again_returns_the_one_that_exists(place: Place) -> None:
    """B4: also when it has moved on meanwhile."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            assert (await engine.start(order, "o-1", Order())).version == 1
            await engine.send("o-1", Note("x"))
            again = await engine.start(order, "o-1", Order())
            assert (again.version, again.context.note) == (2, "x")
            assert len(await engine.history("o-1")) == 2

    run(scenario)


def test_the_same_start_in_another_life_returns_the_one_that_exists(kept: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with kept.engine(order) as engine:
            await engine.start(order, "o-1", Order(cents=1))
        async with kept.engine(order) as engine:
            assert (await engine.start(order, "o-1", Order(cents=1))).version == 1
            with pytest.raises(WorkflowExists):
                await engine.start(order, "o-1", Order(cents=2))

    run(scenario)


def test_the_same_id_with_other_input_is_an_error_and_changes_nothing(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            before = await engine.start(order, "o-1", Order(cents=1))
            with pytest.raises(WorkflowExists, match="other input"):
                await engine.start(order, "o-1", Order(cents=2))
            assert await engine.get("o-1") == before

    run(scenario)


def test_the_same_id_with_another_machine_is_an_error(place: Place) -> None:
    async def scenario() -> None:
        order, parcel = shop().machine, shop(name="parcel").machine
        async with place.engine(order, parcel) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(WorkflowExists, match="order"):
                await engine.start(parcel, "o-1", Order())
            assert (await engine.get("o-1")).machine == "order"

    run(scenario)


def test_two_starts_at_once_are_one(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            first = engine.of(order)
            views = [await each for each in [first.start("o-1", Order()), first.start("o-1", Order())]]
            assert views[0] == views[1]

    run(scenario)


@pytest.mark.parametrize(
    "bad",
    ["", "x" * 201, "a/b", "a\x00b", "a\nb", "a\tb", "\ud800", "a\udfffb", "\u2028", "\x7f", 7, None, b"bytes"],
    ids=repr,
)
def test_an_id_that_is_none_is_refused_by_every_call_and_nothing_is_stored(place: Place, bad: str) -> None:
    """Ids: 1 to 200 printable characters without a slash."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            with pytest.raises(InvalidPayload):
                await engine.start(order, bad, Order())
            with pytest.raises(InvalidPayload):
                await engine.send(bad, Submit())
            for call in (engine.get, engine.history, engine.allowed, engine.wait, engine.stats):
                with pytest.raises(InvalidPayload):
                    await call(bad)
            assert (await engine.find(order)).items == ()

    run(scenario)


@pytest.mark.parametrize("dots", [".", ".."])
def test_an_id_that_no_address_can_name_is_refused_and_one_that_exists_can_be_used(
    place: Place, dots: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions took it: what they have started is read, moved and found as before."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            with pytest.raises(InvalidPayload, match="not the id of a new workflow"):
                await engine.start(order, dots, Order())
            assert (await engine.find(order)).items == ()
            with monkeypatch.context() as older:
                older.setattr(caller_commands, "DOT_SEGMENTS", frozenset())
                await engine.start(order, dots, Order())
            engine._inside.pipeline.forget([dots])  # As an engine that is opened later.
            assert (await engine.get(dots)).version == 1
            assert (await engine.send(dots, Note("x"))).version == 2
            assert [view.id for view in (await engine.find(order)).items] == [dots]

    run(scenario)


@pytest.mark.parametrize(
    "good", ["..a", "x", "x" * 200, "a b", "ö-1", "订单", "a:b@c?d=e&f#g%2F\\", "'; DROP TABLE x; --"]
)
def test_an_id_of_printable_characters_is_taken_as_it_is(place: Place, good: str) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, good, Order())
            assert (await engine.get(good)).id == good
            assert [view.id for view in (await engine.find(order)).items] == [good]

    run(scenario)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x\udc80"], ids=repr)
def test_nul_and_lone_surrogates_are_refused_in_contexts_and_events(place: Place, text: str) -> None:
    """Ids: on every store, and nothing is stored."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            with pytest.raises(InvalidPayload):
                await engine.start(order, "o-1", Order(note=text))
            with pytest.raises(WorkflowNotFound):
                await engine.get("o-1")
            await engine.start(order, "o-1", Order())
            for key in (None, "k"):
                with pytest.raises(InvalidPayload):
                    await engine.send("o-1", Note(text), key=key)
            with pytest.raises(InvalidPayload):
                await engine.send("o-1", Note("fine"), key=text)
            assert (await engine.get("o-1")).version == 1
            assert (await engine.send("o-1", Note("fine"), key="k")).version == 2

    run(scenario)


def test_text_of_a_context_is_stored_verbatim(kept: Place) -> None:
    text = "<b>&amp;\u2028 \u202e ' \" \\ \x1b 💶"

    async def scenario() -> None:
        order = shop().machine
        async with kept.engine(order) as engine:
            await engine.start(order, "o-1", Order(note=text))
        async with kept.engine(order) as engine:
            assert (await engine.of(order).get("o-1")).context.note == text

    run(scenario)


def test_a_context_or_event_over_its_limit_is_too_large_and_nothing_is_stored(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            with pytest.raises(PayloadTooLarge):
                await engine.start(order, "o-1", Order(note="x" * 1_100_000))
            await engine.start(order, "o-1", Order())
            with pytest.raises(PayloadTooLarge):
                await engine.send("o-1", Note("x" * 1_100_000))
            await engine.send("o-1", Note("x" * 600_000))
            with pytest.raises(PayloadTooLarge):
                await engine.send("o-1", Note("x" * 600_000))
            assert (await engine.get("o-1")).version == 2

    run(scenario)


def test_a_context_of_another_type_is_refused(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            with pytest.raises(InvalidPayload):
                await engine.start(order, "o-1", {"cents": 5})  # type: ignore[misc]
            with pytest.raises(InvalidPayload):
                await engine.start(order, "o-1", Order(cents="5"))  # type: ignore[arg-type]
            with pytest.raises(WorkflowNotFound):
                await engine.get("o-1")

    run(scenario)


def test_a_machine_that_the_engine_was_not_given_is_named(place: Place) -> None:
    async def scenario() -> None:
        async with place.engine(shop().machine) as engine:
            with pytest.raises(UnavailableError, match="'parcel' was not given"):
                await engine.start(shop(name="parcel").machine, "o-1", Order())
            with pytest.raises(UnavailableError, match="is another object"):
                await engine.start(shop().machine, "o-1", Order())

    run(scenario)
