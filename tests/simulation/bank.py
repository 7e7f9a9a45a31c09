"""The world outside a simulated fleet: a bank whose weather changes, and what it sees of breakers, waves and budgets.

It does everything once per key, as a good provider does, and a key that was refunded is void: what arrives for it later
is not done. Everything is judged by what arrives here and by the signals of the breaker, never by asking the engine.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from interlock.core.policies import FIRST_WAVE, Dependency
from interlock.core.values import StepContext
from interlock.engine.dependencies.outlet import UNDO_SHARE
from interlock.engine.steps.attempt import IGNORED_S
from interlock.errors import NonRetryable
from interlock.signals import BreakerChanged, Signal
from interlock.testing.campaigns import Luck
from interlock.testing.engine_simulation.guarantees import Story
from interlock.testing.virtual_time import VirtualLoop, never
from tests.simulation.passing import passing

WEATHERS = ("fine", "fine", "flaky", "outage", "outage", "hangs", "loses answers", "late", "kills")

SLACK_S = 1.0
"""From being admitted to arriving here: an attempt begins when the commit that counts it is durable, and groups of a
slow store may be ahead of that."""

UNDOS = {"refund": "charge", "release": "reserve"}

FREE = 10
"""Retries per ten seconds that no budget holds back."""


@dataclass(slots=True, eq=False)
class Call:
    """One call, as the bank saw it."""

    name: str
    workflow: str
    key: str
    attempt: int
    life: int
    began_s: float
    probe: bool
    """The breaker was half-open when it came."""
    ended_s: float | None = None
    how: str = ""
    cancelled_s: float | None = None

    @property
    def undo(self) -> bool:
        """Whether it gives something back."""
        return self.name in UNDOS


class Breaking:
    """What the signals of the breaker say."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self.phase, self.since_s = "closed", 0.0
        self.recovered = False
        """It was closed by a probe, and calls come back in waves."""
        self.answered = self.steps_begun = self.undos_begun = self.abandoned = self.given_back = 0
        """Since it is as it is."""

    def __call__(self, signal: Signal, /) -> None:
        """Each engine of the process tells it, and once is enough."""
        if not isinstance(signal, BreakerChanged) or signal.dependency != "gateway" or signal.after == self.phase:
            return
        self._story.tell("", f"the breaker is {signal.after}: {signal.reason}")
        self._story.counts[f"breaker: {signal.before} to {signal.after}"] += 1
        self.recovered = signal.before == "half_open" and signal.after == "closed" and "person" not in signal.reason
        self.phase, self.since_s = signal.after, self._story.clock.now_s
        self.answered = self.steps_begun = self.undos_begun = self.abandoned = self.given_back = 0


