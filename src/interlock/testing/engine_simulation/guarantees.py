"""The story of a seed, and the invariants that it is checked against.

Durable history is recorded at the store, below the engine, and compared with the engine's answers, the stored rows and
the calls of the gateway. Each guarantee is cited by its name. An answer is checked on arrival, against what is durable
then. The rest is checked at the end, when the faults have stopped and pending work has completed.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

import interlock.testing.engine_simulation.sample_machines as samples
from interlock.core.decide import can
from interlock.core.events import REWIND_NAMES, REWINDING, REWOUND, Event, wire_name
from interlock.engine.bound_machine import BoundMachine, decode_owed
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.internals import EngineParts
from interlock.engine.views import Counts, Moved, View
from interlock.errors import (
    GuardRejected,
    InvalidTransition,
    KeyReused,
    OutcomeUnknown,
    UnavailableError,
    VersionConflict,
    WorkflowNotFound,
)
from interlock.store.protocol import Store
from interlock.store.records import Change, HistoryRecord, Row
from interlock.testing.engine_simulation.sample_machines import FaultyService, Visit
from interlock.testing.virtual_time import VirtualClock, VirtualLoop

# --- Story -----------------------------------------------------------------------------------------------------------

LINES_MAX = 40


@dataclass(slots=True, eq=False)
class Op:
    """One call of a client, and its answer."""

    name: str
    workflow: str
    event: Event | None
    """None for a start."""
    key: str | None = None
    expect_version: int | None = None
    if_allowed: bool = False
    version_before: int = 0
    """The durable version when it was sent, and when it was answered."""
    version_after: int = 0
    answer: View[Any, Any] | Moved[Any] | BaseException | None = None
    """The returned value or raised error; None while unknown."""


@dataclass(slots=True)
class Lived:
    """The time during which one life was open."""

    opened_s: float
    ended_s: float = float("inf")
    clean: bool = False


@dataclass(slots=True)
class Story:
    """The record of one seed."""

    seed: int
    clock: VirtualClock
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    lives: list[Lived] = field(default_factory=list)
    history: dict[str, list[HistoryRecord]] = field(default_factory=dict)
    """Durable history rows by workflow, in commit order."""
    by: dict[tuple[str, int], int] = field(default_factory=dict)
    """By workflow and version: the life that made it durable."""
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    complaints: list[tuple[str, str]] = field(default_factory=list)
    """Broken guarantees, each with its workflow."""
    ticks: "itertools.count[int]" = field(default_factory=itertools.count)

    def tick(self) -> int:
        """Return the next tick: a total order of all events, finer than time."""
        return next(self.ticks)

    def tell(self, workflow: str, what: str) -> None:
        """Add a line; without a workflow it is about all of them."""
        self.lines.append((self.clock.now_s, workflow, what))

    def fault(self, kind: str) -> None:
        """Count an injected fault."""
        self.faults[kind] += 1
        if kind.startswith(("commit", "killed", "read")):
            self.tell("", kind)

    def complain(self, what: str, workflow: str = "") -> None:
        """Record that a guarantee was broken."""
        self.complaints.append((what, workflow))
        self.tell(workflow, f"BROKEN: {what}")

    def version(self, workflow: str) -> int:
        """Return the durable version of the workflow."""
        return len(self.history.get(workflow, ()))

    def applied(self, changes: Sequence[Change]) -> None:
        """Record the changes of a group that has become durable."""
        for change in changes:
            known = self.history.setdefault(change.row.id, [])
            for happened in change.history:
                self.tell(
                    change.row.id,
                    f"durable: {happened.version} {happened.event} {happened.from_state} → {happened.to_state}",
                )
                known.append(happened)
                self.by[change.row.id, happened.version] = len(self.lives) - 1

    def excerpt(self) -> tuple[str, ...]:
        """Return the last lines about the workflow of the first complaint, and about all workflows."""
        if not self.complaints:
            return ()
        workflow = self.complaints[0][1]
        chosen = [line for line in self.lines if line[1] in {"", workflow}] if workflow else self.lines
        return tuple(f"  {time_s:8.3f} s  {who:<4} {what}" for time_s, who, what in chosen[-LINES_MAX:])


# --- Calls of the gateway and timers (G5, B9) ------------------------------------------------------------------------
# A run keeps one key for ever. A result belongs to its own visit. No call is made for an uncommitted transition. A
# deed is the outcome or is undone, newest first and never before its run has ended. Effects run; timers fire by
# their policy.

STATES = {
    "charge": "charging",
    "reserve": "reserving",
    "weigh": "weighing",
    "pay": "paying",
    "pack": "packing",
    "ship": "shipping",
    "ask": "asking",
}
ATTEMPTS_MAX = {"charge": 4, "reserve": 3, "weigh": 3, "pay": 3, "pack": 3, "ship": 2, "ask": 2} | dict.fromkeys(
    samples.EFFECTS, 3
)
UNWOUND = {"cancelled", "failed"}
SLACK_S = 4.0
"""How much later than due a timer may fire: the engine retries a refused commit, or must be restarted first."""


class Seed(Protocol):
    """The completed simulation that the checks read."""

    story: Story
    gateway: FaultyService
    store: Store
    loop: VirtualLoop
    clock: VirtualClock
    settings: EngineSettings
    machines: dict[str, BoundMachine]
    calm: int
    """When the faults stopped."""


def check_acts(simulation: Seed, rows: Mapping[str, Row]) -> None:
    """Check all calls of steps, undos and effects."""
    story, calls = simulation.story, simulation.gateway.calls
    _check_keys(story, calls)
    _check_counted(simulation)
    for call in calls:
        _check_committed(story, call)
        if call.name in samples.UNDOS:
            _check_after(story, call, calls)
    for workflow, history in story.history.items():
        mine = [call for call in calls if call.workflow == workflow]
        _check_results(simulation, workflow, history, mine)
        _check_effects(story, workflow, history, mine)
        _check_order(story, workflow, mine)
        if workflow in rows:
            _check_deeds(simulation, rows[workflow], history, mine)


def _check_keys(story: Story, calls: list[Visit]) -> None:
    """One key per run, and one run per key."""
    keys: dict[tuple[str, str, object], str] = {}
    runs: dict[str, tuple[str, str, object]] = {}
    for call in calls:
        run = (call.workflow, call.name, call.undoes or call.visit)
        if keys.setdefault(run, call.key) != call.key:
            story.complain(f"G5: {call.name} has two keys in one visit ({call.visit})", call.workflow)
        if runs.setdefault(call.key, run) != run:
            story.complain(f"G5: {call.name} has the key of another run", call.workflow)


def _check_counted(simulation: Seed) -> None:
    """An attempt counts before it begins: a process that dies in one does not try it for ever."""
    before: dict[str, Visit] = {}
    for call in simulation.gateway.calls:
        last = before.get(call.key)
        before[call.key] = call
        calm = call.began > simulation.calm
        if last is not None and call.attempt <= last.attempt and not calm and not last.stopped:
            simulation.story.complain(
                f"G5: {call.name} was tried as attempt {last.attempt}, and then as {call.attempt}", call.workflow
            )
        most = ATTEMPTS_MAX.get(call.name, simulation.settings.undo_attempts)
        if call.attempt > most:
            simulation.story.complain(f"C2: attempt {call.attempt} of {call.name}, of at most {most}", call.workflow)


def _check_committed(story: Story, call: Visit) -> None:
    """G7: nothing is done for what a crash took back."""
    history = story.history.get(call.workflow, [])
    row = history[call.visit - 1] if 0 < call.visit <= len(history) else None
    if call.name in STATES:
        wanted = {STATES[call.name]}
    elif call.name in samples.EFFECTS:
        wanted = samples.EFFECTS[call.name][1]
    else:
        wanted = {"undoing"}
    if row is None or row.to_state not in wanted:
        story.complain(f"G7: {call.name} ran for version {call.visit}, which is not there", call.workflow)


def _check_after(story: Story, undo: Visit, calls: list[Visit]) -> None:
    """An undo begins when the run that it undoes has ended, and nothing of that run happens after it."""
    for call in calls:
        if call.key != undo.undoes:
            continue
        running = call.life == undo.life and call.began < undo.began and (call.ended or undo.began + 1) > undo.began
        if running or (call.deed or 0) > undo.began or call.began > undo.began:
            story.complain(f"G5: {undo.name} began before the {call.name} that it undoes had ended", call.workflow)


def _check_results(simulation: Seed, workflow: str, history: list[HistoryRecord], calls: list[Visit]) -> None:
    """A result that was applied is that of the visit it was applied in."""
    keys = {(call.name, call.visit): call.key for call in calls}
    bound = simulation.machines[{"s": "shop", "p": "parcel", "w": "watch"}[workflow[0]]]
    visit = 1
    for row in history:
        name, by = samples.RESULTS.get(row.event), ""
        if name is not None:
            by = str(getattr(bound.read_payload(row.event, row.payload), "by", ""))
        elif row.event in samples.PIPELINE_RESULTS:
            name = samples.PIPELINE_RESULTS[row.event]
            by = str(getattr(bound.codec.decode_context(row.context), name))
        if name is not None and by != "client" and keys.get((name, visit)) != by:
            simulation.story.complain(f"G5: version {row.version} is the result of another run of {name}", workflow)
        if row.event not in samples.INTERNAL:
            visit = row.version


def _check_effects(story: Story, workflow: str, history: list[HistoryRecord], calls: list[Visit]) -> None:
    """B12: an effect runs at least once for every entering of its states."""
    done = {(call.name, call.visit) for call in calls if call.deed is not None}
    for row in history:
        for name, (machine, states) in samples.EFFECTS.items():
            enters = row.event not in samples.INTERNAL | REWIND_NAMES
            owed = machine[0] == workflow[0] and row.to_state in states and enters
            if owed and (name, row.version) not in done:
                story.complain(f"G5: effect {name} of version {row.version} never ran", workflow)


def _check_order(story: Story, workflow: str, calls: list[Visit]) -> None:
    """A8: the newest is undone first, in each unwinding."""
    visits = {call.key: call.visit for call in calls if call.name in STATES}
    for unwinding in sorted({call.visit for call in calls if call.name in samples.UNDOS}):
        mine = (call.undoes for call in calls if call.name in samples.UNDOS and call.visit == unwinding)
        order = [visits[key] for key in dict.fromkeys(mine) if key in visits]
        if order != sorted(order, reverse=True):
            story.complain(f"A8: undone in the order of the visits {order}", workflow)


def _taken_back(history: list[HistoryRecord]) -> list[range]:
    """Return the visits that each rewind has taken back: those from the target's own one up to its beginning."""
    found: list[range] = []
    visits, begun = [1], 0
    for row in history:
        visits.append(visits[-1] if row.event in samples.INTERNAL else row.version)
        begun = row.version if row.event == REWINDING else begun
        if row.event == REWOUND:
            target = int(msgspec.json.decode(row.payload, type=dict[str, int | str])["to_version"])
            found.append(range(visits[target], begun or row.version))
            begun = 0
    return found


