"""What is stored is checked against the machines that an engine is opened with: nobody is stranded by an edit."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import DefinitionError, Event, Machine, StepContext, UnavailableError
from tests.conformance.engine.places import Place, crash, run, settled
from tests.conformance.engine.shop import Order, shop


class Old(Enum):
    DRAFT = "draft"
    CHECKED = "checked"
    DONE = "done"


class Shorter(Enum):
    DRAFT = "draft"
    DONE = "done"


class Longer(Enum):
    DRAFT = "draft"
    CHECKED = "checked"
    SIGNED = "signed"
    DONE = "done"


class Renamed(Enum):
    DRAFT = "draft"
    LOOKED_AT = "looked_at"
    DONE = "done"


@dataclass(frozen=True)
class Paper:
    text: str = ""


class PaperEvent(Event):
    pass


@dataclass(frozen=True)
class Check(PaperEvent):
    pass


@dataclass(frozen=True)
class Finish(PaperEvent):
    pass


def old() -> Machine[Old, Paper, PaperEvent]:
    paper = Machine("paper", states=Old, context=Paper, events=PaperEvent, initial=Old.DRAFT, final={Old.DONE})
    paper.on(Check, Old.DRAFT, to=Old.CHECKED)
    paper.on(Finish, Old.CHECKED, to=Old.DONE)
    return paper


def shorter() -> Machine[Shorter, Paper, PaperEvent]:
    paper = Machine(
        "paper",
        states=Shorter,
        context=Paper,
        events=PaperEvent,
        initial=Shorter.DRAFT,
        final={Shorter.DONE},
        version=2,
    )
    paper.on(Finish, Shorter.DRAFT, to=Shorter.DONE)
    return paper


def longer() -> Machine[Longer, Paper, PaperEvent]:
    paper = Machine(
        "paper", states=Longer, context=Paper, events=PaperEvent, initial=Longer.DRAFT, final={Longer.DONE}, version=2
    )
    paper.on(Check, Longer.DRAFT, to=Longer.CHECKED)
    paper.on(Check, Longer.CHECKED, to=Longer.SIGNED)
    paper.on(Finish, Longer.CHECKED, Longer.SIGNED, to=Longer.DONE)
    return paper


def renamed() -> Machine[Renamed, Paper, PaperEvent]:
    paper = Machine(
        "paper",
        states=Renamed,
        context=Paper,
        events=PaperEvent,
        initial=Renamed.DRAFT,
        final={Renamed.DONE},
        version=2,
        renamed={"checked": Renamed.LOOKED_AT},
    )
    paper.on(Check, Renamed.DRAFT, to=Renamed.LOOKED_AT)
    paper.on(Finish, Renamed.LOOKED_AT, to=Renamed.DONE)
    return paper


async def stored(kept: Place, *, checked: bool = True) -> None:
    paper = old()
    async with kept.engine(paper) as engine:
        await engine.start(paper, "p-1", Paper("x"))
        if checked:
            await engine.send("p-1", Check())


def test_the_same_definition_opens(kept: Place) -> None:
    async def scenario() -> None:
        await stored(kept)
        async with kept.engine(old()) as engine:
            assert (await engine.get("p-1")).state is Old.CHECKED

    run(scenario)


def test_a_safe_change_opens_and_stored_workflows_go_on(kept: Place) -> None:
    async def scenario() -> None:
        await stored(kept)
        for _ in range(2):
            async with kept.engine(longer()) as engine:
                assert (await engine.get("p-1")).state is Longer.CHECKED
        async with kept.engine(longer()) as engine:
            await engine.send("p-1", Check())
            assert (await engine.wait("p-1", Longer.SIGNED)).version == 3

    run(scenario)


def test_an_unsafe_change_is_refused_with_the_plan_and_harms_nothing(kept: Place) -> None:
    async def scenario() -> None:
        await stored(kept)
        for _ in range(2):
            with pytest.raises(DefinitionError, match="checked") as refused:
                await kept.engine(shorter())
            assert refused.value.rule == "definition-mismatch"
            assert "1 in 'checked'" in str(refused.value)
            assert "accept_changes" in refused.value.fix
        async with kept.engine(old()) as engine:
            await engine.send("p-1", Finish())

    run(scenario)


def test_accept_changes_opens_all_the_same(kept: Place) -> None:
    async def scenario() -> None:
        await stored(kept)
        paper = shorter()
        async with kept.engine(paper, accept_changes=True) as engine:
            await engine.start(paper, "p-2", Paper())
            assert (await engine.send("p-2", Finish())).state is Shorter.DONE

    run(scenario)


def test_a_change_that_concerns_no_stored_workflow_opens(kept: Place) -> None:
    """Nobody is in the state that is gone."""

    async def scenario() -> None:
        await stored(kept, checked=False)
        async with kept.engine(shorter()) as engine:
            assert (await engine.send("p-1", Finish())).state is Shorter.DONE

    run(scenario)


def test_a_renamed_state_is_read_found_and_left_under_its_new_name(kept: Place) -> None:
    async def scenario() -> None:
        await stored(kept)
        paper = renamed()
        for _ in range(2):
            async with kept.engine(paper, worker=False) as engine:
                assert (await engine.get("p-1")).version == 2
        async with kept.engine(paper) as engine:
            assert (await engine.get("p-1")).state is Renamed.LOOKED_AT
            assert [row.to_state for row in await engine.history("p-1")] == [Renamed.DRAFT, Renamed.LOOKED_AT]
            assert [view.state for view in (await engine.find(paper)).items] == [Renamed.LOOKED_AT]
            assert [view.id for view in await engine.stalled(paper, older_than_s=0)] == ["p-1"]
            assert [view.id for view in (await engine.find(paper, state=Renamed.LOOKED_AT)).items] == ["p-1"]
            assert (await engine.send("p-1", Finish())).state is Renamed.DONE

    run(scenario)


def papers(*, signing: bool) -> Machine[Longer, Paper, PaperEvent]:
    """With a step that signs what is checked, and a timer; or by hand."""
    paper = Machine("paper", states=Longer, context=Paper, events=PaperEvent, initial=Longer.DRAFT, final={Longer.DONE})
    paper.on(Check, Longer.DRAFT, to=Longer.CHECKED)
    paper.on(Check, Longer.CHECKED, to=Longer.SIGNED)
    paper.on(Finish, Longer.SIGNED, to=Longer.DONE)
    if signing:

        @paper.step(Longer.CHECKED, timeout_s=20)
        async def sign(paper: Paper, ctx: StepContext) -> Check:
            await asyncio.Event().wait()
            return Check()

        paper.after(Longer.CHECKED, after_s=3600, send=Finish())
    return paper


@pytest.mark.parametrize("begun", [True, False])
def test_an_owed_step_that_is_gone_is_left_to_a_person_and_harms_nobody(kept: Place, begun: bool) -> None:
    async def scenario() -> None:
        paper = papers(signing=True)
        engine = await kept.engine(paper, worker=begun)
        for each in ("p-1", "p-2"):
            await engine.start(paper, each, Paper())
            await engine.send(each, Check())
        await crash(engine)
        paper = papers(signing=False)
        with pytest.raises(DefinitionError, match="sign"):
            await kept.engine(paper)
        async with kept.engine(paper, accept_changes=True) as engine:
            await settled(engine)
            letters = await engine.dead_letters("step")
            assert sorted((letter.name, letter.workflow) for letter in letters) == [("sign", "p-1"), ("sign", "p-2")]
            first = letters[0]
            await engine.retry_dead_letter(first.id)
            while len(letters := await engine.dead_letters("step")) < 2:
                await settled(engine)
            assert first.id not in [letter.id for letter in letters]
            await engine.resolve_dead_letter(letters[0].id, note="signed by hand")
            for each in ("p-1", "p-2"):
                assert (await engine.send(each, Check())).state is Longer.SIGNED
            await settled(engine)
            assert not (await engine._store.load(["p-1"]))["p-1"].owed
            assert await engine.dead_letters() == []

    run(scenario)


@pytest.mark.parametrize("make", [old, longer], ids=["same", "changed"])
def test_a_workflow_of_a_machine_that_was_not_given_is_named_and_harms_no_other(
    kept: Place, make: Callable[[], Machine[Old, Paper, PaperEvent]]
) -> None:
    async def scenario() -> None:
        await stored(kept)
        order = shop().machine
        async with kept.engine(order) as engine:
            with pytest.raises(UnavailableError, match="'paper', which was not given"):
                await engine.get("p-1")
            with pytest.raises(UnavailableError, match="'paper', which was not given"):
                await engine.send("p-1", Finish())
            await engine.start(order, "o-1", Order())
        async with kept.engine(make(), order) as engine:
            assert (await engine.get("p-1")).version == 2

    run(scenario)