class Bank:
    """The dependency "gateway" of one seed."""

    def __init__(
        self,
        luck: Luck,
        story: Story,
        loop: VirtualLoop,
        limits: Dependency,
        *,
        prompt: bool,
        kill: Callable[[], None],
    ) -> None:
        self.weather = "fine"
        self.life = 0
        self.dead = False
        """The process that calls is gone."""
        self.calls: list[Call] = []
        self.under_way: list[Call] = []
        self.charged: dict[str, str] = {}
        """What was taken, by key, with the workflow."""
        self.mailed: set[str] = set()
        self.void: set[str] = set()
        self.breaking = Breaking(story)
        self._luck = luck
        self._story = story
        self._loop = loop
        self._limits = limits
        self._kill = kill
        self._prompt = prompt
        """There is always a slot: whatever is admitted arrives at once, so that budgets can be counted here."""
        self._declined: set[str] = set()
        self._stubborn_undos = {f"w{number}" for number in range(40) if luck.often(0.3)}
        """Orders whose refund fails twice and then works."""

    def reborn(self) -> None:
        """Another process calls from now on; nobody knows what the last one counted."""
        self.life += 1
        self.dead = False
        self.under_way.clear()
        self.breaking = Breaking(self._story)

    async def act(self, name: str, ctx: StepContext) -> bool:
        """Do it, once per key; False when it is declined."""
        if self.dead:
            await never()
        call = Call(
            name, ctx.workflow, ctx.key, ctx.attempt, self.life, self._loop.time(), self.breaking.phase == "half_open"
        )
        self._story.tell(ctx.workflow, f"{name} begins, attempt {ctx.attempt}, {self.weather}, {self.breaking.phase}")
        self.calls.append(call)
        self.under_way.append(call)
        self._judge(call)
        try:
            done = await self._behave(call, ctx)
        except BaseException as error:
            call.how = type(error).__name__
            raise
        else:
            call.how = "done" if done else "declined"
            return done
        finally:
            if not self.dead:
                self._leave(call)

    def _leave(self, call: Call) -> None:
        call.ended_s = self._loop.time()
        if call in self.under_way:
            self.under_way.remove(call)
        breaking = self.breaking
        breaking.answered += call.how in {"done", "declined", "NonRetryable"}
        breaking.given_back += call.undo and call.how == "done"
        breaking.abandoned += call.how == "CancelledError"
        self._story.tell(call.workflow, f"{call.name} ends: {call.how}")

    # --- what is done ------------------------------------------------------------------------------------------------

    async def _behave(self, call: Call, ctx: StepContext) -> bool:
        luck, weather = self._luck, self.weather
        if call.undo and call.workflow in self._stubborn_undos and weather == "fine" and call.attempt < 3:
            self._story.counts["refunds that fail twice"] += call.attempt == 2
            raise ConnectionError("not this time")
        if call.name == "charge" and weather != "calm" and call.key not in self.charged:
            if luck.often(0.04):
                self._declined.add(call.key)
            elif luck.often(0.04):
                await asyncio.sleep(0)  # It is an answer: a refusal without a wait would be the step's own (C19).
                raise NonRetryable("no such card")
        if weather == "outage" or (weather == "flaky" and luck.often(0.5)):
            await passing(luck.one((0.0, 0.01, 0.05)))
            raise ConnectionError(weather)
        if weather == "hangs":
            await passing(3_600)
        if weather == "loses answers" and luck.often(0.7):
            self._do(call, ctx)
            self._story.counts["done, answer lost"] += 1
            await passing(luck.one((0.0, 0.02, 3_600.0)))
            raise ConnectionResetError(weather)
        if weather == "late" and luck.often(0.5):
            return await self._late(call, ctx)
        await passing(luck.one((0.0, 0.01, 0.1, 0.5)))
        if weather == "kills" and luck.often(0.1):
            if luck.often(0.5):
                self._do(call, ctx)
            self._story.counts["killed between charge and commit"] += call.key in self.charged
            self._kill()
            await never()
        return self._do(call, ctx)

    async def _late(self, call: Call, ctx: StepContext) -> bool:
        """It is on its way and cannot be called back: it is done when nobody waits for it any more."""
        luck = self._luck
        if luck.often(0.5):
            self._loop.call_later(luck.between(2.0, 4.0), self._do, call, ctx)
            self._story.counts["done after the time limit"] += 1
            await passing(3_600)
        left_s = luck.between(0.5, 4.0)
        while True:
            try:
                await passing(left_s)
                return self._do(call, ctx)
            except asyncio.CancelledError:
                if self.dead or call.cancelled_s is not None:
                    raise
                call.cancelled_s = self._loop.time()
                self._story.counts["cancelled, and done all the same"] += 1
                left_s = luck.between(0.0, 2.0)

    def _do(self, call: Call, ctx: StepContext) -> bool:
        if call.key in self._declined:
            return False
        if call.undo:
            assert ctx.undoes is not None
            self.void.add(ctx.undoes)
            self.charged.pop(ctx.undoes, None)
        elif call.name == "mail":
            self.mailed.add(call.workflow)
        elif call.key not in self.void:
            self.charged[call.key] = call.workflow
        return True

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _judge(self, call: Call) -> None:
        """C4, C5, C8: whatever arrives had to be admitted."""
        breaking, limits, now_s = self.breaking, self._limits, call.began_s
        same = [each for each in self.under_way if each.undo == call.undo and not _given_up(each, now_s)]
        most = max(1, limits.concurrency_max // UNDO_SHARE) if call.undo else limits.concurrency_max
        if len(same) > most:
            self._story.complain(f"C8: {len(same)} calls of {call.name} at once, of at most {most}", call.workflow)
        if call.undo:
            breaking.undos_begun += 1
        else:
            breaking.steps_begun += 1
        probes = limits.breaker.probes
        if breaking.phase == "open" and now_s - breaking.since_s > SLACK_S:
            if not call.undo:
                self._story.complain(f"C4: {call.name} was called while the breaker was open", call.workflow)
            elif breaking.undos_begun > most + probes + breaking.given_back + breaking.abandoned:
                self._story.complain(f"C4: {breaking.undos_begun} undos through an open breaker", call.workflow)
        if breaking.phase == "half_open" and breaking.steps_begun > probes + breaking.abandoned:
            self._story.complain(f"C4: {breaking.steps_begun} calls through a half-open breaker", call.workflow)
        if breaking.recovered and not call.undo:
            wave = FIRST_WAVE + breaking.answered
            self._story.counts["calls in a wave"] += len(same) == wave
            if len(same) > wave:
                self._story.complain(f"C4: {len(same)} calls at once in a wave of {wave}", call.workflow)
        if self._prompt and self._again(call):
            self._judge_budget(call)

    def _again(self, call: Call) -> bool:
        """A retry: it was tried in this life before. What a crash has ended did not fail, and is no retry."""
        earlier = (each for each in self.calls if each.key == call.key and each.life == call.life)
        return call.attempt > 1 and not call.undo and any(each.began_s < call.began_s for each in earlier)

    def _judge_budget(self, call: Call) -> None:
        """C5: counted over a little less than a window against a little more, because the window moves in tenths."""
        mine = [each for each in self.calls if each.life == self.life and call.began_s - each.began_s < 10.3]
        retries = [each for each in mine if self._again(each) and call.began_s - each.began_s < 8.5]
        self._story.counts["retries beyond the free ones"] += len(retries) > FREE
        # What was admitted and taken back by its store has not arrived: a few calls more than are seen here.
        if len(retries) > max(FREE, self._limits.budget * (len(mine) + FREE)):
            told = f"{len(retries)} retries among {len(mine)} calls of ten seconds"
            self._story.complain(f"C5: {told}, with a budget of {self._limits.budget:g}", call.workflow)


def _given_up(call: Call, now_s: float) -> bool:
    """It ignored its cancellation for so long that it goes on beside its successor."""
    return call.cancelled_s is not None and now_s - call.cancelled_s > IGNORED_S - 0.01