def _check_deeds(simulation: Seed, row: Row, history: list[HistoryRecord], calls: list[Visit]) -> None:
    """Every deed is the outcome, is undone, or stands in the undo log."""
    gateway, story = simulation.gateway, simulation.story
    applied = {_run_of(simulation, row.id, each) for each in history}
    logged = {run.key for run in decode_owed(row.owed).past}
    back = _taken_back(history)
    story.counts["rewinds that ended"] += len(back)
    for call in calls:
        if call.name not in samples.UNDOS.values() or call.key not in gateway.done:
            continue
        undone = gateway.undone.get(call.key)
        if row.state in UNWOUND or any(call.visit in visits for visits in back):
            if undone is None:
                story.complain(f"G5: {call.name} of visit {call.visit} was done and is not undone", row.id)
        elif undone is not None:
            story.complain(f"G5: {call.name} of visit {call.visit} was undone without an unwinding", row.id)
        elif call.key not in applied and call.key not in logged:
            story.complain(f"G5: {call.name} of visit {call.visit} was done, and no record of it is stored", row.id)


def _run_of(simulation: Seed, workflow: str, row: HistoryRecord) -> str:
    if row.event in samples.PIPELINE_RESULTS:
        context = simulation.machines["parcel"].codec.decode_context(row.context)
        return str(getattr(context, samples.PIPELINE_RESULTS[row.event]))
    if row.event in samples.RESULTS:
        bound = simulation.machines["shop" if workflow[0] == "s" else "watch"]
        return str(getattr(bound.read_payload(row.event, row.payload), "by", ""))
    return ""


