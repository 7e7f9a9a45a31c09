"""Reads wait in order, and the threads that read are shared out fairly: no lane starves for others' slow reads (D4)."""

import pytest

from interlock.errors import Overloaded, UnavailableError
from interlock.lanes.readers import ReaderGate, Shares


class Visit:
    """Somebody at the gate."""

    def __init__(self, *, starts: bool = True) -> None:
        self.given_up = False
        self.started = 0
        self._starts = starts

    def start(self) -> bool:
        self.started += 1
        return self._starts


def gate(places: int, shares: Shares | None = None, waiting_max: int = 9) -> ReaderGate:
    return ReaderGate(places, waiting_max=waiting_max, shares=shares or Shares(100))


def enter(into: ReaderGate, times: int = 1) -> list[Visit]:
    visits = [Visit() for _ in range(times)]
    for visit in visits:
        into.enter(visit)
    return visits


def started(visits: list[Visit]) -> list[int]:
    assert all(visit.started <= 1 for visit in visits)
    return [number for number, visit in enumerate(visits) if visit.started]


def test_it_lets_in_as_many_as_there_are_places() -> None:
    door = gate(2, waiting_max=3)
    visits = enter(door, 5)
    assert started(visits) == [0, 1]
    with pytest.raises(Overloaded, match="3 reads wait"):
        enter(door)
    door.forget(visits[2])
    door.leave()
    assert started(visits) == [0, 1, 3], "one after the other, without the one that was cancelled"
    door.hold()
    door.leave()
    assert started(visits) == [0, 1, 3]
    door.let_go()
    assert started(visits) == [0, 1, 3, 4]
    assert door.inside == 2


def test_those_who_were_cancelled_take_no_room_in_the_queue() -> None:
    door = gate(1, waiting_max=3)
    enter(door)
    for _ in range(10):
        for each in enter(door, 3):
            door.forget(each)
    [last] = enter(door)
    door.leave()
    assert last.started


def test_those_who_have_given_up_without_a_word_are_passed_over() -> None:
    door = gate(1)
    visits = enter(door, 3)
    visits[1].given_up = True
    door.leave()
    assert started(visits) == [0, 2]
    assert door.inside == 1


def test_one_who_cannot_start_takes_no_place() -> None:
    shares = Shares(8)
    door = gate(1, shares)
    door.enter(Visit(starts=False))
    assert (door.inside, shares.free) == (0, 8)
    enter(door)
    door.enter(Visit(starts=False))
    [last] = enter(door)
    door.leave()
    assert last.started
    assert (door.inside, shares.free) == (1, 7)


def test_a_closed_gate_lets_nobody_in_and_tells_who_has_waited() -> None:
    shares = Shares(8)
    door = gate(1, shares)
    visits = enter(door, 3)
    assert door.close() == visits[1:]
    door.leave()
    assert started(visits) == [0]
    with pytest.raises(UnavailableError, match="closed"):
        enter(door)
    assert (door.inside, shares.free) == (0, 8)


def test_half_of_the_threads_are_kept_for_lanes_that_have_none() -> None:
    shares = Shares(8)
    greedy = gate(100, shares)
    enter(greedy, 9)
    assert greedy.inside == 4
    others = [gate(100, shares) for _ in range(5)]
    for other in others:
        enter(other, 3)
    assert [other.inside for other in others] == [1, 1, 1, 1, 0]
    assert shares.free == 0
    greedy.leave()
    assert (greedy.inside, others[4].inside) == (3, 1), "who has none comes before who has some"
    assert shares.free == 0


def test_beyond_the_first_they_take_turns() -> None:
    shares = Shares(8)
    slow, first, second = (gate(100, shares) for _ in range(3))
    enter(slow, 4)
    enter(first, 5)
    enter(second, 5)
    assert (first.inside, second.inside, shares.free) == (1, 1, 2)
    seen: list[tuple[int, int]] = []
    for _ in range(4):
        slow.leave()
        enter(first)  # More of them who wait are not more turns.
        seen.append((first.inside, second.inside))
    assert seen == [(1, 1), (1, 1), (2, 1), (2, 2)]


def test_a_gate_that_is_held_or_full_or_empty_stands_in_nobodys_way() -> None:
    shares = Shares(2)
    busy, held, full, empty, last = (gate(1, shares) for _ in range(5))
    enter(busy)
    enter(full)
    waiting = {each: enter(each)[0] for each in (held, full, empty, last)}
    held.hold()
    empty.forget(waiting[empty])
    busy.leave()
    assert [each.inside for each in (busy, held, full, empty, last)] == [0, 0, 1, 0, 1]
    last.leave()
    held.let_go()
    assert held.inside == 1
    assert shares.free == 0
