"""The suite must be able to fail: each of these engines breaks one promise, and the simulation notices.

An engine is broken by replacing one of its functions; then seeds are run until one complains, and what it complains of
must be the promise that was broken.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import msgspec
import pytest

from interlock.core import decide
from interlock.engine.bound_machine import LoadedWorkflow, StepRun, fresh_key
from interlock.engine.dependencies.wait_queue import Slots
from interlock.engine.path.caller_commands import SendEvent
from interlock.engine.path.commit_pipeline import CommitPipeline
from interlock.engine.path.engine_commands import Report, Result, Returned
from interlock.engine.path.staged_group import DecisionContext, Group, Staged, replace
from interlock.engine.recovery import Recovery
from interlock.engine.steps.runner import Runner
from interlock.engine.views import Moved
from interlock.errors import InvalidTransition
from interlock.store.records import Change, Row
from interlock.testing.engine_simulation.simulate_engine import simulate

Sabotage = Callable[[pytest.MonkeyPatch], None]
SEEDS = 400


def result_without_visit_check(patch: pytest.MonkeyPatch) -> None:
    def staged(result: Result, group: Group) -> Staged | None:
        found = group.stage(result.workflow)
        return found if found is not None and found.live.owed.run is not None else None

    def decided(result: Returned, group: Group) -> object:
        found = staged(result, group)
        return None if found is None else result.apply(found, group)

    patch.setattr(Returned, "decide", decided)


def key_made_anew_on_retry(patch: pytest.MonkeyPatch) -> None:
    begin = Staged.begin

    def renewed(staged: Staged, means: DecisionContext) -> bool:
        begun, owed = begin(staged, means), staged.live.owed
        if begun and owed.run is not None and owed.run.attempts > 1:
            run = replace(owed.run, key=fresh_key("again", means.ids))
            staged.owe(replace(owed, run=run), means.now_us)
        return begun

    patch.setattr(Staged, "begin", renewed)


def refusal_from_a_stale_snapshot(patch: pytest.MonkeyPatch) -> None:
    """The first snapshot that was ever seen of a workflow answers for all that come."""
    seen: dict[tuple[int, str], LoadedWorkflow] = {}
    decided = SendEvent.decide

    def stale(send: SendEvent, group: Group) -> Moved[Enum]:
        staged = group.stage(send.workflow)
        if staged is not None:
            live = seen.setdefault((id(group.means), send.workflow), staged.live)
            try:
                decide.decide(live.bound.table, live.snapshot, send.event)
            except InvalidTransition:
                if send.look or send.key is None:
                    raise
        return decided(send, group)

    patch.setattr(SendEvent, "decide", stale)


def refusal_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A refusal is told as soon as it is decided, although the group that it saw may yet fail."""
    decided = SendEvent.decide

    def at_once(send: SendEvent, group: Group) -> Moved[Enum]:
        try:
            return decided(send, group)
        except InvalidTransition as error:
            if send.future is not None and not send.future.done():
                send.future.set_exception(error)
            raise

    patch.setattr(SendEvent, "decide", at_once)


