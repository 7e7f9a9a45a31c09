"""The tests of the runtime on a shared store can fail: each of these breaks one promise, and one of them notices."""

from collections.abc import Callable, Sequence

import pytest

from interlock.engine.path.commit_pipeline import CommitPipeline
from interlock.engine.path.engine_commands import Late, Result, TakeUp, crashed, fire_timers
from interlock.engine.path.staged_group import Envelope, Group
from interlock.engine.pauses import Pauses
from interlock.engine.shared.claims import Claiming, LeaseRenewal
from interlock.engine.shared.shared_store_policy import SharedStorePolicy
from interlock.engine.steps.runner import Runner
from interlock.errors import OutcomeUnknown
from interlock.store.records import Change, Row
from tests.unit.engine.shared import (
    test_cached_rows,
    test_claimed_work,
    test_claims,
    test_lease_renewal,
    test_pipeline,
    test_shared_pauses,
    test_unknown_outcomes,
)

Sabotage = Callable[[pytest.MonkeyPatch], None]


def memory_refuses(patch: pytest.MonkeyPatch) -> None:
    """Whatever changes nothing is told without a look at the store."""
    patch.setattr("interlock.engine.path.commit_pipeline._same", lambda *_: False)


def results_of_any_lease(patch: pytest.MonkeyPatch) -> None:
    def decide(result: Result, group: Group) -> object:
        found = group.stage(result.workflow)
        if found is not None and found.live.snapshot.visit == result.visit:
            return result.apply(found, group)
        return Late(result.workflow, result.run.key)

    patch.setattr(Result, "decide", decide)


def everything_has_happened(patch: pytest.MonkeyPatch) -> None:
    async def settled(_: SharedStorePolicy, changes: Sequence[Change], __: str, ___: OutcomeUnknown) -> Sequence[str]:
        del changes
        return []

    patch.setattr(SharedStorePolicy, "_settle", settled)


def nothing_has_happened(patch: pytest.MonkeyPatch) -> None:
    async def settled(_: SharedStorePolicy, changes: Sequence[Change], __: str, ___: OutcomeUnknown) -> Sequence[str]:
        return [change.row.id for change in changes]

    patch.setattr(SharedStorePolicy, "_settle", settled)


def parked_workflows_are_overtaken(patch: pytest.MonkeyPatch) -> None:
    def gathered(pipeline: CommitPipeline) -> list[Envelope]:
        taken = [each for each in pipeline._waiting if each.workflow not in pipeline._busy]
        pipeline._waiting = [each for each in pipeline._waiting if each.workflow in pipeline._busy]
        return taken

    patch.setattr(CommitPipeline, "_gather", gathered)


def groups_share_workflows(patch: pytest.MonkeyPatch) -> None:
    def gathered(pipeline: CommitPipeline) -> list[Envelope]:
        taken, pipeline._waiting = pipeline._waiting, []
        return taken

    patch.setattr(CommitPipeline, "_gather", gathered)


def results_are_dropped_after_some_conflicts(patch: pytest.MonkeyPatch) -> None:
    again = CommitPipeline._again

    def bounded(pipeline: CommitPipeline, envelope: Envelope, more: list[Envelope]) -> None:
        again(pipeline, envelope, more)
        if envelope.conflicts > 10:
            more.remove(envelope)

    patch.setattr(CommitPipeline, "_again", bounded)


def claims_without_a_token(patch: pytest.MonkeyPatch) -> None:
    def decide(take: TakeUp, group: Group) -> object:
        staged = group.stage(take.workflow)
        if staged is None:
            return None
        refused = fire_timers(staged, group)
        crashed(staged, group, take.attempts_max)
        take._begin(staged, group)
        return refused

    patch.setattr(TakeUp, "decide", decide)


def whoever_has_lost_a_lease_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runner, "lose", lambda *_: None)


def nobody_renews(patch: pytest.MonkeyPatch) -> None:
    async def renew(_: LeaseRenewal, __: float) -> None:
        """Nothing."""

    patch.setattr(LeaseRenewal, "_renew", renew)


