"""Why a workflow is where it is: one paragraph in plain words (F8).

It says how the workflow came here, what it waits for and since when, what can move it, and what would happen next. The
paragraph is made of durable facts: the row, its last row of history, its pauses, its children. Only the state of a
breaker is that of the process that is asked. `explain` is pure; `read_why` reads what it needs.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal, NamedTuple

import msgspec

from interlock.core.decide import allowed
from interlock.core.declarations import StepDeclaration, TaskDeclaration
from interlock.core.events import (
    CHILDREN_JOINED,
    FORKED,
    REWIND_NAMES,
    REWINDING,
    REWOUND,
    STARTED,
    STEP_FAILED,
    UNWOUND,
)
from interlock.core.table import Node
from interlock.core.values import Allowed
from interlock.engine.bound_machine import LoadedWorkflow, StepRun, UndoRun, decode_attempts, named_in
from interlock.engine.pauses import Pausing, read_pauses
from interlock.engine.views import Timer, dependency_reason, moment, timers_of
from interlock.store.protocol import Store
from interlock.store.records import LIVING, HistoryRecord, Letter

CHILDREN_NAMED = 3
"""Living children that are named."""

EFFECTS_NAMED = 3
"""Effects that gave up and are named."""

LETTERS_READ = 100
"""Dead letters that are read: one of the step or undo, and those of effects."""

CHILDREN_READ = 1_000
"""Children that are read to find them."""

ERROR_CHARACTERS_MAX = 200
"""Characters of an error in the paragraph."""

CAUSES = {
    STARTED: "",
    FORKED: "",
    REWINDING: "",
    REWOUND: "",
    STEP_FAILED: ", because its step gave up",
    UNWOUND: ", after everything was undone",
    CHILDREN_JOINED: ", the join of its children",
}
"""What the events of the machine itself come from."""

WaitsFor = Literal[
    "nothing", "event", "resume", "operator", "children", "attempt", "retry", "dependency", "slot", "undos"
]


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a workflow is where it is."""

    workflow: str
    text: str
    """The paragraph."""
    waits_for: WaitsFor
    """"attempt": one is under way; "retry": its time; "operator": the ruling on a dead letter; "slot": a free slot, or
    an engine that runs steps; "resume": the end of a pause; "undos": an attempt of an undo; "nothing": it has ended."""
    since: datetime
    next_at: datetime | None
    """When it goes on by itself, if that is known."""
    events: tuple[str, ...]
    """The events that have a transition from here; a guard may refuse them."""


class _Wait(NamedTuple):
    kind: WaitsFor
    since: datetime
    text: str
    next_at: datetime | None = None
    then: str = ""
    """What would happen next."""


async def read_why(store: Store, live: LoadedWorkflow) -> Why:
    """Read what the explanation of a workflow needs, and return it."""
    row = live.row
    records = await store.history(row.id, after=row.version - 1, limit=1)
    last = records[0] if records and records[0].version == row.version else None
    pauses = [each for each in await read_pauses(store) if each.scope in _scopes(live)]
    living: list[str] = []
    run = live.owed.run
    if run is not None and run.family is not None and run.family.ended < run.family.total:
        found = await store.children(row.id, visit=row.visit, limit=CHILDREN_READ)
        living = [each.id for each in found if each.stage == LIVING]
    letters = await store.letters(workflow=row.id, limit=LETTERS_READ)
    return explain(live, last, pauses=pauses, living=living, letters=letters, now=moment(store.now_us()))


def explain(
    live: LoadedWorkflow,
    last: HistoryRecord | None,
    *,
    pauses: Sequence[Pausing],
    living: Sequence[str],
    letters: Sequence[Letter],
    now: datetime,
) -> Why:
    """Return the explanation of a workflow. `last` is its last row of history, unless that was pruned."""
    here = allowed(live.bound.table, live.snapshot)
    timers = timers_of(live.owed)
    wait = _wait(live, living, letters, now)
    if pauses and wait.kind != "nothing":
        # A pause delays attempts and timers. It stops no event, no operator, and no attempt that is under way.
        kind: WaitsFor = "resume" if wait.kind in {"retry", "dependency", "slot", "undos"} else wait.kind
        wait = wait._replace(kind=kind, text=f"{_paused(pauses)} {wait.text}", next_at=None)
    elif timers and (wait.next_at is None or timers[0].due_at < wait.next_at):
        wait = wait._replace(next_at=timers[0].due_at)
    sentences = (_came(live, last), wait.text, _effects(live, letters), _timers(timers, here), _moves(live), wait.then)
    return Why(
        workflow=live.row.id,
        text=" ".join(each for each in sentences if each),
        waits_for=wait.kind,
        since=wait.since,
        next_at=wait.next_at,
        events=tuple(dict.fromkeys(each.event for each in here)),
    )


