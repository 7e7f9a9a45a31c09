"""Answers and reports: ways in which they were broken once."""

import asyncio

import pytest

from interlock import (
    Engine,
    InterlockError,
    InvalidPayload,
    Moved,
    NonRetryable,
    OutcomeUnknown,
    StepContext,
    VersionConflict,
)
from tests.unit.engine.order_shop import (
    Again,
    Cancel,
    Charged,
    Noted,
    Order,
    Orders,
    Shipped,
    State,
    Submit,
    begun,
    charged,
    gated,
    run,
    turns,
)


def test_a_key_is_answered_the_second_time_as_it_was_the_first() -> None:
    """B5: also when the event led through an unwinding with nothing to undo."""

    async def test() -> None:
        order = Orders(charged)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await engine.start(order.machine, "o-1", Order())
            first = await engine.send("o-1", Cancel(), key="k")
            again = await engine.send("o-1", Cancel(), key="k")
            assert again == Moved(state=first.state, version=first.version, duplicate=True)

    run(test())


def test_whoever_waits_for_a_workflow_is_told_when_the_engine_stops_working(monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: nothing moves any more, so a wait without a time limit would last for ever."""

    async def test() -> None:
        store = gated(monkeypatch)
        order = Orders(charged)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await engine.start(order.machine, "o-1", Order())
            waiting = asyncio.ensure_future(engine.wait("o-1"))
            await turns()
            store.fails = OutcomeUnknown("the disk failed.")
            with pytest.raises(OutcomeUnknown):
                await engine.send("o-1", Submit())
            await turns()
            try:
                assert waiting.done()
                assert isinstance(waiting.exception(), InterlockError)
            finally:
                waiting.cancel()

    run(test())


def test_a_dead_effect_that_is_retried_twice_at_once_runs_once() -> None:
    """B12: the second one is told that there is no such letter any more."""

    async def test() -> None:
        calls: list[str] = []

        async def mail(ctx: StepContext) -> None:
            calls.append(ctx.key)
            if len(calls) == 1:
                raise NonRetryable("the mailbox is full")
            await asyncio.sleep(0)

        order = Orders(charged, mail=mail)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await begun(engine, order, "o-1")
            await turns()
            await engine.send("o-1", Shipped())
            await turns()
            [letter] = await engine.dead_letters()
            retries = (engine.retry_dead_letter(letter.id), engine.retry_dead_letter(letter.id))
            await asyncio.gather(*retries, return_exceptions=True)
            await turns()
            assert len(calls) == 2

    run(test())


class Unusual(BaseException):
    """As those of test frameworks are: no Exception, and no reason to stop the event loop."""


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("it cannot be told")


@pytest.mark.parametrize("error", [Unusual, Mute])
def test_whatever_a_step_raises_is_the_failure_of_its_attempt(error: type[BaseException]) -> None:
    """C2: an attempt that ended is reported; otherwise the workflow would stay for ever."""

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)

        async def charge(ctx: StepContext) -> Charged | Again:
            del ctx
            raise error

        order = Orders(charge)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await begun(engine, order, "o-1")
            await turns()
            state = (await engine.get("o-1")).state
            given_up = [letter.kind for letter in await engine.dead_letters()]
            assert (state, given_up) == ((State.CHARGING, ["step"]) if error is Unusual else (State.CANCELLED, []))

    run(test())


def test_a_wait_for_what_is_no_state_harms_nobody_else() -> None:
    """G2: the senders of the same group are told what became of their events."""

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        order = Orders(charged)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await engine.start(order.machine, "o-1", Order())
            await engine.start(order.machine, "o-2", Order())
            wrong = asyncio.ensure_future(engine.wait("o-1", "done"))  # type: ignore[arg-type]
            await turns()
            sends = [asyncio.ensure_future(engine.send(each, Cancel())) for each in ("o-1", "o-2")]
            await turns()
            told = [send.done() for send in sends]
            for each in (wrong, *sends):
                each.cancel()
            await asyncio.gather(wrong, *sends, return_exceptions=True)
            assert told == [True, True]

    run(test())


def test_a_result_that_could_not_be_read_back_is_refused() -> None:
    """G2: a receipt of another type would be written, and the workflow could never be read, moved or undone again."""

    async def test() -> None:
        async def charge(ctx: StepContext) -> Charged | Again:
            del ctx
            return Charged(receipt=17)  # type: ignore[arg-type]

        async def refund(ctx: StepContext) -> None:
            del ctx

        order = Orders(charge, refund=refund)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await begun(engine, order, "o-1")
            await turns()
            try:
                await engine.history("o-1")
            except InvalidPayload as error:
                pytest.fail(str(error))

    run(test())


def test_a_storm_of_repetitions_refuses_no_event_that_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """B5: every group has another repetition whose key was not looked up, and all of it is decided again each time."""

    async def test() -> None:
        store = gated(monkeypatch)
        order = Orders(charged)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await engine.start(order.machine, "o-1", Order())
            await engine.send_many([("o-1", Noted(), f"old-{number}") for number in range(30)])
            sends: list[asyncio.Future[Moved[State]]] = []

            def repeat() -> None:
                if len(sends) < 30:
                    send = engine.of(order.machine).send("o-1", Noted(), key=f"old-{len(sends)}")
                    sends.append(asyncio.ensure_future(send))

            repeat()
            store.meanwhile = repeat
            new = asyncio.ensure_future(engine.of(order.machine).send("o-1", Noted(), key="new"))
            await asyncio.wait([new, *sends])
            store.meanwhile = None
            await asyncio.wait(sends)
            assert not [each for each in (new, *sends) if isinstance(each.exception(), VersionConflict)]

    run(test())
