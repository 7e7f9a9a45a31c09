"""Breakers, limits and undos must be able to fail: each of these engines breaks one promise, and somebody notices.

The seeds of `tests/simulation/fleet.py` notice most of it; what one workflow alone cannot show is noticed by a test of
`tests/conformance/engine`, which is named here and run on the broken engine.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.clock import SeededIds, SystemChance
from interlock.core import policies
from interlock.core.policies import Breaker, Circuit, Dependency, Retry, Verdict
from interlock.core.values import StepFailure
from interlock.engine.bound_machine import BoundMachine, StepRun
from interlock.engine.dependencies.classify_errors import Kind
from interlock.engine.dependencies.outlet import Outlet, RetryBudget
from interlock.engine.dependencies.wait_queue import Line, Places
from interlock.engine.path import engine_commands
from interlock.engine.path.engine_commands import Failure
from interlock.engine.steps import attempt
from interlock.engine.steps.attempt import RunningAttempt
from interlock.errors import NonRetryable
from interlock.store.memory import MemoryStore
from interlock.testing.campaigns import Luck
from interlock.testing.engine_simulation.guarantees import Story
from interlock.testing.engine_simulation.sample_machines import Purchase, Submit
from interlock.testing.virtual_time import VirtualClock, VirtualLoop, open_on
from tests.conformance.engine import places, test_breakers, test_limits, test_steps
from tests.conformance.engine.places import Place
from tests.simulation.bank import Bank
from tests.simulation.fleet import simulate
from tests.simulation.orders import orders
from tests.simulation.passing import passing

Sabotage = Callable[[pytest.MonkeyPatch], None]
SEEDS = 400


def only_completed_steps_are_undone(patch: pytest.MonkeyPatch) -> None:
    """What timed out, crashed or was cancelled is believed to have done nothing."""

    def known(*, step: str, error: str, message: str, attempts: int, unknown: bool) -> StepFailure:
        del unknown
        return StepFailure(step=step, error=error, message=message, attempts=attempts, unknown=False)

    patch.setattr(StepRun, "attempted", property(lambda _: False))
    patch.setattr(engine_commands, "StepFailure", known)


def a_breaker_per_workflow(patch: pytest.MonkeyPatch) -> None:
    """Failures count when they are those of one workflow."""
    failures: Counter[str] = Counter()
    leave = RunningAttempt.leave

    def left(attempt: RunningAttempt, clock_s: Callable[[], float]) -> None:
        if attempt.outcome == "failed":
            failures[attempt.workflow] += 1
            if failures[attempt.workflow] < 5:
                attempt.outcome = "abandoned"
        leave(attempt, clock_s)

    patch.setattr(RunningAttempt, "leave", left)


def business_errors_are_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(attempt.OUTCOMES, Kind.BUSINESS, "failed")


def the_budget_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetryBudget, "allows", lambda _spending, _now_s: True)


def the_wave_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(policies, "FIRST_WAVE", 1_000_000)


def a_probe_burns_an_attempt(patch: pytest.MonkeyPatch) -> None:
    judged = RunningAttempt.judged

    def counted(attempt: RunningAttempt, failure: Failure) -> Failure:
        judged(attempt, failure)
        return failure

    patch.setattr(RunningAttempt, "judged", counted)


def a_pass_is_never_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "give_back", lambda _line, _held: None)


def a_place_is_kept_for_what_was_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Places, "_decline_elsewhere", lambda *_: None)


def a_pass_from_before_the_opening_is_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "_outdated", lambda _line, _kept: False)


def an_open_breaker_stops_nobody(patch: pytest.MonkeyPatch) -> None:
    admit = Breaker.admit

    def probes(
        breaker: Breaker, circuit: Circuit, now_s: float, *, under_way: int = 0, undo: bool = False
    ) -> tuple[Circuit, Verdict]:
        if circuit.opened:
            return circuit, "probe"
        return admit(breaker, circuit, now_s, under_way=under_way, undo=undo)

    patch.setattr(Breaker, "admit", probes)


def everybody_probes(patch: pytest.MonkeyPatch) -> None:
    admit = Breaker.admit

    def probes(
        breaker: Breaker, circuit: Circuit, now_s: float, *, under_way: int = 0, undo: bool = False
    ) -> tuple[Circuit, Verdict]:
        if circuit.opened and now_s >= circuit.retry_at_s:
            return circuit, "probe"
        return admit(breaker, circuit, now_s, under_way=under_way, undo=undo)

    patch.setattr(Breaker, "admit", probes)


def places_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outlet, "_room", lambda _outlet, undo: True)


def nobody_is_called_when_a_breaker_closes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "stir", lambda _line: None)
    patch.setattr(Line, "_set_timer", lambda _line: None)


BY_SEEDS: list[tuple[Sabotage, str]] = [
    (only_completed_steps_are_undone, "G5"),
    (the_budget_is_ignored, "C5"),
    (the_wave_is_ignored, "C4"),
    (a_probe_burns_an_attempt, "C4"),
    (a_pass_is_never_given_back, "C16"),
    (a_place_is_kept_for_what_was_left, "C16"),
    (a_pass_from_before_the_opening_is_used, "C4"),
    (an_open_breaker_stops_nobody, "C4"),
    (everybody_probes, "C4"),
    (places_are_not_counted, "C8"),
    (nobody_is_called_when_a_breaker_closes, "G5"),
]


@pytest.mark.campaign
@pytest.mark.parametrize(("sabotage", "promise"), BY_SEEDS, ids=[sabotage.__name__ for sabotage, _ in BY_SEEDS])
def test_a_broken_engine_is_caught_by_the_seeds(
    sabotage: Sabotage, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    complaints: list[str] = []
    for seed in range(SEEDS):
        complaints += simulate(seed).complaints
        if any(what.startswith(promise) for what in complaints):
            return
    pytest.fail(f"{SEEDS} seeds did not notice: {complaints[:3]}")


@pytest.mark.slow
def test_an_honest_engine_is_not_blamed() -> None:
    assert not [what for seed in range(20) for what in simulate(seed).complaints]


def undos_without_a_call_count(patch: pytest.MonkeyPatch) -> None:
    """C19: whatever ends well is taken for an answer."""
    patch.setattr(RunningAttempt, "_reached", property(lambda _: True))


def undos_without_a_call_close_nothing(place: Place) -> None:
    """As the suite has it, with undos."""
    test_breakers.test_what_ends_without_a_call_does_not_keep_it_closed(place, "undos")


def mistakes_take_the_way_of_the_business(patch: pytest.MonkeyPatch) -> None:
    """C18: a step that raised a TypeError moves to `failed=`."""
    patch.setattr(Kind, "is_operators", property(lambda _: False))


def mistakes_are_dead_letters(place: Place) -> None:
    """As the suite has it, with one of its mistakes."""
    name = "test_a_mistake_of_the_program_is_a_dead_letter_and_does_not_take_the_way_of_the_business"
    getattr(test_steps, name)(place, TypeError("a"))


def declines_trip_nothing(place: Place) -> None:
    """As the suite has it, with one of its answers."""
    test_breakers.test_business_errors_never_trip_it(place, NonRetryable("no such card"))


BY_TESTS: list[tuple[Sabotage, Callable[[Place], None]]] = [
    (
        a_breaker_per_workflow,
        test_breakers.test_five_failures_of_different_workflows_open_the_breaker_and_recovery_releases_all_who_wait,
    ),
    (business_errors_are_counted, declines_trip_nothing),
    (undos_without_a_call_count, undos_without_a_call_close_nothing),
    (mistakes_take_the_way_of_the_business, mistakes_are_dead_letters),
    (
        the_budget_is_ignored,
        test_limits.test_a_budget_delays_retries_and_fails_none_and_the_first_ten_are_free,
    ),
    (a_probe_burns_an_attempt, test_breakers.test_a_probe_that_fails_burns_no_attempt),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sabotage", "test"), BY_TESTS, ids=[sabotage.__name__ for sabotage, _ in BY_TESTS])
def test_a_broken_engine_is_caught_by_the_suite(
    sabotage: Sabotage, test: Callable[[Place], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(places, "PATIENCE_S", 2.0)
    sabotage(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError)):
        test(Place(tmp_path, "memory:"))


# --- the herd ---------------------------------------------------------------------------------------------------------

HERD = 500


def herd() -> int:
    """Calls within the same 10 ms when so many orders come back to a bank that has failed all of them at once."""
    clock = VirtualClock()
    loop = VirtualLoop(clock)
    limits = Dependency("gateway", concurrency_max=HERD, breaker=Breaker(failures=10**9), budget=1.0)
    bank = Bank(Luck(1), Story(1, clock), loop, limits, prompt=False, kill=loop.stop)
    machine = orders(bank)
    bank.weather = "hangs"

    async def fail_and_come_back() -> int:
        engine, _ = await open_on(
            MemoryStore(clock),
            {"order": BoundMachine(machine)},
            clock=clock,
            chance=SystemChance(1),
            ids=SeededIds(1),
            dependencies=[limits],
        )
        names = [f"w{number}" for number in range(HERD)]
        await asyncio.gather(*(engine.start(machine, name, Purchase()) for name in names))
        await asyncio.gather(*(engine.send(name, Submit(5)) for name in names))
        await passing(1.0)
        assert sum(call.name == "charge" for call in bank.calls) == HERD
        bank.weather = "calm"
        await asyncio.gather(*(engine.wait(name) for name in names))
        await engine.close()
        again = [call for call in bank.calls if call.name == "charge" and call.attempt == 2]
        assert len(again) > 0.9 * HERD  # A few cards were refused at once.
        return max(Counter(int(call.began_s / 0.01) for call in again).values())

    try:
        return loop.run(fail_and_come_back())
    finally:
        loop.leave()


@pytest.mark.slow
def test_without_jitter_a_herd_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """C5: the number of calls in the busiest 10 ms after an outage, with full jitter and without."""
    spread = herd()
    monkeypatch.setattr(Retry, "delay_s", lambda retry, attempt, _fraction: retry.ceiling_s(attempt))
    at_once = herd()
    assert at_once > 0.9 * HERD
    assert spread < HERD / 5, f"{spread} of {HERD} calls come in the same 10 ms, and without jitter {at_once}"