# --- How it came here ------------------------------------------------------------------------------------------------


def _came(live: LoadedWorkflow, last: HistoryRecord | None) -> str:
    row = live.row
    what = f"{row.machine} {row.id!r}"
    if last is None:
        entered = _time(moment(row.entered_us))
        return f"{what} is in state {row.state!r} since {entered} (version {row.version}); its history was pruned."
    at, by = _time(moment(last.created_us)), _cause(live, last)
    if last.event == STARTED:
        return f"{what} was started in state {row.state!r} at {at}{by}."
    if last.event == FORKED:
        origin = msgspec.json.decode(last.payload, type=dict[str, str | int])
        other = f"workflow {origin['workflow']!r} at version {origin['version']}"
        return f"{what} was forked from {other}, in state {row.state!r} at {at}{by}."
    if last.event in REWIND_NAMES and last.event not in live.bound.table.events and row.visit == last.version:
        return f"{what} {_set_back(last)} at {at}{by} (version {row.version})."
    if row.visit == last.version:
        way = f"from {last.from_state!r} to {row.state!r} by {last.event}"
        return f"{what} came {way} at {at}{by} (version {row.version})."
    entered, event = _time(moment(row.entered_us)), f"{last.event} at {at}{by}"
    return f"{what} is in state {row.state!r} since {entered}; {event} left it there (version {row.version})."


def _set_back(last: HistoryRecord) -> str:
    back = msgspec.json.decode(last.payload, type=dict[str, str | int])
    to = f"version {back['to_version']}" + (f" ({back['note']})" if back["note"] else "")
    if last.event == REWOUND:
        return f"was set back to {to}, from {last.from_state!r} to {last.to_state!r}"
    return f"is set back to {to}, and went from {last.from_state!r} to {last.to_state!r} to undo what was done since"


def _cause(live: LoadedWorkflow, last: HistoryRecord) -> str:
    if last.by is not None:
        return f", by {last.by}"
    if last.event in CAUSES:
        return CAUSES[last.event]
    for each in decode_attempts(last.attempts):
        # One that started children has ended before.
        if each.kind == "step" and each.outcome == "completed" and each.ended_us in {0, last.created_us}:
            return f", the result of step {named_in(each.key)!r}"
    # A result that an earlier release stored has no attempt beside it.
    step = _step_that_returns(live, last)
    return f", from {'a timer' if step is None else f'step {step!r}'} or from a caller without a name"


def _step_that_returns(live: LoadedWorkflow, last: HistoryRecord) -> str | None:
    node = live.bound.stored.get(last.from_state)
    if node is None or node.step is None:
        return None
    events = {move.event for kind in node.step.returns for move in node.moves.get(kind, ())}
    return node.step.name if last.event in events else None


# --- What it waits for -----------------------------------------------------------------------------------------------


def _wait(live: LoadedWorkflow, living: Sequence[str], letters: Sequence[Letter], now: datetime) -> _Wait:
    node = _node(live)
    entered = moment(live.row.entered_us)
    owed = live.owed
    if node.final:
        return _final(entered, letters)
    run = owed.run or (owed.undos[0] if owed.undos else None)
    if owed.dead is not None and run is not None:
        return _dead(live, run, letters)
    if isinstance(run, StepRun) and run.family is not None:
        return _family(live, run, living)
    if run is not None:
        return _due(live, run, now)
    if node.resting and node.task is None:
        return _Wait("event", entered, "That state is resting: it may stay there for any time, until an event comes.")
    text = "It waits for an event; no step runs in this state." if node.task is None else _task(live, node.task)
    if node.dwell_max_s is not None and now - entered > timedelta(seconds=node.dwell_max_s):
        text += f" It is stalled: {_span(now - entered)} are longer than the {node.dwell_max_s:g} s declared."
    return _Wait("event", entered, text)


def _task(live: LoadedWorkflow, task: TaskDeclaration) -> str:
    claim = live.owed.claim
    who = "It is not claimed." if claim is None else f"{claim.by} claimed it at {_time(moment(claim.since_us))}."
    return f"It waits for a person with the role {task.role!r}: {task.title_of(live.lend_context())!r}. {who}"


def _final(entered: datetime, letters: Sequence[Letter]) -> _Wait:
    effect = next((each for each in letters if each.kind == "effect"), None)
    if effect is not None:
        return _Wait("operator", moment(effect.since_us), "That state is final.")
    return _Wait("nothing", entered, "That state is final: it waits for nothing.")


