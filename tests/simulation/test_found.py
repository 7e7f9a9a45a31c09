"""What the simulation of the engine has found, told as short stories so that it stays found."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.store.records import Change
from interlock.testing import Harness
from interlock.testing.virtual_time import Life


class State(Enum):
    WAITING, PAYING, DONE = "waiting", "paying", "done"
    UNDOING, CANCELLED = "undoing", "cancelled"


@dataclass(frozen=True)
class Nothing: ...


class SaleEvent(Event): ...


@dataclass(frozen=True)
class Begin(SaleEvent): ...


@dataclass(frozen=True)
class Again(SaleEvent): ...


@dataclass(frozen=True)
class Paid(SaleEvent): ...


@dataclass(frozen=True)
class Cancel(SaleEvent): ...


@dataclass(frozen=True)
class Expire(SaleEvent): ...


sale = Machine(
    "sale",
    states=State,
    context=Nothing,
    events=SaleEvent,
    initial=State.WAITING,
    final={State.DONE, State.CANCELLED},
    unwind={State.UNDOING: State.CANCELLED},
)
sale.on(Begin, State.WAITING, to=State.PAYING)
sale.on(Again, State.PAYING, to=State.PAYING)
sale.on(Paid, State.PAYING, to=State.DONE)
sale.on(Expire, State.WAITING, to=State.UNDOING)
sale.on(Cancel, State.WAITING, State.PAYING, to=State.UNDOING)
sale.after(State.WAITING, after_s=100, send=Cancel(), policy="remaining")
sale.after(State.WAITING, after_s=1_000, send=Expire())


@sale.step(State.PAYING, timeout_s=10, retry=Retry(attempts=3), failed=State.UNDOING)
async def pay(nothing: Nothing, ctx: StepContext) -> Paid:
    return Paid()


@pay.undo(Paid)
async def give_back(nothing: Nothing, done: Paid | None, ctx: StepContext) -> None: ...


@sale.effect(State.DONE, State.CANCELLED, retry=Retry(attempts=3, first_s=1))
async def mail(nothing: Nothing, ctx: StepContext) -> None: ...


async def stubborn(nothing: Nothing, ctx: StepContext) -> Paid:
    """Cannot be called back: it takes three more seconds when it is cancelled."""
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        ended = asyncio.Event()
        asyncio.get_running_loop().call_later(3, ended.set)
        await ended.wait()
    return Paid()


@pytest.mark.parametrize("again", [False, True], ids=["once", "entered again"])
def test_an_undo_does_not_overtake_what_it_undoes(again: bool) -> None:
    """G5: also when the state was entered again meanwhile, and another attempt runs."""
    with Harness(sale, steps={pay: stubborn}) as h:
        h.start("x", Nothing())
        h.send("x", Begin())
        h.advance(seconds=1)
        if again:
            h.send("x", Again())
            h.advance(seconds=1)
        h.send("x", Cancel())
        h.drain()
        paid = {call.key: call for call in h.attempts(pay)}
        assert h.view("x").state is State.CANCELLED
        assert [call.undoes for call in h.attempts(give_back)] == list(reversed(paid))
        for call in h.attempts(give_back):
            assert call.undoes is not None
            assert paid[call.undoes].outcome == "done"
        assert h.attempts(give_back)[0].at_s == 4.0 + again


def test_a_start_does_not_take_up_what_it_has_set_going_itself() -> None:
    """G5: one attempt at a time."""
    with Harness(sale, steps_max=1) as h:
        h.hang(pay)
        h.slow(pay, by_s=2, times=3)
        for name in ("x", "y"):
            h.start(name, Nothing())
            h.send(name, Begin())
        h.crash(down_s=5)
        h.drain()
        assert [call.attempt for call in h.attempts(pay) if call.workflow == "y"] == [1]
        assert [call.outcome for call in h.attempts(pay)] == ["cancelled", "done", "done"]


def test_an_effect_that_a_timer_owes_at_a_start_runs_once() -> None:
    """B12."""
    with Harness(sale) as h:
        h.start("x", Nothing())
        h.slow(mail, by_s=2)
        h.crash(down_s=1_000)
        h.drain()
        h.assert_history("x", "STARTED", "EXPIRE", "UNWOUND")
        assert h.calls(mail) == 1


def test_an_attempt_that_a_stop_kept_from_beginning_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """B6: the commit that counts it was on its way when the engine stopped."""
    committed = Life.commit

    async def slowly(life: Life, changes: Sequence[Change]) -> list[str]:
        made = asyncio.Event()
        asyncio.get_running_loop().call_later(1, made.set)
        await made.wait()
        return await committed(life, changes)

    with Harness(sale) as h:
        h.start("x", Nothing())
        monkeypatch.setattr(Life, "commit", slowly)
        h.run(_at_once(h.engine.send("x", Begin())))
        h.restart()
        monkeypatch.setattr(Life, "commit", committed)
        h.drain()
        h.assert_history("x", "STARTED", "BEGIN", "PAID")
        assert [call.attempt for call in h.attempts(pay)] == [1]


async def _at_once(sending: Coroutine[object, object, object]) -> None:
    """Send, and do not wait for the answer."""
    task = asyncio.ensure_future(sending)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def test_whoever_is_behind_one_that_no_longer_wants_its_slot_is_called() -> None:
    """G6."""
    with Harness(sale, steps_max=1) as h:
        h.slow(pay, by_s=1)
        for name in ("x", "y", "z"):
            h.start(name, Nothing())
            h.send(name, Begin())
        h.send("y", Cancel())
        h.drain(within_s=10)
        assert [h.view(name).state for name in ("x", "y", "z")] == [State.DONE, State.CANCELLED, State.DONE]


@pytest.mark.parametrize("error", [UnavailableError, OutcomeUnknown])
def test_time_that_nobody_was_there_does_not_count_although_the_first_commit_fails(
    error: type[UnavailableError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9: "remaining"."""
    with Harness(sale, timers_saved_s=1) as h:
        h.start("x", Nothing())
        h.advance(seconds=50)
        committed = Life.commit

        async def failing(life: Life, changes: object) -> list[str]:
            monkeypatch.setattr(Life, "commit", committed)
            raise error("not now.")

        monkeypatch.setattr(Life, "commit", failing)
        try:
            h.crash(down_s=800)
        except UnavailableError:
            h.crash()
        h.advance(seconds=45)
        assert h.view("x").state is State.WAITING
        h.advance(seconds=10)
        assert h.view("x").state is State.CANCELLED
