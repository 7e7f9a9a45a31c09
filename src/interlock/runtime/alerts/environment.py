"""The receivers that an operator names in the environment: for `interlock serve` and `interlock worker`.

A routing key and a secret are no options of a command line, where every user of the machine could read them. What is
set and cannot be used is refused when the program starts, not when the first alert is due.
"""

from collections.abc import Mapping
from typing import cast

from interlock.errors import BadUsage
from interlock.runtime.alerts.receivers import ENQUEUE, AlertWebhook, PagerDuty, Receiver, Severity

PAGERDUTY_KEY = "INTERLOCK_PAGERDUTY_KEY"
PAGERDUTY_URL = "INTERLOCK_PAGERDUTY_URL"
PAGERDUTY_SEVERITY = "INTERLOCK_PAGERDUTY_SEVERITY"
ALERT_URL = "INTERLOCK_ALERT_URL"
ALERT_SECRET = "INTERLOCK_ALERT_SECRET"  # noqa: S105 -- the name of a variable.
RUNBOOKS_URL = "INTERLOCK_RUNBOOKS_URL"

NEEDED = {PAGERDUTY_URL: PAGERDUTY_KEY, PAGERDUTY_SEVERITY: PAGERDUTY_KEY, ALERT_SECRET: ALERT_URL}
"""What means nothing without another."""


def receivers_in(environment: Mapping[str, str]) -> list[Receiver]:
    """The receivers named there. Raises DefinitionError for one that cannot be used, BadUsage for half of one."""
    said = {name: value for name, value in environment.items() if value}
    for name, needed in NEEDED.items():
        if name in said and needed not in said:
            raise BadUsage(
                f"{name} is set, and {needed} is not.",
                why="It is part of a receiver of alerts, which is named by the other one: nobody would be told.",
                fix=f"Set {needed} too, or unset {name}.",
            )
    runbooks = said.get(RUNBOOKS_URL)
    found: list[Receiver] = []
    if ALERT_URL in said:
        found.append(AlertWebhook(said[ALERT_URL], secret=said.get(ALERT_SECRET), runbooks=runbooks))
    if PAGERDUTY_KEY in said:
        found.append(
            PagerDuty(
                said[PAGERDUTY_KEY],
                url=said.get(PAGERDUTY_URL, ENQUEUE),
                severity=cast("Severity", said.get(PAGERDUTY_SEVERITY, "error")),
                runbooks=runbooks,
            )
        )
    return found