def _dead(live: LoadedWorkflow, run: StepRun | UndoRun, letters: Sequence[Letter]) -> _Wait:
    failed = [each for each in live.owed.tried if each.key == run.key and each.ended_us]
    since_us, error = (failed[-1].ended_us, failed[-1].error) if failed else (live.row.entered_us, "")
    letter, what = live.owed.letter, _what(run)
    if live.owed.dead == "settled":
        text = f"{what} gave up, and a person has resolved its dead letter{_error(error)}."
        return _Wait("event", moment(since_us), f"{text} It stays until an event moves it.")
    kept = [each for each in letters if each.id == letter]
    if kept:  # An earlier release wrote letters, and kept no attempts.
        since_us, error = kept[0].since_us, kept[0].message
    text = f"{_gave_up(what, run.attempts, since_us, error)} It waits for an operator."
    return _Wait("operator", moment(since_us), text, then=f"{_retried(letter)}; `resolve` goes on without it.")


def _gave_up(what: str, attempts: int, last_us: int, error: str) -> str:
    return f"{what} gave up after {_count(attempts, 'attempt')}, the last at {_time(moment(last_us))}{_error(error)}."


def _error(error: str) -> str:
    return f" ({_short(error)})" if error else ""


def _retried(letter: str) -> str:
    return f"`interlock dead-letters retry {letter}` tries it again with the same key"


def _family(live: LoadedWorkflow, run: StepRun, living: Sequence[str]) -> _Wait:
    assert run.family is not None
    total, ended = run.family.total, run.family.ended
    entered = moment(live.row.entered_us)
    if ended >= total:
        return _Wait("children", entered, f"Its children have ended ({total:,}), and no join holds.")
    named = ", ".join(map(repr, living[:CHILDREN_NAMED]))
    rest = total - ended - len(living[:CHILDREN_NAMED])
    more = f" and {rest} more" if rest > 0 else ""
    names = f": {named}{more}" if named else ""
    text = f"It waits for {total - ended} of {_count(total, 'child', 'children')}{names}."
    targets = ", ".join(dict.fromkeys(repr(join.target.name) for join in _node(live).joins))
    return _Wait("children", entered, text, then=f"When a join holds, it moves to {targets}.")


def _due(live: LoadedWorkflow, run: StepRun | UndoRun, now: datetime) -> _Wait:
    """Return the wait for an attempt of the step, or of the newest undo."""
    what, then = _what(run), _then(live, run)
    failed = [each for each in live.owed.tried if each.key == run.key and each.outcome != "completed"]
    failure = ""
    if failed:
        last = failed[-1]
        ended = _time(moment(last.ended_us))
        how = "was cancelled" if last.outcome == "cancelled" else last.outcome.replace("_", " ")
        failure = f"Attempt {last.number} {how} at {ended}: {_short(last.error)}. "
    if run.started:
        begun = moment(run.begun_us or live.row.entered_us)
        text = f"{failure}Attempt {run.attempts} of {_lower(what)} is under way since {_time(begun)}{_on(run)}."
        return _Wait("attempt", begun, text + _overdue(live, run, begun, now), then=then)
    since = moment(failed[-1].ended_us if failed else live.row.entered_us)
    due = None if run.retry_us is None else moment(run.retry_us)
    kind: WaitsFor = "undos" if isinstance(run, UndoRun) else "slot"
    reason = dependency_reason(live, run)
    if reason is not None:
        return _Wait("dependency", since, f"{failure}{what} waits: {reason}.", due, then)
    if run.parked and due is not None:
        text = f"{failure}{what} waits for what it calls. It is looked at again at {_time(due)}."
        return _Wait("dependency", since, text, due, then)
    if due is not None and due > now:
        text = f"{failure}Attempt {run.attempts + 1} of {_lower(what)} begins at {_time(due)}."
        return _Wait("retry", since, text, due, then)
    text = f"{failure}{what} waits for a free slot, or for an engine that runs steps."
    return _Wait(kind, since, text, due, then)


def _overdue(live: LoadedWorkflow, run: StepRun | UndoRun, begun: datetime, now: datetime) -> str:
    step = _step(live, run)
    if step is None or isinstance(run, UndoRun) or step.children is not None:
        return ""
    end = begun + timedelta(seconds=step.timeout_s)
    if end >= now:
        return f" It may take until {_time(end)}."
    return f" Its time was over at {_time(end)}: its process may have died. The one that takes over repeats it."


