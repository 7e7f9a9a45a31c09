"""A9: observers are told everything, and a failing one harms nobody."""

import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError

import pytest

from interlock.errors import DefinitionError
from interlock.signals import (
    AlertRaised,
    BreakerChanged,
    Signal,
    StepAttempted,
    Subscribers,
    TransitionApplied,
    TransitionRejected,
)

SIGNALS: list[Signal] = [
    TransitionApplied("order", "o-1", "draft", "done", "SUBMIT", 2),
    TransitionRejected("order", "o-1", "draft", "SHIP", "invalid-transition"),
    StepAttempted("order", "o-1", "charging", "charge", "step", 1, "timeout", 4.0, "TimeoutError"),
    BreakerChanged("gateway", "closed", "open", "5 failures"),
    AlertRaised("stalled", "o-1", "longer than 60 s in charging"),
]


class Notebook:
    def __init__(self) -> None:
        self.seen: list[Signal] = []

    def write(self, signal: Signal) -> None:
        self.seen.append(signal)


def failing(signal: Signal) -> None:
    raise ValueError(signal)


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: type(signal).__name__)
def test_a_signal_is_a_frozen_value_that_can_travel(signal: Signal) -> None:
    field = dataclasses.fields(signal)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(signal, field, "other")
    assert pickle.loads(pickle.dumps(signal)) == signal


def test_every_observer_gets_every_signal_in_order() -> None:
    subscribers, first, second = Subscribers(), Notebook(), Notebook()
    subscribers.subscribe(first.write)
    subscribers.subscribe(second.write)
    for signal in SIGNALS:
        subscribers.emit(signal)
    assert first.seen == second.seen == SIGNALS


def test_a_failing_observer_is_counted_and_harms_nobody() -> None:
    subscribers, notebook = Subscribers(), Notebook()
    subscribers.subscribe(failing)
    subscribers.subscribe(notebook.write)
    for signal in SIGNALS:
        subscribers.emit(signal)
    assert notebook.seen == SIGNALS
    assert subscribers.failures == len(SIGNALS)
    assert isinstance(subscribers.last_failure, ValueError)


def test_nothing_failed_yet() -> None:
    subscribers = Subscribers()
    subscribers.emit(SIGNALS[0])
    assert subscribers.failures == 0
    assert subscribers.last_failure is None


def test_it_is_true_only_while_somebody_listens() -> None:
    subscribers, notebook = Subscribers(), Notebook()
    assert not subscribers
    subscribers.subscribe(notebook.write)
    assert subscribers
    subscribers.unsubscribe(notebook.write)
    assert not subscribers


def test_unsubscribing_a_stranger_is_not_an_error() -> None:
    subscribers, notebook = Subscribers(), Notebook()
    subscribers.subscribe(notebook.write)
    subscribers.unsubscribe(failing)
    subscribers.emit(SIGNALS[0])
    assert notebook.seen == [SIGNALS[0]]


def test_an_observer_may_leave_while_it_is_called() -> None:
    subscribers, notebook = Subscribers(), Notebook()

    def once(signal: Signal) -> None:
        subscribers.unsubscribe(once)
        subscribers.subscribe(notebook.write)

    subscribers.subscribe(once)
    subscribers.emit(SIGNALS[0])
    subscribers.emit(SIGNALS[1])
    assert notebook.seen == [SIGNALS[1]]


def test_an_async_observer_is_refused_because_nobody_would_await_it() -> None:
    async def later(signal: Signal) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        Subscribers().subscribe(later)  # type: ignore[arg-type]
    assert "async" in caught.value.what


class Tallied:
    """Counts what is frequent, and is told only of breakers."""

    only_signals = (BreakerChanged,)

    def __init__(self) -> None:
        self.counting = self
        self.seen: list[Signal] = []

    def __call__(self, signal: Signal) -> None:
        self.seen.append(signal)

    def grouped(self, moves: Mapping[tuple[str, str, str], int], duration_s: float) -> None:
        pass

    def attempted(self, machine: str, step: str, kind: str, outcome: str, duration_s: float) -> None:
        pass


def test_an_observer_is_told_only_what_it_asks_for_and_nothing_is_built_for_who_counts() -> None:
    """C13: sums per group instead of a record per move."""
    subscribers, tallied, notebook = Subscribers(), Tallied(), Notebook()
    subscribers.subscribe(tallied)
    assert subscribers.counting == (tallied,)
    assert (subscribers.moves, subscribers.attempts) == (False, False)
    subscribers.subscribe(notebook.write)
    assert (subscribers.moves, subscribers.attempts) == (True, True)
    for signal in SIGNALS:
        subscribers.emit(signal)
    assert [type(signal) for signal in tallied.seen] == [BreakerChanged]
    assert notebook.seen == SIGNALS
    subscribers.unsubscribe(tallied)
    assert not subscribers.counting
    assert subscribers.observers == (notebook.write,)
