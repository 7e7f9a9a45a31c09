"""B7: alerts reach a real receiver over HTTP as they should, and its answer is understood."""

import hashlib
import hmac
import logging
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

import pytest

from interlock.engine.alerts import AlertSettings, AlertWebhook, PagerDuty
from tests.integration.alerts.receiver import LocalReceiver, hang, receiving
from tests.integration.alerts.telling import NOW_US, ROUTING_KEY, WALL_S, alarmed, alert, send, tell_and_close

# --- bodies ---------------------------------------------------------------------------------------------------------


def test_a_webhook_posts_the_alert_as_signed_json() -> None:
    with receiving() as receiver:
        webhook = AlertWebhook(f"{receiver.url}/in?team=shop", headers={"Authorization": "Bearer t"}, secret="s3cret")
        tell_and_close(alarmed(webhook), alert())
        [got] = receiver.all()
    assert (got.method, got.path) == ("POST", "/in?team=shop")
    assert got.headers["Content-Type"] == "application/json"
    assert got.headers["Authorization"] == "Bearer t"
    assert got.headers["Host"] == receiver.url.removeprefix("http://")
    assert got.headers["Interlock-Timestamp"] == "1700000500"
    signed = hmac.new(b"s3cret", b"1700000500." + got.body, hashlib.sha256)
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
        "runbook": "docs/how-to/runbooks.md#interlockstalled",
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
                "runbook": "docs/how-to/runbooks.md#interlockstalled",
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
    ("asked", "waited_s"),
    [
        ("86400", 300.0),
        ("9" * 5_000, 300.0),
        ("-5", 0.75),
        ("soon", 0.75),
        (formatdate(0, usegmt=True), 0.75),
        (formatdate(WALL_S + 120, usegmt=True), 120.0),
        (formatdate(WALL_S + 10_000, usegmt=True), 300.0),
    ],
)
def test_what_a_receiver_asks_for_is_honoured_within_bounds(asked: str, waited_s: float) -> None:
    """G6: `retry_after_max_s`."""
    _, _, waits = send([(503, {"Retry-After": asked}), 202])
    assert waits == [waited_s]


def test_the_backoff_grows_to_its_bound_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    # Nothing is kept for later: whether closing comes before the next try of what is kept would be luck.
    settings = AlertSettings(attempts_max=4, backoff_max_s=3.0, close_s=30.0, keep_s=0.0)
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
    [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 2x2\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 202 OK\r\n", b""],
)
def test_an_answer_that_is_none_is_tried_again(answer: bytes) -> None:
    def say(_: LocalReceiver, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(answer)
        handler.close_connection = True

    alarms, subjects, _ = send([say, 202])
    assert subjects == ["o-0", "o-0"]
    assert alarms.reports()[0].delivered == 1


def test_an_answer_without_an_end_is_not_read_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """G6: `HEAD_BYTES_MAX`."""

    def babble(receiver: LocalReceiver, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 202 OK\r\nX: " + b"x" * 70_000)
        hang(receiver, handler)

    with caplog.at_level(logging.INFO, "interlock.alerts"):
        _, subjects, _ = send([babble, 202], first_s=10.0)
    assert subjects == ["o-0", "o-0"]
    assert "RemoteDisconnected" in caplog.text


def test_an_interim_answer_is_not_the_answer() -> None:
    alarms, subjects, _ = send([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n"])
    assert subjects == ["o-0"]
    assert alarms.reports()[0].delivered == 1
