"""A function that holds the lane is ended whatever it catches, and one that ends at the same instant breaks nothing."""

import contextlib
import threading
from collections.abc import Callable

import pytest

from interlock.errors import TransactionError, UnavailableError
from interlock.lanes import transact
from interlock.lanes.transact import BARK_EVERY_S, HeldTooLong, run_watched


def nothing() -> None:
    pass


def spin() -> None:
    while True:
        pass


def in_thread(function: Callable[[], object]) -> None:
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
    assert run_watched(60.0, nothing, lambda: 7) == 7


def test_an_error_of_the_function_stays_what_it_is() -> None:
    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        run_watched(60.0, nothing, fails)


def test_too_long_is_ended_and_sqlite_is_interrupted() -> None:
    interrupted = threading.Event()
    with pytest.raises(TransactionError, match=r"held the lane for more than 0\.01 s") as caught:
        in_thread(lambda: run_watched(0.01, interrupted.set, spin))
    assert interrupted.is_set()
    assert isinstance(caught.value.__cause__, HeldTooLong)


def test_an_interrupt_that_fails_does_not_end_the_watchdog() -> None:
    def broken() -> None:
        raise ValueError("closed already")

    for _ in range(2):
        with pytest.raises(TransactionError, match="held the lane"):
            in_thread(lambda: run_watched(0.01, broken, spin))


def test_a_function_that_swallows_even_this_is_still_refused() -> None:
    def held() -> None:
        with contextlib.suppress(HeldTooLong):
            spin()

    with pytest.raises(TransactionError, match="held the lane"):
        in_thread(lambda: run_watched(0.01, nothing, held))


def swallows_once() -> None:
    with contextlib.suppress(HeldTooLong):
        spin()
    spin()


def swallows_in_a_loop() -> None:
    while True:
        try:
            sum(range(1_000))
        except BaseException:  # noqa: BLE001 -- the worst that a function can do.
            continue


def swallows_at_every_depth() -> None:
    while True:
        try:
            with contextlib.suppress(BaseException):
                try:
                    swallows_in_a_loop()
                finally:
                    swallows_in_a_loop()
        except BaseException:  # noqa: BLE001 -- as above.
            continue


def swallows_and_starts_anew() -> None:
    try:
        swallows_in_a_loop()
    except BaseException:  # noqa: BLE001 -- as above.
        swallows_and_starts_anew()


SWALLOWING = [swallows_once, swallows_in_a_loop, swallows_at_every_depth, swallows_and_starts_anew]


@pytest.mark.parametrize("function", SWALLOWING, ids=lambda function: function.__name__)
def test_no_function_can_keep_the_lane(function: Callable[[], None]) -> None:
    def held() -> None:
        with pytest.raises(TransactionError, match="held the lane"):
            run_watched(0.01, nothing, function)
        sum(number for number in range(10_000))  # Nothing may arrive after the end.

    in_thread(held)


def test_the_earlier_deadline_is_kept_while_a_later_one_is_waited_for() -> None:
    def later() -> None:
        with pytest.raises(TransactionError):
            in_thread(lambda: run_watched(0.01, nothing, spin))

    run_watched(60.0, nothing, later)


def test_a_later_deadline_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[int] = []
    dog = transact._Watchdog()
    dog._thread = threading.current_thread()  # It is stepped from here.
    monkeypatch.setattr(dog._changed, "notify", lambda: woken.append(1))
    dog.begin(60.0, nothing)
    assert len(woken) == 1
    dog._wakes_s = dog._step(0.0)
    for _ in range(3):
        dog.begin(60.0, nothing).over = True
    assert len(woken) == 1
    dog.begin(6.0, nothing)
    assert len(woken) == 2


def test_without_its_thread_no_function_runs_and_the_next_one_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more_threads(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[int] = []
    monkeypatch.setattr(transact, "_watchdog", transact._Watchdog())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="can't start new thread") as caught:
                run_watched(60.0, nothing, lambda: ran.append(1))
            assert "Repeat" in caught.value.fix
    assert not ran
    assert not transact._watchdog._watches
    with pytest.raises(TransactionError, match="held the lane"):
        in_thread(lambda: run_watched(0.01, nothing, spin))


def test_many_functions_leave_nothing_behind() -> None:
    for _ in range(1_000):
        run_watched(60.0, nothing, nothing)
    assert len(transact._watchdog._watches) <= 1


