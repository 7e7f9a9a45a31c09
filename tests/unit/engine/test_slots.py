"""G6: places are bounded, and no wake-up is lost between whoever leaves and whoever waits."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.engine.dependencies.wait_queue import Slots


def calling(most: int) -> tuple[Slots, list[str]]:
    slots, called = Slots(most), list[str]()
    slots.called = called.append
    slots.open()
    return slots, called


def test_no_more_than_most_places_are_given() -> None:
    slots, _ = calling(2)
    assert [slots.reserve() for _ in range(3)] == [True, True, False]
    slots.release()
    assert slots.reserve()


def test_nothing_is_given_out_before_it_is_open_and_then_to_those_who_wait() -> None:
    slots, called = Slots(1), list[str]()
    slots.called = called.append
    slots.wait("a")
    assert (slots.reserve(), called) == (False, [])
    slots.open()
    assert (slots.reserve("a"), called) == (True, ["a"])


def test_those_who_wait_are_called_in_order_one_for_each_place() -> None:
    slots, called = calling(1)
    assert slots.reserve()
    for name in "abca":
        slots.wait(name)
    assert (called, len(slots)) == ([], 3)
    slots.release()
    assert called == ["a"]
    assert slots.reserve("a")
    slots.release()
    assert called == ["a", "b"]


def test_whoever_begins_to_wait_while_there_is_a_place_is_called_at_once() -> None:
    slots, called = calling(1)
    slots.wait("a")
    assert (called, len(slots)) == (["a"], 0)


def test_a_place_that_is_not_taken_is_passed_on() -> None:
    slots, called = calling(1)
    assert slots.reserve()
    for name in "ab":
        slots.wait(name)
    slots.release()
    slots.decline("a")
    assert called == ["a", "b"]


def test_nobody_is_called_when_there_are_no_places_at_all_or_none_any_more() -> None:
    without, called = calling(0)
    without.wait("a")
    assert (without.reserve(), len(without), called) == (False, 0, [])
    closed, called = calling(1)
    assert closed.reserve()
    closed.wait("a")
    closed.close()
    closed.release()
    closed.wait("b")
    assert (closed.reserve(), len(closed), called) == (False, 0, [])


def test_a_place_is_kept_for_whoever_was_called() -> None:
    """Nobody overtakes the queue: a workflow that begins again and again would starve the others."""
    slots, called = calling(1)
    assert slots.reserve()
    slots.wait("a")
    slots.release()
    assert called == ["a"]
    assert not slots.reserve()
    assert not slots.reserve("b")
    assert slots.reserve("a")


@given(st.lists(st.sampled_from(["wait", "take", "decline", "release", "begin"]), max_size=60), st.integers(1, 3))
def test_nobody_waits_beside_a_free_place(moves: list[str], most: int) -> None:
    """Whatever happens, as long as those who are called answer; and every place is free, kept or taken."""
    slots, called = calling(most)
    held = 0
    for number, move in enumerate(moves):
        if move == "wait":
            slots.wait(str(number))
        elif move == "release" and held:
            held -= 1
            slots.release()
        elif move == "begin":
            held += slots.reserve()
        elif called and move == "take":
            assert slots.reserve(called.pop(0))
            held += 1
        elif called and move == "decline":
            slots.decline(called.pop(0))
        assert slots.free == most - held - len(called)
        assert not len(slots) or not slots.free