def check_timers(simulation: Seed) -> None:
    """B9: "deadline" keeps its moment, "restart" begins anew with each life, "remaining" counts running time."""
    story = simulation.story
    for workflow, history in story.history.items():
        if not workflow.startswith("w"):
            continue
        for entered, fired in itertools.pairwise(history):
            if fired.event == "TICK":
                begin_s, end_s = (each.created_us / 1e6 - simulation.clock.wall_s() + simulation.clock.now_s
                                  for each in (entered, fired))  # fmt: skip
                _check_timer(simulation, entered, fired.version, begin_s, end_s)


def _check_timer(simulation: Seed, entered: HistoryRecord, fired: int, begin_s: float, end_s: float) -> None:
    story, workflow, state = simulation.story, entered.workflow, entered.to_state
    lives = story.lives[story.by[workflow, entered.version] : story.by[workflow, fired] + 1]
    up_s = sum(min(life.ended_s, end_s) - max(life.opened_s, begin_s) for life in lives)
    ends = len(lives) - 1
    waited_s = end_s - begin_s
    if state == "fixed":
        # The life in which it fires opened when it was due, or later than that.
        least_s, most_s = samples.AFTER_S, max(samples.AFTER_S, lives[-1].opened_s - begin_s)
        counted_s = waited_s
    elif state == "anew":
        least_s = most_s = samples.AFTER_S
        counted_s = end_s - max(begin_s, lives[-1].opened_s)
    else:
        least_s, most_s = samples.AFTER_S, samples.AFTER_S + ends * simulation.settings.timers_saved_s
        counted_s = up_s
    if not least_s - 0.001 <= counted_s <= most_s + SLACK_S + 0.1 * ends:
        story.complain(
            f"B9: a timer of {state!r} fired after {counted_s:.3f} s of {least_s:g} to {most_s:g} s", workflow
        )
    story.counts[f"timers: {state}"] += 1


