"""B7: nothing waits for a receiver that is not there, hangs or is too slow, neither the engine nor its closing."""

import asyncio
import logging
from http.server import BaseHTTPRequestHandler

import pytest

from interlock.engine.alerts import AlertSettings, AlertWebhook
from tests.integration.alerts.receiver import WAIT_S, LocalReceiver, drip, hang, receiving
from tests.integration.alerts.telling import Waits, alarmed, alert, send, tell_and_close
from tests.integration.ports import HeldPorts


def test_a_refused_connection_is_tried_a_bounded_number_of_times(caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits(expected=2)
    settings = AlertSettings(attempts_max=3, keep_s=0, close_s=30.0)
    with HeldPorts() as held, caplog.at_level(logging.INFO, "interlock.alerts"):
        receiver = AlertWebhook(f"http://127.0.0.1:{held.numbers[0]}/SECRET")
        alarms = alarmed(receiver, wait=waits, settings=settings)
        alarms.tell(alert())
        assert waits.enough.wait(WAIT_S)
        asyncio.run(alarms.close())
    assert alarms.reports()[0].refused == 1
    assert waits.seconds == [0.75, 1.5]
    assert "ConnectionRefusedError: Connection refused" in caplog.text
    assert "SECRET" not in caplog.text


def test_a_receiver_that_does_not_answer_in_time_is_tried_again() -> None:
    alarms, subjects, _ = send([hang, 202], first_s=0.3)
    assert subjects == ["o-0", "o-0"]
    assert alarms.reports()[0].delivered == 1


def test_a_receiver_that_drips_does_not_get_more_than_the_timeout_in_all(caplog: pytest.LogCaptureFixture) -> None:
    """G6: the timeout is of the whole attempt, not from one byte to the next."""
    with caplog.at_level(logging.INFO, "interlock.alerts"):
        alarms, subjects, _ = send([drip, 202], first_s=0.3)
    assert subjects == ["o-0", "o-0"]
    assert "TimeoutError" in caplog.text
    assert alarms.reports()[0].delivered == 1


def test_a_hanging_receiver_delays_neither_the_others_nor_closing(caplog: pytest.LogCaptureFixture) -> None:
    with receiving(hang) as hanging, receiving() as good:
        settings = AlertSettings(close_s=0.05)
        alarms = alarmed(AlertWebhook(hanging.url, timeout_s=60), AlertWebhook(good.url), settings=settings)
        alarms.tell(alert("o-1"))
        alarms.tell(alert("o-2"))
        hanging.next()
        assert [good.next().json()["subject"] for _ in range(2)] == ["o-1", "o-2"]
        asyncio.run(alarms.close())
        assert not hanging.released.is_set()
        stuck, _ = alarms.reports()
        assert (stuck.delivered, stuck.dropped) == (0, 1)
    assert "did not take its last alerts in 0.05 s (close_s): 2 are dropped." in caplog.text


def test_beyond_the_bound_the_oldest_alert_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """G6: `alerts_max`."""

    def gate(receiver: LocalReceiver, handler: BaseHTTPRequestHandler) -> None:
        hang(receiver, handler)
        handler.wfile.write(b"HTTP/1.1 202 Accepted\r\n\r\n")

    with receiving(gate) as receiver:
        settings = AlertSettings(alerts_max=3, close_s=30.0)
        alarms = alarmed(AlertWebhook(receiver.url, timeout_s=60), settings=settings)
        alarms.tell(alert("first"))
        assert receiver.next().json()["subject"] == "first"
        for each in range(8):
            alarms.tell(alert(f"o-{each}"))
        [report] = alarms.reports()
        assert (report.dropped, report.waiting) == (5, 4)
        receiver.released.set()
        asyncio.run(alarms.close())
        assert [each.json()["subject"] for each in receiver.all()] == ["o-5", "o-6", "o-7"]
    assert alarms.reports()[0].delivered == 4
    assert caplog.text.count("is too slow: 3 alerts wait for it (alerts_max)") == 1


# --- closing --------------------------------------------------------------------------------------------------------


def test_closing_sends_what_waits() -> None:
    with receiving() as receiver:
        tell_and_close(alarmed(AlertWebhook(receiver.url)), *(alert(f"o-{each}") for each in range(5)))
        assert [each.json()["subject"] for each in receiver.all()] == [f"o-{each}" for each in range(5)]


def test_closing_cuts_a_wait_short_and_tries_once_more() -> None:
    with receiving((429, {"Retry-After": "300"}), 202) as receiver:
        alarms = alarmed(AlertWebhook(receiver.url))
        alarms.tell(alert())
        receiver.next()
        asyncio.run(alarms.close())
        assert len(receiver.all()) == 1
    assert alarms.reports()[0].delivered == 1


def test_closed_alarms_send_nothing_and_closing_twice_is_fine() -> None:
    with receiving() as receiver:
        alarms = alarmed(AlertWebhook(receiver.url))
        asyncio.run(alarms.close())
        tell_and_close(alarms, alert())
        assert receiver.all() == []
    assert alarms.reports()[0].dropped == 1
