"""One strand runs at a time, in the order of virtual time; the dead stay dead, and nobody runs for ever."""

import pytest

from interlock.testing.lane_simulation import threads as batons
from interlock.testing.lane_simulation.threads import Baton, Killed, StrandLife


def test_strands_run_in_the_order_of_virtual_time() -> None:
    baton, told = Baton(), list[tuple[str, float]]()

    def sleeper(name: str, seconds: float) -> None:
        for _ in range(2):
            baton.park(seconds)
            told.append((name, baton.now_s))

    for name, seconds in (("slow", 3.0), ("fast", 2.0)):
        baton.spawn(StrandLife(name), name, lambda name=name, seconds=seconds: sleeper(name, seconds))  # type: ignore[misc]
    baton.run()
    assert told == [("fast", 2.0), ("slow", 3.0), ("fast", 4.0), ("slow", 6.0)]


def test_a_strand_that_stands_still_misses_its_time() -> None:
    baton, told, life = Baton(), list[float](), StrandLife("a")

    def work() -> None:
        baton.park(1.0)
        told.append(baton.now_s)

    baton.spawn(life, "a", work)
    baton.at(0.5, lambda: setattr(life, "stalled_until_s", 9.0))
    baton.run()
    assert told == [9.0]


def test_who_is_killed_ends_where_it_stands_and_cannot_park_again() -> None:
    baton, told, life = Baton(), list[str](), StrandLife("a")

    def work() -> None:
        try:
            baton.park()
        finally:
            told.append("unwound")
            with pytest.raises(Killed):
                baton.park(1.0)

    baton.spawn(life, "a", work)
    baton.at(1.0, lambda: baton.kill(life))
    baton.run()
    assert told == ["unwound"]
    assert not baton.crashes
    assert not baton.stuck


def test_who_waits_for_ever_is_found() -> None:
    baton = Baton()
    strand = baton.spawn(StrandLife("a"), "a", baton.park)
    baton.run()
    assert baton.stuck == [strand]
    baton.kill(strand.life)
    baton.run()
    assert not baton.stuck


def test_a_wake_up_that_was_meant_for_an_earlier_park_is_void() -> None:
    baton, told = Baton(), list[float]()

    def work() -> None:
        baton.park(5.0)
        told.append(baton.now_s)
        baton.park(5.0)
        told.append(baton.now_s)

    strand = baton.spawn(StrandLife("a"), "a", work)
    baton.at(1.0, lambda: baton.wake(strand))
    baton.run()
    assert told == [1.0, 6.0]


def test_an_exception_that_nobody_expected_is_kept() -> None:
    baton = Baton()

    def work() -> None:
        raise KeyError("oh")

    other = baton.spawn(StrandLife("a"), "a", work)
    waiter = baton.spawn(StrandLife("b"), "b", lambda: baton.join(other))
    baton.at(1.0, lambda: baton.at(1 // 0, work))
    baton.run()
    assert [type(error) for _, error in baton.crashes] == [KeyError, ZeroDivisionError]
    assert waiter.done


def test_a_story_that_runs_in_circles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batons, "EVENTS_MAX", 50)
    baton = Baton()

    def work() -> None:
        while True:
            baton.park(1.0)

    baton.spawn(StrandLife("a"), "a", work)
    baton.run()
    [(_, error)] = baton.crashes
    assert "does not end" in str(error)
