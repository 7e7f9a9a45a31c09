"""Seeds of orders that call one bank through breakers, limits and budgets: engines in one process, crashes, cancels.

Several engines with a store each live in one process, so they share the breaker. A crash ends all of them, and what the
next process finds is what the stores have. When the schedule is over the weather is calm, and everything must end.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import msgspec

from interlock.clock import SeededIds
from interlock.core.policies import Breaker, Dependency
from interlock.core.values import StepFailure
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.dependencies import outlet
from interlock.engine.engine import Engine
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.internals import EngineParts
from interlock.errors import InterlockError, UnavailableError
from interlock.store.memory import MemoryStore
from interlock.testing.campaigns import Campaign, Luck, Simulated, run_seeds
from interlock.testing.engine_simulation.guarantees import Story, check_flat
from interlock.testing.engine_simulation.sample_machines import Cancel, Purchase, ShopState, Submit
from interlock.testing.engine_simulation.simulate_engine import FaultyLife
from interlock.testing.virtual_time import VirtualClock, VirtualLoop, open_on, pending
from tests.simulation.bank import WEATHERS, Bank
from tests.simulation.orders import ATTEMPTS, orders

UNDO_ATTEMPTS = 3
ROUNDS_MAX = 60
FORCES: tuple[Literal["open", "closed", "auto"], ...] = ("open", "closed", "auto")
MANY = 100
"""More slots than there are orders."""

logging.getLogger("interlock").addHandler(logging.NullHandler())


class Fleet:
    """One seed."""

    def __init__(self, seed: int) -> None:
        luck = self._luck = Luck(seed)
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self.story = Story(seed, self.clock)
        self.quiet = luck.often(0.4)
        """No crash and no fault of a store: attempts can be counted exactly."""
        self._kills = 0.0 if self.quiet else luck.one((0.0, 0.03, 0.1))
        self._faults = 0.0 if self.quiet else luck.one((0.0, 0.01, 0.04))
        self.limits = Dependency(
            "gateway",
            concurrency_max=luck.one((1, 3, 10, 50)),
            rate_per_s=luck.one((None, None, 40.0)),
            breaker=Breaker(
                failures=luck.one((2, 5)),
                reset_s=luck.one((3.0, 10.0)),
                probes=luck.one((1, 1, 2)),
                failure_rate=luck.one((None, None, None, 0.6)),
            ),
            budget=luck.one((0.0, 0.2, 1.0)),
        )
        self.settings = EngineSettings(
            drain_s=luck.one((0.0, 1.0)),
            steps_max=luck.one((2, 5, MANY, MANY)),
            undos_max=luck.one((1, 3, MANY)),
            effects_max=luck.one((1, MANY, MANY)),
            undo_timeout_s=2.0,
            undo_attempts=UNDO_ATTEMPTS,
            group_max=luck.one((3, 1_000)),
            stall_check_s=0.0,
        )
        prompt = min(self.settings.steps_max, self.settings.effects_max) >= MANY
        self.bank = Bank(Luck(luck.number()), self.story, self.loop, self.limits, prompt=prompt, kill=self._die)
        machine = orders(self.bank)
        self.machines = {"order": BoundMachine(machine)}
        self.machine = machine
        self.stores = [MemoryStore(self.clock) for _ in range(luck.one((1, 1, 2, 3)))]
        self._chance, self._ids = Luck(luck.number()).chance, SeededIds(luck.number())
        self._store_luck = Luck(luck.number())
        self._names: list[tuple[int, str]] = []
        self._most = luck.one((6, 12, 40))
        self.open: list[tuple[Engine, EngineParts]] = []
        self._lives: list[FaultyLife] = []
        self._asked: set[asyncio.Task[object]] = set()

    def run(self) -> None:
        """Tell the story to its end, and check it."""
        try:
            self._begin()
            for _ in range(self._luck.count(10, 30)):
                self._act()
                self._pass(self._luck.one((0.0, 0.05, 0.3, 1.0, 4.0)))
            self.bank.weather = "calm"
            self._faults = 0.0
            for life in self._lives:
                life.faults = 0.0
            self.story.tell("", "the weather is calm")
            self._pass(5.0)
            self._operate(lambda engine: engine.force_breaker("gateway", "auto"))
            self._finish()
        except Exception as error:  # noqa: BLE001 -- whatever goes wrong is told with the story of its seed.
            self.story.complain(f"the simulation ended with {type(error).__name__}: {error}")
        finally:
            self.loop.leave()

    # --- the process -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        while True:
            self.bank.reborn()
            breaking = self.bank.breaking
            self._lives, self.open = [], []
            for store in self.stores:
                life = FaultyLife(
                    store,
                    self.loop,
                    self._store_luck,
                    faults=self._faults,
                    applied=self.story.applied,
                    fault=self.story.fault,
                )
                self._lives.append(life)
                opening = self._until_done(
                    open_on(
                        life.as_store,
                        self.machines,
                        clock=self.clock,
                        chance=self._chance,
                        ids=self._ids,
                        settings=self.settings,
                        observers=[breaking],
                        dependencies=[self.limits],
                    )
                )
                if self.bank.dead or life.dead or not opening.done() or opening.exception() is not None:
                    break
                self.open.append(opening.result())
            if len(self.open) == len(self.stores) and all(inside.pipeline.dead is None for _, inside in self.open):
                breaking.phase = self.open[0][0].breakers()["gateway"].state
                return
            self._bury()

    def _die(self) -> None:
        """The process ends now."""
        self.bank.dead = True
        for life in self._lives:
            life.end()
        if self.loop.is_running():
            self.loop.stop()

    def _bury(self) -> None:
        self._die()
        self.story.counts["crashes"] += 1
        self.story.tell("", "the process is gone")
        self.loop.abandon()
        self._asked.clear()
        outlet.forget_outlets(self.clock)
        self.loop.pass_until(self.clock.now_s + self._luck.one((0.0, 0.2, 3.0, 15.0)))

    def _close(self) -> None:
        for engine, _ in self.open:
            closing = self._until_done(engine.close())
            if closing.done() and not closing.cancelled():
                closing.exception()
        self.story.counts["clean ends"] += 1
        self._bury()

    def _until_done(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self.loop.create_task(coroutine)
        task.add_done_callback(lambda _: self.loop.stop())
        while not task.done() and not any(life.dead for life in self._lives):
            self.loop.run_forever()
        return task

    def _pass(self, seconds: float) -> None:
        end_s = self.clock.now_s + seconds
        while True:
            self.loop.pass_until(min(end_s, self.clock.now_s + 1.0))
            if any(life.dead for life in self._lives):
                self._bury()
                self._begin()
            elif any(inside.pipeline.dead is not None for _, inside in self.open):
                self._close()
                self._begin()
            elif self.clock.now_s >= end_s:
                return

    # --- what happens ------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        luck = self._luck
        if luck.often(self._kills):
            self._bury()
            self._begin()
        elif luck.often(self._kills / 2):
            self._close()
            self._begin()
        if luck.often(0.4):
            self.bank.weather = luck.one(WEATHERS if not self.quiet else WEATHERS[:-1])
            self.story.tell("", f"the weather: {self.bank.weather}")
        for _ in range(luck.one((0, 1, 3, 8))):
            if len(self._names) < self._most:
                self._order()
        if luck.often(0.05):
            forced = luck.one(FORCES)
            self.story.counts[f"forced: {forced}"] += 1
            self._operate(lambda engine: engine.force_breaker("gateway", forced))
            self.bank.breaking.recovered = False  # Whoever holds it needs no waves.
        if luck.often(0.05):
            rate = luck.one((5.0, 100.0))
            self._operate(lambda engine: engine.set_limit("gateway", rate_per_s=rate))
        if self._names and luck.often(0.4):
            at, name = luck.one(self._names)
            self.story.counts["cancels during a call"] += any(
                call.workflow == name and not call.undo for call in self.bank.under_way
            )
            self._ask(self.open[at][0].send(name, Cancel(), if_allowed=True))

    def _operate(self, what: Callable[[Engine], None]) -> None:
        """A person does something, at an engine that may be dead by then."""
        with contextlib.suppress(UnavailableError):
            what(self._luck.one(self.open)[0])

    def _order(self) -> None:
        at, name = self._luck.count(0, len(self.open) - 1), f"w{len(self._names)}"
        self._names.append((at, name))
        engine = self.open[at][0]

        async def ordered() -> None:
            await engine.start(self.machine, name, Purchase())
            await engine.send(name, Submit(5))

        self._ask(ordered())

    def _ask(self, coroutine: Coroutine[Any, Any, object]) -> None:
        task = self.loop.create_task(coroutine)
        self._asked.add(task)
        task.add_done_callback(self._told)

    def _told(self, task: "asyncio.Task[object]") -> None:
        self._asked.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, InterlockError):
            self.story.complain(f"somebody was told {error!r}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        left: list[str] = []
        for _ in range(ROUNDS_MAX):
            self._pass(10.0)
            left = []
            for at, (engine, inside) in enumerate(self.open):
                for letter in self._until_done(engine.dead_letters()).result():
                    self.story.counts[f"dead letters: {letter.kind}"] += 1
                    self._judge_letter(letter.kind, letter.workflow, letter.attempts)
                    self._until_done(engine.retry_dead_letter(letter.id)).result()
                    left.append(f"dead letter of {letter.workflow}")
                rows = self.loop.run(self.stores[at].load([name for where, name in self._names if where == at]))
                for row in rows.values():
                    if row.state == ShopState.CART.value:
                        self._ask(engine.send(row.id, Cancel()))
                    if row.active:
                        left.append(f"{row.id} in {row.state!r}")
                owed = self._until_done(pending(self.stores[at], inside, self.machines)).result()
                left += [] if owed is None else [str(owed)]
            if not left:
                break
        else:
            self.story.complain(f"G5: what is owed never ends: {'; '.join(left)}")
        self._pass(60.0)
        self._check()
        for engine, _ in self.open:
            self._until_done(engine.close()).result()

    def _judge_letter(self, kind: str, workflow: str, attempts: int) -> None:
        if (kind, attempts) not in {("undo", UNDO_ATTEMPTS), ("effect", ATTEMPTS["mail"])}:
            self.story.complain(f"C9: a dead letter of {kind} after {attempts} attempts", workflow)

    def _check(self) -> None:
        bank, story = self.bank, self.story
        for call in bank.calls:
            if call.attempt > ATTEMPTS.get(call.name, UNDO_ATTEMPTS):
                story.complain(f"C2: attempt {call.attempt} of {call.name}", call.workflow)
        tasks = [len(inside._tasks) for _, inside in self.open]
        for at, (_, inside) in enumerate(self.open):
            check_flat(story, inside, self.loop, others=sum(tasks) - tasks[at])
            names = [name for where, name in self._names if where == at]
            for row in self.loop.run(self.stores[at].load(names)).values():
                self._check_money(row.id, row.state)
                self._check_attempts(row.id)
                story.counts[f"ended: {row.state}"] += 1
        story.counts["calls"] += len(bank.calls)
        story.counts["engines that share"] += len(self.open) > 1
        story.counts["quiet seeds"] += self.quiet

    def _check_money(self, workflow: str, state: str) -> None:
        """G5: nothing is kept of an order that did not come about, nothing is taken twice, and all have one key."""
        calls = [call for call in self.bank.calls if call.workflow == workflow]
        for name in {call.name for call in calls}:
            if len({call.key for call in calls if call.name == name}) > 1:
                self.story.complain(f"G5: {name} was called under two keys", workflow)
        kept = [key for key, whose in self.bank.charged.items() if whose == workflow]
        wanted = 2 if state == ShopState.DONE.value else 0
        if len(kept) != wanted:
            self.story.complain(
                f"G5: it is {state!r}, and {len(kept)} of its deeds stand instead of {wanted}", workflow
            )
        if workflow not in self.bank.mailed:
            self.story.complain("B12: nobody was told of it", workflow)
        undone = list(dict.fromkeys(call.name for call in calls if call.undo))
        if undone == ["refund", "release"]:
            self.story.complain("A8: the older deed was undone first", workflow)

    def _check_attempts(self, workflow: str) -> None:
        """C4: who gave up has used all attempts, and none of them was a probe that failed."""
        if not self.quiet:
            return
        for row in self.story.history.get(workflow, []):
            if row.event != "STEP_FAILED":
                continue
            failure = msgspec.json.decode(row.payload, type=StepFailure)
            made = [
                call
                for call in self.bank.calls
                if call.workflow == workflow and call.name == failure.step and not (call.probe and _failed(call.how))
            ]
            if failure.error != "non-retryable" and len(made) < ATTEMPTS[failure.step]:
                told = f"{failure.step} gave up ({failure.error}) after {len(made)} attempts that were no failed probes"
                self.story.complain(f"C4: {told}", workflow)


def _failed(how: str) -> bool:
    return how not in {"done", "declined", "NonRetryable"}


def simulate(seed: int) -> Simulated:
    """Run one seed."""
    fleet = Fleet(seed)
    fleet.run()
    story = fleet.story
    return Simulated(
        seed=seed,
        complaints=tuple(what for what, _ in story.complaints),
        story=story.excerpt(),
        counts=dict(story.counts),
        faults=dict(story.faults),
    )


def run_campaign(first: int, seeds: int) -> Campaign:
    """Run so many seeds on all processors."""
    return run_seeds(simulate, first, seeds)


def main(argv: list[str]) -> int:
    """Tell the whole story of one seed."""
    fleet = Fleet(int(argv[0]))
    fleet.run()
    for time_s, who, what in fleet.story.lines:
        sys.stdout.write(f"{time_s:9.3f} s  {who:<4} {what}\n")
    return 1 if fleet.story.complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
