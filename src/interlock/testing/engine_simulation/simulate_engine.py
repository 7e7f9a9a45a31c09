"""The driver of the engine simulation: clients send, gateway and store fail, the process is killed and restarted.

The driver runs outside of virtual time. All tasks inside belong to the current life: a kill ends them together, and
the driver opens the next life on the same store. After the schedule the faults stop, pending work must complete, and
everything is checked.
"""

# pyright: reportUnknownMemberType=false

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from interlock.clock import SeededIds
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.engine import Engine
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.internals import EngineParts
from interlock.engine.views import Moved, Rewind, View
from interlock.errors import InterlockError, OutcomeUnknown, UnavailableError
from interlock.store.memory import MemoryStore
from interlock.store.protocol import Store
from interlock.store.records import Change, Row
from interlock.testing.campaigns import Campaign, Luck, Simulated, Watcher, run_seeds
from interlock.testing.engine_simulation.guarantees import (
    Lived,
    Op,
    Story,
    check,
    check_answer,
    check_counts,
    check_flat,
)
from interlock.testing.engine_simulation.sample_machines import (
    MACHINES,
    Again,
    Ask,
    Cancel,
    Charged,
    FaultyService,
    Fix,
    Note,
    Parcel,
    Pause,
    Purchase,
    Renew,
    Stop,
    Submit,
    Ticks,
    outside,
    parcel,
)
from interlock.testing.stepped_lane import tables
from interlock.testing.virtual_time import Life, VirtualClock, VirtualLoop, never, open_on, pending

# --- Store with faults -----------------------------------------------------------------------------------------------
# A commit may be refused, may end with an unknown outcome (made or lost), or may kill the process before or after it
# became durable. A share of the seeds runs on tables instead of dictionaries (`tables`).

COMMIT_FAULTS = (
    "commit refused",
    "commit refused",
    "commit unknown, made",
    "commit unknown, lost",
    "killed before the commit",
    "killed after the commit",
)


class FaultyLife(Life):
    """A store with faulty commits."""

    def __init__(
        self,
        store: Store,
        loop: VirtualLoop,
        luck: Luck,
        *,
        faults: float,
        applied: Callable[[Sequence[Change]], None],
        fault: Callable[[str], None],
    ) -> None:
        super().__init__(store, loop, keep=True)
        self.faults = faults
        self._luck = luck
        self._applied = applied
        self._fault = fault

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Load from the store, or raise an injected fault."""
        if self._luck.often(self.faults / 4):
            self._fault("read refused")
            raise UnavailableError("the store does not answer.")
        return await super().load(ids)

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Commit to the store, with an injected fault."""
        if self.dead:
            await never()
        luck = self._luck
        fault = luck.one(COMMIT_FAULTS) if luck.often(self.faults) else ""
        if fault:
            self._fault(fault)
        delay_s = luck.one((0.0, 0.0, 0.0, 0.005, 0.05))
        if delay_s:
            await asyncio.sleep(delay_s)
        if fault == "commit refused":
            raise UnavailableError("the store refuses the commit.")
        if fault == "killed before the commit":
            self.end()
        if self.dead:
            await never()
        lost: list[str] = []
        if fault != "commit unknown, lost":
            lost = await self.store.commit(changes)
            self._applied([change for change in changes if change.row.id not in lost])
        if fault.startswith("commit unknown"):
            raise OutcomeUnknown("it is unknown whether the commit was made.")
        if fault == "killed after the commit":
            self.end()
        elif delay_s:
            await asyncio.sleep(delay_s)
        if self.dead:
            await never()
        return lost


# --- Driver ----------------------------------------------------------------------------------------------------------

EVENTS: dict[str, tuple[Event, ...]] = {
    "shop": (Submit(5), Submit(5), Submit(7), Submit(0), Cancel(), Note(), Note(), Again(), Charged("client")),
    "parcel": (parcel.Cancel(), parcel.Cancel("no")),
    "watch": (Fix(), Pause(), Renew(), Ask(), Ask(), Stop(), Fix(), Pause(), Renew()),
}
CONTEXTS: dict[str, object] = {"shop": Purchase(), "parcel": Parcel(), "watch": Ticks()}
Answer = View[Any, Any] | Moved[Any]
ROUNDS_MAX = 60
"""Rounds of ten seconds after the faults have stopped, by which everything owed must have ended."""

