"""The receivers declared in the environment, for `interlock serve` and `interlock worker`.

A routing key and a secret are not command-line options, where every user of the machine could read them. An invalid
value is refused when the program starts, not when the first alert is due.
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
"""Variables that require another one."""


def receivers_in(environment: Mapping[str, str]) -> list[Receiver]:
    """Return the declared receivers. Raises DefinitionError for an invalid one, BadUsage for an incomplete one."""
    values = {name: value for name, value in environment.items() if value}
    for name, needed in NEEDED.items():
        if name in values and needed not in values:
            raise BadUsage(
                f"{name} is set, and {needed} is not.",
                why="It is part of a receiver of alerts, which the other one names: no receiver would get alerts.",
                fix=f"Set {needed} too, or unset {name}.",
            )
    runbooks = values.get(RUNBOOKS_URL)
    found: list[Receiver] = []
    if ALERT_URL in values:
        found.append(AlertWebhook(values[ALERT_URL], secret=values.get(ALERT_SECRET), runbooks=runbooks))
    if PAGERDUTY_KEY in values:
        found.append(
            PagerDuty(
                values[PAGERDUTY_KEY],
                url=values.get(PAGERDUTY_URL, ENQUEUE),
                severity=cast("Severity", values.get(PAGERDUTY_SEVERITY, "error")),
                runbooks=runbooks,
            )
        )
    return found
