"""Taking up what the last life of a store has left owed (B6), and the three policies of timers (B9).

An attempt that was under way when the process died may have happened: it is tried again with the same key, and counts.
From the second attempt on it waits for its backoff: what kills the process must not do so as fast as it restarts.
What was waiting for its time waits on, by the policy of its timer: "deadline" keeps the moment, "restart" begins anew,
"remaining" goes on with what was left. For the last, one mark in the store says when the engine was last alive; what
has passed since then does not count. The mark is written at a clean stop and every few seconds, so that after a crash
the last saved value counts, and it is one small write however many timers run.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from interlock.errors import MachineMismatch, UnavailableError
from interlock.redaction import logger_of
from interlock.runtime.bound import Bound
from interlock.runtime.definitions import owing_before
from interlock.runtime.effects import EffectFailed
from interlock.runtime.owed import TimerRun, decode_owed
from interlock.runtime.pipeline import Group, Pipeline
from interlock.runtime.points import reach
from interlock.runtime.reports import CRASHED, Crashed, Report, crash_of
from interlock.runtime.runner import Runner
from interlock.seams import Chance
from interlock.store.holding import HELD, HELD_US
from interlock.store.protocol import Store
from interlock.store.values import OwedEffect, Row

ALIVE = "alive_us"
"""The note that says when an engine last looked after this store."""

PAGE = 1_000

log = logger_of("interlock.steps")


def held_s(noted: dict[str, str], now_us: int) -> float:
    """For how long nothing may be begun yet: others who had the workflows may not know that they moved here."""
    return max(0, min(int(noted.get(HELD, "0")) - now_us, HELD_US)) / 1_000_000


class Rearm(Report):
    """Timers whose policy says that the time while nobody was there does not count."""

    __slots__ = ("alive_us",)

    def __init__(self, workflow: str, alive_us: int) -> None:
        super().__init__(workflow)
        self.alive_us = alive_us

    def decide(self, group: Group) -> object:
        """Reckon their time anew."""
        staged = group.stage(self.workflow)
        if staged is not None:
            owed = staged.live.owed
            timers = tuple(_rearmed(timer, self.alive_us, group.now_us) for timer in owed.timers)
            staged.owe(msgspec.structs.replace(owed, timers=timers), group.now_us)
        return None


def _rearmed(timer: TimerRun, alive_us: int, now_us: int) -> TimerRun:
    if timer.policy == "deadline":
        return timer
    gone_us = now_us - max(alive_us, timer.set_us)
    at_us = now_us + timer.after_us if timer.policy == "restart" else timer.at_us + max(0, gone_us)
    return msgspec.structs.replace(timer, at_us=at_us, set_us=now_us)


class Rename(Report):
    """A workflow is stored under a name that its state had before."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Write the row as it was read: with the name of now."""
        staged = group.stage(self.workflow)
        if staged is not None:
            staged.touch()
        return None


class Recovery:
    """Brings everything that is owed back to life, page by page."""

    def __init__(
        self,
        store: Store,
        machines: dict[str, Bound],
        pipeline: Pipeline,
        runner: Runner,
        *,
        undo_attempts: int,
        chance: Chance,
    ) -> None:
        self._store = store
        self._machines = machines
        self._pipeline = pipeline
        self._runner = runner
        self._undo_attempts = undo_attempts
        self._chance = chance

    async def run(self, alive_us: int, noted: dict[str, str]) -> int:
        """Take up everything; returns how many workflows and effects were owed something.

        Slots and wakes are closed meanwhile: what this life begins must not be taken for what the last one left.
        """
        taken = 0
        await self.rename()
        for bound in self._machines.values():
            before = owing_before(bound, noted)
            for state, node in bound.stored.items():
                if node.step is not None or node.timers or node.unwinds_to is not None or state in before:
                    taken += await self._state(bound.name, state, alive_us)
        taken += await self._effects()
        reach("recovery.done")
        return taken

    async def rename(self) -> None:
        """Store workflows under the names that their states have now, so that they are found by them."""
        for bound in self._machines.values():
            await self._rename(bound)

    async def rearm(self, machine: str, alive_us: int) -> None:
        """Only the timers of a machine that do not count the time while nobody was there."""
        for state, node in self._machines[machine].stored.items():
            cursor = None
            while any(timer.policy != "deadline" for timer in node.timers):
                found = await self._store.find(machine, state, after=cursor, limit=PAGE)
                await self._take([Rearm(row.id, alive_us) for row in found.rows if row.owed])
                cursor = found.cursor
                if cursor is None:
                    break

    async def _rename(self, bound: Bound) -> None:
        for old in bound.table.declared.renamed:
            if old == bound.stored[old].name:
                continue
            while rows := (await self._store.find(bound.name, old, after=None, limit=PAGE)).rows:
                if await self._take([Rename(row.id) for row in rows]):
                    break  # What cannot be read cannot be renamed; the log says which.

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
        """Bring the reports, and leave out workflows that cannot be read; returns how many those are."""
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
                # A crash may have ended its last attempt. If it failed, its time may have come since: a little later.
                delay_s = crash_of(effect.attempts, declared.retry, self._chance.fraction()).delay_s
                wake_us = max(effect.wake_us, self._store.now_us() + int(delay_s * 1_000_000))
                effect = msgspec.structs.replace(effect, wake_us=wake_us)
            self._runner.owe_effect(effect)
