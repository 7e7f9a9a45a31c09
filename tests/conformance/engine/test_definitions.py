"""What is stored is checked against the machines that an engine is opened with: nobody is stranded by an edit."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

import pytest

from interlock import DefinitionError, Event, Machine, StepContext, StoredJson, UnavailableError
from tests.conformance.engine.places import AnyMachine, Place, crash, run, settled
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


@dataclass(frozen=True)
class SignedPaper:
    text: str = ""
    signed_by: str = ""


def signed(version: int = 2) -> Machine[Old, SignedPaper, PaperEvent]:
    paper = Machine(
        "paper", states=Old, context=SignedPaper, events=PaperEvent, initial=Old.DRAFT, final={Old.DONE},
        version=version,
    )  # fmt: skip

    @paper.on(Check, Old.DRAFT, to=Old.CHECKED)
    def sign(paper: SignedPaper, _event: Check) -> SignedPaper:
        return replace(paper, signed_by="Ann")

    paper.on(Finish, Old.CHECKED, to=Old.DONE)
    return paper


def test_a_rollback_that_would_lose_a_field_is_refused_and_the_field_stays(kept: Place) -> None:
    async def scenario() -> None:
        await stored(kept, checked=False)
        async with kept.engine(signed()) as engine:
            await engine.send("p-1", Check())
        with pytest.raises(DefinitionError, match="signed_by"):
            await kept.engine(old())
        async with kept.engine(signed()) as engine:
            assert (await engine.get("p-1")).context == SignedPaper("x", "Ann")

    run(scenario)


def test_a_rollback_that_loses_nothing_opens(kept: Place) -> None:
    async def scenario() -> None:
        await stored(kept, checked=False)
        async with kept.engine(signed()) as engine:
            await engine.send("p-1", Check())
        third = signed(version=3)
        async with kept.engine(third) as engine:
            await engine.start(third, "p-2", SignedPaper("y"))
        async with kept.engine(signed()) as engine:
            assert (await engine.send("p-2", Check())).state is Old.CHECKED

    run(scenario)


def test_a_row_is_written_whole_by_the_version_that_moves_it(kept: Place) -> None:
    """Also where the event leaves the context alone: a later default must not stand for what this version saw."""

    async def scenario() -> None:
        await stored(kept)
        paper = signed()
        async with kept.engine(paper) as engine:
            await engine.send("p-1", Finish())
            row = (await engine._store.load(["p-1"]))["p-1"]
            assert (row.machine_version, row.context) == (2, b'{"text":"x","signed_by":""}')

    run(scenario)


class Bills(Enum):
    OPEN = "open"
    SEEN = "seen"
    PAID = "paid"


class LaterBills(Enum):
    OPEN = "open"
    PAID = "paid"


class SwappedBills(Enum):
    SEEN = "open"
    OPEN = "seen"
    PAID = "paid"


class BillEvent(Event):
    pass


class LaterBillEvent(Event):
    pass


@dataclass(frozen=True)
class Pay(BillEvent):
    cents: int = 0
    when: str = ""


@dataclass(frozen=True)
class LaterPay(LaterBillEvent):
    wire_name = "PAY"

    amount: int = 0
    when: datetime | None = None


@dataclass(frozen=True)
class Bill:
    cents: int = 0


@dataclass(frozen=True)
class LaterBill:
    amount: int = 0


def bills(states: type[Enum] = Bills, renamed: dict[str, Enum] | None = None) -> AnyMachine:
    at = dict(states.__members__)
    machine: AnyMachine = Machine(
        "bill", states=states, context=Bill, events=BillEvent, initial=at["OPEN"], final={at["PAID"]},
        version=2 if renamed else 1, renamed=renamed or {},
    )  # fmt: skip
    machine.on(Pay, at["OPEN"], to=at["SEEN"])
    machine.on(Pay, at["SEEN"], to=at["PAID"])
    return machine


def later_bills() -> AnyMachine:
    """Without the state `seen`, and with other names and types of fields."""
    machine: AnyMachine = Machine(
        "bill", states=LaterBills, context=LaterBill, events=LaterBillEvent, initial=LaterBills.OPEN,
        final={LaterBills.PAID}, version=2,
    )  # fmt: skip
    machine.on(LaterPay, LaterBills.OPEN, to=LaterBills.PAID)
    return machine


async def paid(kept: Place) -> None:
    first = bills()
    async with kept.engine(first) as engine:
        await engine.start(first, "b-1", Bill(7))
        await engine.send("b-1", Pay(5, "soon"))
        await engine.send("b-1", Pay(5, "soon"))


def test_history_shows_what_was_stored_where_todays_classes_cannot_hold_it(kept: Place) -> None:
    """A renamed field has no value, and a field of another type has another one: neither is made up."""

    async def scenario() -> None:
        await paid(kept)
        async with kept.engine(later_bills(), accept_changes=True) as engine:
            rows = await engine.history("b-1")
        assert [row.from_state.value for row in rows] == ["open", "open", "seen"]
        assert [row.to_state.value for row in rows] == ["open", "seen", "paid"]
        payload: object = rows[1].payload
        context: object = rows[1].context
        assert isinstance(payload, StoredJson)
        assert json.loads(payload.text) == {"cents": 5, "when": "soon"}
        assert payload.why
        assert isinstance(context, StoredJson)
        assert json.loads(context.text) == {"cents": 7}
        assert "'cents'" in context.why

    run(scenario)


def test_states_that_exchange_their_names_are_refused(kept: Place) -> None:
    """History names states without the version that wrote them, so nothing can tell the two apart."""

    async def scenario() -> None:
        await paid(kept)
        with pytest.raises(DefinitionError, match="rename-ambiguous"):
            await kept.engine(bills(SwappedBills, {"open": SwappedBills.OPEN, "seen": SwappedBills.SEEN}))

    run(scenario)


def test_a_text_that_becomes_a_time_does_not_open(kept: Place) -> None:
    @dataclass(frozen=True)
    class Dated:
        text: datetime | None = None

    async def scenario() -> None:
        await stored(kept)
        paper = Machine(
            "paper", states=Old, context=Dated, events=PaperEvent, initial=Old.DRAFT, final={Old.DONE}, version=2
        )
        paper.on(Check, Old.DRAFT, to=Old.CHECKED)
        paper.on(Finish, Old.CHECKED, to=Old.DONE)
        with pytest.raises(DefinitionError, match="the new one reads any datetime"):
            await kept.engine(paper)

    run(scenario)
