"""Checks of G5 and B9: the calls of the gateway against the stored histories.

A run keeps one key for ever. A result belongs to its own visit. No call is made for an uncommitted transition. A deed
is the outcome or is undone, newest first and never before its run has ended. Effects run; timers fire by their policy.
"""

import itertools
from collections.abc import Mapping
from typing import Protocol

import interlock.testing.engines.machines as of
from interlock.runtime.bound import Bound
from interlock.runtime.owed import decode_owed
from interlock.runtime.settings import EngineSettings
from interlock.store.protocol import Store
from interlock.store.values import Happened, Row
from interlock.testing.engines.gateway import Gateway, Visit
from interlock.testing.engines.story import Story
from interlock.testing.virtual import VirtualClock, VirtualLoop

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
    of.EFFECTS, 3
)
UNWOUND = {"cancelled", "failed"}
SLACK_S = 4.0
"""How much later than due a timer may fire: the engine retries a refused commit, or must be restarted first."""


class Seed(Protocol):
    """The completed simulation that the checks read."""

    story: Story
    gateway: Gateway
    store: Store
    loop: VirtualLoop
    clock: VirtualClock
    settings: EngineSettings
    machines: dict[str, Bound]
    calm: int
    """When the faults stopped."""


def check_acts(simulation: Seed, rows: Mapping[str, Row]) -> None:
    """Check all calls of steps, undos and effects."""
    story, calls = simulation.story, simulation.gateway.calls
    _check_keys(story, calls)
    _check_counted(simulation)
    for call in calls:
        _check_committed(story, call)
        if call.name in of.UNDOS:
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
    elif call.name in of.EFFECTS:
        wanted = of.EFFECTS[call.name][1]
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


def _check_results(simulation: Seed, workflow: str, history: list[Happened], calls: list[Visit]) -> None:
    """A result that was applied is that of the visit it was applied in."""
    keys = {(call.name, call.visit): call.key for call in calls}
    bound = simulation.machines[{"s": "shop", "p": "parcel", "w": "watch"}[workflow[0]]]
    visit = 1
    for row in history:
        name, by = of.RESULTS.get(row.event), ""
        if name is not None:
            by = str(getattr(bound.read_payload(row.event, row.payload), "by", ""))
        elif row.event in of.PIPELINE_RESULTS:
            name = of.PIPELINE_RESULTS[row.event]
            by = str(getattr(bound.codec.decode_context(row.context), name))
        if name is not None and by != "client" and keys.get((name, visit)) != by:
            simulation.story.complain(f"G5: version {row.version} is the result of another run of {name}", workflow)
        if row.event not in of.INTERNAL:
            visit = row.version


def _check_effects(story: Story, workflow: str, history: list[Happened], calls: list[Visit]) -> None:
    """B12: an effect runs at least once for every entering of its states."""
    done = {(call.name, call.visit) for call in calls if call.deed is not None}
    for row in history:
        for name, (machine, states) in of.EFFECTS.items():
            owed = machine[0] == workflow[0] and row.to_state in states and row.event not in of.INTERNAL
            if owed and (name, row.version) not in done:
                story.complain(f"G5: effect {name} of version {row.version} never ran", workflow)


def _check_order(story: Story, workflow: str, calls: list[Visit]) -> None:
    """A8: the newest is undone first."""
    visits = {call.key: call.visit for call in calls if call.name in STATES}
    undone = list(dict.fromkeys(call.undoes for call in calls if call.name in of.UNDOS))
    order = [visits[key] for key in undone if key in visits]
    if order != sorted(order, reverse=True):
        story.complain(f"A8: undone in the order of the visits {order}", workflow)


def _check_deeds(simulation: Seed, row: Row, history: list[Happened], calls: list[Visit]) -> None:
    """Every deed is the outcome, is undone, or stands in the undo log."""
    gateway, story = simulation.gateway, simulation.story
    applied = {_by(simulation, row.id, each) for each in history}
    logged = {run.key for run in decode_owed(row.owed).past}
    for call in calls:
        if call.name not in of.UNDOS.values() or call.key not in gateway.done:
            continue
        undone = gateway.undone.get(call.key)
        if row.state in UNWOUND:
            if undone is None:
                story.complain(f"G5: {call.name} of visit {call.visit} was done and is not undone", row.id)
        elif undone is not None:
            story.complain(f"G5: {call.name} of visit {call.visit} was undone without an unwinding", row.id)
        elif call.key not in applied and call.key not in logged:
            story.complain(f"G5: {call.name} of visit {call.visit} was done, and no record of it is stored", row.id)


def _by(simulation: Seed, workflow: str, row: Happened) -> str:
    if row.event in of.PIPELINE_RESULTS:
        context = simulation.machines["parcel"].codec.decode_context(row.context)
        return str(getattr(context, of.PIPELINE_RESULTS[row.event]))
    if row.event in of.RESULTS:
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


def _check_timer(simulation: Seed, entered: Happened, fired: int, begin_s: float, end_s: float) -> None:
    story, workflow, state = simulation.story, entered.workflow, entered.to_state
    lives = story.lives[story.by[workflow, entered.version] : story.by[workflow, fired] + 1]
    up_s = sum(min(life.ended_s, end_s) - max(life.opened_s, begin_s) for life in lives)
    ends = len(lives) - 1
    waited_s = end_s - begin_s
    if state == "fixed":
        # The life in which it fires opened when it was due, or later than that.
        least_s, most_s = of.AFTER_S, max(of.AFTER_S, lives[-1].opened_s - begin_s)
        counted_s = waited_s
    elif state == "anew":
        least_s = most_s = of.AFTER_S
        counted_s = end_s - max(begin_s, lives[-1].opened_s)
    else:
        least_s, most_s = of.AFTER_S, of.AFTER_S + ends * simulation.settings.timers_saved_s
        counted_s = up_s
    if not least_s - 0.001 <= counted_s <= most_s + SLACK_S + 0.1 * ends:
        story.complain(
            f"B9: a timer of {state!r} fired after {counted_s:.3f} s of {least_s:g} to {most_s:g} s", workflow
        )
    story.counts[f"timers: {state}"] += 1
