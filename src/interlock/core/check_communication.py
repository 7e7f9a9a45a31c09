"""Checks of machines that work together (E9): messages, children, joins and undos, explored up to a bound.

Each component of machines that start or send to each other is explored as one system: a workflow of each machine, and
`CHILDREN` children for each state that starts some. Guards and step outcomes are free, and callers may send every event
that none of the machines sends. What no run of such a system does is a finding. With more runs than the bound allows,
that alone is reported. A message waits until its receiver takes it, so races are not reported.

Messages are read from the code of the functions that send them, and of functions of their module that these call: the
classes of events and the machines that they name.
Sections: what is sent, the system and its moves, its exploration, findings.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from interlock.core.declarations import ChildrenDeclaration, Declarations
from interlock.core.events import Event, is_event, wire_name
from interlock.core.table import Node, Table, Transition, compile_table, name_of
from interlock.core.values import Family, Finding, finding

CONFIGURATIONS_MAX = 20_000
"""G6: configurations of one system that are explored."""

WORKFLOWS_MAX = 8
"""Workflows of one system."""

CHILDREN = 2
"""Children of a state."""

SCALES = (1, 5, 50, 5_000)
"""Factors by which a family is enlarged when a join's condition is asked: it may count to more than two."""


def communication(declared: Iterable[Declarations]) -> list[Finding]:
    """Return the findings about these machines together, which need not be sound. None of them is frozen."""
    tables = [compile_table(each) for each in declared]
    sendings = [sending for number in range(len(tables)) for sending in _sendings(tables, number)]
    found = list(_strangers(tables, sendings)) if len(tables) > 1 else []
    for members in _components(tables, sendings):
        if len(members) > 1:
            found += _System(tables, members, [each for each in sendings if each.sender in members]).findings()
    return found


# --- What is sent ----------------------------------------------------------------------------------------------------


class Sending(NamedTuple):
    """One kind of message, or one machine that is started by a call."""

    sender: int
    node: Node
    event: type[Event] | None
    """None for a start."""
    receiver: int | None
    """None for a machine that was not given."""
    name: str
    location: str
    is_undo: bool = False


def _sendings(tables: Sequence[Table], sender: int) -> Iterator[Sending]:
    """Yield what the functions of one machine name. Events of its own are what its steps return."""
    table = tables[sender]
    for node in table.nodes.values():
        for effect in node.effects:
            function = effect.sends or effect.function
            yield from _of(tables, sender, node, function, effect.location, own=effect.sends is not None)
        step = node.step
        if step is not None and step.children is None:
            yield from _of(tables, sender, node, step.function, step.location)
            for undo in step.undos:
                for unwinding in table.nodes.values():
                    if unwinding.unwinds_to is not None:
                        yield from _of(tables, sender, unwinding, undo.function, undo.location, is_undo=True)


def _of(
    tables: Sequence[Table],
    sender: int,
    node: Node,
    function: object,
    location: str,
    *,
    own: bool = False,
    is_undo: bool = False,
) -> Iterator[Sending]:
    for named in _named(function):
        declarations = getattr(named, "declarations", None)
        if isinstance(declarations, Declarations):
            receiver = next((at for at, table in enumerate(tables) if table.declared is declarations), None)
            yield Sending(sender, node, None, receiver, name_of(function), location)
        elif isinstance(named, type) and issubclass(named, Event):
            owners = (at for at, table in enumerate(tables) if is_event(named, table.declared.alphabet))
            receiver = next(owners, None)
            is_alphabet = named is Event or any(named is table.declared.alphabet for table in tables)
            if not is_alphabet and (own or receiver != sender):
                yield Sending(sender, node, named, receiver, name_of(function), location, is_undo)


def _named(function: object) -> list[object]:
    """Return the values that a function names, and the functions of its module that it names."""
    found: dict[int, object] = {}  # By identity: a value of the program may not be hashable.
    waiting = [function]
    while waiting:
        each = waiting.pop()
        for value in _named_in(each):
            is_helper = isinstance(value, FunctionType) and value.__module__ == getattr(each, "__module__", None)
            if is_helper and id(value) not in found:
                waiting.append(value)
            found[id(value)] = value
    return list(found.values())


def _named_in(function: object) -> list[object]:
    """Return the values that the code of a function names: globals, enclosing variables, attributes of modules."""
    code = getattr(function, "__code__", None)
    names: dict[str, None] = {}
    waiting = [code] if isinstance(code, CodeType) else []
    while waiting:
        each = waiting.pop()
        names.update(dict.fromkeys((*each.co_names, *each.co_freevars)))
        waiting += [inner for inner in each.co_consts if isinstance(inner, CodeType)]
    scope: dict[str, object] = dict(getattr(function, "__globals__", {}))
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # A variable that is not assigned yet.
            continue
    found = [scope[name] for name in names if name in scope]
    for module in [each for each in found if isinstance(each, ModuleType)]:
        found += [getattr(module, name) for name in names if hasattr(module, name)]
    return found


