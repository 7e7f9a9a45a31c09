"""A2: every mistake of the graph is an error when the machine is first used, and a finding of check() before that."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from dataclasses import dataclass
from enum import Enum

import pytest

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import Finding, StepContext
from interlock.errors import DefinitionError


class State(Enum):
    A = "a"
    B = "b"
    C = "c"
    END = "end"


class GraphEvent(Event):
    pass


@dataclass(frozen=True)
class Go(GraphEvent):
    pass


@dataclass(frozen=True)
class Back(GraphEvent):
    pass


@dataclass(frozen=True)
class Stop(GraphEvent):
    pass


@dataclass(frozen=True)
class Context:
    n: int = 0


Graph = Machine[State, Context, GraphEvent]


def graph(**changes: object) -> Graph:
    settings = {"states": State, "context": Context, "events": GraphEvent, "initial": State.A, "final": {State.END}}
    return Machine("graph", **{**settings, **changes})


def chain(machine: Graph) -> Graph:
    machine.on(Go, State.A, to=State.B)
    machine.on(Go, State.B, to=State.C)
    machine.on(Go, State.C, to=State.END)
    return machine


def small(context: Context, event: GraphEvent) -> bool:
    return context.n < 5


def errors(machine: Graph) -> list[Finding]:
    return [finding for finding in machine.check() if finding.severity == "error"]


async def work(context: Context, ctx: StepContext) -> Go:
    return Go()


async def undo(context: Context, done: Go | None, ctx: StepContext) -> None: ...


def no_initial() -> tuple[Graph, str, str]:
    return chain(graph(initial=None)), "no-initial-state", "initial"


def duplicate() -> tuple[Graph, str, str]:
    machine = chain(graph())
    machine.on(Go, State.A, to=State.C)
    return machine, "duplicate-transition", "second unguarded"


def hidden_guard() -> tuple[Graph, str, str]:
    machine = chain(graph())
    machine.on(Go, State.A, to=State.C, when=small)
    return machine, "duplicate-transition", "small"


def duplicate_catch_all() -> tuple[Graph, str, str]:
    machine = graph()
    machine.on(Go, State.A, to=State.B)
    machine.on(Back, State.B, to=State.C)
    machine.on(Stop, State.C, to=State.END)
    machine.on(Go, State.C, to=State.END)
    machine.on(Go, State.B, to=State.END)
    machine.on(Back, State.B, to=State.END)
    return machine, "duplicate-transition", "BACK"


def unreachable() -> tuple[Graph, str, str]:
    machine = graph()
    machine.on(Go, State.A, to=State.B)
    machine.on(Go, State.B, State.C, to=State.END)
    return machine, "unreachable-state", "'c'"


def dead_end() -> tuple[Graph, str, str]:
    machine = chain(graph(final=set(), resting=set()))
    return machine, "dead-end", "'end'"


def self_loop_is_a_dead_end() -> tuple[Graph, str, str]:
    machine = graph()
    machine.on(Go, State.A, to=State.B)
    machine.on(Stop, State.A, to=State.END)
    machine.on(Go, State.B, to=State.B)
    machine.on(Back, State.A, to=State.C)
    machine.on(Back, State.C, to=State.END)
    return machine, "dead-end", "'b'"


def trap() -> tuple[Graph, str, str]:
    machine = graph()
    machine.on(Stop, State.A, to=State.END)
    machine.on(Go, State.A, to=State.B)
    machine.on(Go, State.B, to=State.C)
    machine.on(Back, State.C, to=State.B)
    return machine, "no-way-out", "'b'"


def lost_undo() -> tuple[Graph, str, str]:
    machine = chain(graph())
    machine.step(State.A, timeout_s=1)(work).undo(Go)(undo)
    machine.step(State.B, timeout_s=1, failed=State.END, name="later")(work)
    return machine, "failed-without-unwinding", "later"


def own_undo_lost() -> tuple[Graph, str, str]:
    machine = chain(graph())
    machine.step(State.C, timeout_s=1, failed=State.END)(work).undo(Go)(undo)
    return machine, "failed-without-unwinding", "work"


def ambiguous_name() -> tuple[Graph, str, str]:
    class LocalEvent(Event):
        pass

    @dataclass(frozen=True)
    class Ship(LocalEvent):
        pass

    @dataclass(frozen=True)
    class Send(LocalEvent):
        wire_name = "SHIP"

    machine = Machine(
        "graph", states=State, context=Context, events=LocalEvent, initial=State.A, resting=set(State) - {State.A}
    )
    machine.on(Ship, State.A, to=State.B)
    machine.on(Ship, State.B, to=State.C)
    machine.on(Send, State.C, to=State.END)
    return machine, "duplicate-event-name", "SHIP"


BROKEN = [
    no_initial,
    duplicate,
    hidden_guard,
    duplicate_catch_all,
    unreachable,
    dead_end,
    self_loop_is_a_dead_end,
    trap,
    lost_undo,
    own_undo_lost,
    ambiguous_name,
]


@pytest.mark.parametrize("build", BROKEN, ids=lambda build: build.__name__)
def test_a_broken_graph_is_found_and_cannot_be_used(build: object) -> None:
    machine, code, word = build()
    found = errors(machine)
    assert found[0].code == code
    assert word in found[0].what
    assert found[0].why
    assert found[0].fix
    assert found[0].location.startswith(__file__)
    with pytest.raises(DefinitionError) as caught:
        machine.begin(Context())
    error = caught.value
    assert (error.rule, error.location, error.why, error.fix) == (
        code,
        found[0].location,
        found[0].why,
        found[0].fix,
    )
    assert "graph" in error.what


def test_the_number_of_further_errors_is_told() -> None:
    machine = graph(final=set())
    machine.on(Go, State.A, to=State.B)
    with pytest.raises(DefinitionError) as caught:
        machine.begin(Context())
    assert f"{len(errors(machine)) - 1} more" in caught.value.what


def test_a_duplicate_is_located_at_the_second_declaration_and_names_the_first() -> None:
    machine, _, _ = duplicate()
    [finding] = errors(machine)
    assert finding.location.rpartition(":")[2] == str(duplicate.__code__.co_firstlineno + 2)
    assert __file__ in finding.why


def test_every_hidden_transition_is_told_even_from_one_line() -> None:
    machine = chain(graph())
    machine.on(Back, State.A, to=State.B)
    for event in (Go, Back):
        machine.on(event, State.A, to=State.C)
    assert [finding.code for finding in errors(machine)] == ["duplicate-transition"] * 2


def test_a_guarded_transition_before_the_unguarded_one_is_fine() -> None:
    machine = graph()
    machine.on(Go, State.A, to=State.C, when=small)
    chain(machine)
    assert errors(machine) == []


def test_a_catch_all_beside_a_specific_transition_is_no_duplicate() -> None:
    machine = chain(graph())
    machine.on(Go, machine.any, to=State.END)
    assert errors(machine) == []


def test_resting_states_need_no_exit() -> None:
    assert errors(chain(graph(final=set(), resting={State.END}))) == []


def test_a_loop_towards_a_resting_state_is_no_trap() -> None:
    machine = chain(graph(final=set(), resting={State.END}))
    machine.on(Back, State.END, to=State.A)
    assert errors(machine) == []


def test_an_unwinding_state_leads_on_by_itself() -> None:
    machine = graph(unwind={State.C: State.END})
    machine.on(Go, State.A, to=State.B)
    machine.on(Go, State.B, to=State.END)
    machine.step(State.B, timeout_s=1, failed=State.C)(work).undo(Go)(undo)
    assert errors(machine) == []
    machine.begin(Context())


def test_failing_behind_the_unwinding_owes_nothing() -> None:
    machine = graph(unwind={State.B: State.C})
    machine.on(Go, State.A, to=State.END)
    machine.step(State.A, timeout_s=1, failed=State.B)(work).undo(Go)(undo)
    machine.on(Go, State.C, to=State.END)
    machine.step(State.C, timeout_s=1, failed=State.END, name="after")(work)
    assert errors(machine) == []


def test_a_failed_state_counts_as_a_way() -> None:
    machine = graph()
    machine.on(Go, State.A, to=State.B)
    machine.on(Go, State.C, to=State.END)
    machine.step(State.B, timeout_s=1, failed=State.C, read_only=True)(work)
    assert errors(machine) == []


def test_check_does_not_freeze_and_a_repaired_machine_can_be_used() -> None:
    machine, _, _ = unreachable()
    with pytest.raises(DefinitionError):
        machine.begin(Context())
    assert errors(machine)
    machine.on(Back, State.A, to=State.C)
    assert machine.begin(Context()).state is State.A
