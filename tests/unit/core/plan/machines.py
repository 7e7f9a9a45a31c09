"""A small order machine to change in tests, and ways to change it."""

from typing import Any

import msgspec

from interlock.core.describe import (
    EventDescription,
    MachineDescription,
    StateDescription,
    StepDescription,
    TimerDescription,
    TransitionDescription,
)


class Order(msgspec.Struct):
    cents: int = 0


class Charged(msgspec.Struct):
    receipt: str


class Nothing(msgspec.Struct):
    pass


CHARGE = StepDescription(
    name="charge", timeout_s=4, attempts=5, dependency="gateway", returns=("CHARGED",), undoes=("CHARGED",)
)
TIMER = TimerDescription(event="CANCEL", after_s=3600, policy="deadline")


def arrow(source: str, event: str, target: str, **more: Any) -> TransitionDescription:  # noqa: ANN401 - any field
    return TransitionDescription(source=source, event=event, target=target, **more)


def event(name: str, kind: type[msgspec.Struct] = Nothing) -> EventDescription:
    return EventDescription(name=name, schema=msgspec.json.schema(kind))


ORDER = MachineDescription(
    name="order",
    version=1,
    states=(
        StateDescription(name="draft", initial=True, timers=(TIMER,)),
        StateDescription(name="charging", step=CHARGE, dwell_max_s=120),
        StateDescription(name="done", final=True, effects=("mail",)),
        StateDescription(name="undoing", unwinds_to="cancelled"),
        StateDescription(name="cancelled", final=True),
    ),
    transitions=(
        arrow("draft", "SUBMIT", "charging", guard="affordable", action="submit"),
        arrow("draft", "CANCEL", "cancelled"),
        arrow("charging", "CHARGED", "done"),
        arrow("charging", "CANCEL", "undoing"),
        arrow("charging", "STEP_FAILED", "undoing", kind="failed"),
        arrow("undoing", "UNWOUND", "cancelled", kind="unwound"),
    ),
    events=(event("SUBMIT"), event("CHARGED", Charged), event("CANCEL")),
    context_schema=msgspec.json.schema(Order),
)


def changed(machine: MachineDescription = ORDER, **fields: Any) -> MachineDescription:  # noqa: ANN401 - any field
    """The machine with other fields, and the next version unless one is given."""
    return msgspec.structs.replace(machine, **{"version": machine.version + 1, **fields})


def with_state(machine: MachineDescription, name: str, **fields: Any) -> MachineDescription:  # noqa: ANN401 - any field
    """The machine with one state changed."""
    states = tuple(
        msgspec.structs.replace(state, **fields) if state.name == name else state for state in machine.states
    )
    return msgspec.structs.replace(machine, states=states)


def without_state(machine: MachineDescription, name: str) -> MachineDescription:
    """The machine without a state and without the arrows that touch it."""
    return msgspec.structs.replace(
        machine,
        states=tuple(state for state in machine.states if state.name != name),
        transitions=tuple(arrow for arrow in machine.transitions if name not in (arrow.source, arrow.target)),
    )


def with_arrows(
    machine: MachineDescription, *added: TransitionDescription, without: tuple[tuple[str, str], ...] = ()
) -> MachineDescription:
    """The machine with arrows added, and without those given as (source, event)."""
    kept = tuple(each for each in machine.transitions if (each.source, each.event) not in without)
    return msgspec.structs.replace(machine, transitions=(*kept, *added))


def renaming(machine: MachineDescription, old: str, new: str) -> MachineDescription:
    """The machine with one state called otherwise, everywhere."""

    def name(given: str) -> str:
        return new if given == old else given

    replace = msgspec.structs.replace
    return replace(
        machine,
        states=tuple(
            replace(state, name=name(state.name), unwinds_to=state.unwinds_to and name(state.unwinds_to))
            for state in machine.states
        ),
        transitions=tuple(
            replace(each, source=name(each.source), target=name(each.target)) for each in machine.transitions
        ),
    )