def a_process_takes_itself_for_dead(patch: pytest.MonkeyPatch) -> None:
    def take_up(runner: Runner, row: Row, *, timers: bool = False) -> bool:
        del timers
        runner.claimed[row.id] = row.lease
        runner._pipeline.add(TakeUp(row.id, row.lease, 3, runner.claimed))
        return True

    patch.setattr(Runner, "take_up", take_up)


def a_report_has_no_lease(patch: pytest.MonkeyPatch) -> None:
    def leases(runner: Runner, since_s: float) -> dict[str, int]:
        runs = {each.workflow: each.lease for each in runner._running.values() if each.born_s <= since_s}
        return {**runner.claimed, **runs}

    patch.setattr(Runner, "leases_to_renew", leases)


def one_odd_error_ends_the_looking(patch: pytest.MonkeyPatch) -> None:
    poll = Claiming._poll

    async def once(claiming: Claiming) -> float:
        try:
            return await poll(claiming)
        except OSError:
            claiming._machines = []
            raise

    patch.setattr(Claiming, "_poll", once)


def crashes_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """What the dead have begun is begun again as if nothing had been."""
    patch.setattr("interlock.engine.path.engine_commands.crashed", lambda *_: None)


def one_process_ignores_pauses(patch: pytest.MonkeyPatch) -> None:
    """The pauses of other processes are not read after the engine was opened."""
    patch.setattr(Pauses, "is_old", False)


def claims_ignore_pauses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pauses, "holds", lambda *_: False)


BROKEN: list[tuple[Sabotage, Callable[[], None]]] = [
    (memory_refuses, test_cached_rows.test_an_event_that_memory_would_refuse_is_decided_on_the_row_of_the_store),
    (memory_refuses, test_cached_rows.test_a_result_that_memory_takes_for_late_is_applied_when_the_store_says_so),
    (results_of_any_lease, test_lease_renewal.test_a_result_of_an_attempt_that_was_taken_over_is_late),
    (
        everything_has_happened,
        lambda: test_unknown_outcomes.test_an_unknown_outcome_is_settled_and_the_caller_is_told_what_happened("gone"),
    ),
    (
        nothing_has_happened,
        lambda: test_unknown_outcomes.test_an_unknown_outcome_is_settled_and_the_caller_is_told_what_happened("done"),
    ),
    (
        parked_workflows_are_overtaken,
        test_pipeline.test_a_parked_workflow_is_not_overtaken_by_what_comes_later_and_keeps_nobody_waiting,
    ),
    (groups_share_workflows, test_pipeline.test_two_groups_are_under_way_at_once_and_never_share_a_workflow),
    (results_are_dropped_after_some_conflicts, test_pipeline.test_a_result_is_brought_again_however_often_it_is_lost),
    (claims_without_a_token, test_claimed_work.test_a_claim_that_somebody_else_has_renewed_since_changes_nothing),
    (whoever_has_lost_a_lease_goes_on, test_lease_renewal.test_an_attempt_whose_workflow_was_taken_over_is_cancelled),
    (nobody_renews, test_lease_renewal.test_an_attempt_that_takes_long_is_held_and_nobody_else_begins_it),
    (
        a_process_takes_itself_for_dead,
        test_lease_renewal.test_a_lease_of_this_very_process_that_was_over_is_taken_up_and_not_taken_for_a_crash,
    ),
    (a_report_has_no_lease, test_lease_renewal.test_a_report_that_is_under_way_keeps_its_lease),
    (
        one_odd_error_ends_the_looking,
        lambda: test_claims.test_nothing_makes_a_worker_stop_looking("due", OSError),
    ),
    (one_process_ignores_pauses, test_shared_pauses.test_a_pause_by_one_engine_holds_in_another),
    (claims_ignore_pauses, test_shared_pauses.test_a_workflow_that_was_claimed_before_its_pause_is_given_back),
    (crashes_are_not_counted, test_claimed_work.test_the_last_attempt_of_the_dead_is_not_made_again),
]


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("sabotage", "test"), BROKEN, ids=[f"{number}-{each[0].__name__}" for number, each in enumerate(BROKEN)]
)
def test_a_broken_engine_is_caught(
    sabotage: Sabotage, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the same test says of a sound engine is green in its own module."""
    sabotage(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017 -- a wrong answer, or one that never comes.
        test()
