"""Invariants of every seed, checked against answers, stored rows and the calls of the gateway.

Each guarantee is cited by its name. An answer is checked on arrival, against what is durable then. The rest is checked
at the end, when the faults have stopped and pending work has completed. `acting` has the checks of G5.
"""

import asyncio
from collections import Counter
from typing import Any

from interlock.core.decide import can
from interlock.core.events import wire_name
from interlock.errors import (
    GuardRejected,
    InvalidTransition,
    KeyReused,
    OutcomeUnknown,
    UnavailableError,
    VersionConflict,
    WorkflowNotFound,
)
from interlock.runtime.bound import Bound
from interlock.runtime.inside import Inside
from interlock.runtime.views import Counts, Moved, View
from interlock.store.values import Happened, Row
from interlock.testing.engines.acting import Seed, check_acts, check_timers
from interlock.testing.engines.story import Op, Story
from interlock.testing.virtual import VirtualLoop


def check_answer(story: Story, bound: Bound, op: Op) -> None:
    """G2, G7: an answer shows what is durable, and nothing else."""
    answer, history = op.answer, story.history.get(op.workflow, [])
    if isinstance(answer, View | Moved):
        if not 0 < answer.version <= len(history):
            story.complain(f"G2: {op.name} received version {answer.version}, which is not durable", op.workflow)
        elif isinstance(answer, Moved) and answer.ignored:
            _check_refused(story, bound, op, str(answer.state.value))
        else:
            _check_shown(story, op, answer, history[answer.version - 1])
    elif isinstance(answer, InvalidTransition):
        _check_refused(story, bound, op, answer.state)
    else:
        _check_error(story, op, history)


def _check_error(story: Story, op: Op, history: list[Happened]) -> None:
    answer = op.answer
    if isinstance(answer, GuardRejected):
        if answer.state not in _durable_states(history, op):
            story.complain(f"G7: {op.name} was rejected in {answer.state!r}, where it never was", op.workflow)
    elif isinstance(answer, VersionConflict):
        if op.version_before == op.version_after == op.expect_version:
            story.complain(f"G7: {op.name} was refused although the version was as expected", op.workflow)
    elif isinstance(answer, KeyReused):
        if not any(row.key == op.key for row in history):
            story.complain(f"B5: {op.name} received KeyReused, but its key was not used", op.workflow)
    elif isinstance(answer, WorkflowNotFound):
        if op.version_before:
            story.complain(f"G2: {op.name} received WorkflowNotFound for a durable workflow", op.workflow)
    elif not isinstance(answer, UnavailableError):
        story.complain(f"{op.name} received {answer!r}", op.workflow)


def _check_shown(story: Story, op: Op, answer: View[Any, Any] | Moved[Any], row: Happened) -> None:
    if str(answer.state.value) != row.to_state:
        story.complain(
            f"G7: {op.name} received {answer.state}, and version {row.version} is {row.to_state}", op.workflow
        )
    if op.event is None or not isinstance(answer, Moved):
        return
    name = wire_name(type(op.event))
    # An unwinding without undos ends in the same commit: the row of the event is then the one before.
    near = story.history[op.workflow][max(0, row.version - 2) : row.version]
    if not any(each.event == name and each.key == op.key for each in near):
        story.complain(f"G2: {op.name} received version {row.version}, which is another event's", op.workflow)
    if answer.duplicate and op.key is None:
        story.complain(f"B5: {op.name} is not a duplicate of version {row.version}", op.workflow)
    if not answer.duplicate and op.expect_version is not None and near[-1].version < op.expect_version:
        story.complain(f"B2: {op.name} moved another version than it expected", op.workflow)


def _check_refused(story: Story, bound: Bound, op: Op, state: str) -> None:
    """G7: a refusal saw a state that was durable, and that has no such transition."""
    assert op.event is not None
    if state not in _durable_states(story.history.get(op.workflow, []), op):
        story.complain(f"G7: {op.name} was refused in {state!r}, where it was not at that time", op.workflow)
    elif can(bound.table, bound.node_of(state).state, type(op.event)):
        story.complain(f"G7: {op.name} was refused in {state!r}, from where it has a transition", op.workflow)


def _durable_states(history: list[Happened], op: Op) -> set[str]:
    """Return the states that were durable at some time between the call and its answer."""
    return {row.to_state for row in history[max(0, op.version_before - 1) : op.version_after]}


def check(simulation: Seed) -> None:
    """Check everything that must hold at the end."""
    story, loop, store = simulation.story, simulation.loop, simulation.store
    workflows = sorted({op.workflow for op in story.ops})
    rows = loop.run(store.load(workflows))
    for workflow in workflows:
        stored = loop.run(store.history(workflow))
        if stored != story.history.get(workflow, []):
            story.complain("G2: the history that is stored is not the one that was made durable", workflow)
        if workflow in rows:
            _check_chain(story, rows[workflow], stored)
        elif stored:
            story.complain("G3: there is a history and no workflow", workflow)
        _check_deliveries(story, workflow, stored)
    check_acts(simulation, rows)
    check_timers(simulation)
    story.counts["transitions"] += sum(map(len, story.history.values()))
    story.counts["calls of the world outside"] += len(simulation.gateway.calls)


