"""Mutants of the alerts: told twice, never over, told by all processes at once, or not as PagerDuty wants it."""

from tests.mutation.mutant import Mutant

ALERTS = "interlock/engine/alerts"
ALERT, LEDGER, RECEIVERS, STALLS = (
    f"{ALERTS}/alert.py",
    f"{ALERTS}/detector.py",
    f"{ALERTS}/receivers.py",
    "interlock/engine/alerts/detector.py",
)

OUTBOX = f"{ALERTS}/delivery.py"

UNIT = "tests/unit/engine"
BOOK = (f"{UNIT}/alerts/test_ledger.py",)
LOOKS = (f"{UNIT}/alerts/test_detector.py", f"{UNIT}/alerts/test_late_undos.py")
BODIES = (f"{UNIT}/alerts/test_pagerduty.py", f"{UNIT}/alerts/test_alert.py")

KEEPING = ("tests/integration/alerts/test_keeping.py",)

ALERTING = [
    Mutant(
        "alert not kept for a receiver that is away",
        OUTBOX,
        "                    if not taken and self._requeue(due):\n",
        "                    if not taken and due.tried < 0:\n",
        "B7: a receiver is often out of reach for as long as what the alert is about.",
        KEEPING,
    ),
    Mutant(
        "beginning overtakes its end",
        OUTBOX,
        "        if newer or not self._may_keep(due)",
        "        if not self._may_keep(due)",
        "B7: an incident would stay open for ever.",
        KEEPING,
    ),
    Mutant(
        "alert told at every look",
        STALLS,
        "new = [alert for key, alert in found.alerts.items() if key not in known]",
        "new = list(found.alerts.values())",
        "B7: once.",
        LOOKS,
    ),
    Mutant(
        "debt told at every look",
        STALLS,
        "for debt in debts if debt.machine not in self._debts]",
        "for debt in debts]",
        "B7, C9: once per machine.",
        LOOKS,
    ),
    Mutant(
        "debt never over",
        STALLS,
        "for name in set(self._debts) - {debt.machine for debt in debts}]",
        "for name in set(self._debts) - set(self._debts)]",
        "B7, C9: over when no workflow is late.",
        LOOKS,
    ),
    Mutant(
        "every process looks",
        LEDGER,
        "        if not self._store.shared:\n",
        "        if self._store is not None:\n",
        "B7: of several processes one tells.",
        BOOK,
    ),
    Mutant(
        "turn kept at the end",
        STALLS,
        "        finally:\n            await self._turn.give_up()\n",
        "        finally:\n            pass\n",
        "B7: the next process need not wait for the turn.",
        BOOK,
    ),
    Mutant(
        "told forgotten by the next process",
        STALLS,
        "            self._remember(await self._ledger.read())\n",
        "            self._remember(Told())\n",
        "B7: what ended meanwhile is told as over.",
        BOOK,
    ),
    Mutant(
        "noted before it has arrived",
        STALLS,
        "        elif self._alarms.idle:\n",
        "        else:\n",
        "B7: an alert that was on its way in a crash is told again.",
        BOOK,
    ),
    Mutant(
        "receivers share what was told",
        LEDGER,
        "[sorted(machines), sorted(receivers)]",
        "[sorted(machines)]",
        "B7: a receiver that is new is told what is wrong.",
        BOOK,
    ),
    Mutant(
        "end told by another key",
        RECEIVERS,
        '            "dedup_key": alert.dedup_key[:KEY_CHARACTERS_MAX],\n',
        '            "dedup_key": alert.dedup_key[:KEY_CHARACTERS_MAX - alert.resolved * 250],\n',
        "B7: an incident is closed by the key that opened it.",
        BODIES,
    ),
    Mutant(
        "dead letter without a runbook",
        ALERT,
        '    "dead_letter": "interlockdeadletters",\n',
        "",
        "B7: every alert leads to what to do.",
        BODIES,
    ),
]
