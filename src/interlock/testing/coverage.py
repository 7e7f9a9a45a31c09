"""Transition coverage: which transitions of which machines were taken while it was measured.

Line coverage says little about a machine: one `on(...)` may be ten transitions. `measure()` counts the transitions
themselves, in every thread of this process: those of a test, of an engine and of a random walk.

The odd choice: measuring replaces functions of `interlock.core.decide` while at least one measurement is open, and
restores the originals after the last. So decisions cost nothing without a measurement. A machine is identified by its
name and the line that declares it. A measurement keeps no reference to a machine.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

import msgspec

from interlock.core import decide
from interlock.core.decide import _enter, _move, unwound
from interlock.core.events import STEP_FAILED, UNWOUND, Event
from interlock.core.table import Ends, Node, Table, Transition
from interlock.core.values import Command, ContextT, Decision, Record, Run, Snapshot, StateT, StepFailure

# --- Arrows ----------------------------------------------------------------------------------------------------------
# An arrow is one way out of one state: a catch-all is one arrow per state it applies to, a step that gives up is the
# arrow STEP_FAILED, a completed unwinding is UNWOUND, and a timer is the arrow of the event that it sends. Where a
# pipeline goes straight to its failure because nothing has to be undone, that is an arrow of its own.
#
# The odd choice: guards are distinguished by name, so a second guard of the same name on the same state and event
# (two lambdas, say) is called `name#2`.


class Arrow(msgspec.Struct, frozen=True):
    """One transition: states by their stored name, the event by its wire name, the guard by its function's name."""

    from_state: str
    event: str
    to_state: str
    guard: str | None = None

    def __str__(self) -> str:
        guard = "" if self.guard is None else f" [{self.guard}]"
        return f"{self.from_state} --{self.event}{guard}--> {self.to_state}"


class Compiled(Protocol):
    """Any machine, whatever its types."""

    @property
    def compiled(self) -> Table:
        """The compiled machine."""
        ...


def transitions(machine: Compiled) -> frozenset[Arrow]:
    """Return every transition that the machine can take: the total of transition coverage."""
    return frozenset(arrows_of(machine.compiled))


def arrows_of(table: Table) -> tuple[Arrow, ...]:
    """Return every transition in declared order, the initial state first."""
    ends = Ends(table)
    nodes = sorted(table.nodes.values(), key=lambda node: node is not table.initial)
    return tuple(dict.fromkeys(arrow for node in nodes for arrow in _arrows_out_of(node, ends)))


def guard_label(moves: tuple[Transition, ...], taken: Transition) -> str | None:
    """Return the guard's name of the taken transition; the second guard of the same name is `name#2`."""
    name = taken.guard_name
    if name is None:
        return None
    earlier = moves[: next(index for index, move in enumerate(moves) if move is taken)]
    before = sum(1 for move in earlier if move.guard_name == name)
    return f"{name}#{before + 1}" if before else name


def _arrows_out_of(node: Node, ends: Ends) -> Iterator[Arrow]:
    for moves in node.moves.values():
        for move in moves:
            label = guard_label(moves, move)
            for target in ends.of(node, move.target):
                yield Arrow(node.name, move.event, target.name, label)
    if node.failed is not None:
        for target in ends.of(node, node.failed):
            yield Arrow(node.name, STEP_FAILED, target.name)
    if node.unwinds_to is not None:
        yield Arrow(node.name, UNWOUND, node.unwinds_to.name)


# --- Coverage --------------------------------------------------------------------------------------------------------


class MachineCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """The taken transitions of one machine. All arrows are in declared order."""

    machine: str
    location: str
    """`file:line` of the declaration: two machines of the same name are two machines."""
    transitions: tuple[Arrow, ...]
    taken: tuple[Arrow, ...]

    @property
    def missing(self) -> tuple[Arrow, ...]:
        """The transitions that were never taken."""
        taken = set(self.taken)
        return tuple(arrow for arrow in self.transitions if arrow not in taken)

    @property
    def total(self) -> int:
        """How many transitions the machine has."""
        return len(self.transitions)

    @property
    def percent(self) -> float:
        """The share that was taken, from 0 to 100; 100 for a machine without transitions."""
        return _percent(len(self.taken), self.total)


