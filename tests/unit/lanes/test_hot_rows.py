"""D9: a hot row is flagged with its key, volume on many rows is not, and the signal is bounded and fades."""

from interlock.lanes.hot_rows import DECAY_S, Contention
from interlock.lanes.lane_settings import LaneSettings


def wrote(signal: Contention, key: object, *, since: float, now: float) -> None:
    signal.wrote([("t", key)], waiting_since_s=since, now_s=now)


def test_writes_that_waited_for_each_other_are_hand_offs() -> None:
    signal = Contention(LaneSettings(contention_rows_max=10))
    wrote(signal, 1, since=0.0, now=1.0)
    assert signal.worst(1.0) == [], "the first write waited for nobody"
    wrote(signal, 1, since=1.0, now=1.0)
    assert signal.worst(1.0) == [], "the one before was done when it began to wait"
    for number in range(100):
        wrote(signal, 1, since=0.5, now=1.0 + number / 100)
    [hot] = signal.worst(2.0)
    assert (hot.table, hot.key, hot.flagged) == ("t", 1, True)
    assert 90 < hot.handoffs_per_s < 120
    assert hot.writes_per_s >= hot.handoffs_per_s
    assert 0.9 < hot.wait_s < 1.1


def test_a_row_written_after_the_other_was_done_is_no_hand_off() -> None:
    signal = Contention(LaneSettings(contention_rows_max=10))
    for number in range(100):
        wrote(signal, 1, since=number + 0.5, now=number + 0.6)
    assert signal.worst(100.0) == []


def test_below_the_threshold_it_is_shown_and_not_flagged() -> None:
    signal = Contention(LaneSettings(contention_rows_max=10))
    for second in range(20):
        wrote(signal, "slow", since=second - 2.0, now=float(second))
    [row] = signal.worst(20.0)
    assert not row.flagged
    assert 0.5 < row.handoffs_per_s < 1.5


def test_the_signal_fades() -> None:
    signal = Contention(LaneSettings(contention_rows_max=10))
    for number in range(2_000):
        wrote(signal, 1, since=-1.0, now=number / 1_000)
    assert signal.worst(2.0)[0].flagged
    [faded] = signal.worst(2.0 + 4 * DECAY_S)
    assert not faded.flagged
    assert signal.worst(2.0 + 40 * DECAY_S) == []


def test_the_worst_comes_first() -> None:
    signal = Contention(LaneSettings(contention_rows_max=10))
    for key, writes in (("few", 10), ("many", 100), ("some", 50)):
        for number in range(writes):
            wrote(signal, key, since=-1.0, now=number / 1_000)
    assert [row.key for row in signal.worst(1.0)] == ["many", "some", "few"]


def test_the_signal_is_bounded_and_keeps_the_hot_ones() -> None:
    signal = Contention(LaneSettings(contention_rows_max=10))
    for number in range(1_000):
        wrote(signal, "hot", since=-1.0, now=number / 1_000)
        wrote(signal, number, since=number / 1_000, now=number / 1_000)
        assert len(signal._rows) <= 10
    assert [row.key for row in signal.worst(1.0)] == ["hot"]


def test_conflicts_are_counted_beside_hand_offs_and_flag_a_row_as_well() -> None:
    """D9: a serialization failure or a version that had moved on is contention too, whoever saw it."""
    signal = Contention(LaneSettings(contention_rows_max=10), source="postgres")
    for number in range(100):
        signal.conflicted([("t", 1)], now_s=number / 100)
    signal.conflicted([("t", 2)], now_s=1.0, weight=3.0)
    worst, other = signal.worst(1.0)
    assert (worst.source, worst.key, worst.flagged, worst.handoffs_per_s) == ("postgres", 1, True, 0.0)
    assert 90 < worst.conflicts_per_s < 110
    assert (other.key, other.flagged, other.wait_s) == (2, False, 0.0)
    assert other.conflicts_per_s == 3.0


def test_conflicts_fade_and_are_bounded_and_keep_their_row_from_being_forgotten() -> None:
    signal = Contention(LaneSettings(contention_rows_max=10))
    for number in range(1_000):
        signal.conflicted([("t", "hot"), ("t", number)], now_s=number / 1_000, weight=2.0)
        wrote(signal, ("cold", number), since=number / 1_000, now=number / 1_000)
        assert len(signal._rows) <= 10
    assert signal.worst(1.0)[0].key == "hot"
    assert signal.worst(1.0 + 40 * DECAY_S) == []
