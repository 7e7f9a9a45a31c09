"""What each fault means: what is stored, when, and what the sender is told."""

import pytest

from interlock.lanes.objectlog.bucket_protocol import BucketError, ConditionFailed, Denied, Unclear
from interlock.testing.campaigns import Luck
from interlock.testing.lane_simulation.bucket import REQUEST_TIMEOUT_S, LaneStory, Server, SimulatedBucket, Weather
from interlock.testing.lane_simulation.threads import Baton, StrandLife

KEY = f"log/{1:020d}"


class Sent:
    """One append, sent in the given weather."""

    def __init__(self, fault: str | None, monkeypatch: pytest.MonkeyPatch, *, kill: bool = False) -> None:
        monkeypatch.setattr(Weather, "for_write", lambda _weather, _now_s, _who: fault)
        monkeypatch.setattr(Weather, "stall_s", lambda _weather, _lease_s, append: 0.0)
        baton, luck, life = Baton(), Luck(3), StrandLife("a1")
        self.server = Server(baton, luck, Weather(luck), LaneStory(3))
        bucket = SimulatedBucket(self.server, life, 10.0)
        self.error: BucketError | None = None
        self.told_s = -1.0

        def send() -> None:
            try:
                bucket.create(KEY, b"group")
            except BucketError as error:
                self.error = error
            self.told_s = baton.now_s

        baton.spawn(life, "a", send)
        if kill:
            baton.at(0.0001, lambda: baton.kill(life))
        baton.run()

    @property
    def stored_s(self) -> float | None:
        written = self.server.written.get(KEY)
        return written[0].time_s if written else None


@pytest.mark.parametrize(
    ("fault", "stored", "error"),
    [
        (None, True, None),
        ("failed before", False, Unclear),
        ("429 storm", False, Unclear),
        ("403 for a while", False, Denied),
        ("409, nothing stored", False, ConditionFailed),
        ("stored, answer lost", True, Unclear),
        ("stored, 'exists already'", True, ConditionFailed),
        ("stored, then a hang", True, Unclear),
        ("late landing", True, Unclear),
        ("sent twice", True, None),
    ],
)
def test_a_fault_is_what_it_says(
    monkeypatch: pytest.MonkeyPatch, fault: str | None, stored: bool, error: type[BucketError] | None
) -> None:
    sent = Sent(fault, monkeypatch)
    assert (sent.stored_s is not None) is stored
    assert (type(sent.error) if sent.error else None) is error


def test_a_hang_ends_with_the_time_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Sent("stored, then a hang", monkeypatch).told_s == REQUEST_TIMEOUT_S


def test_a_request_lands_also_for_a_sender_that_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(None, monkeypatch, kill=True)
    assert sent.stored_s is not None
    assert sent.told_s < 0


def test_the_same_bytes_have_the_same_tag() -> None:
    server = Server(Baton(), Luck(1), Weather(Luck(1)), LaneStory(1))
    first = server.create("x", b"one", "a")
    second = server.replace("x", b"two", first, "a")
    assert server.replace("x", b"one", second, "a") == first
    with pytest.raises(ConditionFailed):
        server.replace("x", b"three", second, "a")
    with pytest.raises(ConditionFailed):
        server.create("x", b"one", "a")