def _then(live: LoadedWorkflow, run: StepRun | UndoRun) -> str:
    """Return what would happen after the attempt."""
    if isinstance(run, UndoRun):
        target, rewind = _node(live).unwinds_to, live.owed.rewind
        undos = _count(len(live.owed.undos), "undo")
        if rewind is not None:
            return f"After {undos} it is set back to version {rewind.version}, to {rewind.state!r}."
        return "" if target is None else f"After {undos} it moves to {target.name!r}."
    step = _step(live, run)
    if step is None:
        return "The machine has no such step any more: an operator decides."
    if step.children is not None:
        return "Then it waits for the children that it starts."
    failed = _node(live).failed
    gives_up = "it becomes a dead letter" if failed is None else f"it moves to {failed.name!r}"
    return f"{_results(live, step)}If {_count(step.retry.attempts, 'attempt')} fail, {gives_up}."


def _results(live: LoadedWorkflow, step: StepDeclaration) -> str:
    node = _node(live)
    moves = [move for kind in step.returns for move in node.moves.get(kind, ())]
    texts = [f"{move.event} to {(move.target or node).name!r}" for move in moves]
    return f"Its result moves it: {', '.join(texts)}. " if texts else ""


def _effects(live: LoadedWorkflow, letters: Sequence[Letter]) -> str:
    running = [named_in(each.key) for each in live.owed.tried if each.outcome == "running"]
    texts = [f"Effects under way: {', '.join(map(repr, running))}."] if running else []
    given_up = [each for each in letters if each.kind == "effect"]
    for each in given_up[:EFFECTS_NAMED]:
        what = _gave_up(f"Effect {each.name!r}", each.attempts, each.since_us, each.message)
        texts.append(f"{what} It waits for an operator. {_retried(each.id)}.")
    if len(given_up) > EFFECTS_NAMED:
        texts.append(f"{len(given_up) - EFFECTS_NAMED} more effects gave up: `interlock dead-letters list`.")
    return " ".join(texts)


# --- What can move it ------------------------------------------------------------------------------------------------


def _moves(live: LoadedWorkflow) -> str:
    node = _node(live)
    texts: list[str] = []
    for each in (move for moves in node.moves.values() for move in moves):
        to = "stays" if each.target is None else repr(each.target.name)
        texts.append(f"{each.event} ({to}{'' if each.guard_name is None else f', if {each.guard_name}'})")
    if texts:
        return f"Events that apply here: {', '.join(texts)}."
    return "" if node.final else "No event can move it."


def _timers(timers: Sequence[Timer], here: Sequence[Allowed[Enum]]) -> str:
    texts: list[str] = []
    for timer in timers:
        targets = list(dict.fromkeys(repr(str(each.to.value)) for each in here if each.event == timer.event))
        to = f" (to {' or '.join(targets)})" if targets else ""
        texts.append(f"{timer.event} at {_time(timer.due_at)}{to}")
    return f"Timers: {', '.join(texts)}." if texts else ""


def _scopes(live: LoadedWorkflow) -> set[tuple[str, str, str]]:
    row = live.row
    return {(row.machine, "", ""), (row.machine, row.state, ""), ("", "", row.id)}


def _paused(pauses: Sequence[Pausing]) -> str:
    texts: list[str] = []
    for each in pauses:
        since = "" if each.since is None else f" since {_time(each.since)}"
        by = f" by {each.by}" if each.by else ""
        note = f" ({each.note})" if each.note else ""
        texts.append(f"The {each.scope} is paused{since}{by}{note}.")
    return " ".join([*texts, "Nothing begins and no timer fires until `interlock resume`."])


# --- Words -----------------------------------------------------------------------------------------------------------


def _node(live: LoadedWorkflow) -> Node:
    return live.bound.table.nodes[live.snapshot.state._name_]


def _step(live: LoadedWorkflow, run: StepRun | UndoRun) -> StepDeclaration | None:
    node = _node(live) if isinstance(run, StepRun) else live.bound.table.steps.get(run.step)
    return None if node is None else node.step


def _what(run: StepRun | UndoRun) -> str:
    if isinstance(run, StepRun):
        return f"Step {named_in(run.key)!r}"
    return f"The undo of step {run.step!r}"


def _lower(what: str) -> str:
    return what[:1].lower() + what[1:]


def _on(run: StepRun | UndoRun) -> str:
    return f" on {run.worker}" if run.worker else ""


def _count(count: int, one: str, many: str = "") -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _short(error: str) -> str:
    """Return an error in one line, shortened."""
    line = " ".join(error.split())
    return line if len(line) <= ERROR_CHARACTERS_MAX else line[: ERROR_CHARACTERS_MAX - 1] + "…"


def _span(span: timedelta) -> str:
    return f"{span.total_seconds():.0f} s"
