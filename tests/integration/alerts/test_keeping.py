"""B7: an alert that its receiver could not take is kept and tried again, bounded, and in the order of its key."""

import asyncio
import logging
import threading

import pytest

from interlock.engine.alerts import Alarms, Alert, AlertSettings, AlertWebhook, Post
from tests.integration.alerts.receiver import Answer, LocalReceiver, receiving
from tests.integration.alerts.telling import NOW_US, Waits, alarmed, alert


class Gate(AlertWebhook):
    """Posts nothing before everything was told."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.told = threading.Event()

    def post(self, alert: Alert, at_s: float) -> Post:
        self.told.wait()
        return super().post(alert, at_s)


def sent(answers: list[Answer], alerts: list[Alert], settings: AlertSettings) -> tuple[Alarms, list[tuple[str, bool]]]:
    """Tell them all at once; what arrived until each answer was used up."""
    with receiving(*answers) as receiver:
        gate = Gate(receiver.url)
        alarms = alarmed(gate, wait=Waits(), settings=settings)
        for each in alerts:
            alarms.tell(each)
        gate.told.set()
        arrived = [_shown(receiver) for _ in answers]
        asyncio.run(alarms.close())
    return alarms, arrived


def _shown(receiver: LocalReceiver) -> tuple[str, bool]:
    body = receiver.next().json()
    return str(body["subject"]), bool(body["resolved"])


KEPT = AlertSettings(attempts_max=2, close_s=30.0)


def test_an_alert_outlasts_a_receiver_that_is_away_for_longer_than_its_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "interlock.alerts"):
        alarms, arrived = sent([503, 503, 503, 503, 202], [alert("o-1")], KEPT)
    assert arrived == [("o-1", False)] * 5
    [report] = alarms.reports()
    assert (report.delivered, report.refused, report.dropped) == (1, 0, 0)
    [told] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "at attempt 2, and it is tried again for up to 3600 s" in told


def test_an_alert_that_its_receiver_chokes_on_does_not_hold_up_the_others() -> None:
    alarms, arrived = sent([500, 500, 202, 202], [alert("o-1"), alert("o-2")], KEPT)
    assert [subject for subject, _ in arrived] == ["o-1", "o-1", "o-2", "o-1"]
    assert alarms.reports()[0].delivered == 2


def test_the_end_of_an_alert_takes_the_place_of_a_beginning_that_did_not_arrive() -> None:
    """What is kept never comes behind something newer of its key."""
    first = alert("o-1")
    alarms, arrived = sent([503, 503, 202], [first, first.over(NOW_US)], KEPT)
    assert arrived == [("o-1", False), ("o-1", False), ("o-1", True)]
    assert alarms.reports()[0].refused == 1


def test_an_alert_that_is_too_old_is_dropped() -> None:
    settings = AlertSettings(attempts_max=2, keep_s=0, close_s=30.0)
    alarms, _ = sent([503, 503], [alert("o-1")], settings)
    assert alarms.reports()[0].refused == 1


def test_what_is_refused_for_good_is_not_kept() -> None:
    alarms, _ = sent([400], [alert("o-1")], KEPT)
    assert alarms.reports()[0].refused == 1


def test_what_is_kept_counts_against_the_bound() -> None:
    """G6: `alerts_max`."""
    settings = AlertSettings(attempts_max=1, alerts_max=1, close_s=30.0)
    alarms, arrived = sent([503, 202], [alert("o-1"), alert("o-2")], settings)
    assert ("o-2", False) in arrived
    [report] = alarms.reports()
    assert report.delivered + report.refused + report.dropped == 2