# --- Answers and histories -------------------------------------------------------------------------------------------


def check_answer(story: Story, bound: BoundMachine, op: Op) -> None:
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


def _check_error(story: Story, op: Op, history: list[HistoryRecord]) -> None:
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


def _check_shown(story: Story, op: Op, answer: View[Any, Any] | Moved[Any], row: HistoryRecord) -> None:
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


def _check_refused(story: Story, bound: BoundMachine, op: Op, state: str) -> None:
    """G7: a refusal saw a state that was durable, and that has no such transition."""
    assert op.event is not None
    if state not in _durable_states(story.history.get(op.workflow, []), op):
        story.complain(f"G7: {op.name} was refused in {state!r}, where it was not at that time", op.workflow)
    elif can(bound.table, bound.node_of(state).state, type(op.event)):
        story.complain(f"G7: {op.name} was refused in {state!r}, from where it has a transition", op.workflow)


def _durable_states(history: list[HistoryRecord], op: Op) -> set[str]:
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


def _check_chain(story: Story, row: Row, history: list[HistoryRecord]) -> None:
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


def _check_deliveries(story: Story, workflow: str, history: list[HistoryRecord]) -> None:
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


def check_flat(story: Story, inside: EngineParts, loop: VirtualLoop, *, others: int = 0) -> None:
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
        "wakes": len(inside.runner.timers),
        "tasks": len(asyncio.all_tasks(loop)) - len(inside._tasks) - others,  # noqa: SLF001
    }
    for name, count in left.items():
        if count:
            story.complain(f"C16: {count} {name} are left at the end")
