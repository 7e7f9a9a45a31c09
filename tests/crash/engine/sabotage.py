"""Engines that are broken on purpose, each in one way, in the process that is killed. The campaign must catch each."""

import asyncio
from collections.abc import Callable, Sequence

from interlock.clock import RandomIds
from interlock.engine.bound_machine import fresh_key
from interlock.engine.path.commit_pipeline import CommitPipeline
from interlock.engine.path.engine_commands import Crashed
from interlock.engine.path.staged_group import Envelope, Group, replace
from interlock.engine.recovery import Recovery


def acknowledge_before_commit() -> None:
    """Everybody is told before the group is written."""

    async def early(self: CommitPipeline, envelopes: Sequence[Envelope]) -> None:
        group = await self._load(envelopes)
        again: list[Envelope] = []
        for envelope in envelopes:
            self._tell(envelope, self._decide(envelope, group), again)
        self._waiting[:0] = again
        await asyncio.sleep(0)
        changed = [staged for staged in group.staged.values() if staged.touched]
        self._keep(changed, await self.store.commit([staged.change() for staged in changed]) if changed else ())

    CommitPipeline._pass = early  # type: ignore[method-assign]


def new_key_after_crash() -> None:
    """What was under way when the process died is tried again under a key of its own."""
    decide = Crashed.decide

    def forgetful(self: Crashed, group: Group) -> object:
        told = decide(self, group)
        staged = group.staged.get(self.workflow)
        if staged is not None and (run := staged.live.owed.run) is not None:
            again = replace(run, key=fresh_key("again", RandomIds()))
            staged.owe(replace(staged.live.owed, run=again), group.now_us)
        return told

    Crashed.decide = forgetful  # type: ignore[method-assign, assignment]


def owed_only_in_memory() -> None:
    """Nobody takes up what the last life has left owed."""

    async def nothing(self: Recovery, alive_us: int, notes: dict[str, str]) -> int:
        return 0

    Recovery.run = nothing  # type: ignore[method-assign]


SABOTAGE: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (acknowledge_before_commit, new_key_after_crash, owed_only_in_memory)
}
