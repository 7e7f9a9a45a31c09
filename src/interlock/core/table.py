"""The compiled machine: the tables that `decide` reads.

A table is the declared machine arranged for speed: a node per state, its transitions by event class, and the commands
of every move computed in advance. Compiling accepts an unsound graph, so that the checks can examine it.

The odd choice: nodes are found by the member's `_name_` and then compared by identity. Hashing an Enum member
calls Python code and costs three times as much as hashing its name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from interlock.core.declarations import (
    Action,
    Declarations,
    EffectDeclaration,
    Guard,
    JoinDeclaration,
    StepDeclaration,
    TaskDeclaration,
    TimerDeclaration,
    TransitionDeclaration,
)
from interlock.core.events import Event, events_below, wire_name
from interlock.core.values import Command, RunEffect, RunStep, StartTimer, StopStep, StopTimers


@dataclass(slots=True, eq=False)
class Transition:
    """One arrow out of one node. `target` is None for an internal transition.

    `guard` and `action` are what `decide` calls: the declared functions, or wrappers that pass copies (`codec`).
    """

    event: str
    source: "Node"
    target: "Node | None"
    guard: Guard | None
    action: Action | None
    commands: tuple[Command, ...]
    declared: TransitionDeclaration
    plain: bool
    """True when neither end changes the undo log, and no timer is computed: the fast path of `decide`."""
    ends: bool
    """True when the undo log is cleared: by `settle`, or because the target is final."""
    settles: bool
    """True when completed runs become final (C21)."""
    outcome: bool
    """True when the source's step declares to return the event, or has an undo for it."""
    takes_time: bool
    """True when its guard or its action takes the time of the move (A11)."""

    @property
    def clears(self) -> bool:
        """True when the undo log is empty after it. A run that a settling move cuts off may have happened (G5)."""
        return self.settles and (self.outcome or not self.source.undoable)

    @property
    def guard_name(self) -> str | None:
        """The guard's name, as refusals and diagrams show it."""
        return None if self.declared.guard is None else name_of(self.declared.guard)

    @property
    def guard_reason(self) -> str:
        """The first line of the guard's docstring: the reason shown when it returns False."""
        return "" if self.declared.guard is None else first_line(self.declared.guard)


@dataclass(slots=True, eq=False)
class Node:
    """One state with everything attached to it."""

    state: Enum
    name: str
    final: bool
    resting: bool
    step: StepDeclaration | None
    effects: tuple[EffectDeclaration, ...]
    timers: tuple[TimerDeclaration, ...]
    computed: tuple[TimerDeclaration, ...]
    """The timers whose time is computed from the context on entering (B16); not in `entering`."""
    dwell_max_s: float | None
    """The declared one; of a task without one, the time after which it is due."""
    entering: tuple[Command, ...]
    leaving: tuple[Command, ...]
    undoable: bool
    unwinds_to: "Node | None" = None
    failed: "Node | None" = None
    joins: tuple["Join", ...] = ()
    """The moves of its children's joins, in declared order; the one without a condition is the last."""
    task: TaskDeclaration | None = None
    """What a person does here."""
    moves: dict[type[Event], tuple[Transition, ...]] = field(default_factory=dict)
    timeless: dict[type[Event], tuple[Transition, ...]] = field(default_factory=dict)
    """The moves of events whose guards and actions take no time: the fast path of `decide`."""
    active: bool = field(init=False)
    """True when neither final nor resting: a workflow here is expected to move."""

    def __post_init__(self) -> None:
        """Compute what is asked with every move."""
        self.active = not (self.final or self.resting)

    def next_nodes(self) -> list["Node"]:
        """Return the nodes one move away, by any cause, without repetition."""
        found = [move.target for moves in self.moves.values() for move in moves]
        found += [self.failed, self.unwinds_to, *(join.target for join in self.joins)]
        return list(dict.fromkeys(node for node in found if node is not None))


@dataclass(slots=True, eq=False)
class Join:
    """One move of a parent when its children have ended as declared."""

    target: Node
    declared: JoinDeclaration