def _strangers(tables: Sequence[Table], sendings: Iterable[Sending]) -> Iterator[Finding]:
    """Yield what goes to machines that were not given."""
    reported = set[object]()
    for each in sendings:
        if each.event is None or each.receiver is not None or (each.sender, each.event) in reported:
            continue
        reported.add((each.sender, each.event))
        name = wire_name(each.event)
        what = f"{each.name} of {tables[each.sender].name!r} sends {name}, which no machine of this check has."
        why = "Whether its receiver takes it was not checked."
        yield finding("message-not-checked", "info", each.location, what, why, "Check the receiver's machine with it.")


def _components(tables: Sequence[Table], sendings: Iterable[Sending]) -> list[set[int]]:
    """Return the machines that start or send to each other."""
    component = list(range(len(tables)))
    links = [(each.sender, each.receiver) for each in sendings if each.receiver is not None]
    for number, table in enumerate(tables):
        links += [(number, at) for node in table.nodes.values() for at in [_child_of(tables, node)] if at is not None]
    for one, other in links:
        component = [component[other] if each == component[one] else each for each in component]
    return [{at for at, each in enumerate(component) if each == name} for name in dict.fromkeys(component)]


def _children(node: Node) -> ChildrenDeclaration | None:
    return None if node.step is None else node.step.children


def _child_of(tables: Sequence[Table], node: Node) -> int | None:
    """Return the machine of a state's children, if it was given."""
    children = _children(node)
    declared = None if children is None else children.of.declarations
    return next((at for at, table in enumerate(tables) if table.declared is declared), None)


# --- The system and its moves ----------------------------------------------------------------------------------------


class _Member(NamedTuple):
    """One workflow of the system."""

    machine: int
    state: str
    parent: int | None = None
    ended: str = ""
    """The state in which it ended first."""


class _Configuration(NamedTuple):
    """The states of all workflows, and the messages that wait."""

    members: tuple[_Member, ...]
    waiting: frozenset[Sending]


