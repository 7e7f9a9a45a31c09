"""C20: a step that blocks the event loop is noticed, named and shown with its stack; nothing else is blamed."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import AlertRaised, Engine, Event, LoopBlocked, Machine, StepContext
from interlock.engine.steps.loop_watch import READINGS_MIN, TICK_S, Readings, watch_loop
from interlock.observe.metrics import EngineMetrics
from interlock.signals import Signal
from interlock.testing import Harness

NAME = "interlock loop watch"


class State(Enum):
    CALLING = "calling"
    DONE = "done"


@dataclass(frozen=True)
class Call:
    pass


class CallEvent(Event):
    pass


@dataclass(frozen=True)
class Answered(CallEvent):
    pass


class Noticed(logging.Handler):
    """Lets the code that blocks the event loop go on as soon as the log says that it does."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "the event loop is blocked" in record.getMessage():
            self.records.append(record)
            self.event.set()


class Told:
    """An observer that can be waited for."""

    def __init__(self, signals: list[Signal]) -> None:
        self.signals = signals
        self.event = asyncio.Event()

    def __call__(self, signal: Signal) -> None:
        self.signals.append(signal)
        if isinstance(signal, LoopBlocked):
            self.event.set()


@contextmanager
def noticing() -> Iterator[Noticed]:
    handler, log = Noticed(), logging.getLogger("interlock.steps")
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)


def machine_of(noticed: Noticed) -> Machine[State, Call, CallEvent]:
    calls = Machine("call", states=State, context=Call, events=CallEvent, initial=State.CALLING, final={State.DONE})
    calls.on(Answered, State.CALLING, to=State.DONE)

    @calls.step(State.CALLING, timeout_s=60, read_only=True)
    async def ring(context: Call, ctx: StepContext) -> Answered:
        wait_for_ever(noticed)
        return Answered()

    return calls


def wait_for_ever(noticed: Noticed) -> None:
    noticed.event.wait()


def test_a_step_that_blocks_the_event_loop_is_named_in_the_log_the_signal_the_metric_and_the_alert() -> None:
    signals, counts = list[Signal](), EngineMetrics()

    async def scenario(noticed: Noticed) -> None:
        calls, told = machine_of(noticed), Told(signals)
        async with Engine.open("memory:", machines=[calls], observers=[told, counts]) as engine:
            await engine.start(calls, "c-1", Call())
            assert (await engine.wait("c-1")).state is State.DONE
            await told.event.wait()
        assert not [each for each in threading.enumerate() if each.name == NAME]

    with noticing() as noticed:
        asyncio.run(scenario(noticed))
    [record] = noticed.records
    assert "'ring' of workflow 'c-1' of machine 'call'" in record.getMessage()
    assert "in wait_for_ever" in record.getMessage()
    assert (record.__dict__["order_id"], record.__dict__["step"]) == ("c-1", "ring")
    [blocked] = [each for each in signals if isinstance(each, LoopBlocked)]
    assert (blocked.machine, blocked.workflow, blocked.step) == ("call", "c-1", "ring")
    assert blocked.duration_s >= READINGS_MIN * TICK_S
    assert "in wait_for_ever" in blocked.stack
    alerts = [each for each in signals if isinstance(each, AlertRaised) and each.kind == "loop_blocked"]
    assert [(each.subject, each.resolved) for each in alerts] == [("call ring", False), ("call ring", True)]
    assert [value for metric, labels, value in counts.counters() if labels == ("call", "ring")] == [1]


@pytest.mark.slow
def test_other_code_that_blocks_the_event_loop_is_shown_with_its_stack_once_for_all_engines() -> None:
    signals: list[Signal] = []

    async def scenario(noticed: Noticed) -> None:
        calls, told = machine_of(noticed), Told(signals)
        async with (
            Engine.open("memory:", machines=[calls], observers=[told]),
            Engine.open("memory:", machines=[calls]),
        ):
            assert len([each for each in threading.enumerate() if each.name == NAME]) == 1
            wait_for_ever(noticed)
            await told.event.wait()

    with noticing() as noticed:
        asyncio.run(scenario(noticed))
    [record] = noticed.records
    assert "code that is not a step" in record.getMessage()
    assert [(each.machine, each.step) for each in signals if isinstance(each, LoopBlocked)] == [("", "")]


def test_a_loop_that_turns_and_a_process_that_was_suspended_are_not_blamed() -> None:
    readings, now_s, turns = Readings(0, 0.0), 0.0, 0
    for _ in range(20):
        now_s, turns = now_s + TICK_S, turns + 1
        assert not readings.found_blocked(turns, now_s)
    for _ in range(20):  # Each reading is late: nothing in this process runs on time.
        now_s += 10.0
        assert not readings.found_blocked(turns, now_s)
    found = []
    for _ in range(20):
        now_s += TICK_S
        found.append(readings.found_blocked(turns, now_s))
    assert found.index(True) == READINGS_MIN - 1
    assert found.count(True) == 1


def test_virtual_time_needs_no_watch() -> None:
    with noticing() as noticed, Harness(machine_of(noticed)):
        assert not [each for each in threading.enumerate() if each.name == NAME]


def test_a_watch_ends_with_its_last_listener() -> None:
    async def scenario() -> None:
        first, second = watch_loop(lambda _: None), watch_loop(print)
        first()
        assert [each.name for each in threading.enumerate() if each.name == NAME] == [NAME]
        second()
        second()
        assert not [each for each in threading.enumerate() if each.name == NAME]

    asyncio.run(scenario())


def test_a_loop_that_nothing_runs_is_not_blamed() -> None:
    readings = Readings(0, 0.0)
    assert not any(readings.found_blocked(0, TICK_S * each, running=False) for each in range(1, 20))


def test_a_watch_ends_with_its_loop() -> None:
    """Where an engine was not closed, the thread would keep the loop for ever, and blame what runs after it."""

    async def scenario() -> threading.Thread:
        watch_loop(lambda _: None)
        [thread] = [each for each in threading.enumerate() if each.name == NAME]
        return thread

    with noticing() as noticed:
        asyncio.run(scenario()).join()
    assert noticed.records == []
