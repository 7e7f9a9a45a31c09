"""The fan-out of alerts: to the observers of the engine, to the log, and to every receiver.

Sending never waits and never raises, because it happens on the engine's own loop. `Subscribers` guards the observers,
the log is the standard one (`interlock.alerts`: a warning when an alert begins, a note when it is over), and receivers
only queue the alert in their outbox.
"""

import asyncio
from collections.abc import Callable, Sequence

from interlock.redaction import logger_of
from interlock.runtime.alerts.alert import Alert
from interlock.runtime.alerts.outbox import AlertSettings, Outbox, ReceiverReport
from interlock.runtime.alerts.receivers import Receiver
from interlock.seams import Chance, Clock, SystemChance, SystemClock
from interlock.signals import AlertRaised, Subscribers

_LOG = logger_of("interlock.alerts")


class Alarms:
    """Sends alerts. `wait` replaces the wait between attempts, in tests."""

    def __init__(
        self,
        subscribers: Subscribers,
        receivers: Sequence[Receiver] = (),
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        settings: AlertSettings | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._subscribers = subscribers
        self._settings = settings or AlertSettings()
        clock, chance = clock or SystemClock(), chance or SystemChance()
        self._outboxes = [
            Outbox(receiver, clock=clock, chance=chance, settings=self._settings, wait=wait) for receiver in receivers
        ]

    def tell(self, alert: Alert) -> None:
        """Send the alert to the log, the observers and the receivers."""
        fields = {
            "alert": alert.kind,
            "workflow": alert.subject if alert.kind in {"stalled", "dead_letter"} else None,
            "machine": alert.machine,
            "state": alert.state,
            "dedup_key": alert.dedup_key,
            "resolved": alert.resolved,
        }
        if alert.resolved:
            _LOG.info("%s", alert.summary, extra=fields)
        else:
            end = "" if alert.summary.endswith((".", "…")) else "."
            _LOG.warning("%s%s What to do: %s", alert.summary, end, alert.advice, extra=fields)
        self._subscribers.emit(
            AlertRaised(
                alert.kind,
                alert.subject,
                alert.summary,
                machine=alert.machine,
                state=alert.state,
                resolved=alert.resolved,
            )
        )
        for outbox in self._outboxes:
            outbox.put(alert)

    @property
    def idle(self) -> bool:
        """Whether no receiver has anything waiting: every alert has arrived, or was given up."""
        return all(report.waiting == 0 for report in self.reports())

    def reports(self) -> list[ReceiverReport]:
        """Return the counts of each receiver, in the order they were declared."""
        return [outbox.report() for outbox in self._outboxes]

    async def close(self) -> None:
        """Send waiting alerts, for at most `close_s`; the rest is counted in the log and dropped."""
        ended = [asyncio.wrap_future(outbox.close()) for outbox in self._outboxes]
        if not ended:
            return
        try:
            await asyncio.wait(ended, timeout=self._settings.close_s)
        finally:
            for outbox, future in zip(self._outboxes, ended, strict=True):
                if not future.done():
                    future.cancel()
                    left = outbox.abandon()
                    _LOG.error(
                        "%s did not take its last alerts in %g s (close_s): %d are dropped.",
                        outbox.report().receiver,
                        self._settings.close_s,
                        left,
                    )
