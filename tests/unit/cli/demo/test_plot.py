"""The plot of a walk: an SVG with what happened where it happened, whatever did not happen left out."""

from xml.etree import ElementTree

import pytest

from interlock.cli.demo.command import POINTS_MAX, outcome_plot, spans_of
from interlock.cli.demo.outcome import Kill, Moment, Outage, Outcome, Stall, Tally
from interlock.examples.order import order

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def outcome() -> Outcome:
    walked = Outcome(1_000, 7, Tally(order.describe()), acknowledged=4_000, walking_s=10.0)
    walked.timeline.moments = [Moment(at, 10 * at, 9 * at, 8 * at) for at in range(100)]
    walked.books.update(charged=900, refunded=100)
    walked.outage = Outage(2.0, opened_s=2.5, ended_s=4.0, closed_s=4.5, refused=1_234)
    walked.kill = Kill(5.0, on_their_way=321, gap_s=1.5)
    walked.stall = Stall(7.0, stuck={"a", "b"}, listed={"a", "b"}, ended_s=9.0)
    return walked


def test_the_plot_shows_outage_kill_and_stall_at_their_times(outcome: Outcome) -> None:
    assert [(span.name, span.from_s, span.to_s) for span in spans_of(outcome)] == [
        ("bank down", 2.0, 4.0),
        ("breaker open", 2.5, 4.5),
        ("no worker", 5.0, 6.5),
        ("parcels stuck", 7.0, 9.0),
    ]
    drawn = outcome_plot(outcome)
    texts = [text.text for text in ElementTree.fromstring(drawn).iter(f"{SVG}text")]
    assert "1,000 orders through a bad day: nothing lost" in texts
    assert "2.0 s · 1,234 calls refused" in texts
    assert "900 charges and 100 refunds, none twice" in drawn
    assert "1.5 s · kill -9, 321 orders on their way" in texts
    assert "2.0 s · 2 orders, found by engine.stalled" in texts
    assert "prefers-color-scheme:dark" in drawn
    assert "<script" not in drawn


def test_what_did_not_happen_is_not_drawn_and_what_did_not_end_lasts_to_the_end(outcome: Outcome) -> None:
    outcome.outage = Outage(2.0)
    outcome.stall = None
    outcome.problems = ["something is wrong"]
    assert [(span.name, span.to_s) for span in spans_of(outcome)] == [("bank down", 10.0), ("no worker", 6.5)]
    drawn = outcome_plot(outcome)
    assert "1,000 orders through a bad day: 1 problem<" in drawn
    assert "none twice" not in drawn


def test_a_long_walk_has_no_more_points_than_can_be_seen(outcome: Outcome) -> None:
    outcome.timeline.moments = [Moment(1, 1, 1, 1)] * 5_000
    outcome.walking_s = 500.0
    rate = ElementTree.fromstring(outcome_plot(outcome)).find(f".//{SVG}polyline")
    assert rate is not None
    assert len(rate.attrib["points"].split()) <= POINTS_MAX


def test_a_walk_of_no_time_at_all_is_drawn_too() -> None:
    assert ElementTree.fromstring(outcome_plot(Outcome(1, 1, Tally(order.describe())))).tag == f"{SVG}svg"
