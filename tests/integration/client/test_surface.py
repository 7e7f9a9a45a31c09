"""The same calls to an engine and to a client of a real server: the same values, the same errors (B3-B8, C4-C9)."""

import asyncio
import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pytest
from msgspec.structs import replace

import interlock
from interlock import Admission, BlockingClient, Client, Machine, Retry, Schedule, Signal
from interlock.engine.dependencies.breakers import BreakerView
from interlock.engine.pauses import PauseView
from interlock.errors import InterlockError
from tests.integration.client.serving import engine_like_any_other, running
from tests.unit.server import shop
from tests.unit.server.security.homes import StandingClock
from tests.unit.server.shop import Cancel, Charged, Close, Order, Remark, State, Submit, Ticket, TicketState

Api = Any
"""An engine, a client, or a blocking client called in threads."""

Seen = list[object]


class Asked:
    """Makes calls, and keeps what came back."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.seen: Seen = []

    async def __call__(self, call: Callable[[Api], object]) -> Any:  # noqa: ANN401 -- whatever it answers.
        try:
            found = call(self.api)
            value: Any = await found if inspect.isawaitable(found) else found
        except InterlockError as error:
            self.seen.append(told(error))
            return error
        self.seen.append(_shown(value))
        return value


def _shown(value: object) -> object:
    if isinstance(value, list | interlock.Breakers):
        return [_shown(each) for each in cast("list[object]", value)]
    match value:
        case interlock.Refused(error):
            return told(error)
        case interlock.HistoryRow(by="mounted"):  # Over HTTP the actor is the guard's identity.
            return replace(value, by=None)
        case BreakerView(reason=str(reason)):
            return replace(value, reason=reason.replace("by mounted", "by a person"))
        case _:
            return value


def told(error: InterlockError) -> dict[str, object]:
    """All that an error says and knows."""
    return {"class": type(error), "retry": error.retry, "text": str(error), **vars(error)}


async def of_workflows(ask: Asked, clock: StandingClock) -> None:
    """Starting, sending, looking."""
    await ask(lambda api: api.start(shop.order, "o-1", Order(note="naïve <b>漢字")))
    await ask(lambda api: api.start(shop.order, "o-1", Order(note="naïve <b>漢字")))
    await ask(lambda api: api.start(shop.order, "o-1", Order(cents=1)))
    await ask(lambda api: api.start(shop.ticket, "t 1/".strip("/"), Ticket("x")))
    await ask(lambda api: api.start(shop.order, "a/b", Order()))
    await ask(lambda api: api.send("o-1", Remark("hello"), key="k"))
    await ask(lambda api: api.send("o-1", Remark("hello"), key="k"))
    await ask(lambda api: api.send("o-1", Remark("other"), key="k"))
    await ask(lambda api: api.send("o-1", Remark("x"), expect_version=1))
    await ask(lambda api: api.send("o-1", Charged()))
    await ask(lambda api: api.send("o-1", Charged(), if_allowed=True))
    await ask(lambda api: api.send("o-1", Submit(20_000)))
    await ask(lambda api: api.send("o-1", Close()))
    await ask(lambda api: api.send("nobody", Cancel()))
    await ask(lambda api: api.get("nobody"))
    await ask(lambda api: api.get("o-1"))
    await ask(lambda api: api.get("t 1"))
    await ask(lambda api: api.of(shop.order).get("o-1"))
    await ask(lambda api: api.of(shop.order).get("t 1"))
    await ask(lambda api: api.of(shop.order).send("o-1", Remark("typed"), key="l"))
    await ask(lambda api: api.allowed("o-1"))
    await ask(lambda api: api.allowed("o-1", Submit(20_000)))
    await ask(lambda api: api.of(shop.order).allowed("o-1", Submit(5)))
    await ask(lambda api: api.stats("o-1"))
    await ask(lambda api: api.stats("nobody"))
    await ask(
        lambda api: api.send_many([("o-1", Remark("a")), ("o-1", Charged()), ("nobody", Cancel()), ("a/b", Cancel())])
    )
    await ask(lambda api: api.send_many([("o-1", Remark("b"), "m"), ("o-1", Remark("b"), "m"), ("t 1", Close())]))
    await ask(lambda api: api.history("o-1"))
    await ask(lambda api: api.history("o-1", after=1, limit=2))
    await ask(lambda api: api.of(shop.order).history("o-1", limit=1))
    await ask(lambda api: api.history("nobody"))
    for number in range(2, 6):
        await Asked(ask.api)(partial(_started, number=number))
    page = await ask(lambda api: api.find(shop.order, limit=3))
    await ask(lambda api: api.find(shop.order, limit=3, cursor=page.cursor))
    await ask(lambda api: api.of(shop.ticket).find(state=TicketState.CLOSED))
    await ask(lambda api: api.find(shop.order, where=[("cents", ">", 2), ("note", "!=", 'a "b"')], order="-cents"))
    await ask(lambda api: api.of(shop.order).find(where=[("cents", "in", [2, 3])], state=State.DRAFT))
    await ask(lambda api: api.find(shop.order, updated_after=datetime(2000, 1, 1, tzinfo=UTC), order="-created_at"))
    await ask(lambda api: api.find(shop.order, where=[("cents", "=", "5")]))
    await ask(lambda api: api.find(shop.order, where=[("sense", "=", 5)]))
    await ask(lambda api: api.find(shop.ticket, order="-updated_at"))
    clock.passed_s += 100
    await ask(lambda api: api.stalled(shop.order, older_than_s=50))
    await ask(lambda api: api.stalled(shop.order, older_than_s=50, states=[State.CHARGING]))
    await ask(lambda api: api.of(shop.order).stalled())


def _started(api: Api, number: int) -> object:
    return api.of(shop.order).start(f"o-{number}", Order(cents=number))


async def of_waits(ask: Asked, clock: StandingClock) -> None:
    """Waiting, for what comes and for what does not."""
    del clock
    await ask(lambda api: api.start(shop.order, "o-1", Order()))
    await ask(lambda api: api.wait("o-1", State.DONE, timeout_s=0.01))
    await ask(lambda api: api.wait("nobody", timeout_s=60))
    await ask(lambda api: api.of(shop.ticket).wait("o-1", timeout_s=60))
    waiting = asyncio.ensure_future(ask(lambda api: api.wait("o-1", State.DONE, State.CANCELLED, timeout_s=60)))
    await Asked(ask.api)(lambda api: api.send("o-1", Submit(5)))
    await waiting
    await ask(lambda api: api.wait("o-1", timeout_s=60))
    await ask(lambda api: api.of(shop.order).wait("o-1", State.DONE))
    page = await ask(lambda api: api.attempts("o-1", limit=1))
    await ask(lambda api: api.attempts("o-1", after=1, cursor=page.cursor))
    await ask(lambda api: api.of(shop.order).attempts("o-1"))
    await ask(lambda api: api.of(shop.ticket).attempts("o-1"))
    await ask(lambda api: api.attempts("o-1", cursor="x"))
    await ask(lambda api: api.attempts("nobody"))
    await ask(lambda api: api.why("o-1"))
    await ask(lambda api: api.why("nobody"))
    await ask(lambda api: api.fork("o-1", 1, "o-1-again"))
    await ask(lambda api: api.fork("o-1", 1, "o-1-again"))
    await ask(lambda api: api.history("o-1-again"))
    await ask(lambda api: api.fork("o-1", 2, "o-1-again"))
    await ask(lambda api: api.fork("o-1", 99, "o-9"))
    await ask(lambda api: api.fork("nobody", 1, "o-9"))
    await ask(lambda api: api.start(shop.order, "o-7", Order()))
    await ask(lambda api: api.rewind("o-7", 1, dry_run=True))
    await ask(lambda api: api.rewind("o-7", 1, note="again", key="k-ö", expect_version=1))
    await ask(lambda api: api.rewind("o-7", 1, key="k-ö"))
    await ask(lambda api: api.rewind("o-7", 1, expect_version=1))
    await ask(lambda api: api.rewind("o-7", 99))
    await ask(lambda api: api.rewind("nobody", 1))
    await ask(lambda api: api.history("o-7"))
    await ask(lambda api: api.wait("o-1", State.CANCELLED, timeout_s=60))


async def of_operators(ask: Asked, clock: StandingClock) -> None:
    """What is owed, what gave up, what is held, what is taken in, what may go."""
    await ask(lambda api: api.compensations())
    await ask(lambda api: api.start(shop.order, "o-1", Order()))
    await ask(lambda api: api.send("o-1", Submit(13)))
    [letter] = await letters(ask)
    await ask(lambda api: api.dead_letters())
    await ask(lambda api: api.attempts("o-1"))
    await ask(lambda api: api.dead_letters("undo"))
    await ask(lambda api: api.dead_letters("none"))
    await ask(lambda api: api.retry_dead_letter(letter.id))
    [letter] = await letters(ask)
    await ask(lambda api: api.resolve_dead_letter(letter.id, note="by hand"))
    await ask(lambda api: api.resolve_dead_letter(letter.id, note="by hand"))
    await ask(lambda api: api.retry_dead_letter("nobody"))
    await ask(lambda api: api.get("o-1"))
    await ask(lambda api: api.breakers())
    await ask(lambda api: api.force_breaker("gateway", "open"))
    await ask(lambda api: api.set_limit("gateway", rate_per_s=50, concurrency_max=3))
    await ask(lambda api: api.breakers())
    await ask(lambda api: api.force_breaker("gateway", "auto"))
    await ask(lambda api: api.set_limit("gateway", rate_per_s=None))
    await ask(lambda api: api.set_limit("gatewy", rate_per_s=5))
    await ask(lambda api: api.set_limit("gateway", concurrency_max=0))
    await ask(lambda api: api.force_breaker("gateway", "ajar"))
    await ask(lambda api: api.contention())
    await ask(lambda api: api.start(shop.ticket, "t-1", Ticket()))
    await ask(lambda api: api.send("t-1", Close()))
    clock.passed_s += 100
    await ask(lambda api: api.prune(older_than_s=50, dry_run=True))
    await ask(lambda api: api.prune(older_than_s=50, history_only=True))
    await ask(lambda api: api.prune(older_than_s=50, batch=1))
    await ask(lambda api: api.prune(older_than_s=-1.0))
    await ask(lambda api: api.prune(older_than_s=0, batch=0))
    await ask(lambda api: api.get("t-1"))
    await ask(lambda api: api.set_admission(Admission(rate_per_s=1, burst=1)))
    await ask(lambda api: api.start(shop.ticket, "t-2", Ticket()))
    await ask(lambda api: api.start(shop.ticket, "t-3", Ticket()))
    await ask(lambda api: api.set_admission(5))
    await ask(lambda api: api.set_admission(Admission(rate_per_s=0)))


async def of_schedules(ask: Asked, clock: StandingClock) -> None:
    """Schedules: put, listed, paused, resumed, triggered, backfilled, deleted (E6)."""
    del clock
    nightly = Schedule("nightly", shop.order, cron="0 3 * * *", timezone="Europe/Berlin", context=Order(note="x"))
    await ask(lambda api: api.schedules.list())
    await ask(lambda api: api.schedules.put(nightly))
    await ask(lambda api: api.schedules.put(dataclasses.replace(nightly, cron=None, every=3600, overlap="queue")))
    await ask(lambda api: api.schedules.put(dataclasses.replace(nightly, cron="61 * * * *")))
    await ask(lambda api: api.schedules.put(dataclasses.replace(nightly, name="a/b")))
    await ask(lambda api: api.schedules.get("nightly"))
    await ask(lambda api: api.schedules.pause("nightly"))
    await ask(lambda api: api.schedules.list())
    await ask(lambda api: api.schedules.resume("nightly"))
    await ask(
        lambda api: api.schedules.backfill(
            "nightly", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
        )
    )
    await ask(lambda api: api.schedules.trigger("nightly"))
    await ask(lambda api: api.schedules.delete("nightly"))
    await ask(lambda api: api.schedules.get("nightly"))
    await ask(lambda api: api.schedules.pause("nihgtly"))


async def named(call: Awaitable[PauseView]) -> object:
    """What is paused. Who did it differs: a server knows its keys."""
    pause = await call
    return pause.machine, pause.state, pause.workflow, pause.note


async def of_pauses(ask: Asked, clock: StandingClock) -> None:
    """Pauses: of a workflow, a state, a machine; what is wrong; an event that starts (E5, E7)."""
    del clock
    await ask(lambda api: api.send("o-1", Submit(0), start=(shop.order, Order(note="x"))))
    await ask(lambda api: api.send("o-1", Submit(5), key="k", start=(shop.order, Order(note="x"))))
    await ask(lambda api: named(api.pause(machine=shop.order, note="why")))
    await ask(lambda api: api.get("o-1"))
    await ask(lambda api: named(api.pause(id="o-1")))
    await ask(lambda api: named(api.pause(id="nobody")))
    await ask(lambda api: named(api.pause()))
    await ask(lambda api: api.resume(machine=shop.order))
    await ask(lambda api: api.resume(machine=shop.order))
    await ask(lambda api: api.charts(shop.order))
    await ask(lambda api: api.charts(step_s=300))
    await ask(lambda api: api.charts(step_s=61))
    await ask(lambda api: api.resume(id="o-1"))


class Threaded:
    """A blocking client, or what it gives, called in threads."""

    def __init__(self, inside: object) -> None:
        self._inside = inside

    @property
    def schedules(self) -> "Threaded":
        return Threaded(getattr(self._inside, "schedules"))  # noqa: B009 -- of whatever it is.

    def of(self, machine: object) -> "Threaded":
        return Threaded(getattr(self._inside, "of")(machine))  # noqa: B009 -- of whatever it is.

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        call = getattr(self._inside, name)

        def threaded(*args: object, **kwargs: object) -> Awaitable[object]:
            return asyncio.to_thread(call, *args, **kwargs)

        return threaded


async def letters(ask: Asked) -> list[interlock.DeadLetter]:
    """The letters, when the step has had its turns of the event loop."""
    for _ in range(1_000):
        found = ask.api.dead_letters()
        seen: list[interlock.DeadLetter] = await found
        if seen:
            return seen
        await asyncio.sleep(0)
    raise AssertionError("nothing gave up")


ONCE = Retry(attempts=1)
WORKING = [of_waits, of_operators]
SCENARIOS = [of_workflows, of_waits, of_operators, of_schedules, of_pauses]
MACHINES: list[Machine[Any, Any, Any]] = [shop.order, shop.ticket]


async def of_engine(scenario: Callable[[Asked, StandingClock], Awaitable[None]]) -> Seen:
    clock = StandingClock()
    async with engine_like_any_other(clock, worker=scenario in WORKING) as engine:
        ask = Asked(engine)
        await scenario(ask, clock)
    return ask.seen


@pytest.mark.parametrize("kind", [Client, BlockingClient])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_client_answers_as_an_engine_does(
    scenario: Callable[[Asked, StandingClock], Awaitable[None]], kind: type[Client | BlockingClient]
) -> None:
    """With ==: types, values, times, texts of errors and what they know besides."""

    async def test() -> None:
        expected = await of_engine(scenario)
        clock = StandingClock()
        async with (
            engine_like_any_other(clock, worker=scenario in WORKING) as engine,
            running(engine) as server,
        ):
            client = kind(server.url, machines=MACHINES, retry=ONCE)
            ask = Asked(client if isinstance(client, Client) else Threaded(client))
            await scenario(ask, clock)
            if isinstance(client, Client):
                await client.close()
            else:
                await asyncio.to_thread(client.close)
        for ours, theirs in zip(ask.seen, expected, strict=True):
            assert ours == theirs

    asyncio.run(test())


def test_observers_of_a_client_see_what_those_of_its_engine_see() -> None:
    """A9."""

    async def test() -> None:
        async with (
            engine_like_any_other(worker=True) as engine,
            running(engine) as server,
            Client(server.url) as client,
        ):
            here: list[Signal] = []
            there: list[Signal] = []
            all_of_it = asyncio.Event()

            def note(signal: Signal) -> None:
                there.append(signal)
                if isinstance(signal, interlock.TransitionApplied) and signal.to_state == "done":
                    all_of_it.set()

            engine.subscribe(here.append)
            await client.subscribe(note)
            await client.start(shop.order, "o-1", Order())
            await Asked(client)(lambda api: api.send("o-1", Charged()))
            await client.send("o-1", Submit(5), key="k")
            await all_of_it.wait()
            assert there == here[: len(there)]
            assert {type(signal).__name__ for signal in there} >= {
                "TransitionApplied",
                "TransitionRejected",
                "StepAttempted",
            }

    asyncio.run(test())


def test_a_stream_goes_on_where_it_was_cut_off() -> None:
    async def test() -> None:
        async with engine_like_any_other() as engine, running(engine) as server, Client(server.url) as client:
            seen: list[int] = []
            more = asyncio.Event()

            def note(signal: Signal) -> None:
                assert isinstance(signal, interlock.TransitionApplied)
                seen.append(signal.version)
                more.set()

            await client.subscribe(note)
            await client.start(shop.order, "o-1", Order())
            for number in range(3):
                await more.wait()
                more.clear()
                server.cut()
                await client.send("o-1", Remark(f"{number}"), key=f"{number}")
            await more.wait()
            assert seen == [1, 2, 3, 4]

    asyncio.run(test())