def test_a_function_that_ends_just_as_the_watchdog_barks() -> None:
    """The exception may arrive anywhere in the ending: it must not leave anything locked, nor escape later."""

    def both_at_once() -> None:
        for _ in range(300):
            interrupted = threading.Event()
            with contextlib.suppress(TransactionError):
                run_watched(0.000_1, interrupted.set, interrupted.wait)
            sum(range(100))

    in_thread(both_at_once)
    run_watched(60.0, nothing, nothing)
    with pytest.raises(TransactionError):
        in_thread(lambda: run_watched(0.01, nothing, spin))


# --- step by step, without the thread that watches -------------------------------------------------------------------


class Sends:
    """What was sent to which thread, instead of sending it."""

    def __init__(self) -> None:
        self.kinds: list[type[BaseException]] = []

    def __call__(self, thread: int, kind: type[BaseException]) -> None:
        assert thread == threading.get_ident()
        self.kinds.append(kind)


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> Sends:
    made = Sends()
    monkeypatch.setattr(transact, "_send", made)
    return made


def test_it_barks_again_until_the_function_is_over(sends: Sends) -> None:
    dog = transact._Watchdog()
    dog._thread = threading.current_thread()  # It is stepped from here.
    interrupts: list[int] = []
    watch = dog.begin(0.0, lambda: interrupts.append(1))
    [(now_s, _, _)] = dog._watches
    assert dog._step(now_s) == now_s + BARK_EVERY_S
    assert not sends.kinds, "the function has not begun"
    watch.running = True
    for barks in range(1, 4):
        now_s += BARK_EVERY_S
        assert dog._step(now_s) == now_s + BARK_EVERY_S
        assert dog._step(now_s + BARK_EVERY_S / 2) == now_s + BARK_EVERY_S, "not before its time"
        assert len(sends.kinds) == len(interrupts) == barks
    assert sends.kinds[0] is HeldTooLong
    assert sends.kinds[1] is sends.kinds[2] is watch.insists
    watch.over = True
    assert dog._step(now_s) == float("inf")
    assert len(sends.kinds) == 3
    assert not watch.barking


def test_caught_it_sends_itself_again_until_that_is_taken_from_it() -> None:
    arrived = 0

    def catch() -> None:
        nonlocal arrived
        kind = transact._insistent(threading.get_ident())
        with contextlib.suppress(HeldTooLong):
            try:
                try:
                    raise kind
                except HeldTooLong:
                    arrived += 1
                    spin()
            except HeldTooLong:
                kind.__init__ = HeldTooLong.__init__  # type: ignore[method-assign]
                arrived += 1
                spin()
        arrived += 1
        sum(number for number in range(10_000))  # Nobody was sent any more.

    in_thread(catch)
    assert arrived == 3


@pytest.mark.parametrize("yields", [1, 2, 3, 4], ids="the last arrives in turn {}".format)
@pytest.mark.parametrize("on_its_way", [0, 1, 2])
def test_the_exception_may_arrive_while_the_end_is_noted(
    monkeypatch: pytest.MonkeyPatch, sends: Sends, on_its_way: int, yields: int
) -> None:
    """Up to two are on their way when the function ends: both must be met, and one of our own, before it is over."""
    watch = transact._Watch(nothing)
    turns = 0

    def turn() -> None:
        nonlocal turns, on_its_way
        turns += 1
        if turns < yields:
            return
        watch.barking = False
        if on_its_way:
            on_its_way -= 1
            raise HeldTooLong
        if sends.kinds:
            raise HeldTooLong

    def ends() -> int:
        watch.barking = watch.barked = True  # The watchdog barks at this very moment.
        watch.insists = transact._insistent(watch.thread)
        return 7

    monkeypatch.setattr(transact._watchdog, "begin", lambda _limit_s, _interrupt: watch)
    monkeypatch.setattr("os.sched_yield", turn)
    with pytest.raises(TransactionError, match="held the lane"):
        run_watched(60.0, nothing, ends)
    assert watch.over
    assert not watch.barking
    assert on_its_way == 0
    assert sends.kinds in ([], [HeldTooLong])


def test_it_waits_for_a_bark_that_finds_the_function_over(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = transact._Watch(nothing)

    def ends() -> int:
        watch.barking = True  # It has begun to look, and will see that there is nothing to do.
        return 7

    def turn() -> None:
        assert watch.over
        watch.barking = False

    monkeypatch.setattr(transact._watchdog, "begin", lambda _limit_s, _interrupt: watch)
    monkeypatch.setattr("os.sched_yield", turn)
    assert run_watched(60.0, nothing, ends) == 7
    assert not watch.barking
