"""B7: alerts reach a real receiver over HTTP, whatever it does, and nothing waits for one that does not answer."""

import asyncio
import hashlib
import hmac
import logging
import threading
from collections.abc import Callable, Sequence
from email.utils import formatdate
from pathlib import Path

import pytest

from interlock.runtime.alerts import Alarms, Alert, AlertSettings, PagerDuty, Post, Receiver, Webhook, stalled_alert
from interlock.seams import SystemClock
from interlock.signals import Subscribers
from interlock.store.values import Row
from tests.integration.alerts.receiver import WAIT_S, Answer, certificate, closed_port, drip, hang, receiving

NOW_US = 1_700_000_000_123_000
ROUTING_KEY = "SECRET7890abcdef0123456789abcdef"


def alert(workflow: str = "o-1") -> Alert:
    since_us = NOW_US - 300_000_000
    row = Row(workflow, "order", 1, "charging", b"{}", 2, 2, True, since_us, since_us, since_us, b"")
    return stalled_alert(row, 120.0, NOW_US)


class Half:
    """Luck that is always in the middle."""

    def fraction(self) -> float:
        return 0.5


class Waits:
    """The waits between attempts, written down instead of waited for."""

    def __init__(self, expected: int = 0) -> None:
        self.seconds: list[float] = []
        self.enough = threading.Event()
        self._expected = expected

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) == self._expected:
            self.enough.set()


def alarmed(
    *receivers: Receiver, wait: Callable[[float], object] | None = None, settings: AlertSettings | None = None
) -> Alarms:
    settings = settings or AlertSettings(close_s=30.0)
    return Alarms(Subscribers(), receivers, clock=SystemClock(), chance=Half(), settings=settings, wait=wait)


def tell_and_close(alarms: Alarms, *alerts: Alert) -> None:
    for each in alerts:
        alarms.tell(each)
    asyncio.run(alarms.close())


def send(
    answers: Sequence[Answer], *, settings: AlertSettings | None = None, alerts: int = 1, timeout_s: float = 30.0
) -> tuple[Alarms, list[str], list[float]]:
    """Send alerts to a receiver that answers by the script; who came to it, and what was waited between attempts.

    Closing waits until the whole script was answered, because it gives every alert only one more attempt.
    """
    waits, settings = Waits(), settings or AlertSettings(close_s=30.0)
    with receiving(*answers) as receiver:
        alarms = alarmed(Webhook(receiver.url, timeout_s=timeout_s), wait=waits, settings=settings)
        for each in range(alerts):
            alarms.tell(alert(f"o-{each}"))
        subjects = [receiver.next().json()["subject"] for _ in range(len(answers))]
        asyncio.run(alarms.close())
        subjects += [each.json()["subject"] for each in receiver.all()]
    return alarms, subjects, waits.seconds


# --- bodies ---------------------------------------------------------------------------------------------------------


def test_a_webhook_posts_the_alert_as_signed_json() -> None:
    with receiving() as receiver:
        webhook = Webhook(f"{receiver.url}/in?team=shop", headers={"Authorization": "Bearer t"}, secret="s3cret")
        tell_and_close(alarmed(webhook), alert())
        [got] = receiver.all()
    assert (got.method, got.path) == ("POST", "/in?team=shop")
    assert got.headers["Content-Type"] == "application/json"
    assert got.headers["Authorization"] == "Bearer t"
    assert got.headers["Host"] == receiver.url.removeprefix("http://")
    signed = hmac.new(b"s3cret", got.headers["Interlock-Timestamp"].encode() + b"." + got.body, hashlib.sha256)
    assert got.headers["Interlock-Signature"] == f"v1={signed.hexdigest()}"
    assert got.json() == {
        "kind": "stalled",
        "subject": "o-1",
        "summary": "Workflow o-1 of order has been in charging for 5 min; its dwell is at most 2 min.",
        "machine": "order",
        "state": "charging",
        "since": "2023-11-14T22:08:20.123+00:00",
        "at": "2023-11-14T22:13:20.123+00:00",
        "resolved": False,
        "dedup_key": "interlock/stalled/order/o-1/2",
        "advice": alert().advice,
        "details": {"version": 2, "visit": 2, "dwell_max_s": 120.0, "stay_s": 300.0},
    }


