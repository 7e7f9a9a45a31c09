"""B7: who is told by a server or a worker is named in the environment, and a mistake there is noticed at the start."""

import pytest

from interlock.engine.alerts import AlertWebhook, PagerDuty, receivers_in
from interlock.errors import BadUsage, DefinitionError

KEY = "0123456789abcdef0123456789abcdef"


def test_nobody_is_told_unless_somebody_is_named() -> None:
    assert receivers_in({"INTERLOCK_HOME": "lanes://./data", "INTERLOCK_ALERT_URL": ""}) == []


def test_a_webhook_and_pagerduty_are_named_there() -> None:
    webhook, pager = receivers_in(
        {
            "INTERLOCK_ALERT_URL": "https://alerts.example.com/in",
            "INTERLOCK_ALERT_SECRET": "s3cret",
            "INTERLOCK_PAGERDUTY_KEY": KEY,
            "INTERLOCK_PAGERDUTY_URL": "https://events.eu.pagerduty.com/v2/enqueue",
            "INTERLOCK_PAGERDUTY_SEVERITY": "critical",
            "INTERLOCK_RUNBOOKS_URL": "https://docs.example.com/runbooks.html",
        }
    )
    assert isinstance(webhook, AlertWebhook)
    assert isinstance(pager, PagerDuty)
    assert [webhook.name, pager.name] == [
        "AlertWebhook('https://alerts.example.com')",
        "PagerDuty('https://events.eu.pagerduty.com')",
    ]


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("INTERLOCK_ALERT_SECRET", "INTERLOCK_ALERT_URL"),
        ("INTERLOCK_PAGERDUTY_SEVERITY", "INTERLOCK_PAGERDUTY_KEY"),
        ("INTERLOCK_PAGERDUTY_URL", "INTERLOCK_PAGERDUTY_KEY"),
    ],
)
def test_half_of_a_receiver_is_refused_without_showing_it(name: str, needed: str) -> None:
    with pytest.raises(BadUsage, match=f"{name} is set, and {needed} is not") as refused:
        receivers_in({name: "hush-hush"})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "environment",
    [
        {"INTERLOCK_PAGERDUTY_KEY": "not a key"},
        {"INTERLOCK_PAGERDUTY_KEY": KEY, "INTERLOCK_PAGERDUTY_SEVERITY": "fatal"},
        {"INTERLOCK_ALERT_URL": "alerts.example.com"},
        {"INTERLOCK_ALERT_URL": "https://example.com", "INTERLOCK_RUNBOOKS_URL": "wiki"},
    ],
)
def test_a_receiver_that_cannot_be_used_is_refused_at_the_start(environment: dict[str, str]) -> None:
    with pytest.raises(DefinitionError):
        receivers_in(environment)
