"""The alerts of an engine: their fan-out to observers, log and receivers, and the open ones in the store.

Sending never waits and never raises, because it happens on the engine's own loop. `Subscribers` guards the observers,
the log is the standard one (`interlock.alerts`: a warning when an alert begins, a note when it is over), and receivers
only queue the alert in their outbox. Among several processes, one at a time has the turn to look for new alerts.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from interlock.clock import Chance, Clock, SystemChance, SystemClock
from interlock.engine.alerts.alert import Alert
from interlock.engine.alerts.delivery import AlertSettings, Outbox, ReceiverReport
from interlock.engine.alerts.receivers import Receiver
from interlock.errors import InterlockError
from interlock.redaction import logger_of
from interlock.signals import AlertRaised, Subscribers
from interlock.store.protocol import Granted, Store

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


# --- Open alerts and turns (B7) --------------------------------------------------------------------------------------
# A process that ends, or loses its turn, leaves open alerts. The next process to look reads them here: it resolves
# those that ended meanwhile, and does not send the others again. A look saves the alerts of the look before, and
# only when no receiver has anything waiting. An alert that a crash kept from its receiver is therefore sent again,
# with the same key, rather than never.
#
# The note is named after the machines and the receivers. A process with other machines has its own note and turn,
# and a new receiver gets every alert that is still open.

NOTE = "alerts:told:"
TURN = "interlock.alerts:"

TURN_LOOKS = 3
"""A turn lasts as long as this number of looks: one that is late or fails does not lose it."""

TURN_S_MIN = 5.0

SUMMARY_CHARACTERS_MAX = 200
"""Characters kept of a summary: enough to recognise it when it is resolved."""

ALONE = 0
"""The token of a turn on a store of one process."""


class OpenAlerts(msgspec.Struct):
    """Open alerts: sent and not resolved."""

    alerts: list[Alert] = []
    visits: dict[str, tuple[str, int]] = {}
    """The workflow and visit of each stalled alert, by its key."""


class Ledger:
    """The open alerts of one detector in the store."""

    def __init__(self, store: Store, machines: Iterable[str], receivers: Iterable[str]) -> None:
        self._store = store
        self._name = NOTE + digest(machines, receivers)
        self._saved: bytes | None = None

    async def read(self) -> OpenAlerts:
        """Return the stored alerts; an unreadable note counts as empty."""
        text = (await self._store.noted()).get(self._name, "{}")
        self._saved = text.encode()
        try:
            return msgspec.json.decode(text, type=OpenAlerts)
        except msgspec.DecodeError:
            return OpenAlerts()

    async def save(self, alerts: Iterable[Alert], visits: Mapping[str, tuple[str, int]]) -> None:
        """Store the open alerts if they have changed. A failed write is tried again at the next look."""
        note = OpenAlerts(sorted(map(_short, alerts), key=lambda alert: alert.dedup_key), dict(sorted(visits.items())))
        text = msgspec.json.encode(note) if note.alerts else b"{}"
        if text != self._saved:
            with contextlib.suppress(InterlockError):
                await self._store.note(self._name, text.decode())
                self._saved = text


class Turn:
    """The turn to look, where several processes share a store: one lease, asked for at every look."""

    def __init__(self, store: Store, machines: Iterable[str], receivers: Iterable[str], every_s: float) -> None:
        self._store = store
        self._name = TURN + digest(machines, receivers)
        self._owner = f"{socket.gethostname()}:{os.getpid()}/{id(self):x}"
        self._lease_s = max(TURN_S_MIN, TURN_LOOKS * every_s)
        self._token: int | None = None

    async def take(self) -> int | None:
        """Acquire or renew the turn; return its token, None when another process has it.

        A turn that was lost and acquired again has another token.
        """
        if not self._store.shared:
            return ALONE
        answer = await self._store.leases.acquire(self._name, self._owner, self._lease_s)
        self._token = answer.token if isinstance(answer, Granted) else None
        return self._token

    async def give_up(self) -> None:
        """Release the turn immediately; if that fails, it expires."""
        token, self._token = self._token, None
        if token is not None:
            with contextlib.suppress(InterlockError):
                await self._store.leases.release(self._name, token)


def digest(machines: Iterable[str], receivers: Iterable[str]) -> str:
    """Return a digest of the machines and receivers, for names."""
    whole = msgspec.json.encode([sorted(machines), sorted(receivers)])
    return hashlib.sha256(whole).hexdigest()[:16]


def _short(alert: Alert) -> Alert:
    """Shorten an alert to what its resolution needs."""
    return msgspec.structs.replace(alert, summary=alert.summary[:SUMMARY_CHARACTERS_MAX], advice="", details={})