def history_outside_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The row first, and its history in a commit of its own."""
    changed = Staged.change
    passing = CommitPipeline._pass

    async def passed(pipeline: CommitPipeline, envelopes: Sequence[object]) -> None:
        later: list[Change] = []

        def without(staged: Staged, *, shared: bool = True) -> Change:
            change = changed(staged, shared=shared)
            if change.expected and change.history:
                row = replace(change.row, revision=change.row.revision + 1)
                later.append(Change(row, change.row.revision, change.history))
                staged.live = LoadedWorkflow(staged.live.bound, row, staged.live.snapshot, staged.live.owed)
                return Change(
                    change.row, change.expected, (), change.effects, change.effects_done,
                    change.letters, change.letters_gone,
                )  # fmt: skip
            return change

        commit = pipeline.store.commit

        async def twice(changes: Sequence[Change]) -> list[str]:
            lost = await commit(changes)
            if later:
                await commit(list(later))
            return lost

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Staged, "change", without)
            inner.setattr(pipeline.store, "commit", twice)
            await passing(pipeline, envelopes)  # type: ignore[arg-type]

    patch.setattr(CommitPipeline, "_pass", passed)


def timer_kept_only_in_memory(patch: pytest.MonkeyPatch) -> None:
    def forgets(recovery: Recovery, row: Row, alive_us: int) -> list[Report]:
        if recovery._machines[row.machine].live(row).owed.current is not None:
            return take_up(recovery, row, alive_us)
        return []

    take_up = Recovery._take_up
    patch.setattr(Recovery, "_take_up", forgets)


def attempt_not_counted_before_it_begins(patch: pytest.MonkeyPatch) -> None:
    """The count is written with the result: the commit that begins an attempt says nothing of it."""
    changed = Staged.change

    def uncounted(staged: Staged, *, shared: bool = True) -> Change:
        change = changed(staged, shared=shared)
        owed = staged.live.owed
        if staged.reserved and owed.run is not None:
            run = replace(owed.run, attempts=owed.run.attempts - 1, started=False)
            row = replace(change.row, owed=msgspec.json.encode(replace(owed, run=run)))
            return replace(change, row=row)
        return change

    patch.setattr(Staged, "change", uncounted)


def undo_before_the_attempt_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runner, "_go_behind", Runner._go)


def effect_lost_at_a_crash(patch: pytest.MonkeyPatch) -> None:
    async def none(recovery: Recovery) -> int:
        del recovery
        return 0

    patch.setattr(Recovery, "_effects", none)


def nobody_is_called_for_a_free_slot(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes while a slot is free waits for the next one that becomes free."""

    def wait(slots: Slots, waiting: str) -> None:
        if slots.most and waiting not in slots._queued:
            slots._queued.add(waiting)
            slots._waiting.append(waiting)

    patch.setattr(Slots, "wait", wait)


def a_slot_is_never_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Staged, "give_up", lambda _staged: None)


def undo_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Of a run whose outcome is unknown nothing is undone."""
    attempted = property(lambda run: False)
    patch.setattr(StepRun, "attempted", attempted)


def interrupted_runs_are_not_undone(patch: pytest.MonkeyPatch) -> None:
    """An attempt that was under way when its workflow moved on is believed to have done nothing."""
    patch.setattr(StepRun, "attempted", property(lambda _: False))


BROKEN: list[tuple[Sabotage, str]] = [
    (result_without_visit_check, "G5"),
    (key_made_anew_on_retry, "G5"),
    (refusal_from_a_stale_snapshot, "G7"),
    (refusal_before_it_is_durable, "G7"),
    (history_outside_the_commit, "G3"),
    (timer_kept_only_in_memory, "G5"),
    (attempt_not_counted_before_it_begins, "G5"),
    (undo_before_the_attempt_has_ended, "G5"),
    (effect_lost_at_a_crash, "G5"),
    (nobody_is_called_for_a_free_slot, "G5"),
    (a_slot_is_never_given_back, "C16"),
    (undo_is_forgotten, "G5"),
    (interrupted_runs_are_not_undone, "G5"),
]


@pytest.mark.campaign
@pytest.mark.parametrize(("sabotage", "promise"), BROKEN, ids=[sabotage.__name__ for sabotage, _ in BROKEN])
def test_a_broken_engine_is_caught(sabotage: Sabotage, promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    complaints: list[str] = []
    for seed in range(SEEDS):
        complaints += simulate(seed).complaints
        if any(what.startswith(promise) for what in complaints):
            return
    pytest.fail(f"{SEEDS} seeds did not notice: {complaints[:3]}")


@pytest.mark.slow
def test_an_honest_engine_is_not_blamed() -> None:
    assert not [what for seed in range(20) for what in simulate(seed).complaints]