class TransitionCoverage:
    """Which transitions were taken, machine by machine. Threads may add to it while another reads it."""

    def __init__(self, machines: Iterable[MachineCoverage] = ()) -> None:
        self._lock = Lock()
        # Machine (name, location) -> its arrows in declared order -> taken or not.
        self._marks: dict[tuple[str, str], dict[Arrow, bool]] = {}
        for machine in machines:
            self._add(machine)

    def __repr__(self) -> str:
        return f"<TransitionCoverage {shown_percent(self.percent)} of {self.total} transitions>"

    def expect(self, *machines: Compiled) -> None:
        """Report these machines even if none of their transitions is taken."""
        for machine in machines:
            self._learn(machine.compiled)

    def note(self, table: Table, arrows: Iterable[Arrow]) -> None:
        """Mark arrows of the machine as taken. Called for every decision while this is measuring."""
        marks = self._marks.get(_identity(table), {})
        for arrow in arrows:
            if marks.get(arrow) is True:
                continue
            if arrow not in marks:
                marks = self._learn(table)
            # A snapshot made by hand can take transitions that no workflow can: those do not count.
            if arrow in marks:
                with self._lock:
                    marks[arrow] = True

    def merge(self, other: "TransitionCoverage") -> None:
        """Add another measurement, of another process for example."""
        for machine in other.machines:
            self._add(machine)

    @property
    def machines(self) -> tuple[MachineCoverage, ...]:
        """The machines that took part, by name."""
        with self._lock:
            return tuple(
                MachineCoverage(
                    machine=name,
                    location=location,
                    transitions=tuple(marks),
                    taken=tuple(arrow for arrow, taken in marks.items() if taken),
                )
                for (name, location), marks in sorted(self._marks.items(), key=lambda item: item[0])
            )

    def of(self, machine: Compiled) -> MachineCoverage:
        """Return the coverage of this machine, also when nothing was taken."""
        self.expect(machine)
        name, location = _identity(machine.compiled)
        return next(each for each in self.machines if (each.machine, each.location) == (name, location))

    def only(self, *machines: Compiled) -> "TransitionCoverage":
        """Return the same measurement, restricted to these machines."""
        return TransitionCoverage(self.of(machine) for machine in machines)

    @property
    def taken(self) -> int:
        """How many transitions were taken."""
        return sum(len(machine.taken) for machine in self.machines)

    @property
    def total(self) -> int:
        """How many transitions the machines have."""
        return sum(machine.total for machine in self.machines)

    @property
    def percent(self) -> float:
        """The share that was taken, from 0 to 100; 100 when there was nothing to take."""
        return _percent(self.taken, self.total)

    def text(self) -> str:
        """Return the report as text: a line per machine, and below it the transitions never taken."""
        machines = self.machines
        names = [each.machine for each in machines]
        lines: list[str] = []
        for each in machines:
            where = f" ({each.location})" if names.count(each.machine) > 1 else ""
            share = shown_percent(each.percent)
            lines.append(f"{each.machine}{where}: {len(each.taken)} of {each.total} transitions taken, {share}")
            lines += [f"  never taken: {arrow}" for arrow in each.missing]
        if len(machines) != 1:
            lines.append(f"all machines: {self.taken} of {self.total} transitions taken, {shown_percent(self.percent)}")
        return "\n".join(lines)

    def to_json(self) -> bytes:
        """The measurement as JSON: a list of machines with their `transitions` and which were `taken`."""
        return msgspec.json.encode(self.machines)

    def _learn(self, table: Table) -> dict[Arrow, bool]:
        # Two machines may be declared at one line (a factory with parameters): their arrows add up.
        arrows = arrows_of(table)
        with self._lock:
            marks = self._marks.setdefault(_identity(table), {})
            for arrow in arrows:
                marks.setdefault(arrow, False)
            return marks

    def _add(self, machine: MachineCoverage) -> None:
        with self._lock:
            marks = self._marks.setdefault((machine.machine, machine.location), {})
            for arrow in machine.transitions:
                marks.setdefault(arrow, False)
            marks.update(dict.fromkeys(machine.taken, True))