def test_pagerduty_is_told_to_trigger_and_then_to_resolve_the_same_key() -> None:
    with receiving() as receiver:
        pager = PagerDuty(ROUTING_KEY, url=f"{receiver.url}/v2/enqueue", source="shop-1")
        tell_and_close(alarmed(pager), alert(), alert().over(NOW_US))
        trigger, resolve = receiver.all()
    assert trigger.path == resolve.path == "/v2/enqueue"
    assert trigger.json() == {
        "routing_key": ROUTING_KEY,
        "event_action": "trigger",
        "dedup_key": "interlock/stalled/order/o-1/2",
        "payload": {
            "summary": "Workflow o-1 of order has been in charging for 5 min; its dwell is at most 2 min.",
            "source": "shop-1",
            "severity": "error",
            "timestamp": "2023-11-14T22:13:20.123+00:00",
            "component": "order",
            "group": "interlock",
            "class": "stalled",
            "custom_details": {
                "subject": "o-1",
                "machine": "order",
                "state": "charging",
                "since": "2023-11-14T22:08:20.123+00:00",
                "advice": alert().advice,
                "version": 2,
                "visit": 2,
                "dwell_max_s": 120.0,
                "stay_s": 300.0,
            },
        },
        "client": "Interlock",
    }
    assert resolve.json() == {
        "routing_key": ROUTING_KEY,
        "event_action": "resolve",
        "dedup_key": "interlock/stalled/order/o-1/2",
    }


# --- answers --------------------------------------------------------------------------------------------------------


def test_after_a_500_the_alert_is_sent_again() -> None:
    alarms, subjects, waits = send([500, 503, 202])
    assert subjects == ["o-0"] * 3
    assert waits == [0.75, 1.5]  # The half of 1 s and 2 s, and half of the other half.
    [report] = alarms.reports()
    assert (report.delivered, report.retried, report.refused, report.dropped) == (1, 2, 0, 0)


def test_a_429_is_repeated_when_the_receiver_asks_for_it() -> None:
    """PagerDuty: on 429 "retry after some time"."""
    _, subjects, waits = send([(429, {"Retry-After": "7"}), 202])
    assert subjects == ["o-0", "o-0"]
    assert waits == [7.0]


@pytest.mark.parametrize(
    ("asked", "least_s", "most_s"),
    [
        ("86400", 300.0, 300.0),
        ("9" * 5_000, 300.0, 300.0),
        ("-5", 0.75, 0.75),
        ("soon", 0.75, 0.75),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.75, 0.75),
        (formatdate(SystemClock().wall_s() + 10_000, usegmt=True), 300.0, 300.0),
    ],
)
def test_what_a_receiver_asks_for_is_bounded(asked: str, least_s: float, most_s: float) -> None:
    """G6."""
    _, _, [waited] = send([(503, {"Retry-After": asked}), 202])
    assert least_s <= waited <= most_s


def test_the_backoff_grows_to_its_bound_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    settings = AlertSettings(attempts_max=4, backoff_max_s=3.0, close_s=30.0)
    alarms, subjects, waits = send([500] * 4, settings=settings, alerts=2)
    assert subjects == ["o-0"] * 4 + ["o-1"]
    assert waits == [0.75, 1.5, 2.25]
    [report] = alarms.reports()
    assert (report.delivered, report.refused) == (1, 1)
    [error] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "did not take the alert interlock/stalled/order/o-0/2 at attempt 4" in error
    assert "it answered 500." in error


