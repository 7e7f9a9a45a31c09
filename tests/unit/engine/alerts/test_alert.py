"""B7: what an alert says, how it is put into requests, and who is told without any network."""

import hashlib
import hmac
import json
import logging
import pickle
import re

import pytest

from interlock.clock import SystemChance, SystemClock
from interlock.engine.alerts import (
    Alarms,
    Alert,
    AlertSettings,
    AlertWebhook,
    PagerDuty,
    Severity,
    breaker_alert,
    letter_alert,
    stalled_alert,
)
from interlock.engine.alerts.alert import duration, key, printable
from interlock.errors import DefinitionError
from interlock.signals import AlertRaised, BreakerChanged, Signal, Subscribers
from interlock.store.records import Letter, Row

NOW_US = 1_700_000_000_123_000
ROUTING_KEY = "0123456789abcdef0123456789abcdef"


def row(workflow: str = "o-1") -> Row:
    entered_us = NOW_US - 7_200_000_000
    return Row(workflow, "order", 1, "charging", b"{}", 4, 3, True, entered_us, entered_us, entered_us, b"")


STALLED = stalled_alert(row(), 120.0, NOW_US)


def body(receiver: AlertWebhook | PagerDuty, alert: Alert) -> dict[str, object]:
    decoded: dict[str, object] = json.loads(receiver.post(alert, 0.0).body)
    return decoded


def test_the_body_of_a_webhook_is_exactly_this() -> None:
    assert body(AlertWebhook("https://example.com/in"), STALLED) == {
        "kind": "stalled",
        "subject": "o-1",
        "summary": "Workflow o-1 of order has been in charging for 2 h; its dwell is at most 2 min.",
        "machine": "order",
        "state": "charging",
        "since": "2023-11-14T20:13:20.123+00:00",
        "at": "2023-11-14T22:13:20.123+00:00",
        "resolved": False,
        "dedup_key": "interlock/stalled/order/o-1/3",
        "advice": STALLED.advice,
        "runbook": "docs/how-to/runbooks.md#interlockstalled",
        "details": {"version": 4, "visit": 3, "dwell_max_s": 120.0, "stay_s": 7200.0},
    }


def test_the_trigger_event_of_pagerduty_is_exactly_this() -> None:
    """Events API v2, "Send an Alert Event"."""
    assert body(PagerDuty(ROUTING_KEY, source="shop-1", severity="critical"), STALLED) == {
        "routing_key": ROUTING_KEY,
        "event_action": "trigger",
        "dedup_key": "interlock/stalled/order/o-1/3",
        "payload": {
            "summary": "Workflow o-1 of order has been in charging for 2 h; its dwell is at most 2 min.",
            "source": "shop-1",
            "severity": "critical",
            "timestamp": "2023-11-14T22:13:20.123+00:00",
            "component": "order",
            "group": "interlock",
            "class": "stalled",
            "custom_details": {
                "subject": "o-1",
                "machine": "order",
                "state": "charging",
                "since": "2023-11-14T20:13:20.123+00:00",
                "advice": STALLED.advice,
                "runbook": "docs/how-to/runbooks.md#interlockstalled",
                "version": 4,
                "visit": 3,
                "dwell_max_s": 120.0,
                "stay_s": 7200.0,
            },
        },
        "client": "Interlock",
    }


def test_the_resolve_event_of_pagerduty_has_the_key_and_no_payload() -> None:
    assert body(PagerDuty(ROUTING_KEY), STALLED.over(NOW_US)) == {
        "routing_key": ROUTING_KEY,
        "event_action": "resolve",
        "dedup_key": "interlock/stalled/order/o-1/3",
    }


@pytest.mark.parametrize("workflow", ["w" * 255, "ü" * 200, "a/b" * 100, "\ud800" * 100])
def test_keys_and_summaries_keep_the_limits_of_pagerduty(workflow: str) -> None:
    """`dedup_key` at most 255 characters, `payload.summary` at most 1024."""
    alert = stalled_alert(row(workflow), 120.0, NOW_US)
    sent = body(PagerDuty(ROUTING_KEY), alert)
    payload = sent["payload"]
    assert isinstance(payload, dict)
    assert len(str(sent["dedup_key"])) <= 255
    assert len(payload["summary"]) <= 1_024
    assert alert.dedup_key == stalled_alert(row(workflow), 120.0, NOW_US + 1).dedup_key
    assert alert.dedup_key != stalled_alert(row(workflow + "x"), 120.0, NOW_US).dedup_key


def test_a_long_summary_is_cut_visibly() -> None:
    long = Alert(kind="stalled", subject="s", summary="x" * 5_000, advice="", dedup_key="k", at_us=NOW_US)
    payload = body(PagerDuty(ROUTING_KEY), long)["payload"]
    assert isinstance(payload, dict)
    assert payload["summary"] == "x" * 1_023 + "…"
    assert payload["component"] == "s"


def test_parts_of_a_key_cannot_be_mistaken_for_others() -> None:
    assert key("stalled", "a/b", "c") != key("stalled", "a", "b/c")


def test_a_signature_is_over_the_time_of_the_attempt_and_the_body() -> None:
    sent = AlertWebhook("https://example.com/in", secret="s3cret-value").post(STALLED, 1_700_000_000.9)
    assert sent.headers["Interlock-Timestamp"] == "1700000000"
    expected = hmac.new(b"s3cret-value", b"1700000000." + sent.body, hashlib.sha256).hexdigest()
    assert sent.headers["Interlock-Signature"] == f"v1={expected}"