def coverage_from_json(data: bytes) -> TransitionCoverage:
    """Decode the measurement that `to_json` wrote. Raises `msgspec.ValidationError` on anything else."""
    return TransitionCoverage(msgspec.json.decode(data, type=tuple[MachineCoverage, ...]))


@contextmanager
def measure(*machines: Compiled) -> Generator[TransitionCoverage]:
    """Measure every transition taken in this process until the block ends. Measurements may nest and overlap.

    Machines that are named appear in the report even if nothing of them was taken.
    """
    coverage = TransitionCoverage()
    coverage.expect(*machines)
    _open_measurement(coverage)
    try:
        yield coverage
    finally:
        _close_measurement(coverage)


def shown_percent(percent: float) -> str:
    """A percentage with one decimal, rounded down: 100.0 % means all."""
    return f"{int(percent * 10) / 10:.1f} %"


def _percent(taken: int, total: int) -> float:
    return 100 * taken / total if total else 100.0


def _identity(table: Table) -> tuple[str, str]:
    return table.name, table.declared.location


# --- Measurement -----------------------------------------------------------------------------------------------------

_ORIGINALS = {"_move": _move, "_enter": _enter, "unwound": unwound}
_opening = Lock()
_measuring: tuple[TransitionCoverage, ...] = ()


def _open_measurement(coverage: TransitionCoverage) -> None:
    global _measuring  # noqa: PLW0603 -- the replaced functions belong to the process, and so do the measurements.
    with _opening:
        _measuring = (*_measuring, coverage)
        for name, function in _WATCHED.items():
            setattr(decide, name, function)


def _close_measurement(coverage: TransitionCoverage) -> None:
    global _measuring  # noqa: PLW0603 -- see _open_measurement.
    with _opening:
        _measuring = tuple(each for each in _measuring if each is not coverage)
        if not _measuring:
            for name, function in _ORIGINALS.items():
                setattr(decide, name, function)


def _watched_move(
    table: Table,
    snapshot: Snapshot[StateT, ContextT],
    node: Node,
    transition: Transition,
    event: Event,
    context: ContextT,
    result: bool,  # noqa: FBT001 -- the signature of what it replaces.
) -> Decision[StateT, ContextT]:
    decision = _move(table, snapshot, node, transition, event, context, result)
    first, *others = decision.records
    guard = guard_label(node.moves[type(event)], transition)
    _note_arrows(table, [_arrow(first, guard), *(_arrow(record) for record in others)])
    return decision


def _watched_enter(
    table: Table,
    snapshot: Snapshot[StateT, ContextT],
    target: Node,
    event: str,
    payload: Event | StepFailure | None,
    context: ContextT,
    log: tuple[Run, ...],
    leaving: tuple[Command, ...],
) -> Decision[StateT, ContextT]:
    decision = _enter(table, snapshot, target, event, payload, context, log, leaving)
    if event == STEP_FAILED:  # Everything else that enters a state has come through `_move`.
        _note_arrows(table, [_arrow(record) for record in decision.records])
    return decision


def _watched_unwound(table: Table, snapshot: Snapshot[StateT, ContextT]) -> Decision[StateT, ContextT]:
    decision = unwound(table, snapshot)
    _note_arrows(table, [_arrow(record) for record in decision.records])
    return decision


_WATCHED = {"_move": _watched_move, "_enter": _watched_enter, "unwound": _watched_unwound}


def _note_arrows(table: Table, arrows: list[Arrow]) -> None:
    for coverage in _measuring:
        coverage.note(table, arrows)


def _arrow(record: Record[StateT, ContextT], guard: str | None = None) -> Arrow:
    return Arrow(record.from_state.value, record.event, record.to_state.value, guard)