class _System:
    """One component of machines, and what its runs have done."""

    def __init__(self, tables: Sequence[Table], machines: set[int], sendings: Sequence[Sending]) -> None:
        self._tables = tables
        self._machines = machines
        self._sendings = [each for each in sendings if each.event is not None and each.receiver is not None]
        self._sent = {(each.receiver, each.event) for each in self._sendings}
        self._by_children = set[int]()
        for node in (node for at in machines for node in tables[at].nodes.values()):
            child, children = _child_of(tables, node), _children(node)
            if child is not None and children is not None:
                self._by_children.add(child)
                if children.cancel is not None:
                    self._sent.add((child, type(children.cancel)))
        self._is_complete = True
        self._accepted = set[Sending]()
        self._posted = set[Sending]()
        self._joined = set[int]()

    def _node(self, member: _Member) -> Node:
        return self._tables[member.machine].nodes[member.state]

    def _begin(self) -> _Configuration:
        roots = sorted(self._machines - self._by_children) or sorted(self._machines)
        configuration = _Configuration((), frozenset())
        for machine in roots:
            configuration = self._add(configuration, machine, None)
        return configuration

    def _add(self, configuration: _Configuration, machine: int, parent: int | None) -> _Configuration:
        """Start a workflow, if there is room."""
        initial = self._tables[machine].initial
        if len(configuration.members) >= WORKFLOWS_MAX or initial is None:
            self._is_complete = False
            return configuration
        member = _Member(machine, initial.state.name, parent)
        started = configuration._replace(members=(*configuration.members, member))
        return self._enter(started, len(started.members) - 1, initial)

    def _enter(self, configuration: _Configuration, at: int, node: Node) -> _Configuration:
        """Let a workflow enter a state: with the messages, the children and the cancellations that this owes."""
        members = list(configuration.members)
        before = self._node(members[at])
        members[at] = members[at]._replace(
            state=node.state.name, ended=members[at].ended or ("" if node.active else node.state.name)
        )
        posted = {each for each in self._sendings if each.sender == members[at].machine and each.node is node}
        self._posted |= posted
        configuration = _Configuration(tuple(members), configuration.waiting | posted)
        left, children = _children(before), _children(node)
        if left is not None:
            configuration = self._cancel(configuration, at, left, also_ended=False)
        if node.unwinds_to is not None:
            for other in self._tables[members[at].machine].nodes.values():
                if (undone := _children(other)) is not None:
                    configuration = self._cancel(configuration, at, undone, also_ended=True)
        machine = _child_of(self._tables, node)
        if children is not None and machine is not None:
            configuration = self._start_children(configuration, at, machine)
        return configuration

    def _start_children(self, configuration: _Configuration, parent: int, machine: int) -> _Configuration:
        """Start the children of a state; those of earlier visits that have ended begin anew."""
        initial, begun = self._tables[machine].initial, 0
        for at, member in enumerate(configuration.members):
            if member.parent == parent and member.machine == machine and initial and not self._node(member).active:
                members = list(configuration.members)
                members[at] = _Member(machine, initial.state.name, parent)
                configuration = self._enter(configuration._replace(members=tuple(members)), at, initial)
                begun += 1
        for _ in range(begun, CHILDREN):
            configuration = self._add(configuration, machine, parent)
        return configuration

    def _cancel(
        self, configuration: _Configuration, parent: int, children: ChildrenDeclaration, *, also_ended: bool
    ) -> _Configuration:
        """Send the children their cancellation, newest first."""
        if children.cancel is None:
            return configuration
        for at in reversed(range(len(configuration.members))):
            member = configuration.members[at]
            is_child = member.parent == parent and self._tables[member.machine].declared is children.of.declarations
            moves = self._node(member).moves.get(type(children.cancel), ()) if is_child else ()
            if moves and (also_ended or not member.ended) and moves[-1].target is not None:
                configuration = self._enter(configuration, at, moves[-1].target)
        return configuration

    def _next(self, configuration: _Configuration) -> Iterator[_Configuration]:
        """Yield the configurations that are one move away."""
        for at, member in enumerate(configuration.members):
            node = self._node(member)
            targets = [node.failed, *self._free_moves(member, node)]
            if node.unwinds_to is not None and not self._has_active_children(configuration, at):
                targets.append(node.unwinds_to)
            targets += self._joins(configuration, at, node)
            for target in targets:
                if target is not None:
                    yield self._enter(configuration, at, target)
        for sending in configuration.waiting:
            rest = configuration._replace(waiting=configuration.waiting - {sending})
            for at, member in enumerate(configuration.members):
                event = sending.event
                moves = self._node(member).moves.get(event, ()) if event and member.machine == sending.receiver else ()
                for target in _targets(moves):
                    self._accepted.add(sending)
                    yield rest if target is None else self._enter(rest, at, target)

    def _free_moves(self, member: _Member, node: Node) -> Iterator[Node | None]:
        """Yield where outcomes, timers and callers may move a workflow."""
        own = {type(timer.send) for timer in node.timers}
        if node.step is not None and node.step.children is None:
            own |= set(node.step.returns or node.moves)
        for event, moves in node.moves.items():
            if event in own or (member.machine, event) not in self._sent:
                yield from _targets(moves)

    def _has_active_children(self, configuration: _Configuration, parent: int) -> bool:
        return any(each.parent == parent and self._node(each).active for each in configuration.members)

    def _joins(self, configuration: _Configuration, at: int, node: Node) -> Iterator[Node]:
        machine = _child_of(self._tables, node)
        if machine is None:
            return
        ends = [each.ended for each in configuration.members if each.parent == at and each.machine == machine]
        nodes = self._tables[machine].nodes
        for join in node.joins:
            for scale in SCALES:
                counts: dict[str, int] = {}
                for name in filter(None, ends):
                    value = str(nodes[name].state.value)
                    counts[value] = counts.get(value, 0) + scale
                states = self._tables[machine].declared.states
                family = Family(total=len(ends) * scale, ended=sum(counts.values()), counts=counts, states=states)
                if _holds(join.declared.holds, family):
                    self._joined.add(id(join))
                    yield join.target
                    break

    # --- Exploration -------------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        """Explore the system and return what its runs never do."""
        numbers: dict[_Configuration, int] = {}
        edges: list[set[int]] = []
        queue = deque([self._begin()])
        numbers[queue[0]] = 0
        while queue:
            following = set[int]()
            for each in self._next(queue.popleft()):
                if each not in numbers:
                    if len(numbers) >= CONFIGURATIONS_MAX:
                        self._is_complete = False
                        break
                    numbers[each] = len(numbers)
                    queue.append(each)
                following.add(numbers[each])
            edges.append(following)
            if not self._is_complete:
                return [self._too_large()]
        configurations = list(numbers)
        reached = {(each.machine, each.state) for configuration in configurations for each in configuration.members}
        return [
            *self._refused(),
            *self._never_joined(reached),
            *self._stuck(_for_ever(configurations, edges, self._node)),
        ]

    # --- Findings ----------------------------------------------------------------------------------------------------

    def _too_large(self) -> Finding:
        names = ", ".join(self._tables[at].name for at in sorted(self._machines))
        bounds = f"{CONFIGURATIONS_MAX:,} configurations or {WORKFLOWS_MAX} workflows"
        what = f"{names} together have more than {bounds}."
        why = "Their messages, children and joins were not explored: nothing is known about them together."
        location = self._tables[min(self._machines)].declared.location
        return finding(
            "communication-too-large", "info", location, what, why, "Check fewer of these machines together."
        )

    def _refused(self) -> Iterator[Finding]:
        for each in sorted(
            self._posted - self._accepted, key=lambda each: (each.location, wire_name(each.event or Event))
        ):
            assert each.event is not None
            assert each.receiver is not None
            sender, receiver = self._tables[each.sender].name, self._tables[each.receiver].name
            name = wire_name(each.event)
            if each.is_undo:
                what = f"the undo {each.name} of {sender!r} sends {name}, and {receiver!r} never takes it by then."
                why = "What the receiver did stays done: its own undo, or its end, comes before this one."
                fix = f"Declare {name} in the states in which {receiver!r} is then, or undo it from one side only."
                yield finding("undo-crosses", "warning", each.location, what, why, fix)
                continue
            what = (
                f"{each.name} of {sender!r} sends {name} on entering {each.node.name!r}; {receiver!r} never takes it."
            )
            why = (
                "In no run of these machines is the receiver in a state with a transition for it: it is a dead letter."
            )
            fix = f"Declare {name} in the states of {receiver!r} that it meets, or send it from another state."
            yield finding("message-never-accepted", "warning", each.location, what, why, fix)

    def _never_joined(self, reached: set[tuple[int, str]]) -> Iterator[Finding]:
        for machine, state in sorted(reached):
            node = self._tables[machine].nodes[state]
            for join in node.joins:
                if _child_of(self._tables, node) is not None and id(join) not in self._joined:
                    name = self._tables[machine].name
                    what = f"no run takes the join of state {node.name!r} of {name!r} to {join.target.name!r}."
                    why = "With these machines its condition never holds, or another join always holds first."
                    fix = "Count states in which these children can end, or change the order of the joins."
                    yield finding("join-never-taken", "warning", join.declared.location, what, why, fix)

    def _stuck(self, stuck: Iterable[tuple[int, str, bool]]) -> Iterator[Finding]:
        """Yield a finding for each state in which a workflow may stay for ever; for parents only if no child does."""
        found = sorted(set(stuck))
        children = {machine for machine, _, is_child in found if is_child}
        for machine, state, is_child in found:
            table = self._tables[machine]
            node = table.nodes[state]
            child = _child_of(self._tables, node)
            if child in children or (node.unwinds_to is not None and children):
                continue
            events = ", ".join(wire_name(event) for event in node.moves if (machine, event) in self._sent)
            waits = f"only {events} would move it, which these machines send" if events else "nothing moves it"
            what = f"a workflow of {table.name!r} may wait in state {node.name!r} for ever: {waits}."
            why = "There is a run in which nothing sends it any more. The check assumes that callers do not send it."
            fix = "Send it from another state, add a timer, or mark the state resting."
            location = table.declared.location
            if is_child:
                yield finding("child-never-ends", "warning", location, what, why, fix)
            else:
                yield finding("waits-for-ever", "warning", location, what, why, fix)


