"""C4: what people see of breakers, and what is noted of them."""

from datetime import UTC, datetime

import pytest

from interlock.core.policies import Breaker, Dependency
from interlock.engine.dependencies.breakers import BreakerNote, Breakers, BreakerView, note_of, read_note, view_of_line
from interlock.engine.dependencies.outlet import BreakerTransition
from interlock.testing.virtual_time import VirtualClock
from tests.unit.engine.dependencies.queues import Queue, fails
from tests.unit.engine.shared.stores import play


def view(name: str) -> BreakerView:
    return BreakerView(name=name, state="closed", since=datetime(2027, 1, 15, tzinfo=UTC))


def test_breakers_are_found_by_name_and_by_position() -> None:
    breakers = Breakers([view("gateway"), view("mail")])
    assert breakers["mail"] is breakers[1]
    assert [each.name for each in breakers] == ["gateway", "mail"]
    assert [each.name for each in breakers[:1]] == ["gateway"]
    there: list[object] = ["gateway", view("mail"), "ledger"]
    assert (len(breakers), [each in breakers for each in there]) == (2, [True, True, False])
    assert repr(breakers) == "Breakers(gateway=closed, mail=closed)"
    with pytest.raises(KeyError, match="ledger"):
        breakers["ledger"]


def test_a_view_says_how_the_breaker_stands_and_who_waits() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        queue = Queue(Dependency("gateway", 7, 100.0, Breaker(failures=2, reset_s=30)), clock)
        fails(queue.outlet)
        assert queue.outlet.ask("first") == "call"
        assert queue.outlet.ask("undo") == "call"
        seen = view_of_line(queue.line)
        assert (seen.name, seen.state, seen.failures, seen.under_way, seen.waiting) == ("gateway", "closed", 1, 2, 0)
        assert (seen.concurrency_max, seen.rate_per_s, seen.probes_in_s, seen.forced) == (7, 100.0, None, None)
        clock.now_s = 5.0
        queue.outlet.leave("first", "call", "failed", 5.0, "OSError: net")
        queue.wait("a", "b")
        clock.now_s = 15.0
        seen = view_of_line(queue.line)
        assert (seen.state, seen.failures, seen.probes_in_s, seen.waiting) == ("open", 2, 20.0, 2)
        assert seen.reason == "2 failures in a row, the last: OSError: net"
        assert seen.since == datetime(2027, 1, 15, 8, 0, 5, tzinfo=UTC)
        queue.outlet.force("open", "held open by a person")
        queue.outlet.limit(concurrency_max=3, rate_per_s=None)
        seen = view_of_line(queue.line)
        assert (seen.forced, seen.probes_in_s, seen.concurrency_max, seen.rate_per_s) == ("open", None, 3, None)

    play(scenario)


def test_a_note_is_read_as_it_was_written() -> None:
    since = datetime(2027, 1, 15, 8, tzinfo=UTC)
    change = BreakerTransition("gateway", "closed", "open", "5 failures: »net«", "open")
    note = BreakerNote("open", "2027-01-15T08:00:00+00:00", "5 failures: »net«", "open")
    assert read_note(note_of(change, since)) == note
    change = BreakerTransition("gateway", "open", "closed", "", None)
    assert read_note(note_of(change, since)) == BreakerNote("closed", "2027-01-15T08:00:00+00:00")


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", '{"state": 7}', '{"forced": "open"}', '{"state":"x","forced":1}']
)
def test_a_note_that_nobody_can_read_is_no_note(text: str) -> None:
    assert read_note(text) is None