def _check_chain(story: Story, row: Row, history: list[Happened]) -> None:
    """G1: one sequence of versions without gaps, each from where the one before has led."""
    state = history[0].from_state if history else ""
    for version, happened in enumerate(history, start=1):
        if happened.version != version:
            story.complain(f"G1: version {happened.version} stands where {version} belongs", row.id)
            return
        if happened.from_state != state:
            story.complain(f"G1: version {version} goes from {happened.from_state!r}, and it was {state!r}", row.id)
        state = happened.to_state
    last = history[-1] if history else None
    if last is None or (row.version, row.state, row.context) != (last.version, last.to_state, last.context):
        story.complain(f"G3: the row is at {row.version} in {row.state!r}, and its history ends elsewhere", row.id)


def _check_deliveries(story: Story, workflow: str, history: list[Happened]) -> None:
    """B5: a key is applied at most once, and what was answered as done or not done was."""
    keys = Counter(row.key for row in history if row.key is not None)
    for key, times in keys.items():
        if times > 1:
            story.complain(f"B5: the key {key} stands in history {times} times", workflow)
    applied: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for op in story.ops:
        if op.workflow != workflow or op.event is None or op.key is not None:
            continue
        name = wire_name(type(op.event))
        applied[name] += isinstance(op.answer, Moved) and not op.answer.ignored
        unknown[name] += op.answer is None or isinstance(op.answer, OutcomeUnknown)
    for name in applied | unknown:
        found = sum(row.event == name and row.key is None for row in history)
        if name in {"CANCEL", "CHARGED"} and workflow.startswith("s"):
            continue  # Timers and steps send these too.
        if not applied[name] <= found <= applied[name] + unknown[name]:
            answers = f"{applied[name]} were answered as applied, and {unknown[name]} are unknown"
            story.complain(f"G2: {name} without a key stands in history {found} times; {answers}", workflow)


def check_counts(story: Story, workflow: str, counts: Counts, *, kept: bool) -> None:
    """B5: the counts of a workflow equal its answers.

    Counts of the last second may be lost with the process, with an evicted snapshot (unless `kept`), or with one that
    was loaded again because a key had been used.
    """
    answers = [op.answer for op in story.ops if op.workflow == workflow and op.event is not None]
    moved = [answer for answer in answers if isinstance(answer, Moved)]
    expected = {
        "duplicate": sum(answer.duplicate for answer in moved),
        "ignored": sum(answer.ignored for answer in moved),
        "refused": sum(isinstance(answer, InvalidTransition | GuardRejected) for answer in answers),
    }
    unknown = sum(answer is None or isinstance(answer, UnavailableError) for answer in answers)
    keyless = all(op.key is None for op in story.ops if op.workflow == workflow)
    exact = kept and keyless and len(story.lives) == 1 and not story.faults
    story.counts["workflows whose counts are exact"] += exact
    for name, times in expected.items():
        counted: int = getattr(counts, name)
        if counted > times + unknown or (exact and counted != times):
            story.complain(f"B5: {counted} events are counted as {name}, but {times} were answered so", workflow)
    if counts.applied != story.version(workflow) - 1:
        story.complain(f"B5: {counts.applied} events are counted as applied", workflow)


def check_flat(story: Story, inside: Inside, loop: VirtualLoop, *, others: int = 0) -> None:
    """C16: when all work is done, no slot, task, waiter, limit or heap entry is left.

    `others` is the number of tasks in this event loop that do not belong to the engine.
    """
    runner, places = inside.runner, inside.places
    left = {
        "slots": places.steps.most - places.steps.free,
        "slots of undos": places.undos.most - places.undos.free,
        "slots of effects": places.effects.most - places.effects.free,
        "waiting for a place": places.waiting,
        "places at dependencies": sum(line.outlet.under_way for line in places.lines.values()),
        "places of undos": sum(line.outlet.undos_under_way for line in places.lines.values()),
        "passes": sum(line.kept for line in places.lines.values()),
        "attempts": runner.under_way,
        "running workflows": len(runner._running),  # noqa: SLF001 -- there is no other way to see a leak.
        "effects": len(runner._effects),  # noqa: SLF001
        "limits": sum(map(len, runner._deadlines._by_timeout.values())),  # noqa: SLF001
        "waiters": len(inside.waiters),
        "calls in flight": inside.gate.in_flight,
        "wakes": len(inside.wakes),
        "tasks": len(asyncio.all_tasks(loop)) - len(inside._tasks) - others,  # noqa: SLF001
    }
    for name, count in left.items():
        if count:
            story.complain(f"C16: {count} {name} are left at the end")