def test_the_text_of_a_dead_letter_is_printable_and_bounded() -> None:
    error = "Error:\n\x1b[31m" + "x" * 10_000 + "\ud800"
    alert = letter_alert(Letter("l-1", "step", "o-1", "charge", 3, error, NOW_US, 2, "key"), NOW_US)
    assert alert.summary.isprintable()
    assert len(alert.summary) < 1_024
    assert body(AlertWebhook("https://example.com"), alert)["kind"] == "dead_letter"


def test_an_open_breaker_alerts_and_a_closed_one_resolves_the_same_key() -> None:
    """B7: open breakers alert the same way."""
    opened = breaker_alert(BreakerChanged("gateway", "closed", "open", "5 failures"), NOW_US)
    closed = breaker_alert(BreakerChanged("gateway", "half_open", "closed", "a success"), NOW_US)
    assert breaker_alert(BreakerChanged("gateway", "open", "half_open", "time"), NOW_US) is None
    assert opened is not None
    assert closed is not None
    assert (opened.kind, opened.subject, opened.resolved) == ("breaker_open", "gateway", False)
    assert (closed.dedup_key, closed.resolved) == (opened.dedup_key, True)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.5, "0.5 s"), (59.0, "59 s"), (60, "1 min"), (61, "1 min 1 s"), (3_600, "1 h"), (90_061, "1 d 1 h")],
)
def test_a_stay_is_told_in_its_two_largest_units(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_a_text_is_shown_on_one_line() -> None:
    assert printable("a\r\nb\x00c") == "a  b c"
    assert printable("x" * 501) == "x" * 499 + "…"


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_no_repr_shows_a_secret() -> None:
    webhook = AlertWebhook(
        "https://hooks.example.com:8443/T000/SECRETPATH?token=SECRETQUERY",
        headers={"Authorization": "Bearer SECRETHEADER"},
        secret="SECRETKEY",
    )
    pager = PagerDuty(ROUTING_KEY)
    assert repr(webhook) == "AlertWebhook('https://hooks.example.com:8443')"
    assert repr(pager) == "PagerDuty('https://events.pagerduty.com')"
    shown = repr([webhook.post(STALLED, 0.0), pager.post(STALLED, 0.0), webhook.name, pager.name])
    assert "SECRET" not in shown
    assert ROUTING_KEY not in shown


@pytest.mark.parametrize(
    "url",
    [
        "SECRET",
        "ftp://example.com/SECRET",
        "https:///SECRET",
        "https://user:SECRET@example.com",
        "https://example.com:SECRET/",
        "https://[SECRET/",
        "https://example.com/SECRET\nx",
        "https://example.com/SECRET x",
        "https://exämple.com/SECRET",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        AlertWebhook(url)
    assert "SECRET" not in str(refused.value)
    assert "SECRET" not in repr(refused.value.__cause__)
    assert refused.value.rule == "bad-receiver"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Key", "SECRET\r\nX: y"),
        ("X-Key", "SECRET\x00"),
        ("X Key", "SECRET"),
        ("Host", "SECRET"),
        ("interlock-x", "SECRET"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(name: str, value: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        AlertWebhook("https://example.com", headers={name: value})
    assert "SECRET" not in str(refused.value)


def test_a_routing_key_that_is_none_is_refused_without_showing_it() -> None:
    with pytest.raises(DefinitionError) as refused:
        PagerDuty("SECRET with spaces")
    assert "SECRET" not in str(refused.value)


def test_other_mistakes_are_refused_when_they_are_made() -> None:
    unknown: Severity = "fatal"  # type: ignore[assignment]
    for mistake in (
        lambda: PagerDuty(ROUTING_KEY, severity=unknown),
        lambda: AlertWebhook("https://example.com", secret=""),
        lambda: AlertWebhook("https://example.com", timeout_s=0),
        lambda: AlertWebhook("https://example.com", timeout_s=float("nan")),
        lambda: AlertWebhook("https://example.com", timeout_s=61),
        lambda: AlertWebhook("https://example.com", ca_file="no/such/file.pem"),
        lambda: AlertSettings(alerts_max=0),
        lambda: AlertSettings(attempts_max=0),
    ):
        with pytest.raises(DefinitionError) as refused:
            mistake()
        assert re.search(r"(AlertWebhook|PagerDuty|AlertSettings)", refused.value.what)


def test_a_file_that_holds_no_certificates_is_refused() -> None:
    with pytest.raises(DefinitionError) as refused:
        AlertWebhook("https://example.com", ca_file=__file__)
    assert "ca_file" in refused.value.what


# --- telling ----------------------------------------------------------------------------------------------------------


def test_an_alert_reaches_the_observers_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A9, B7."""
    seen: list[Signal] = []
    subscribers = Subscribers()
    subscribers.subscribe(seen.append)
    alarms = Alarms(subscribers, clock=SystemClock(), chance=SystemChance(1))
    with caplog.at_level(logging.INFO, "interlock.alerts"):
        alarms.tell(STALLED)
        alarms.tell(STALLED.over(NOW_US))
    begun = AlertRaised("stalled", "o-1", STALLED.summary, machine="order", state="charging")
    assert seen[0] == begun
    assert pickle.loads(pickle.dumps(seen[0])) == begun
    assert isinstance(seen[1], AlertRaised)
    assert seen[1].resolved
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert STALLED.advice in caplog.messages[0]


def test_a_failing_observer_does_not_keep_the_others_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    """A9."""

    def failing(signal: Signal) -> None:
        raise ValueError(signal)

    subscribers = Subscribers()
    subscribers.subscribe(failing)
    Alarms(subscribers, clock=SystemClock(), chance=SystemChance(1)).tell(STALLED)
    assert subscribers.failures == 1
    assert caplog.messages
