"""Alerts: notify people, and the systems that wake people up, that something needs them (B7).

`Alarms` fans an alert out to observers, to the log and to receivers; `AlertWebhook` and `PagerDuty` are receivers.
`interlock.engine.alerts.detector` decides what raises an alert.
"""

from interlock.engine.alerts.alert import (
    Alert,
    AlertKind,
    Debt,
    breaker_alert,
    debt_alert,
    letter_alert,
    more_alert,
    stalled_alert,
)
from interlock.engine.alerts.delivery import Alarms, AlertSettings, ReceiverReport
from interlock.engine.alerts.receivers import AlertWebhook, PagerDuty, Post, Receiver, Severity, receivers_in

__all__ = [
    "Alarms",
    "Alert",
    "AlertKind",
    "AlertSettings",
    "AlertWebhook",
    "Debt",
    "PagerDuty",
    "Post",
    "Receiver",
    "ReceiverReport",
    "Severity",
    "breaker_alert",
    "debt_alert",
    "letter_alert",
    "more_alert",
    "receivers_in",
    "stalled_alert",
]
