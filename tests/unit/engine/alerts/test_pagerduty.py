"""B7: every kind of alert is an event of PagerDuty's Events API v2 as it is documented, and leads to its runbook."""

import json
from datetime import datetime
from typing import Annotated, Literal, get_args

import msgspec
import pytest

from interlock.engine.alerts import Alert, AlertKind, AlertWebhook, Debt, PagerDuty, Severity
from interlock.engine.alerts.alert import (
    RUNBOOKS,
    breaker_alert,
    debt_alert,
    hot_row_alert,
    letter_alert,
    loop_alert,
    more_alert,
    redis_alert,
    stalled_alert,
)
from interlock.lanes.hot_rows import HotRow
from interlock.signals import AlertRaised, BreakerChanged, LoopBlocked
from interlock.store.records import Letter, Row

NOW_US = 1_700_000_000_123_000
PAGE = "https://docs.example.com/interlock/how-to/runbooks.html"
KEY = "0123456789abcdef0123456789abcdef"
NASTY = 'ü/"\n\x00' * 300


def row(workflow: str) -> Row:
    return Row(workflow, "order", 1, "charging", b"{}", 4, 3, True, NOW_US - 1, NOW_US - 1, NOW_US - 1, b"")


def every_alert(text: str) -> list[Alert]:
    """One of each kind, and of each that is told instead of many."""
    opened = breaker_alert(BreakerChanged(text, "closed", "open", text), NOW_US)
    assert opened is not None
    return [
        stalled_alert(row(text), 120.0, NOW_US),
        letter_alert(Letter("l-1", "step", text, text, 3, text, NOW_US, 2, text), NOW_US),
        opened,
        debt_alert(Debt("order", 3, row(text), 1, whole=False), 60.0, NOW_US),
        redis_alert("redis://127.0.0.1:6379/0", text, NOW_US, resolved=False),
        loop_alert(LoopBlocked("order", text, text, 1.5, text), NOW_US),
        hot_row_alert(
            text, HotRow(table=text, key=text, handoffs_per_s=80, writes_per_s=90, wait_s=0.1, flagged=True), NOW_US
        ),
        more_alert("stalled", 7, counted_all=True, now_us=NOW_US),
        more_alert("dead_letter", 7, counted_all=False, now_us=NOW_US),
    ]


Text = Annotated[str, msgspec.Meta(min_length=1)]


class Link(msgspec.Struct, forbid_unknown_fields=True):
    href: Annotated[str, msgspec.Meta(pattern="^https://")]
    text: Text


class Payload(msgspec.Struct, forbid_unknown_fields=True, rename={"class_": "class"}):
    summary: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    source: Text
    severity: Severity
    timestamp: datetime
    component: Text
    group: Text
    class_: Text
    custom_details: dict[str, str | int | float]


class Trigger(msgspec.Struct, forbid_unknown_fields=True):
    """As "Send an Alert Event" has it: what there may be, of which type, and how long."""

    routing_key: Annotated[str, msgspec.Meta(min_length=32, max_length=32)]
    event_action: Literal["trigger"]
    dedup_key: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    payload: Payload
    client: Text
    client_url: Annotated[str, msgspec.Meta(pattern="^https://")]
    links: list[Link]


@pytest.mark.parametrize("text", ["o-1", NASTY])
def test_every_alert_is_a_trigger_event_as_it_is_documented(text: str) -> None:
    alerts = every_alert(text)
    assert {alert.kind for alert in alerts} == set(get_args(AlertKind))
    for alert in alerts:
        body = PagerDuty(KEY, runbooks=PAGE).post(alert, 0.0).body
        event = msgspec.json.decode(body, type=Trigger)
        assert len(body) <= 512 * 1024
        assert event.payload.class_ == alert.kind
        assert event.payload.timestamp.tzinfo is not None
        assert event.links == [Link(f"{PAGE}#{RUNBOOKS[alert.kind]}", f"Runbook: {alert.kind}")]
        assert event.client_url == event.links[0].href


def test_every_alert_is_resolved_by_its_key_alone() -> None:
    for alert in every_alert("o-1"):
        assert json.loads(PagerDuty(KEY, runbooks=PAGE).post(alert.over(NOW_US), 0.0).body) == {
            "routing_key": KEY,
            "event_action": "resolve",
            "dedup_key": alert.dedup_key,
        }


def test_alerts_of_different_matters_have_different_keys() -> None:
    keys = [alert.dedup_key for text in ("o-1", "o-2") for alert in every_alert(text)[:4]]
    debts, others = keys[3::4], [key for place, key in enumerate(keys) if place % 4 != 3]
    assert len(set(debts)) == 1  # One per machine.
    assert len(set(others)) == 6 - 1  # The letter is the same one.


def test_without_the_address_of_runbooks_an_alert_still_names_its_section() -> None:
    event = json.loads(PagerDuty(KEY).post(every_alert("o-1")[0], 0.0).body)
    assert not {"links", "client_url"} & set(event)
    assert event["payload"]["custom_details"]["runbook"] == "docs/how-to/runbooks.md#interlockstalled"


def test_a_webhook_is_told_the_runbook() -> None:
    sent = AlertWebhook("https://example.com/in", runbooks=PAGE).post(every_alert("o-1")[3], 0.0)
    assert json.loads(sent.body)["runbook"] == f"{PAGE}#interlockcompensationdebt"


def test_every_kind_that_observers_are_told_has_a_runbook() -> None:
    assert set(get_args(AlertRaised.__annotations__["kind"])) == set(get_args(AlertKind)) == set(RUNBOOKS)