@pytest.mark.parametrize("status", [400, 401, 404, 413])
def test_an_alert_that_the_receiver_does_not_want_is_dropped_and_the_next_is_sent(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    alarms, subjects, waits = send([status], alerts=2)
    assert (subjects, waits) == (["o-0", "o-1"], [])
    [report] = alarms.reports()
    assert (report.delivered, report.refused) == (1, 1)
    assert f"it answered {status}. Check its address, key and headers." in caplog.text


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with receiving() as other:
        _, subjects, waits = send([(status, {"Location": f"{other.url}/SECRET"})])
        assert other.all() == []
    assert (subjects, waits) == (["o-0"], [])
    assert "a redirect, which is not followed" in caplog.text
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 2x2\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 202 OK\r\nX: " + b"x" * 70_000],
)
def test_an_answer_that_is_none_is_tried_again(answer: bytes) -> None:
    def say(_: object, handler: object) -> None:
        handler.wfile.write(answer)  # type: ignore[attr-defined]
        handler.close_connection = True  # type: ignore[attr-defined]

    alarms, subjects, _ = send([say, 202])
    assert subjects == ["o-0", "o-0"]
    assert alarms.reports()[0].delivered == 1


def test_an_interim_answer_is_not_the_answer() -> None:
    alarms, subjects, _ = send([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n"])
    assert subjects == ["o-0"]
    assert alarms.reports()[0].delivered == 1


# --- receivers that are not there -----------------------------------------------------------------------------------


def test_a_refused_connection_is_tried_a_bounded_number_of_times(caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits(expected=2)
    settings = AlertSettings(attempts_max=3, close_s=30.0)
    alarms = alarmed(Webhook(f"http://127.0.0.1:{closed_port()}/SECRET"), wait=waits, settings=settings)
    with caplog.at_level(logging.INFO, "interlock.alerts"):
        alarms.tell(alert())
        assert waits.enough.wait(WAIT_S)
        asyncio.run(alarms.close())
    assert alarms.reports()[0].refused == 1
    assert waits.seconds == [0.75, 1.5]
    assert "ConnectionRefusedError: Connection refused" in caplog.text
    assert "SECRET" not in caplog.text


def test_a_receiver_that_does_not_answer_in_time_is_tried_again() -> None:
    alarms, subjects, _ = send([hang, 202], timeout_s=0.1)
    assert subjects == ["o-0", "o-0"]
    assert alarms.reports()[0].delivered == 1


def test_a_receiver_that_drips_does_not_get_more_than_the_timeout_in_all(caplog: pytest.LogCaptureFixture) -> None:
    """G6: the timeout is of the whole attempt, not from one byte to the next."""
    with caplog.at_level(logging.INFO, "interlock.alerts"):
        alarms, subjects, _ = send([drip, 202], timeout_s=0.2)
    assert subjects == ["o-0", "o-0"]
    assert "TimeoutError" in caplog.text
    assert alarms.reports()[0].delivered == 1


def test_a_hanging_receiver_delays_neither_the_others_nor_closing(caplog: pytest.LogCaptureFixture) -> None:
    with receiving(hang) as hanging, receiving() as good:
        settings = AlertSettings(close_s=0.05)
        alarms = alarmed(Webhook(hanging.url, timeout_s=60), Webhook(good.url), settings=settings)
        alarms.tell(alert("o-1"))
        alarms.tell(alert("o-2"))
        hanging.next()
        assert [good.next().json()["subject"] for _ in range(2)] == ["o-1", "o-2"]
        asyncio.run(alarms.close())
        assert not hanging.released.is_set()
        stuck, _ = alarms.reports()
        assert (stuck.delivered, stuck.dropped) == (0, 1)
    assert "did not take its last alerts in 0.05 s (close_s): 2 are left behind." in caplog.text


def test_beyond_the_bound_the_oldest_alert_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """G6: `alerts_max`."""

    def gate(receiver: object, handler: object) -> None:
        hang(receiver, handler)  # type: ignore[arg-type]
        handler.wfile.write(b"HTTP/1.1 202 Accepted\r\n\r\n")  # type: ignore[attr-defined]

    with receiving(gate) as receiver:
        settings = AlertSettings(alerts_max=3, close_s=30.0)
        alarms = alarmed(Webhook(receiver.url, timeout_s=60), settings=settings)
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
        tell_and_close(alarmed(Webhook(receiver.url)), *(alert(f"o-{each}") for each in range(5)))
        assert [each.json()["subject"] for each in receiver.all()] == [f"o-{each}" for each in range(5)]


def test_closing_cuts_a_wait_short_and_tries_once_more() -> None:
    with receiving((429, {"Retry-After": "300"}), 202) as receiver:
        alarms = alarmed(Webhook(receiver.url))
        alarms.tell(alert())
        receiver.next()
        asyncio.run(alarms.close())
        assert len(receiver.all()) == 1
    assert alarms.reports()[0].delivered == 1


def test_closed_alarms_send_nothing_and_closing_twice_is_fine() -> None:
    with receiving() as receiver:
        alarms = alarmed(Webhook(receiver.url))
        asyncio.run(alarms.close())
        tell_and_close(alarms, alert())
        assert receiver.all() == []
    assert alarms.reports()[0].dropped == 1


# --- certificates and secrets ---------------------------------------------------------------------------------------


def test_a_certificate_that_nobody_vouches_for_is_not_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, tls = certificate(tmp_path, "127.0.0.1")
    with receiving(tls=tls) as receiver:
        alarms = alarmed(PagerDuty(ROUTING_KEY, url=receiver.url))
        tell_and_close(alarms, alert())
        assert receiver.all() == []
    assert alarms.reports()[0].refused == 1
    assert "its certificate is not valid (self-signed certificate). Nothing was sent." in caplog.text


def test_a_certificate_of_another_host_is_not_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trusted, tls = certificate(tmp_path, "127.0.0.2")
    with receiving(tls=tls) as receiver:
        tell_and_close(alarmed(Webhook(receiver.url, ca_file=trusted)), alert())
        assert receiver.all() == []
    assert "IP address mismatch" in caplog.text


def test_a_certificate_of_a_declared_authority_is_accepted(tmp_path: Path) -> None:
    trusted, tls = certificate(tmp_path, "127.0.0.1")
    with receiving(tls=tls) as receiver:
        tell_and_close(alarmed(Webhook(receiver.url, ca_file=trusted)), alert())
        assert [each.json()["subject"] for each in receiver.all()] == ["o-1"]


class Careless:
    """A receiver of the user's own whose error says everything."""

    name = "Careless"
    timeout_s = 1.0

    def tls(self) -> None:  # pragma: no cover -- never asked.
        raise AssertionError

    def post(self, alert: Alert, at_s: float) -> Post:
        raise ValueError("SECRET", alert, at_s)


def test_no_log_ever_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, tls = certificate(tmp_path, "127.0.0.1")
    settings = AlertSettings(attempts_max=2, close_s=30.0)
    with (
        caplog.at_level(logging.DEBUG),
        receiving(*[500] * 20) as failing,
        receiving(*[(302, {"Location": "http://SECRET"})] * 2) as moved,
        receiving(tls=tls) as untrusted,
    ):
        nobody = f"http://127.0.0.1:{closed_port()}"
        receivers: list[Receiver] = [
            Webhook(f"{url}/SECRET?k=SECRET", headers={"X-Key": "SECRET"}, secret="SECRET")
            for url in (failing.url, moved.url, untrusted.url, nobody)
        ]
        receivers += [PagerDuty(ROUTING_KEY, url=f"{url}/SECRET") for url in (nobody, untrusted.url, failing.url)]
        receivers.append(Careless())  # type: ignore[arg-type]
        alarms = alarmed(*receivers, wait=Waits(), settings=settings)
        tell_and_close(alarms, alert(), alert().over(NOW_US))
    assert [report.refused for report in alarms.reports()] == [2] * 8
    assert "the alert could not be put into a request (ValueError)." in caplog.text
    assert "SECRET" not in caplog.text
    assert "SECRET" not in repr(alarms.reports())
