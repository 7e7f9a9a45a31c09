"""The stall detector: finds workflows that stay too long, give up or unwind too late, on a schedule (B7).

A workflow is stalled when it is active and longer in its state than the state's declared dwell; states without a dwell
are not checked. Each raises one alert per visit, each letter one, and each alert is resolved when it is over. Raised
alerts are stored, and one process at a time has the turn to look.

G6: at most `limit` stalled workflows and as many letters have an alert of their own, longest first; one more alert
stands for all others. Late undos raise one alert per machine, with a count bounded by the same limit. A failure here
never delays or ends an engine.
"""

import asyncio
import contextlib
import hashlib
import math
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from interlock.core.table import Node
from interlock.engine.alerts.alert import Alert, Debt, debt_alert, key, letter_alert, more_alert, stalled_alert
from interlock.engine.alerts.delivery import Alarms
from interlock.errors import DefinitionError, InterlockError
from interlock.redaction import logger_of
from interlock.store.protocol import Granted, Store
from interlock.store.records import Row

DEBT_S = 60.0
"""Seconds a workflow may be unwinding before it counts as late."""

STALLS_MAX = 100
"""Stalled workflows, and dead letters, that have an alert of their own at the same time."""

_COUNTED = 4
"""The detector reads this multiple of the limit to count the others; beyond that it says "at least"."""

_Single = Literal["stalled", "dead_letter"]
"""The kinds with one alert per workflow or letter."""

_LOG = logger_of("interlock.alerts")


QUIET_S_MAX = 4 * 3_600.0
"""The longest pause between looks in virtual time, where nothing is written and nothing can be late before."""

QUIET_REAL_S_MAX = 300.0
"""The longest pause on a real clock, which may be set; a suspended machine counts no time for its timers."""

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
        text = (await self._store.notes()).get(self._name, "{}")
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


# --- Detector --------------------------------------------------------------------------------------------------------


class Looked(msgspec.Struct, frozen=True):
    """The alerts that one look raised and resolved."""

    raised: tuple[Alert, ...]
    resolved: tuple[Alert, ...]


class _Found(msgspec.Struct):
    """The alerts that one look found of one kind, by key."""

    alerts: dict[str, Alert]
    visits: dict[str, tuple[str, int]]
    """The workflow and visit of each stalled alert."""
    whole: bool
    """Whether the store had no more than was read."""