# Attempts that ignore their cancellation are injected on purpose here, so their warnings are not logged.
logging.getLogger("interlock.steps").addHandler(logging.NullHandler())


class Simulation:
    """One seed."""

    def __init__(self, seed: int) -> None:
        luck = Luck(seed)
        self.clock = VirtualClock()
        self.story = Story(seed, self.clock)
        self.loop = VirtualLoop(self.clock)
        self._luck = Luck(luck.number())
        self._store_luck = Luck(luck.number())
        self._chance = Luck(luck.number()).chance
        self._ids = SeededIds(luck.number())
        self._rewinds = Luck(seed + 2**40)
        """Its own source: the other draws of a seed stay what they were."""
        self._commit_faults = luck.one((0.0, 0.01, 0.04, 0.1))
        self.kills = luck.one((0.0, 0.02, 0.08))
        self.settings = EngineSettings(
            drain_s=luck.one((0.0, 1.0)),
            steps_max=luck.one((1, 2, 50)),
            effects_max=luck.one((1, 2, 50)),
            undo_timeout_s=2.0,
            undo_attempts=luck.one((1, 3)),
            snapshots_max=luck.one((1, 3, 1_000)),
            group_max=luck.one((1, 3, 1_000)),
            stall_check_s=0.0,
            timers_saved_s=luck.one((1.0, 4.0, 10.0)),
        )
        self.gateway = FaultyService(
            Luck(luck.number()),
            faults=luck.one((0.0, 0.15, 0.4)),
            declines=luck.one((0.0, 0.2)),
            tick=self.story.tick,
            tell=self.story.tell,
            fault=self.story.fault,
        )
        self.machines = {machine.name: BoundMachine(machine) for machine in MACHINES}
        self._tables = tables(self.clock) if luck.often(0.1) else None
        self.store: Store = MemoryStore(self.clock) if self._tables is None else self._tables[0]
        self._workflows = [f"{name[0]}{at}" for name in EVENTS for at in range(luck.count(1, 3))]
        self._ops = luck.count(10, 40)
        self._open: tuple[Engine, EngineParts] | None = None
        self._life: FaultyLife | None = None
        self.calm = 2**62
        """When the faults stopped."""
        self._calls: set[asyncio.Task[Answer]] = set()

    def run(self) -> None:
        """Run the seed to its end, and check it."""
        outside.gateway = self.gateway
        try:
            if self._tables is not None:
                self.loop.run(self._tables[0].begin())
            self._begin()
            for _ in range(self._ops):
                self._pass(self._luck.one((0.0, 0.0, 0.01, 0.3, 1.0, 4.0)))
                self._act()
            self._pass(self._luck.between(0.0, 15.0))
            self._calm()
            self._finish()
        except Exception as error:  # noqa: BLE001 -- any error is reported with the story of its seed.
            self.story.complain(f"the simulation ended with {type(error).__name__}: {error}")
        finally:
            self.loop.leave()
            if self._tables is not None:
                self._tables[1]()

    # --- lives -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Open the next life; try again while opening fails."""
        while True:
            life = self._life = FaultyLife(
                self.store,
                self.loop,
                self._store_luck,
                faults=self._commit_faults,
                applied=self.story.applied,
                fault=self.story.fault,
            )
            self.gateway.life, self.gateway.number = life, self.gateway.number + 1
            self.story.lives.append(Lived(self.clock.now_s))
            self.story.tell("", f"life {self.gateway.number} opens")
            opening = self._until_done(
                open_on(
                    life.as_store,
                    self.machines,
                    clock=self.clock,
                    chance=self._chance,
                    ids=self._ids,
                    settings=self.settings,
                )
            )
            if opening.done() and not life.dead:
                error = opening.exception()
                if error is None:
                    self._open = opening.result()
                    return
                if not isinstance(error, UnavailableError):
                    raise error
            self._bury()
            self._down()

    def _bury(self) -> None:
        assert self._life is not None
        if not self._life.dead:
            self._life.end()
        lived = self.story.lives[-1]
        lived.ended_s = self.clock.now_s
        self.story.tell("", "the process is gone" if not lived.clean else "the engine is closed")
        self.story.counts["clean ends" if lived.clean else "crashes"] += 1
        self.loop.abandon()
        self._calls.clear()
        self._open = None

    def _down(self) -> None:
        self.loop.pass_until(self.clock.now_s + self._luck.one((0.0, 0.0, 0.2, 3.0, 15.0)))

    def _until_done(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self.loop.create_task(coroutine)
        task.add_done_callback(lambda _: self.loop.stop())
        self.loop.run_forever()
        return task

    def _pass(self, seconds: float) -> None:
        """Let time pass; open the next life after a kill or the death of the engine."""
        end_s = self.clock.now_s + seconds
        while True:
            self.loop.pass_until(min(end_s, self.clock.now_s + 1.0))
            assert self._life is not None
            if self._life.dead:
                self._bury()
                self._down()
                self._begin()
            elif self._open is not None and self._open[1].pipeline.dead is not None:
                self._close()
                self._begin()
            elif self.clock.now_s >= end_s:
                return

    def _close(self) -> None:
        """Stop the engine as a program does; a process may also die on the way."""
        engine, _ = self._engine()
        ended = {call for call in self.gateway.calls if call.ended is not None}
        closing = self._until_done(engine.close())
        if closing.done() and not closing.cancelled():
            closing.exception()
        for call in self.gateway.calls:
            call.stopped = call.stopped or (call.life == self.gateway.number and call not in ended)
        assert self._life is not None
        self.story.lives[-1].clean = not self._life.dead
        self._bury()

    def _engine(self) -> tuple[Engine, EngineParts]:
        assert self._open is not None
        return self._open

    # --- clients -----------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        luck = self._luck
        if luck.often(self.kills):
            self.story.fault("killed at rest")
            self._bury()
            self._down()
            self._begin()
        elif luck.often(self.kills / 2):
            self._close()
            self._down()
            self._begin()
        if luck.often(0.1):
            self._wait(luck.one(self._workflows))
        if self._rewinds.often(0.04):
            self._rewind(self._rewinds.one(self._workflows))
        again = [op for op in self.story.ops if op.key is not None or op.event is None]
        if again and luck.often(0.2):
            before = luck.one(again)  # The same delivery once more.
            op = Op(before.name, before.workflow, before.event, before.key, before.expect_version, before.if_allowed)
        else:
            op = self._new()
        self._send(op)
        if luck.often(0.25):
            self._send(self._new(op.workflow))  # In the same moment: both may be in one group.

    def _new(self, workflow: str = "") -> Op:
        luck, number = self._luck, len(self.story.ops)
        workflow = workflow or luck.one(self._workflows)
        known = {op.workflow for op in self.story.ops}
        if workflow not in known or luck.often(0.05):
            return Op(f"op{number}", workflow, None)
        event = luck.one(EVENTS[_machine_of(workflow)])
        key = f"k{luck.count(0, 5) if luck.often(0.1) else number + 100}" if luck.often(0.6) else None
        version = self.story.version(workflow)
        expect = max(0, version - luck.one((0, 0, 0, 1))) if luck.often(0.15) else None
        return Op(f"op{number}", workflow, event, key, expect, luck.often(0.3))

    def _send(self, op: Op) -> None:
        engine, _ = self._engine()
        op.version_before = self.story.version(op.workflow)
        self.story.ops.append(op)
        self.story.counts["calls"] += 1
        what = "STARTED" if op.event is None else repr(op.event)
        self.story.tell(op.workflow, f"{op.name} sends {what} key={op.key} expects={op.expect_version}")
        if op.event is None:
            machine = cast("Machine[Any, Any, Any]", self.machines[_machine_of(op.workflow)].machine)
            call: Coroutine[Any, Any, Answer] = engine.start(machine, op.workflow, CONTEXTS[machine.name])
        else:
            call = engine.send(
                op.workflow, op.event, key=op.key, if_allowed=op.if_allowed, expect_version=op.expect_version
            )
        task = self.loop.create_task(call)
        self._calls.add(task)
        task.add_done_callback(lambda done: self._record_answer(op, done))

    def _rewind(self, workflow: str) -> None:
        """Start a client that sets the workflow back to a version that is durable now."""
        engine, _ = self._engine()
        version = self._rewinds.count(1, max(1, self.story.version(workflow)))
        self.story.tell(workflow, f"is to be set back to version {version}")
        key = f"rewind{self._rewinds.count(0, 3)}" if self._rewinds.often(0.3) else None
        self.loop.create_task(engine.rewind(workflow, version, key=key)).add_done_callback(self._rewound)

    def _rewound(self, task: "asyncio.Task[Rewind]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        self.story.counts["rewinds" if error is None else "refused rewinds"] += 1
        if error is not None and not isinstance(error, InterlockError):
            self.story.complain(f"a rewind raised {error!r}")

    def _wait(self, workflow: str) -> None:
        """Start a client that waits for the workflow, and may be cancelled."""
        engine, _ = self._engine()
        task = self.loop.create_task(engine.wait(workflow, timeout_s=self._luck.between(0.0, 5.0)))
        if self._luck.often(0.3):
            self.loop.call_later(self._luck.between(0.0, 1.0), task.cancel)
        task.add_done_callback(self._waited)

    def _waited(self, task: "asyncio.Task[View[Any, Any]]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        self.story.counts["waits"] += 1
        if error is not None and not isinstance(error, InterlockError):
            self.story.complain(f"a wait raised {error!r}")
        elif error is None and self.machines[task.result().machine].node(task.result().state).active:
            self.story.complain("a wait returned a state that is neither final nor resting", task.result().id)

    def _record_answer(self, op: Op, task: "asyncio.Task[Answer]") -> None:
        self._calls.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or self._life is None or self._life.dead:
            return
        op.answer = task.result() if error is None else error
        op.version_after = self.story.version(op.workflow)
        self.story.tell(op.workflow, f"{op.name} receives {str(op.answer).splitlines()[0]:.110}")
        self.story.counts["answers"] += 1
        if error is not None and not isinstance(error, InterlockError):
            self.story.complain(f"{op.name} raised {error!r}", op.workflow)
        check_answer(self.story, self.machines[_machine_of(op.workflow)], op)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        self.story.tell("", "the faults stop")
        self.calm = self.story.tick()
        self._commit_faults = self.kills = 0.0
        self.gateway.on = False
        assert self._life is not None
        self._life.faults = 0.0
        if self._luck.often(0.5):
            self._bury()
            self._begin()

    def _finish(self) -> None:
        """Complete all pending work, retry dead letters, and check."""
        left, active = None, ["nothing was looked at"]
        for _ in range(ROUNDS_MAX):
            self._pass(10.0)
            engine, inside = self._engine()
            letters = self._until_done(engine.dead_letters()).result()
            for letter in letters:
                self.story.counts[f"dead letters: {letter.kind}"] += 1
                self._until_done(engine.retry_dead_letter(letter.id)).result()
            left = self._until_done(pending(self.store, inside, self.machines)).result()
            rows = self.loop.run(self.store.load(self._workflows))
            active = [f"{row.id} in {row.state!r}" for row in rows.values() if row.active]
            if not letters and left is None and not active:
                break
        else:
            self.story.complain(f"G5: what is owed never ends: {left}; active: {', '.join(active)}")
        self._pass(60.0)
        check(self)
        for workflow in self.story.history:
            counts = self._until_done(self._engine()[0].stats(workflow)).result()
            check_counts(self.story, workflow, counts, kept=self.settings.snapshots_max > len(self._workflows))
        check_flat(self.story, self._engine()[1], self.loop)
        self._until_done(self._engine()[0].close()).result()


def _machine_of(workflow: str) -> str:
    return {"s": "shop", "p": "parcel", "w": "watch"}[workflow[0]]


def play(seed: int) -> Story:
    """Run one seed and return its whole story."""
    simulation = Simulation(seed)
    simulation.run()
    return simulation.story


def simulate(seed: int) -> Simulated:
    """Run one seed."""
    story = play(seed)
    return Simulated(
        seed=seed,
        complaints=tuple(what for what, _ in story.complaints),
        story=story.excerpt(),
        counts=dict(story.counts),
        faults=dict(story.faults),
        command="engine",
    )


def run_campaign(first: int, seeds: int, *, workers: int | None = None, watch: Watcher | None = None) -> Campaign:
    """Run `seeds` seeds on all processors, beginning with `first`."""
    return run_seeds(simulate, first, seeds, workers=workers, watch=watch)
