"""A function that holds the lane is ended, and one that ends at the same instant breaks nothing."""

import contextlib
import threading
from collections.abc import Callable

import pytest

from interlock.errors import TransactionError
from interlock.lanes import watchdog
from interlock.lanes.watchdog import HeldTooLong, watched


def nothing() -> None:
    pass


def spin() -> None:
    while True:
        pass


def in_thread(function: Callable[[], None]) -> None:
    """Run in a thread of its own, and raise what it raised."""
    raised: list[BaseException] = []

    def target() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 -- handed to the test's own thread.
            raised.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def test_in_time_nothing_happens() -> None:
    with watched(60.0, nothing):
        pass


def test_an_error_of_the_function_stays_what_it_is() -> None:
    with pytest.raises(KeyError), watched(60.0, nothing):
        raise KeyError("mine")


def test_too_long_is_ended_and_sqlite_is_interrupted() -> None:
    interrupted = threading.Event()

    def held() -> None:
        with watched(0.01, interrupted.set):
            spin()

    with pytest.raises(TransactionError, match=r"held the lane for more than 0\.01 s") as caught:
        in_thread(held)
    assert interrupted.is_set()
    assert isinstance(caught.value.__cause__, HeldTooLong)


def test_an_interrupt_that_fails_does_not_end_the_watchdog() -> None:
    def broken() -> None:
        raise ValueError("closed already")

    def held() -> None:
        with watched(0.01, broken):
            spin()

    for _ in range(2):
        with pytest.raises(TransactionError, match="held the lane"):
            in_thread(held)


def test_a_function_that_swallows_even_this_is_still_refused() -> None:
    def held() -> None:
        with watched(0.01, nothing), contextlib.suppress(HeldTooLong):
            spin()

    with pytest.raises(TransactionError, match="held the lane"):
        in_thread(held)


def test_the_earlier_deadline_is_kept_while_a_later_one_is_waited_for() -> None:
    def held() -> None:
        with watched(0.01, nothing):
            spin()

    with watched(60.0, nothing), pytest.raises(TransactionError):
        in_thread(held)


def test_many_functions_leave_nothing_behind() -> None:
    for _ in range(1_000):
        with watched(60.0, nothing):
            pass
    assert len(watchdog._watchdog._watches) <= 1


def test_a_function_that_ends_just_as_the_watchdog_barks() -> None:
    """The exception may arrive anywhere in the ending: it must not leave anything locked, nor escape later."""

    def both_at_once() -> None:
        for _ in range(300):
            interrupted = threading.Event()
            try:
                with watched(0.000_1, interrupted.set):
                    interrupted.wait()
            except (TransactionError, HeldTooLong):
                pass
            # Nothing may arrive after the end.
            sum(range(100))

    in_thread(both_at_once)
    with watched(60.0, nothing):
        pass

    def held() -> None:
        with watched(0.01, nothing):
            spin()

    with pytest.raises(TransactionError):
        in_thread(held)


@pytest.mark.parametrize("arrives", ["before it is sent again", "after it is sent again"])
def test_the_exception_may_arrive_while_the_end_is_being_noted(monkeypatch: pytest.MonkeyPatch, arrives: str) -> None:
    watch = watchdog._watchdog.begin(60.0, nothing)
    watch.right.pop()  # The watchdog has taken the right to end it ...
    happened: list[str] = []

    def yields() -> None:
        happened.append("yields")
        if not watch.barked:
            watch.barked = True  # ... and says so a little later.
            if arrives == "before it is sent again":
                raise HeldTooLong
        elif len(happened) > 2:
            raise HeldTooLong

    def sends(thread: int) -> None:
        assert thread == watch.thread
        happened.append("sent")

    monkeypatch.setattr(watchdog, "_raise_in", sends)
    monkeypatch.setattr("os.sched_yield", yields)
    assert watchdog._watchdog.end(watch)
    assert happened.count("sent") == 1