class StallDetector:
    """Finds workflows that need a person and raises each once. Run it as a task, and cancel that to stop it.

    `machines` has the states of each machine, by name.
    """

    def __init__(
        self,
        store: Store,
        machines: Mapping[str, Mapping[str, Node]],
        alarms: Alarms,
        *,
        every_s: float = 30.0,
        limit: int = STALLS_MAX,
        debt_s: float = DEBT_S,
        quiet_s_max: float = QUIET_REAL_S_MAX,
    ) -> None:
        if not 0 < every_s < math.inf or limit < 1 or not 0 <= debt_s < math.inf:
            raise DefinitionError(
                f"The stall detector cannot look every {every_s!r} s for at most {limit!r} workflows, "
                f"and for undos that are {debt_s!r} s late.",
                why="It needs a time between two looks, and a bound on what it tells one by one.",
                fix="Give more than 0 seconds, a limit of 1 or more, and a debt_s of 0 (off) or more.",
                rule="bad-stall-check",
            )
        self._store = store
        self._machines = machines
        self._alarms = alarms
        self._every_s = every_s
        self._limit = limit
        self._debt_s = debt_s
        self._quiet_s_max = quiet_s_max
        receivers = [report.receiver for report in alarms.reports()]
        self._ledger = Ledger(store, machines, receivers)
        self._turn = Turn(store, machines, receivers, every_s)
        self._token: int | None = None
        """Token of the turn of the last look."""
        self._visits: dict[str, tuple[str, int]] = {}
        self._states: dict[str, tuple[str, str]] = {}
        """Machine and state of everything that the last look found late."""
        self.still = False
        """Whether nothing was written since the last look began; the engine calls `stir` when it writes."""
        self._waking: asyncio.Future[None] | None = None
        self._remember(OpenAlerts())

    async def run(self) -> None:
        """Look repeatedly until cancelled. A look that fails is logged, and the next one follows."""
        try:
            await self._look_on()
        finally:
            await self._turn.give_up()

    async def _look_on(self) -> None:
        pause_s = self._every_s
        while True:
            await asyncio.sleep(pause_s)
            pause_s, quiet_s = self._every_s, 0.0
            self.still, idle = not self._store.shared, self._alarms.idle
            try:
                looked = await self.look()
                if self.still and idle and not (looked.raised or looked.resolved):
                    quiet_s = await self._quiet_s(self._store.now_us())
            except Exception as error:  # noqa: BLE001 -- whatever the store raises, the engine and the next look go on.
                _LOG.warning(
                    "The look for stalled workflows failed (%s) and is tried again in %.1f s: %s",
                    type(error).__name__,
                    self._every_s,
                    error,
                )
            if quiet_s and self.still:
                pause_s -= await self._rest(quiet_s) % self._every_s
            self.still = False

    def stir(self) -> None:
        """Look again, because the engine has written something."""
        self.still = False
        if self._waking is not None and not self._waking.done():
            self._waking.set_result(None)

    async def _rest(self, limit_s: float) -> float:
        """Wait until the engine writes something, at most `limit_s`; return the seconds waited."""
        loop = asyncio.get_running_loop()
        self._waking = loop.create_future()
        begun_s, timer = loop.time(), loop.call_later(limit_s, self.stir)
        try:
            await self._waking
        finally:
            timer.cancel()
            self._waking = None
        return loop.time() - begun_s

    async def _quiet_s(self, now_us: int) -> float:
        """Return the seconds for which looks would find nothing if nothing is written; a multiple of the interval."""
        soonest_us = now_us + round(self._quiet_s_max * 1_000_000)
        for name, nodes in self._machines.items():
            # Of each state: the number of late workflows, which come first, and when the next one is late.
            waits = [
                (state, sum(each == (name, state) for each in self._states.values()), limit_s)
                for state, limit_s in _dwells(nodes).items()
            ]
            if self._debt_s > 0 and name not in self._debts:
                waits += [(node.name, 0, self._debt_s) for node in nodes.values() if node.unwinds_to is not None]
            for state, late, limit_s in waits:
                rows = await self._store.stalled(name, {state: now_us + 1}, limit=late + 1)
                if len(rows) > late:
                    soonest_us = min(soonest_us, rows[late].entered_us + round(limit_s * 1_000_000) + 1)
        looks = math.ceil((soonest_us - now_us) / 1_000_000 / self._every_s)
        return max(0, looks - 1) * self._every_s

    async def look(self) -> Looked:
        """Look once, send new and resolved alerts, and return both; nothing while another process has the turn."""
        if not await self._has_turn():
            return Looked((), ())
        now_us = self._store.now_us()
        late = await self._stalled(now_us)
        letters = await self._letters(now_us)
        over = await self._no_longer_stalled(late)
        debts = await self._late_undos(now_us)
        # No await below: a look sends all of its alerts or none.
        raised, resolved = self._update("stalled", late, over, now_us)
        others, settled = self._update(
            "dead_letter", letters, set(self._open_alerts["dead_letter"]) - set(letters.alerts), now_us
        )
        self._visits = {key: late.visits.get(key) or self._visits[key] for key in self._open_alerts["stalled"]}
        owing, paid = self._update_debts(debts, now_us)
        looked = Looked((*raised, *others, *owing), (*resolved, *settled, *paid))
        for alert in (*looked.resolved, *looked.raised):
            self._alarms.tell(alert)
        return looked

    async def _has_turn(self) -> bool:
        """Take the turn to look. A new turn loads the stored alerts; a turn that goes on saves them."""
        token = await self._turn.take()
        if token is None:
            self._token = None
        elif token != self._token:
            self._remember(await self._ledger.read())
            self._token = token
        elif self._alarms.idle:
            singles = (alert for alerts in self._open_alerts.values() for alert in alerts.values())
            await self._ledger.save((*singles, *self._more.values(), *self._debts.values()), self._visits)
        return token is not None

    def _remember(self, stored: OpenAlerts) -> None:
        """Replace the open alerts with the stored ones."""
        self._open_alerts: dict[_Single, dict[str, Alert]] = {"stalled": {}, "dead_letter": {}}
        self._more: dict[_Single, Alert] = {}
        self._debts: dict[str, Alert] = {}
        """The debt alert of each machine."""
        for alert in stored.alerts:
            if alert.kind == "compensation_debt":
                self._debts[alert.subject] = alert
            elif alert.kind == "stalled" or alert.kind == "dead_letter":  # noqa: PLR1714 -- type checkers follow this one.
                if alert.dedup_key == key(alert.kind, "more"):
                    self._more[alert.kind] = alert
                elif alert.kind == "dead_letter" or alert.dedup_key in stored.visits:
                    self._open_alerts[alert.kind][alert.dedup_key] = alert
        self._visits = {each: stored.visits[each] for each in self._open_alerts["stalled"]}

    async def _stalled(self, now_us: int) -> _Found:
        read = self._limit * _COUNTED
        found = _Found({}, {}, whole=True)
        self._states = {}
        for name, nodes in self._machines.items():
            dwells = _dwells(nodes)
            if not dwells:
                continue
            before_us = {state: now_us - round(dwell_s * 1_000_000) for state, dwell_s in dwells.items()}
            rows = await self._store.stalled(name, before_us, limit=read)
            found.whole = found.whole and len(rows) < read
            for row in rows:
                alert = stalled_alert(row, dwells[row.state], now_us)
                found.alerts[alert.dedup_key] = alert
                found.visits[alert.dedup_key] = (row.id, row.visit)
                self._states[alert.dedup_key] = (name, row.state)
        return found

    async def _letters(self, now_us: int) -> _Found:
        read = self._limit * _COUNTED
        letters = await self._store.letters(limit=read)
        alerts = (letter_alert(letter, now_us) for letter in letters)
        return _Found({alert.dedup_key: alert for alert in alerts}, {}, whole=len(letters) < read)

    async def _late_undos(self, now_us: int) -> list[Debt]:
        """Return each machine's workflows that have been unwinding for too long, if there are any (C9)."""
        read, before_us = self._limit * _COUNTED, now_us - round(self._debt_s * 1_000_000)
        late: dict[str, list[Row]] = {}
        for name, nodes in self._machines.items():
            unwinding = [node.name for node in nodes.values() if node.unwinds_to is not None]
            if unwinding and self._debt_s > 0:
                rows = await self._store.stalled(name, dict.fromkeys(unwinding, before_us), limit=read)
                late |= {name: rows} if rows else {}
        letters = await self._store.letters("undo", limit=read) if late else []
        waiting = {letter.workflow for letter in letters}
        return [
            Debt(
                name,
                len(rows),
                oldest=rows[0],
                dead=sum(row.id in waiting for row in rows),
                whole=len(rows) < read and len(letters) < read,
            )
            for name, rows in late.items()
        ]

    def _update_debts(self, debts: list[Debt], now_us: int) -> tuple[list[Alert], list[Alert]]:
        """Raise a debt when it begins and resolve it when it is over; its growth raises nothing."""
        paid = [self._debts.pop(name).over(now_us) for name in set(self._debts) - {debt.machine for debt in debts}]
        began = [debt_alert(debt, self._debt_s, now_us) for debt in debts if debt.machine not in self._debts]
        self._debts.update((alert.subject, alert) for alert in began)
        return began, sorted(paid, key=lambda alert: alert.subject)

    async def _no_longer_stalled(self, late: _Found) -> set[str]:
        """Return the keys of open alerts that are stalled no longer.

        When the store had more than was read, a missing one may only be crowded out by workflows that are late for
        longer. Then its row is loaded to find out.
        """
        missing = set(self._open_alerts["stalled"]) - set(late.alerts)
        if late.whole or not missing:
            return missing
        rows = await self._store.load([self._visits[key][0] for key in missing])
        return {
            key
            for key in missing
            if (row := rows.get(self._visits[key][0])) is None or row.visit != self._visits[key][1]
        }

    def _update(self, kind: _Single, found: _Found, over: set[str], now_us: int) -> tuple[list[Alert], list[Alert]]:
        """Update the open alerts with the found ones; return the alerts to raise and the resolved ones."""
        known = self._open_alerts[kind]
        resolved = [known.pop(key).over(now_us) for key in sorted(over)]
        new = [alert for key, alert in found.alerts.items() if key not in known]
        new.sort(key=lambda alert: (alert.since_us or 0, alert.dedup_key))
        room = max(0, self._limit - len(known))
        raised, beyond = new[:room], len(new) - len(new[:room])
        known.update((alert.dedup_key, alert) for alert in raised)
        if beyond and kind not in self._more:
            self._more[kind] = more_alert(kind, beyond, counted_all=found.whole, now_us=now_us)
            raised.append(self._more[kind])
        elif not beyond and kind in self._more:
            resolved.append(self._more.pop(kind).over(now_us))
        return raised, resolved


def _dwells(nodes: Mapping[str, Node]) -> dict[str, float]:
    """The seconds that a workflow may stay in each state that has a limit."""
    return {
        node.name: node.dwell_max_s
        for node in nodes.values()
        if node.active and node.dwell_max_s is not None and math.isfinite(node.dwell_max_s)
    }
