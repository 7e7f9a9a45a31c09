"""Open alerts in the store, and the turn to look for new ones among several processes (B7).

A process that ends, or loses its turn, leaves open alerts. The next process to look reads them here: it resolves those
that ended meanwhile, and does not send the others again. A look saves the alerts of the look before, and only when no
receiver has anything waiting. An alert that a crash kept from its receiver is therefore sent again, with the same key,
rather than never.

The note is named after the machines and the receivers. A process with other machines has its own note and turn, and a
new receiver gets every alert that is still open.
"""

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterable, Mapping

import msgspec

from interlock.errors import InterlockError
from interlock.runtime.alerts.alert import Alert
from interlock.store.leases import Granted
from interlock.store.protocol import Store

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
