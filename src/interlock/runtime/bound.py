"""A machine bound to an engine: its table and codec, and the way between its values and a store's bytes.

An engine has machines of any types side by side, so here a context is just a value. What the types promise was checked
when the machine was declared, and is checked again where values come from outside.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, Literal, Protocol, cast

import msgspec

from interlock.core.codec import Codec
from interlock.core.description import MachineDescription
from interlock.core.events import Event, wire_name
from interlock.core.policies import Retry
from interlock.core.refusals import foreign_state
from interlock.core.table import Node, Table
from interlock.core.values import Run, Snapshot, StepFailure
from interlock.errors import CorruptionError, InvalidPayload
from interlock.runtime.owed import Owed, decode_owed
from interlock.store.values import Row


class AnyMachine(Protocol):
    """What an engine needs of a machine, whatever its states, contexts and events are."""

    @property
    def name(self) -> str:
        """What its workflows are stored under."""
        ...

    @property
    def compiled(self) -> Table:
        """What `decide` looks things up in."""
        ...

    @property
    def codec(self) -> object:
        """How its contexts and events are written and read."""
        ...

    @property
    def opening(self) -> Event | None:
        """The event that is applied with the start."""
        ...

    def describe(self) -> MachineDescription:
        """It, as plain data."""
        ...


AnySnapshot = Snapshot[Any, Any]

_encode_failure = msgspec.json.Encoder().encode
_decode_failure = msgspec.json.Decoder(StepFailure).decode


TEXTS_MAX = 4_096
"""Names of events that are remembered."""

_TEXTS: dict[type[Event], str] = {}

Strategy = Callable[..., Awaitable[object]]
"""The function behind a step, an undo or an effect. What it is given is checked where it is declared."""


class Effect(msgspec.Struct, frozen=True):
    """A declared effect with the function that runs it here."""

    function: Strategy
    timeout_s: float
    retry: Retry
    dependency: str | None = None


class Live(msgspec.Struct, gc=False):
    """A workflow in memory: its row as it is stored, and the same as values."""

    bound: "Bound"
    row: Row
    snapshot: AnySnapshot
    owed: Owed


class Bound:
    """One machine of an engine, with the strategies that run its steps, undos and effects (C1)."""

    def __init__(self, machine: AnyMachine, strategies: Mapping[object, Strategy] | None = None) -> None:
        self.machine = machine
        self.name = machine.name
        self.table = machine.compiled
        self.codec = cast("Codec[Any, Any]", machine.codec)
        self.opening = machine.opening
        self.stored = {str(node.state.value): node for node in self.table.nodes.values()}
        """The nodes by the names under which they may be stored: their own, and those they had before."""
        for old, new in self.table.declared.renamed.items():
            self.stored.setdefault(old, self.table.nodes[new.name])
        swapped = strategies or {}
        self.steps: dict[str, Strategy] = {}
        self.undos: dict[tuple[str, str], Strategy] = {}
        for name, node in self.table.steps.items():
            assert node.step is not None
            self.steps[name] = swapped.get((self.name, name), swapped.get(name, node.step.function))
            for undo in node.step.undos:
                self.undos[name, undo.name] = swapped.get(undo.function, undo.function)
        self.effects = {
            each.name: Effect(swapped.get(each.function, each.function), each.timeout_s, each.retry, each.dependency)
            for each in self.table.declared.effects
        }

        self.timers = self.table.declared.timers
        self.why: Callable[[str, Literal["first", "retry", "undo"]], str | None] = _nothing_in_the_way
        """Why a call of a dependency would have to wait, for people."""

    def dependencies(self) -> set[str]:
        """Everything outside that its steps and effects say they call."""
        steps = (node.step.dependency for node in self.table.steps.values() if node.step is not None)
        effects = (each.dependency for each in self.table.declared.effects)
        return {name for name in (*steps, *effects) if name is not None}

    def unwinding(self) -> list[str]:
        """The names of the states in which workflows are undone."""
        return [node.name for node in self.table.nodes.values() if node.unwinds_to is not None]

    def swappable(self) -> set[object]:
        """What a strategy can be given for: steps by machine and name, undos and effects by their function."""
        undos = {undo.function for node in self.table.steps.values() if node.step for undo in node.step.undos}
        effects = {effect.function for effect in self.table.declared.effects}
        found: set[object] = {(self.name, name) for name in self.steps}
        return found | undos | effects

    def node(self, state: Enum) -> Node:
        """The node of a state. Raises InvalidPayload for one of another machine."""
        given: object = state  # Not every caller has a type checker.
        node = self.table.node(state) if isinstance(given, Enum) else None
        if node is None:
            raise foreign_state(self.table, state)
        return node

    def node_of(self, state: str) -> Node:
        """The node of a stored state."""
        node = self.stored.get(state)
        if node is None:
            raise CorruptionError(
                f"a workflow of {self.name!r} is stored in state {state!r}, which the machine does not have.",
                why="The definition has changed under a workflow that is parked there.",
                fix="Run `interlock plan OLD NEW`, and give the new version a place for it (renamed=).",
            )
        return node

    def live(self, row: Row) -> Live:
        """The workflow in this row. Raises CorruptionError, with its id, when the machine cannot read it."""
        try:
            return self._live(row)
        except InvalidPayload as error:
            raise CorruptionError(
                f"workflow {row.id!r} of {self.name!r} is stored in a way that the machine cannot read: {error.what}",
                why="The definition has changed under it: a context or an event takes other values now.",
                fix="Let the new version take what is stored; `interlock plan OLD NEW` says what that is.",
            ) from error

    def _live(self, row: Row) -> Live:
        owed = decode_owed(row.owed)
        log = tuple(
            Run(
                each.step,
                each.visit,
                None if each.event is None else self.codec.decode_event(each.event, each.payload, strict=False),
            )
            for each in owed.past
        )
        node = self.node_of(row.state)
        if node.name != row.state:
            row = msgspec.structs.replace(row, state=node.name)
        attempted = owed.run is not None and owed.run.attempted
        snapshot: AnySnapshot = Snapshot(
            node.state, self.codec.decode_context(row.context), row.version, row.visit, log, attempted
        )
        return Live(self, row, snapshot, owed)

    def payload(self, value: Event | StepFailure | None) -> bytes:
        """The payload of a record as JSON; empty when it has none."""
        if value is None:
            return b""
        return _encode_failure(value) if isinstance(value, StepFailure) else self.codec.stored_event(value)

    def read_payload(self, event: str, data: bytes) -> Event | StepFailure | None:
        """The payload that was written."""
        if not data:
            return None
        return _decode_failure(data) if event == "STEP_FAILED" else self.codec.decode_event(event, data, strict=False)


def _nothing_in_the_way(dependency: str, kind: str) -> None:
    del dependency, kind


def state_text(state: Enum) -> str:
    """A state as it is stored."""
    return str(state.value)


def event_text(event: Event) -> str:
    """An event's name as it is stored."""
    kind = type(event)
    text = _TEXTS.get(kind)
    if text is None:
        if len(_TEXTS) >= TEXTS_MAX:
            _TEXTS.clear()
        text = _TEXTS[kind] = wire_name(kind)
    return text
