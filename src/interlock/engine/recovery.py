"""Recovery of what the last process left owed (B6), and the three policies of timers (B9).

An attempt that was under way when the process died may have had an effect: it is tried again with the same key, and
counts. From the second attempt on it waits for its backoff: a step that kills the process must not do so as fast as it
restarts. Timers go on by their policy: "deadline" keeps the moment, "restart" begins anew, "remaining" goes on with the
time left. For the last, one mark in the store says when the engine was last alive; the time since then does not count.
The mark is written at a clean stop and every few seconds. After a crash its last value counts, and it is one small
write for all timers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from interlock.clock import Chance
from interlock.engine.bound_machine import BoundMachine, TimerRun, decode_owed
from interlock.engine.check_definitions import owing_before
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.path.commit_pipeline import CommitPipeline
from interlock.engine.path.engine_commands import CRASHED, Crashed, EffectFailed, Report, WriteRow, crash_of
from interlock.engine.path.staged_group import Group, Staged
from interlock.engine.steps.runner import Runner
from interlock.errors import MachineMismatch, UnavailableError
from interlock.faultpoints import reach
from interlock.redaction import logger_of
from interlock.store.lane_store import HELD, HELD_AT_BUCKET_US
from interlock.store.protocol import Store
from interlock.store.records import OwedEffect, Row

ALIVE = "alive_us"
"""Name of the note with the time when an engine last ran on this store."""

PAGE = 1_000

log = logger_of("interlock.steps")


def held_s(notes: dict[str, str], now_us: int) -> float:
    """Return the seconds before anything may begin: the previous owner may not yet know that the workflows moved."""
    return max(0, min(int(notes.get(HELD, "0")) - now_us, HELD_AT_BUCKET_US)) / 1_000_000


@dataclass(slots=True, eq=False, repr=False)
class Rearm(Report):
    """Recompute timers whose policy does not count the time without an engine."""

    alive_us: int

    def apply(self, staged: Staged, group: Group) -> object:
        """Recompute the times of the workflow's timers."""
        owed = staged.live.owed
        timers = tuple(_rearm(timer, self.alive_us, group.now_us) for timer in owed.timers)
        staged.owe(msgspec.structs.replace(owed, timers=timers), group.now_us)
        return None


def _rearm(timer: TimerRun, alive_us: int, now_us: int) -> TimerRun:
    if timer.policy == "deadline":
        return timer
    absent_us = now_us - max(alive_us, timer.set_us)
    at_us = now_us + timer.after_us if timer.policy == "restart" else timer.at_us + max(0, absent_us)
    return msgspec.structs.replace(timer, at_us=at_us, set_us=now_us)


class Recovery:
    """Takes up everything that is owed, page by page."""

    def __init__(
        self,
        store: Store,
        machines: dict[str, BoundMachine],
        pipeline: CommitPipeline,
        runner: Runner,
        settings: EngineSettings,
        chance: Chance,
    ) -> None:
        self._store = store
        self._machines = machines
        self._pipeline = pipeline
        self._runner = runner
        self._undo_attempts = settings.undo_attempts
        self._chance = chance

    async def run(self, alive_us: int, notes: dict[str, str]) -> int:
        """Take up everything; return the number of workflows and effects that were owed something.

        Slots and timers are closed meanwhile: new work must not be mistaken for work of the last process.
        """
        taken = 0
        await self.rename()
        for bound in self._machines.values():
            before = owing_before(bound, notes)
            for state, node in bound.stored.items():
                if node.step is not None or node.timers or node.unwinds_to is not None or state in before:
                    taken += await self._state(bound.name, state, alive_us)
        taken += await self._effects()
        reach("recovery.done")
        return taken

    async def rename(self) -> None:
        """Store workflows under the current names of their states, so that they are found by them."""
        for bound in self._machines.values():
            await self._rename(bound)

    async def rearm(self, machine: str, alive_us: int) -> None:
        """Recompute only the machine's timers that do not count the time without an engine."""
        for state, node in self._machines[machine].stored.items():
            cursor = None
            while any(timer.policy != "deadline" for timer in node.timers):
                found = await self._store.find(machine, state, after=cursor, limit=PAGE)
                await self._take([Rearm(row.id, alive_us) for row in found.rows if row.owed])
                cursor = found.cursor
                if cursor is None:
                    break

    async def _rename(self, bound: BoundMachine) -> None:
        for old in bound.table.declared.renamed:
            if old == bound.stored[old].name:
                continue
            while rows := (await self._store.find(bound.name, old, after=None, limit=PAGE)).rows:
                if await self._take([WriteRow(row.id) for row in rows]):
                    break  # Unreadable workflows cannot be renamed; the log names them.

    async def _state(self, machine: str, state: str, alive_us: int) -> int:
        taken, cursor = 0, None
        while True:
            found = await self._store.find(machine, state, after=cursor, limit=PAGE)
            reports = [report for row in found.rows if row.owed for report in self._take_up(row, alive_us)]
            reach("recovery.taken")
            await self._take(reports)
            reach("recovery.rearmed")
            taken, cursor = taken + len(found.rows), found.cursor
            if cursor is None:
                return taken

    async def _take(self, reports: Sequence[Report]) -> int:
        """Submit the reports, and skip unreadable workflows; return the number skipped."""
        answers = await asyncio.gather(*map(self._pipeline.admit, reports), return_exceptions=True)
        broken = 0
        for report, answer in zip(reports, answers, strict=True):
            if isinstance(answer, UnavailableError) and not isinstance(answer, MachineMismatch):
                raise answer
            if isinstance(answer, BaseException):
                broken += 1
                log.error("workflow %r cannot be taken up, and is left as it is: %s", report.workflow, answer)
        return broken

    def _take_up(self, row: Row, alive_us: int) -> list[Report]:
        owed = decode_owed(row.owed)
        current = owed.current
        reports: list[Report] = []
        if any(timer.policy != "deadline" for timer in owed.timers):
            reports.append(Rearm(row.id, alive_us))
        if current is not None and current.started:
            reports.append(Crashed(row.id, self._undo_attempts, self._chance.fraction()))
        if not reports or not isinstance(reports[-1], Crashed):
            self._runner.resume(self._machines[row.machine], row, owed)
        elif owed.timers:
            self._runner.arm(row.id, owed)
        return reports

    async def _effects(self) -> int:
        taken: set[str] = set()
        after = None
        while effects := await self._store.effects(after=after, limit=PAGE):
            rows = await self._store.load(list({effect.workflow: None for effect in effects}))
            for effect in effects:
                if effect.workflow in rows and effect.id not in taken:
                    taken.add(effect.id)
                    self._owe(rows[effect.workflow].machine, effect)
            after = effects[-1]
        return len(taken)

    def _owe(self, machine: str, effect: OwedEffect) -> None:
        bound = self._machines.get(machine)
        declared = None if bound is None else bound.effects.get(effect.name)
        if declared is not None and effect.attempts >= declared.retry.attempts:
            # The last attempt was under way when the process died.
            self._pipeline.add(EffectFailed(effect, CRASHED, attempts_max=declared.retry.attempts))
        elif bound is not None:
            if effect.attempts:
                self._pipeline.means.recovered.add(effect.id)
            if declared is not None and effect.attempts > 1:
                # A crash may have ended its last attempt. If it failed, its time may have come since: wait a little.
                delay_s = crash_of(effect.attempts, declared.retry, self._chance.fraction()).delay_s
                wake_us = max(effect.wake_us, self._store.now_us() + int(delay_s * 1_000_000))
                effect = msgspec.structs.replace(effect, wake_us=wake_us)
            self._runner.owe_effect(effect)