def _targets(moves: Sequence[Transition]) -> Iterator[Node | None]:
    """Yield where an event may lead: up to the first transition without a guard."""
    for move in moves:
        yield move.target
        if move.guard is None:
            return


def _holds(holds: Any, family: Family) -> bool:  # noqa: ANN401 -- a function of the user.
    try:
        return holds(family) is True
    except Exception:  # noqa: BLE001 -- a condition that raises does not hold.
        return False


def _for_ever(
    configurations: Sequence[_Configuration],
    edges: Sequence[set[int]],
    node_of: Any,  # noqa: ANN401 -- a method.
) -> Iterator[tuple[int, str, bool]]:
    """Yield machine and state of each active workflow that no run moves any more."""
    before: list[list[int]] = [[] for _ in configurations]
    for number, following in enumerate(edges):
        for each in following:
            before[each].append(number)
    for at in range(max(len(each.members) for each in configurations)):
        moving = {
            number
            for number, following in enumerate(edges)
            for each in following
            if _state(configurations[each], at) != _state(configurations[number], at)
        }
        waiting = list(moving)
        while waiting:
            for number in before[waiting.pop()]:
                if number not in moving:
                    moving.add(number)
                    waiting.append(number)
        for number, configuration in enumerate(configurations):
            if number not in moving and at < len(configuration.members) and node_of(configuration.members[at]).active:
                member = configuration.members[at]
                yield member.machine, member.state, member.parent is not None


def _state(configuration: _Configuration, at: int) -> str:
    return configuration.members[at].state if at < len(configuration.members) else ""