@dataclass(slots=True, eq=False)
class Table:
    """A compiled machine."""

    name: str
    version: int
    declared: Declarations
    nodes: dict[str, Node]
    initial: Node | None
    events: dict[str, type[Event]]
    steps: dict[str, Node]
    context_class: type[Any]
    """The class for `isinstance` checks of a context: the class itself, or dict for a TypedDict."""
    context_exact: bool
    """True when instances of a subclass are refused: see `is_exact`."""
    takes_time: bool
    """True when a transition takes the time of the move (A11)."""
    has_children: bool = False
    """True when a state starts children."""
    has_turns: bool = False
    """True when a step takes its turn at a dependency by a key or a priority."""
    has_tasks: bool = False
    """True when a state waits for a person."""
    copy_context: Callable[[Any], Any] | None = None
    """Copies a context before user code receives it; None when its class cannot be changed in place."""

    def node(self, state: Enum) -> Node | None:
        """Return the node of a state, or None for a state of another machine."""
        node = self.nodes.get(state._name_)
        return node if node is not None and node.state is state else None


def compile_table(declared: Declarations) -> Table:
    """Compile the declarations. Never raises: `checks` reports what is unsound."""
    nodes = {state.name: _node(declared, state) for state in declared.states}
    for node in nodes.values():
        target = declared.unwind.get(node.state)
        node.unwinds_to = nodes[target.name] if target else None
        if node.step is not None and node.step.failed is not None:
            node.failed = nodes[node.step.failed.name]
        joins = [Join(nodes[each.to.name], each) for each in declared.joins if each.state is node.state]
        node.joins = tuple(sorted(joins, key=lambda each: each.declared.when is None))
    for node in nodes.values():
        node.moves = _moves(declared, node, nodes)
        node.timeless = {
            event: moves for event, moves in node.moves.items() if not any(move.takes_time for move in moves)
        }
    return Table(
        name=declared.name,
        version=declared.version,
        declared=declared,
        nodes=nodes,
        initial=nodes[declared.initial.name] if declared.initial else None,
        events=_alphabet(declared),
        steps={node.step.name: node for node in nodes.values() if node.step},
        context_class=class_of(declared.context),
        context_exact=is_exact(declared.context),
        takes_time=any(len(node.timeless) < len(node.moves) for node in nodes.values()),
        has_children=any(step.children is not None for step in declared.steps.values()),
        has_turns=any(step.per is not None or step.priority is not None for step in declared.steps.values()),
        has_tasks=bool(declared.tasks),
    )


def _node(declared: Declarations, state: Enum) -> Node:
    step = declared.steps.get(state)
    effects = tuple(effect for effect in declared.effects if state in effect.states)
    timers = tuple(timer for timer in declared.timers if timer.state is state)
    entering: list[Command] = [RunStep(step.name)] if step else []
    entering += [RunEffect(effect.name) for effect in effects]
    entering += [StartTimer(timer.send, timer.after_s, timer.policy) for timer in timers if timer.function is None]
    leaving: list[Command] = [StopStep(step.name)] if step else []
    leaving += [StopTimers()] if timers else []
    dwell, task = declared.dwells.get(state), declared.tasks.get(state)
    return Node(
        state=state,
        name=state.value,
        final=state in declared.final,
        resting=state in declared.resting,
        step=step,
        effects=effects,
        timers=timers,
        computed=tuple(timer for timer in timers if timer.function is not None),
        dwell_max_s=dwell.max_s if dwell else task.due_s if task and state not in declared.resting else None,
        task=task,
        entering=tuple(entering),
        leaving=tuple(leaving),
        # Children of a machine that never unwinds are only cancelled when their state is left.
        undoable=step is not None and bool(step.undos) and (step.children is None or bool(declared.unwind)),
    )


def _moves(declared: Declarations, node: Node, nodes: dict[str, Node]) -> dict[type[Event], tuple[Transition, ...]]:
    moves: dict[type[Event], tuple[Transition, ...]] = {}
    for transition in declared.transitions:
        if node.state in transition.sources:
            moves[transition.event] = (*moves.get(transition.event, ()), _transition(transition, node, nodes))
    if node.final or node.unwinds_to:
        return moves
    # A4: the catch-all applies in every state without a transition of its own for the event.
    specific = frozenset(moves)
    for transition in declared.transitions:
        if transition.catch_all and transition.event not in specific:
            moves[transition.event] = (*moves.get(transition.event, ()), _transition(transition, node, nodes))
    return moves


