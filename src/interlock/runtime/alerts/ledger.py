"""What was told and is not over, kept in the store; and which of several processes is the one that looks (B7).

A process that ends, or loses its turn, leaves open alerts behind. Whoever looks next reads them here: it tells those as
over that ended meanwhile, and does not tell the others again. They are written down one look after they were told, and
only when no receiver has anything waiting: an alert that a crash has kept from its receiver is told once more, with the
same key, rather than never.

The note is named after the machines and the receivers. Whoever looks after other machines has a note and a turn of its
own, and a receiver that is new is told everything that is still wrong.
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
"""A turn lasts as long as so many looks: one that is late or fails does not lose it."""

TURN_S_MIN = 5.0

SUMMARY_CHARACTERS_MAX = 200
"""Of a summary as it is kept: enough to know it again when it is over."""

ALONE = 0
"""The token of a turn where nobody else can look."""


class Told(msgspec.Struct):
    """What was told and is not over."""

    alerts: list[Alert] = []
    visits: dict[str, tuple[str, int]] = {}
    """Of stalled workflows, by their keys: which visit of which workflow it is."""


class Ledger:
    """The alerts of one detector that are not over, as the store has them."""

    def __init__(self, store: Store, machines: Iterable[str], receivers: Iterable[str]) -> None:
        self._store = store
        self._name = NOTE + digest(machines, receivers)
        self._saved: bytes | None = None

    async def read(self) -> Told:
        """What was told before; a note that cannot be read is as good as none."""
        text = (await self._store.noted()).get(self._name, "{}")
        self._saved = text.encode()
        try:
            return msgspec.json.decode(text, type=Told)
        except msgspec.DecodeError:
            return Told()

    async def save(self, alerts: Iterable[Alert], visits: Mapping[str, tuple[str, int]]) -> None:
        """Keep what is told at this moment, if that has changed. A store that cannot take it is asked again later."""
        told = Told(sorted(map(_short, alerts), key=lambda alert: alert.dedup_key), dict(sorted(visits.items())))
        text = msgspec.json.encode(told) if told.alerts else b"{}"
        if text != self._saved:
            with contextlib.suppress(InterlockError):
                await self._store.note(self._name, text.decode())
                self._saved = text


class Turn:
    """Whose turn it is to look, where several processes share a store: one lease, asked for at every look."""

    def __init__(self, store: Store, machines: Iterable[str], receivers: Iterable[str], every_s: float) -> None:
        self._store = store
        self._name = TURN + digest(machines, receivers)
        self._owner = f"{socket.gethostname()}:{os.getpid()}/{id(self):x}"
        self._lease_s = max(TURN_S_MIN, TURN_LOOKS * every_s)
        self._token: int | None = None

    async def take(self) -> int | None:
        """The token of this turn, which is another after it was lost; None when somebody else has it."""
        if not self._store.shared:
            return ALONE
        answer = await self._store.leases.acquire(self._name, self._owner, self._lease_s)
        self._token = answer.token if isinstance(answer, Granted) else None
        return self._token

    async def give_up(self) -> None:
        """Leave it to the next one at once; when that fails it ends by itself."""
        token, self._token = self._token, None
        if token is not None:
            with contextlib.suppress(InterlockError):
                await self._store.leases.release(self._name, token)


def digest(machines: Iterable[str], receivers: Iterable[str]) -> str:
    """A short name for who looks after what, and tells whom."""
    whole = msgspec.json.encode([sorted(machines), sorted(receivers)])
    return hashlib.sha256(whole).hexdigest()[:16]


def _short(alert: Alert) -> Alert:
    """As much of an alert as is needed to say that it is over."""
    return msgspec.structs.replace(alert, summary=alert.summary[:SUMMARY_CHARACTERS_MAX], advice="", details={})