def _transition(declared: TransitionDeclaration, source: Node, nodes: dict[str, Node]) -> Transition:
    target = nodes[declared.to.name] if declared.to else None
    settles = declared.settle is True
    return Transition(
        event=wire_name(declared.event),
        source=source,
        target=target,
        guard=declared.guard,
        action=declared.action,
        commands=source.leaving + target.entering if target else (),
        declared=declared,
        plain=(
            target is not None
            and not (source.undoable or target.undoable or target.computed)
            and target.unwinds_to is None
        ),
        ends=settles or (target is not None and target.final),
        settles=settles,
        outcome=source.step is not None and declared.event in source.step.outcomes,
        takes_time=declared.guard_at or declared.action_at,
    )


def _alphabet(declared: Declarations) -> dict[str, type[Event]]:
    # Events that transitions and steps name come first: of two classes with the same module and name (a module
    # loaded again, dataclass slots) the one in use must win.
    used = [transition.event for transition in declared.transitions]
    used += [event for step in declared.steps.values() for event in step.returns]
    events: dict[str, type[Event]] = {}
    for event in [*used, *events_below(declared.alphabet)]:
        events.setdefault(wire_name(event), event)
    return events


def is_exact(context: object) -> bool:
    """Return whether subclasses of the context are refused, because the fields they add would be lost on decoding."""
    return isinstance(context, type) and (is_dataclass(context) or issubclass(context, msgspec.Struct))


def class_of(context: type[object]) -> type[object]:
    """Return the class for `isinstance` checks: the class, `dict` for a TypedDict, the origin of a generic."""
    if hasattr(context, "__required_keys__"):
        return dict
    origin = getattr(context, "__origin__", context)
    return origin if isinstance(origin, type) else object


def name_of(function: object) -> str:
    """Return a user function's name; a callable object is named by its class."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def first_line(function: object) -> str:
    """Return the first line of a docstring, or an empty text."""
    while isinstance(function, partial):
        function = function.func
    text = (getattr(function, "__doc__", None) or "").strip()
    return text.partition("\n")[0].strip()


# --- Graph -----------------------------------------------------------------------------------------------------------
# Guards are not evaluated, so every move counts as possible. A workflow owes undos after an undoable step until it
# unwinds, or a transition settles the run (C21).


def reached_from(
    starts: Iterable[Node],
    *,
    stops: Callable[[Node], bool] | None = None,
    following: Callable[[Node], Iterable[Node]] = Node.next_nodes,
) -> set[Node]:
    """Return the nodes reachable from `starts`, these included. A node that `stops` is included, but not passed."""
    reached: set[Node] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node in reached:
            continue
        reached.add(node)
        if stops is None or not stops(node):
            waiting.extend(following(node))
    return reached


def is_unwinding(node: Node) -> bool:
    """Return whether the node is unwinding. After an unwinding node the undo log is empty."""
    return node.unwinds_to is not None


def may_owe(table: Table) -> set[Node]:
    """Return the nodes in which a workflow may owe undos."""
    undoable = (node for node in table.nodes.values() if node.undoable)
    return reached_from(undoable, stops=is_unwinding, following=_carried_to)


def _carried_to(node: Node) -> list[Node]:
    """Return the nodes one move away in which the undos are still owed: without moves that clear the undo log."""
    moves = (move.target for moves in node.moves.values() for move in moves if not move.clears)
    return [each for each in (*moves, node.failed, node.unwinds_to) if each is not None]


def may_owe_nothing(table: Table) -> set[Node]:
    """Return the nodes that can be reached with an empty undo log: before an undoable step or after settling."""
    moves = (move for node in table.nodes.values() for moves in node.moves.values() for move in moves)
    settled = [move.target for move in moves if move.settles and move.target is not None]
    return reached_from([*([table.initial] if table.initial else []), *settled], stops=lambda node: node.undoable)


class Ends:
    """The nodes in which a move really ends: a straight unwinding state is skipped when nothing has to be undone."""

    def __init__(self, table: Table) -> None:
        self._straight = table.declared.straight
        self._may_owe = may_owe(table)
        self._may_owe_nothing = may_owe_nothing(table)

    def of(self, node: Node, target: Node | None) -> tuple[Node, ...]:
        """Return the nodes that a move from `node` to `target` may end in; None is an internal transition."""
        if target is None or target.unwinds_to is None or not self._straight:
            return (target or node,)
        with_debts = (target,) if node in self._may_owe else ()
        without_debts = (target.unwinds_to,) if node in self._may_owe_nothing else ()
        return with_debts + without_debts
